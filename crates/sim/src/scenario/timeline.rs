//! The `timeline` block: what happens when.
//!
//! Owns: the verbs.
//! Invariant: an entry says one thing.

mod rollouts;

use longshore_compose::{
    Diagnostics, Extensions, Place,
    diagnostic::one_of,
    reader::shorten,
    suggest,
    yaml::{Mapping, Node as Yaml},
};
use longshore_model::{
    AfterDrain, Command, GroupKey, Intent, NamespaceName, NodeName, Time,
    command::{Quota, Steering},
    node::UseDegraded,
};

use super::{Action, Mishap, Step, machine, manifest, pressure};

/// Verbs that are a key of their own.
const VERBS: &[&str] = &[
    "apply",
    "scale",
    "rollback",
    "promote",
    "pause",
    "resume",
    "restart",
    "join",
    "node",
    "replica",
    "secret",
    "quota",
    "remove",
    "leader",
    "pressure",
    "rebalance",
];
const NODE_VERBS: &[&str] =
    &["fail", "return", "isolate", "heal", "pause", "activate", "drain", "remove", "degrade", "override", "lost"];
const REPLICA_VERBS: &[(&str, Mishap)] = &[
    ("crash", Mishap::Crash),
    ("unhealthy", Mishap::Unhealthy),
    ("heal", Mishap::Heal),
    ("complete", Mishap::Complete),
];

pub(super) fn read(list: &Yaml, problems: &mut Diagnostics) -> Vec<Step> {
    let mut steps = Vec::new();
    for entry in problems.sequence(list, "`timeline`").unwrap_or_default() {
        if problems.is_full() {
            break;
        }
        steps.extend(read_entry(entry, problems).unwrap_or_default());
    }
    steps
}

fn read_entry(entry: &Yaml, problems: &mut Diagnostics) -> Option<Vec<Step>> {
    let what = "a timeline entry";
    let mapping = problems.mapping(entry, what)?;
    let at = problems.required(entry, "at", what).and_then(|node| problems.duration(node, "`at`"));
    let at = at.map(|at| Time::default().after(at));
    let (verb, value) = the_verb(entry, mapping, problems)?;
    let companions: &[&str] = match verb {
        "node" => &["at", "node", "do", "label", "deadline"],
        "replica" => &["at", "replica", "do"],
        _ => &["at", verb],
    };
    problems.known_keys(mapping, format_args!("an entry with `{verb}`"), companions, Extensions::Refused);
    let actions = match verb {
        "apply" => return Some(manifest::read_applied(value, at?, problems)),
        "scale" => read_scale(value, problems),
        "rollback" => rollouts::read_rollback(value, at.unwrap_or_default(), problems),
        "promote" => rollouts::read_steering(value, Steering::Promote, at.unwrap_or_default(), problems),
        "pause" => rollouts::read_steering(value, Steering::Pause, at.unwrap_or_default(), problems),
        "resume" => rollouts::read_steering(value, Steering::Resume, at.unwrap_or_default(), problems),
        "restart" => rollouts::read_restart(value, at.unwrap_or_default(), problems),
        "join" => read_join(value, problems),
        "node" => read_node(entry, value, at.unwrap_or_default(), problems),
        "replica" => read_replica(entry, value, problems),
        "secret" => read_secret(value, problems),
        "quota" => read_quota(value, problems),
        "remove" => read_remove(value, problems),
        "leader" => read_leader(value, problems),
        "pressure" => pressure::read(value, problems),
        "rebalance" => read_rebalance(value, problems),
        _ => None,
    };
    let at = at?;
    let step = |(place, action)| Step { at, place, action };
    Some(actions?.into_iter().map(step).collect())
}

