//! The deployments of a drawn scenario, and what later manifests make of them.
//!
//! Owns: which keys a service is drawn with.
//! Invariant: a service refers only to services drawn before it, so that nothing waits for itself.

use super::cluster::{OF_JOBS, OF_SERVICES};
use crate::fuzz::{
    dice::Dice,
    tree::{Tree, map, word, words},
};

const NAMES: &[&str] = &["shop", "blog", "ops", "lab"];
const MOST_SERVICES: u64 = 4;

/// A deployment as it was last applied.
#[derive(Clone, Debug)]
pub(super) struct Deployment {
    pub(super) name: String,
    pub(super) services: Vec<Service>,
}

/// One service of it.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) kind: Kind,
    tree: Tree,
}

/// What can be done to a service depends on this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counted,
    Volume,
    Global,
    Job,
    GlobalJob,
}

impl Deployment {
    /// The manifest, as text of a scenario.
    pub(super) fn applied(&self) -> Tree {
        let services = self.services.iter().map(|service| (service.name.clone(), service.tree.clone())).collect();
        let volumes = map([("data", map([])), ("own", map([("x-longshore", map([("exclusive", word("true"))]))]))]);
        Tree::Manifest(Box::new(map([("services", Tree::Map(services)), ("volumes", volumes)])))
    }

    /// Another manifest of the same deployment: often a small change, sometimes a large one.
    pub(super) fn change(&mut self, dice: &mut Dice) {
        let at = usize::try_from(dice.between(0, self.services.len() as u64 - 1)).expect("an index fits");
        match dice.between(0, 9) {
            0..=3 => {
                let service = &mut self.services[at];
                let image = image(service.kind, dice);
                service.tree.set("image", image);
            }
            4 => self.services[at].tree.set("environment", map([("MODE", word(dice.between(1, 9)))])),
            5 => self.services[at].recount(dice),
            6 => {
                let earlier: Vec<Service> = self.services[..at].to_vec();
                self.services[at] = service(self.services[at].name.clone(), &earlier, dice);
            }
            7 if (self.services.len() as u64) < MOST_SERVICES => self.add(dice),
            8 if self.services.len() > 1 => {
                let gone = self.services.remove(at).name;
                self.services.iter_mut().for_each(|service| service.forget(&gone));
            }
            // The same once more changes nothing, save that it forgives.
            7..=9 => {}
            _ => unreachable!("ten cases were drawn"),
        }
    }

    fn add(&mut self, dice: &mut Dice) {
        let unused = (0..).map(|number| format!("s{number}"));
        let name = unused.into_iter().find(|name| self.services.iter().all(|known| known.name != *name));
        let added = service(name.expect("there is always another number"), &self.services, dice);
        self.services.push(added);
    }
}

impl Service {
    fn recount(&mut self, dice: &mut Dice) {
        if let (Kind::Counted | Kind::Job, Some(deploy)) = (self.kind, self.tree.get_mut("deploy")) {
            deploy.set("replicas", word(dice.between(0, 6)));
        }
    }

    /// Lets go of a service that left the manifest.
    fn forget(&mut self, gone: &str) {
        let names = |tree: &Tree| tree.print().contains(gone);
        if let Tree::Map(entries) = &mut self.tree {
            entries.retain(|(key, value)| key != "depends_on" || !names(value));
        }
        if let Some(Tree::Map(entries)) = self.tree.get_mut("x-longshore") {
            entries.retain(|(key, value)| !matches!(&**key, "near" | "away_from") || !names(value));
        }
    }
}

pub(super) fn deployments(dice: &mut Dice) -> Vec<Deployment> {
    let count = usize::try_from(dice.between(1, 3)).expect("three fits");
    let mut drawn = Vec::new();
    for name in &NAMES[..count] {
        let mut deployment = Deployment { name: (*name).to_owned(), services: Vec::new() };
        for _ in 0..dice.between(1, 3) {
            deployment.add(dice);
        }
        drawn.push(deployment);
    }
    drawn
}

fn kind(dice: &mut Dice) -> Kind {
    match dice.between(1, 100) {
        1..=58 => Kind::Counted,
        59..=70 => Kind::Volume,
        71..=82 => Kind::Global,
        83..=94 => Kind::Job,
        _ => Kind::GlobalJob,
    }
}

