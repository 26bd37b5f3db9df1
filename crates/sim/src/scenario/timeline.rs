//! The `timeline` block: steps and their times.
//!
//! Owns: the verbs.
//! Invariant: an entry has exactly one verb.

mod rollouts;

use longshore_compose::{
    Diagnostics, Extensions, Location,
    diagnostic::one_of,
    reader::shorten,
    suggest,
    yaml::{Mapping, Node as Yaml},
};
use longshore_model::{
    AfterDrain, Command, GroupKey, Intent, NamespaceName, NodeName, Time,
    command::{Quota, RolloutControl},
    node::UseDegraded,
};

use super::{Action, InjectedFault, Step, manifest, nodes, pressure};

/// Verbs that are a key of their own.
const VERBS: &[&str] = &[
    "apply",
    "scale",
    "rollback",
    "promote",
    "pause",
    "resume",
    "restart",
    "stop",
    "start",
    "join",
    "node",
    "replica",
    "secret",
    "quota",
    "remove",
    "leader",
    "pressure",
    "rebalance",
    "up",
];
const NODE_VERBS: &[&str] =
    &["fail", "return", "isolate", "heal", "pause", "activate", "drain", "remove", "degrade", "override", "lost"];
const REPLICA_VERBS: &[(&str, InjectedFault)] = &[
    ("crash", InjectedFault::Crash),
    ("unhealthy", InjectedFault::Unhealthy),
    ("heal", InjectedFault::Heal),
    ("complete", InjectedFault::Complete),
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
    let (verb, value) = find_verb(entry, mapping, problems)?;
    let companions: &[&str] = match verb {
        "node" => &["at", "node", "do", "label", "deadline"],
        "replica" => &["at", "replica", "do"],
        _ => &["at", verb],
    };
    problems.known_keys(mapping, format_args!("an entry with `{verb}`"), companions, Extensions::Refused);
    let actions = match verb {
        "apply" => return Some(manifest::read_applied(value, at?, problems)),
        "up" => return Some(manifest::read_up(value, at?, problems)),
        "scale" => read_scale(value, problems),
        "rollback" => rollouts::read_rollback(value, at.unwrap_or_default(), problems),
        "promote" => rollouts::read_rollout_control(value, RolloutControl::Promote, at.unwrap_or_default(), problems),
        "pause" => rollouts::read_rollout_control(value, RolloutControl::Pause, at.unwrap_or_default(), problems),
        "resume" => rollouts::read_rollout_control(value, RolloutControl::Resume, at.unwrap_or_default(), problems),
        "restart" => rollouts::read_restart(value, at.unwrap_or_default(), problems),
        "stop" => rollouts::read_stop(value, at.unwrap_or_default(), problems),
        "start" => rollouts::read_start(value, at.unwrap_or_default(), problems),
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
    let step = |(location, action)| Step { at, location, action };
    Some(actions?.into_iter().map(step).collect())
}

/// Finds the one verb of an entry.
fn find_verb<'n>(entry: &Yaml, mapping: &'n Mapping, problems: &mut Diagnostics) -> Option<(&'static str, &'n Yaml)> {
    let mut found = mapping
        .iter()
        .filter_map(|(key, value)| VERBS.iter().find(|verb| **verb == &*key.name).map(|verb| (*verb, key, value)));
    match (found.next(), found.next()) {
        (Some((verb, _, value)), None) => Some((verb, value)),
        (Some((first, ..)), Some((second, key, _))) => {
            problems
                .error(&key.location, format!("an entry has one verb: `{first}` or `{second}`"))
                .hint("write two entries with the same `at`; they happen in the order of the file");
            None
        }
        (None, _) => {
            let unknown = mapping.iter().find(|(key, _)| !matches!(&*key.name, "at" | "do" | "label"));
            match unknown {
                Some((key, _)) => unknown_verb(&key.location, &key.name, problems),
                None => {
                    problems
                        .error(&entry.location, "a timeline entry has no verb")
                        .hint(format!("add {}", one_of(VERBS.iter().copied())));
                }
            }
            None
        }
    }
}

/// Lists every verb in the hint, however many there are: an entry can have no other key.
fn unknown_verb(location: &Location, name: &str, problems: &mut Diagnostics) {
    let hint = match suggest::nearest(name, VERBS.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are {}", one_of(VERBS.iter().copied())),
    };
    problems.error(location, format!("unknown key `{}` in a timeline entry", shorten(name))).hint(hint);
}

/// The actions of an entry, each with its place; `None` after a diagnostic.
pub(super) type Actions = Option<Vec<(Location, Action)>>;

fn command_at(location: &Location, command: Command) -> (Location, Action) {
    (location.clone(), Action::Command(Box::new(command)))
}

fn read_scale(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let mapping = problems.mapping(value, "`scale`")?;
    let mut actions = Vec::new();
    for (key, count) in mapping.iter() {
        let replicas = problems.replicas(count, "the number of replicas")?;
        let Some((deployment, service)) = key.name.split_once('/').filter(|(a, b)| !a.is_empty() && !b.is_empty())
        else {
            problems
                .error(&key.location, format!("`{}` names no service", shorten(&key.name)))
                .hint("write it like `shop/web: 5`");
            return None;
        };
        let group = GroupKey {
            namespace: NamespaceName::default_namespace(),
            deployment: deployment.into(),
            service: service.into(),
        };
        actions.push(command_at(&key.location, Command::Scale { group, replicas }));
    }
    Some(actions)
}