/// The one key of an entry that says what happens.
fn the_verb<'n>(entry: &Yaml, mapping: &'n Mapping, problems: &mut Diagnostics) -> Option<(&'static str, &'n Yaml)> {
    let mut found = mapping
        .iter()
        .filter_map(|(key, value)| VERBS.iter().find(|verb| **verb == &*key.name).map(|verb| (*verb, key, value)));
    match (found.next(), found.next()) {
        (Some((verb, _, value)), None) => Some((verb, value)),
        (Some((first, ..)), Some((second, key, _))) => {
            problems
                .error(&key.place, format!("an entry says one thing: `{first}` or `{second}`"))
                .hint("write two entries with the same `at`; they happen in the order of the file");
            None
        }
        (None, _) => {
            let stranger = mapping.iter().find(|(key, _)| !matches!(&*key.name, "at" | "do" | "label"));
            match stranger {
                Some((key, _)) => unknown_verb(&key.place, &key.name, problems),
                None => {
                    problems
                        .error(&entry.place, "a timeline entry says nothing")
                        .hint(format!("add {}", one_of(VERBS.iter().copied())));
                }
            }
            None
        }
    }
}

/// Names every verb, however many there are: there is no other key an entry could have.
fn unknown_verb(place: &Place, name: &str, problems: &mut Diagnostics) {
    let hint = match suggest::nearest(name, VERBS.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are {}", one_of(VERBS.iter().copied())),
    };
    problems.error(place, format!("unknown key `{}` in a timeline entry", shorten(name))).hint(hint);
}

pub(super) type Actions = Option<Vec<(Place, Action)>>;

fn ask(place: &Place, command: Command) -> (Place, Action) {
    (place.clone(), Action::Ask(Box::new(command)))
}

fn read_scale(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let mapping = problems.mapping(value, "`scale`")?;
    let mut actions = Vec::new();
    for (key, count) in mapping.iter() {
        let replicas = problems.replicas(count, "the number of replicas")?;
        let Some((deployment, service)) = key.name.split_once('/').filter(|(a, b)| !a.is_empty() && !b.is_empty())
        else {
            problems
                .error(&key.place, format!("`{}` names no service", shorten(&key.name)))
                .hint("write it like `shop/web: 5`");
            return None;
        };
        let group = GroupKey {
            namespace: NamespaceName::default_namespace(),
            deployment: deployment.into(),
            service: service.into(),
        };
        actions.push(ask(&key.place, Command::Scale { group, replicas }));
    }
    Some(actions)
}

fn read_join(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let (node, count) = machine::read(value, problems)?;
    let place = value.get("name").map_or(&value.place, |name| &name.place);
    let nodes = machine::numbered(node, count);
    Some(nodes.into_iter().map(|node| ask(place, Command::Join(Box::new(node)))).collect())
}

fn read_node(entry: &Yaml, value: &Yaml, at: Time, problems: &mut Diagnostics) -> Actions {
    let node = NodeName::from(problems.text(value, "`node`")?);
    let place = &value.place;
    match (entry.get("do"), entry.get("label")) {
        (Some(verb), None) => {
            let deadline = read_deadline(entry, verb, at, problems);
            let action = read_node_verb(verb, node, (at, deadline), problems)?;
            Some(vec![(place.clone(), action)])
        }
        (None, Some(labels)) => {
            let labels = machine::texts_by_name(labels, "`label`", problems);
            Some(vec![ask(place, Command::Label { node, labels })])
        }
        (Some(_), Some(labels)) => {
            problems
                .error(&labels.place, "an entry says one thing: `do` or `label`")
                .hint("write two entries with the same `at`; they happen in the order of the file");
            None
        }
        (None, None) => {
            problems.error(place, "nothing happens to the node").hint("add `do: fail` or `label: { zone: west }`");
            None
        }
    }
}

/// Until when jobs may finish on a node that is emptied.
fn read_deadline(entry: &Yaml, verb: &Yaml, at: Time, problems: &mut Diagnostics) -> Option<Time> {
    let deadline = entry.get("deadline")?;
    if !matches!(problems.text(verb, "`do`"), Some("drain" | "remove")) {
        problems.error(&deadline.place, "`deadline` belongs to `do: drain` and `do: remove`").hint("take it away");
        return None;
    }
    problems.duration(deadline, "`deadline`").map(|wait| at.after(wait))
}