fn image(kind: Kind, dice: &mut Dice) -> Tree {
    word(match kind {
        Kind::Counted | Kind::Volume | Kind::Global => dice.pick(OF_SERVICES),
        Kind::Job | Kind::GlobalJob => dice.pick(OF_JOBS),
    })
}

fn service(name: String, earlier: &[Service], dice: &mut Dice) -> Service {
    let kind = kind(dice);
    let mut tree = map([("image", image(kind, dice))]);
    let mut deploy = map([]);
    match kind {
        Kind::Counted => deploy.set("replicas", word(dice.between(0, 5))),
        Kind::Job => {
            deploy.set("mode", word("replicated-job"));
            deploy.set("replicas", word(dice.between(1, 6)));
        }
        Kind::Global => deploy.set("mode", word("global")),
        Kind::GlobalJob => deploy.set("mode", word("global-job")),
        Kind::Volume => {
            tree.set("volumes", words([*dice.pick(&["data:/data", "own:/own"])]));
        }
    }
    resources(&mut deploy, dice);
    placement(&mut deploy, dice);
    policies(&mut deploy, dice);
    tree.set("deploy", deploy);
    if dice.percent(12) && kind == Kind::Counted {
        let port = map([("target", word(80)), ("published", word(dice.between(8080, 8081))), ("mode", word("host"))]);
        tree.set("ports", Tree::List(vec![port]));
    }
    if let Some(other) = earlier.last().filter(|_| dice.percent(30)) {
        let condition = match other.kind {
            Kind::Job | Kind::GlobalJob => "service_completed_successfully",
            Kind::Counted | Kind::Volume | Kind::Global => *dice.pick(&["service_started", "service_healthy"]),
        };
        tree.set("depends_on", map([(other.name.as_str(), map([("condition", word(condition))]))]));
    }
    let wishes = wishes(kind, earlier, dice);
    if wishes.len() > 0 {
        tree.set("x-longshore", wishes);
    }
    Service { name, kind, tree }
}

fn resources(deploy: &mut Tree, dice: &mut Dice) {
    if dice.percent(70) {
        let mut limits = map([("memory", word(dice.pick(&["100m", "300m", "700m", "1500m"])))]);
        if dice.percent(30) {
            limits.set("cpus", word(dice.pick(&["0.25", "0.5", "1", "2"])));
        }
        deploy.set("resources", map([("limits", limits)]));
    } else if dice.percent(15) {
        let spec = map([("kind", word("gpu")), ("value", word(1))]);
        let gpus = Tree::List(vec![map([("discrete_resource_spec", spec)])]);
        deploy.set("resources", map([("reservations", map([("generic_resources", gpus)]))]));
    }
}

fn placement(deploy: &mut Tree, dice: &mut Dice) {
    let mut placement = map([]);
    if dice.percent(12) {
        let rules = ["node.labels.zone != west", "node.labels.zone == east", "node.platform.arch == amd64"];
        placement.set("constraints", words([*dice.pick(&rules)]));
    }
    if dice.percent(15) {
        let preference = map([("spread", word("node.labels.zone"))]);
        placement.set("preferences", Tree::List(vec![preference]));
    }
    if dice.percent(12) {
        placement.set("max_replicas_per_node", word(dice.between(1, 2)));
    }
    if placement.len() > 0 {
        deploy.set("placement", placement);
    }
}

fn policies(deploy: &mut Tree, dice: &mut Dice) {
    if dice.percent(60) {
        let policy = update(dice);
        deploy.set("update_config", policy);
    }
    if dice.percent(15) {
        let mut policy = update(dice);
        if policy.get("failure_action").is_some() {
            // A way back that fails leads nowhere else.
            policy.set("failure_action", word(dice.pick(&["pause", "continue"])));
        }
        deploy.set("rollback_config", policy);
    }
    if dice.percent(30) {
        let mut policy = map([("condition", word(dice.pick(&["any", "on-failure", "none"])))]);
        if dice.percent(50) {
            policy.set("delay", word(dice.pick(&["0s", "3s", "15s"])));
        }
        if dice.percent(50) {
            policy.set("max_attempts", word(dice.between(1, 4)));
        }
        if dice.percent(50) {
            policy.set("window", word(dice.pick(&["10s", "60s"])));
        }
        deploy.set("restart_policy", policy);
    }
}