fn read_join(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let (node, count) = nodes::read(value, problems)?;
    let location = value.get("name").map_or(&value.location, |name| &name.location);
    let nodes = nodes::numbered(node, count);
    Some(nodes.into_iter().map(|node| command_at(location, Command::Join(Box::new(node)))).collect())
}

fn read_node(entry: &Yaml, value: &Yaml, at: Time, problems: &mut Diagnostics) -> Actions {
    let node = NodeName::from(problems.text(value, "`node`")?);
    let location = &value.location;
    match (entry.get("do"), entry.get("label")) {
        (Some(verb), None) => {
            let deadline = read_deadline(entry, verb, at, problems);
            let action = read_node_verb(verb, node, at, deadline, problems)?;
            Some(vec![(location.clone(), action)])
        }
        (None, Some(labels)) => {
            let labels = nodes::texts_by_name(labels, "`label`", problems);
            Some(vec![command_at(location, Command::Label { node, labels })])
        }
        (Some(_), Some(labels)) => {
            problems
                .error(&labels.location, "an entry has either `do` or `label`")
                .hint("write two entries with the same `at`; they happen in the order of the file");
            None
        }
        (None, None) => {
            problems.error(location, "nothing happens to the node").hint("add `do: fail` or `label: { zone: west }`");
            None
        }
    }
}

/// The time until which jobs may finish on a draining node.
fn read_deadline(entry: &Yaml, verb: &Yaml, at: Time, problems: &mut Diagnostics) -> Option<Time> {
    let deadline = entry.get("deadline")?;
    if !matches!(problems.text(verb, "`do`"), Some("drain" | "remove")) {
        problems.error(&deadline.location, "`deadline` belongs to `do: drain` and `do: remove`").hint("take it away");
        return None;
    }
    problems.duration(deadline, "`deadline`").map(|wait| at.after(wait))
}

fn read_node_verb(
    verb: &Yaml,
    node: NodeName,
    at: Time,
    deadline: Option<Time>,
    problems: &mut Diagnostics,
) -> Option<Action> {
    let word = problems.text(verb, "`do`")?;
    let intent = |intent| Some(Action::Command(Box::new(Command::SetIntent { node: node.clone(), intent, at })));
    let drain = |then| Some(Action::Command(Box::new(Command::Drain { node: node.clone(), deadline, then, at })));
    match word {
        "fail" => Some(Action::Fail(node)),
        "return" => Some(Action::Return(node)),
        "degrade" => Some(Action::Degrade(node)),
        "override" => {
            Some(Action::Command(Box::new(Command::SetUseDegraded { node, use_degraded: UseDegraded::Allowed })))
        }
        "pause" => intent(Intent::Paused),
        "activate" => intent(Intent::Active),
        "drain" => drain(AfterDrain::Keep),
        "remove" => drain(AfterDrain::Remove),
        "lost" => Some(Action::Command(Box::new(Command::ConfirmLost { node, at }))),
        "isolate" => Some(Action::Isolate(node)),
        "heal" => Some(Action::Heal(node)),
        other => {
            let known = || NODE_VERBS.iter().copied();
            let message = format!("`{}` cannot be done to a node", shorten(other));
            let hint = match suggest::nearest(other, known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}", one_of(known())),
            };
            problems.error(&verb.location, message).hint(hint);
            None
        }
    }
}

fn read_replica(entry: &Yaml, value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let replica = problems.text(value, "`replica`")?.to_owned();
    let fault = problems.required(entry, "do", "an entry with `replica`")?;
    let fault = problems.choice(fault, "`do`", REPLICA_VERBS)?;
    Some(vec![(value.location.clone(), Action::InjectFault(replica, fault))])
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
    Some(vec![command_at(&value.location, Command::PutSecret { namespace, name: name.into(), version })])
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
    Some(vec![command_at(&value.location, Command::SetQuota { namespace, quota })])
}

fn read_remove(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let name = problems.text(value, "`remove`")?;
    let namespace = NamespaceName::default_namespace();
    Some(vec![command_at(&value.location, Command::Remove { namespace, deployment: name.into() })])
}

fn read_leader(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    problems.choice(value, "`leader`", &[("change", ())])?;
    Some(vec![(value.location.clone(), Action::NewLeader)])
}

/// The values of `rebalance`.
#[derive(Clone, Copy)]
enum RebalanceMode {
    Apply,
    Plan,
}

fn read_rebalance(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let mode =
        problems.choice(value, "`rebalance`", &[("apply", RebalanceMode::Apply), ("plan", RebalanceMode::Plan)])?;
    let action = match mode {
        RebalanceMode::Apply => Action::Command(Box::new(Command::EvenOut)),
        RebalanceMode::Plan => Action::Preview,
    };
    Some(vec![(value.location.clone(), action)])
}