fn read_node_verb(
    verb: &Yaml,
    node: NodeName,
    (at, deadline): (Time, Option<Time>),
    problems: &mut Diagnostics,
) -> Option<Action> {
    let word = problems.text(verb, "`do`")?;
    let intent = |intent| Some(Action::Ask(Box::new(Command::SetIntent { node: node.clone(), intent, at })));
    let drain = |then| Some(Action::Ask(Box::new(Command::Drain { node: node.clone(), deadline, then, at })));
    match word {
        "fail" => Some(Action::Fail(node)),
        "return" => Some(Action::Return(node)),
        "degrade" => Some(Action::Degrade(node)),
        "override" => Some(Action::Ask(Box::new(Command::SetUseDegraded { node, use_degraded: UseDegraded::Yes }))),
        "pause" => intent(Intent::Paused),
        "activate" => intent(Intent::Active),
        "drain" => drain(AfterDrain::Keep),
        "remove" => drain(AfterDrain::Remove),
        "lost" => Some(Action::Ask(Box::new(Command::ConfirmLost { node, at }))),
        "isolate" => Some(Action::Isolate(node)),
        "heal" => Some(Action::Heal(node)),
        other => {
            let known = || NODE_VERBS.iter().copied();
            let message = format!("`{}` cannot be done to a node", shorten(other));
            let hint = match suggest::nearest(other, known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}", one_of(known())),
            };
            problems.error(&verb.place, message).hint(hint);
            None
        }
    }
}

fn read_replica(entry: &Yaml, value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let replica = problems.text(value, "`replica`")?.to_owned();
    let mishap = problems.required(entry, "do", "an entry with `replica`")?;
    let mishap = problems.choice(mishap, "`do`", REPLICA_VERBS)?;
    Some(vec![(value.place.clone(), Action::Befall(replica, mishap))])
}

fn namespace(value: &Yaml, problems: &mut Diagnostics) -> NamespaceName {
    let given = value.get("namespace").filter(|node| !node.is_null());
    given
        .and_then(|node| problems.text(node, "`namespace`"))
        .map_or_else(NamespaceName::default_namespace, NamespaceName::from)
}

fn read_secret(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let mapping = problems.mapping(value, "`secret`")?;
    problems.known_keys(mapping, "`secret`", &["name", "version", "namespace"], Extensions::Refused);
    let name = problems.required(value, "name", "`secret`").and_then(|node| problems.text(node, "`name`"))?;
    let version = match value.get("version") {
        Some(version) => problems.unsigned(version, "`version`")?,
        None => 1,
    };
    let namespace = namespace(value, problems);
    Some(vec![ask(&value.place, Command::PutSecret { namespace, name: name.into(), version })])
}

fn read_quota(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let mapping = problems.mapping(value, "`quota`")?;
    problems.known_keys(mapping, "`quota`", &["namespace", "replicas", "memory", "cpu"], Extensions::Refused);
    let part = |key: &str| mapping.get(key).filter(|node| !node.is_null());
    let quota = Quota {
        replicas: part("replicas").and_then(|node| problems.unsigned(node, "`replicas`")),
        memory_bytes: part("memory").and_then(|node| problems.bytes(node, "`memory`")),
        cpu_millis: part("cpu").and_then(|node| problems.cpus(node, "`cpu`")),
    };
    let namespace = namespace(value, problems);
    Some(vec![ask(&value.place, Command::SetQuota { namespace, quota })])
}

fn read_remove(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let name = problems.text(value, "`remove`")?;
    let namespace = NamespaceName::default_namespace();
    Some(vec![ask(&value.place, Command::Remove { namespace, deployment: name.into() })])
}

fn read_leader(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    problems.choice(value, "`leader`", &[("change", ())])?;
    Some(vec![(value.place.clone(), Action::NewLeader)])
}

/// Whether moves are to be made, or only told.
#[derive(Clone, Copy)]
enum Asked {
    Done,
    Shown,
}

fn read_rebalance(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let asked = problems.choice(value, "`rebalance`", &[("apply", Asked::Done), ("plan", Asked::Shown)])?;
    let action = match asked {
        Asked::Done => Action::Ask(Box::new(Command::EvenOut)),
        Asked::Shown => Action::Preview,
    };
    Some(vec![(value.place.clone(), action)])
}