fn update(dice: &mut Dice) -> Tree {
    let mut policy = map([("parallelism", word(dice.between(0, 3)))]);
    if dice.percent(30) {
        policy.set("delay", word(dice.pick(&["2s", "10s"])));
    }
    if dice.percent(50) {
        policy.set("order", word(dice.pick(&["start-first", "stop-first"])));
    }
    if dice.percent(30) {
        policy.set("monitor", word(dice.pick(&["3s", "15s"])));
    }
    if dice.percent(60) {
        policy.set("failure_action", word(dice.pick(&["rollback", "pause", "continue"])));
    }
    if dice.percent(30) {
        policy.set("max_failure_ratio", word(dice.pick(&["0.3", "0.5", "1"])));
    }
    policy
}

/// What goes under `x-longshore`.
fn wishes(kind: Kind, earlier: &[Service], dice: &mut Dice) -> Tree {
    let mut wishes = map([]);
    if dice.percent(25) {
        wishes.set("priority", word(dice.pick(&["10", "50", "80"])));
    }
    if dice.percent(25) {
        wishes.set("disconnect", disconnect(dice));
    }
    if dice.percent(20) && matches!(kind, Kind::Counted | Kind::Job) {
        wishes.set("reschedule", reschedule(dice));
    }
    if dice.percent(8) {
        wishes.set("secrets_required", words(["key"]));
    }
    if dice.percent(15) {
        wishes.set("step_timeout", word(dice.pick(&["20s", "2m"])));
    }
    if dice.percent(10) {
        wishes.set("pool", word(dice.pick(&["all", "batch"])));
    }
    if dice.percent(10) {
        wishes.set("rebalance", word(dice.pick(&["off", "on-join"])));
    }
    if let Some(other) = earlier.last().filter(|_| dice.percent(12)) {
        let side = *dice.pick(&["near", "away_from"]);
        wishes.set(side, words([other.name.as_str()]));
    }
    match kind {
        Kind::Counted => counted(&mut wishes, dice),
        Kind::Job if dice.percent(50) => wishes.set("max_concurrent", word(dice.between(1, 3))),
        Kind::Job | Kind::Volume | Kind::Global | Kind::GlobalJob => {}
    }
    wishes
}

/// What only a counted service can ask for.
fn counted(wishes: &mut Tree, dice: &mut Dice) {
    if dice.percent(20) {
        wishes.set("canary", word(dice.between(1, 2)));
        if dice.percent(50) {
            wishes.set("auto_promote", word("true"));
        }
    }
    match dice.between(1, 20) {
        1 | 2 => wishes.set("placement", word("pack")),
        3 | 4 => wishes.set("placement", word("binpack")),
        5 => wishes.set("placement", word("hash")),
        6 => {
            wishes.set("placement", word("hosts"));
            wishes.set("hosts", words(["n-1", "n-2", "n-3", "n-4", "n-5"]));
        }
        7 => wishes.set("distinct_hosts", word("true")),
        8 => wishes.set("all_or_nothing", word("true")),
        9 => wishes.set("distinct_property", word("node.labels.zone")),
        _ => {}
    }
}

fn disconnect(dice: &mut Dice) -> Tree {
    map([
        ("lost_after", word(dice.pick(&["15s", "40s", "2m"]))),
        ("replace", word(dice.pick(&["true", "false"]))),
        ("reconcile", word(dice.pick(&["keep_replacement", "keep_original", "best_score", "longest_running"]))),
    ])
}

fn reschedule(dice: &mut Dice) -> Tree {
    map([
        ("attempts", word(dice.between(1, 3))),
        ("delay", word(dice.pick(&["0s", "5s", "20s"]))),
        ("delay_function", word(dice.pick(&["constant", "exponential", "fibonacci"]))),
        ("max_delay", word("1m")),
    ])
}
