//! The generated deployments and their later manifests.
//!
//! Owns: which keys a service gets.
//! Invariant: a service refers only to services generated before it, so that there are no cycles.

use super::cluster::{OF_JOBS, OF_SERVICES};
use crate::fuzz::{
    rng::Rng,
    tree::{Tree, map, scalar, scalars},
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
    pub(super) kind: WorkloadKind,
    tree: Tree,
}

/// The kind of a service, which limits what steps can do to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkloadKind {
    Counted,
    Volume,
    Global,
    Job,
    GlobalJob,
}

impl Deployment {
    /// The manifest of the whole deployment.
    pub(super) fn manifest(&self) -> Tree {
        let services = self.services.iter().map(|service| (service.name.clone(), service.tree.clone())).collect();
        let volumes = map([("data", map([])), ("own", map([("x-longshore", map([("exclusive", scalar("true"))]))]))]);
        Tree::Manifest(Box::new(map([("services", Tree::Map(services)), ("volumes", volumes)])))
    }

    /// Changes the manifest: often a little, sometimes a lot.
    pub(super) fn change(&mut self, rng: &mut Rng) {
        let at = usize::try_from(rng.between(0, self.services.len() as u64 - 1)).expect("an index fits");
        match rng.between(0, 9) {
            0..=3 => {
                let service = &mut self.services[at];
                let image = image(service.kind, rng);
                service.tree.set("image", image);
                service.limit_restarts();
            }
            4 => self.services[at].tree.set("environment", map([("MODE", scalar(rng.between(1, 9)))])),
            5 => self.services[at].recount(rng),
            6 => {
                let earlier: Vec<Service> = self.services[..at].to_vec();
                self.services[at] = service(self.services[at].name.clone(), &earlier, rng);
            }
            7 if (self.services.len() as u64) < MOST_SERVICES => self.add(rng),
            8 if self.services.len() > 1 => {
                let gone = self.services.remove(at).name;
                self.services.iter_mut().for_each(|service| service.remove_references(&gone));
            }
            // Applying the same manifest again changes nothing, but resets failures.
            7..=9 => {}
            _ => unreachable!("the number is below ten"),
        }
    }

    fn add(&mut self, rng: &mut Rng) {
        let unused = (0..).map(|number| format!("s{number}"));
        let name = unused.into_iter().find(|name| self.services.iter().all(|known| known.name != *name));
        let added = service(name.expect("there is always another number"), &self.services, rng);
        self.services.push(added);
    }
}

impl Service {
    /// Limits the restarts of a program that never runs well: the cluster must be able to come to rest.
    fn limit_restarts(&mut self) {
        let is_one_of = |key: &str, words: &[&str]| match self.tree.get(key) {
            Some(Tree::Scalar(text)) => words.iter().any(|word| text.starts_with(word)),
            Some(_) | None => false,
        };
        if !is_one_of("image", &["crash:", "ends:", "sick:", "late:", "job:3", "job:4"]) {
            return;
        }
        let is_late = is_one_of("image", &["late:"]);
        if is_one_of("restart", &["always", "unless-stopped", "on-failure"]) {
            self.tree.set("restart", scalar("on-failure:2"));
        }
        // It runs for longer than most monitor times; only a window that is longer still uses up its restarts.
        if let Some(deploy) = self.tree.get_mut("deploy").filter(|_| is_late) {
            deploy.set("restart_policy", map([("max_attempts", scalar(1)), ("window", scalar("60s"))]));
        }
        let policy = self.tree.get_mut("deploy").and_then(|deploy| deploy.get_mut("restart_policy"));
        if let Some(policy) = policy.filter(|policy| policy.get("max_attempts").is_none()) {
            policy.set("max_attempts", scalar(2));
        }
    }

    fn recount(&mut self, rng: &mut Rng) {
        if let (WorkloadKind::Counted | WorkloadKind::Job, Some(deploy)) = (self.kind, self.tree.get_mut("deploy")) {
            deploy.set("replicas", scalar(rng.between(0, 6)));
        }
    }

    /// Removes references to a service that was removed.
    fn remove_references(&mut self, gone: &str) {
        let names = |tree: &Tree| tree.print().contains(gone);
        if let Tree::Map(entries) = &mut self.tree {
            entries.retain(|(key, value)| key != "depends_on" || !names(value));
        }
        if let Some(Tree::Map(entries)) = self.tree.get_mut("x-longshore") {
            entries.retain(|(key, value)| !matches!(&**key, "near" | "away_from") || !names(value));
        }
    }
}

pub(super) fn deployments(rng: &mut Rng) -> Vec<Deployment> {
    let count = usize::try_from(rng.between(1, 3)).expect("three fits");
    let mut deployments = Vec::new();
    for name in &NAMES[..count] {
        let mut deployment = Deployment { name: (*name).to_owned(), services: Vec::new() };
        for _ in 0..rng.between(1, 3) {
            deployment.add(rng);
        }
        deployments.push(deployment);
    }
    deployments
}

fn kind(rng: &mut Rng) -> WorkloadKind {
    match rng.between(1, 100) {
        1..=58 => WorkloadKind::Counted,
        59..=70 => WorkloadKind::Volume,
        71..=82 => WorkloadKind::Global,
        83..=94 => WorkloadKind::Job,
        _ => WorkloadKind::GlobalJob,
    }
}

fn image(kind: WorkloadKind, rng: &mut Rng) -> Tree {
    scalar(match kind {
        WorkloadKind::Counted | WorkloadKind::Volume | WorkloadKind::Global => rng.pick(OF_SERVICES),
        WorkloadKind::Job | WorkloadKind::GlobalJob => rng.pick(OF_JOBS),
    })
}

fn service(name: String, earlier: &[Service], rng: &mut Rng) -> Service {
    let kind = kind(rng);
    let mut tree = map([("image", image(kind, rng))]);
    let mut deploy = map([]);
    match kind {
        WorkloadKind::Counted => deploy.set("replicas", scalar(rng.between(0, 5))),
        WorkloadKind::Job => {
            deploy.set("mode", scalar("replicated-job"));
            deploy.set("replicas", scalar(rng.between(1, 6)));
        }
        WorkloadKind::Global => deploy.set("mode", scalar("global")),
        WorkloadKind::GlobalJob => deploy.set("mode", scalar("global-job")),
        WorkloadKind::Volume => {
            tree.set("volumes", scalars([*rng.pick(&["data:/data", "own:/own"])]));
        }
    }
    resources(&mut deploy, rng);
    placement(&mut deploy, rng);
    policies(&mut deploy, rng);
    tree.set("deploy", deploy);
    if rng.percent(35) {
        tree.set("restart", scalar(rng.pick(&["always", "unless-stopped", "no", "on-failure", "on-failure:2"])));
    }
    if rng.percent(12) && kind == WorkloadKind::Counted {
        let port =
            map([("target", scalar(80)), ("published", scalar(rng.between(8080, 8081))), ("mode", scalar("host"))]);
        tree.set("ports", Tree::List(vec![port]));
    }
    if let Some(other) = earlier.last().filter(|_| rng.percent(30)) {
        let condition = match other.kind {
            WorkloadKind::Job | WorkloadKind::GlobalJob => "service_completed_successfully",
            WorkloadKind::Counted | WorkloadKind::Volume | WorkloadKind::Global if rng.percent(20) => {
                "service_completed_successfully"
            }
            WorkloadKind::Counted | WorkloadKind::Volume | WorkloadKind::Global => {
                *rng.pick(&["service_started", "service_healthy"])
            }
        };
        tree.set("depends_on", map([(other.name.as_str(), map([("condition", scalar(condition))]))]));
    }
    let extension = extension(kind, earlier, rng);
    if extension.len() > 0 {
        tree.set("x-longshore", extension);
    }
    let mut made = Service { name, kind, tree };
    made.limit_restarts();
    made
}

fn resources(deploy: &mut Tree, rng: &mut Rng) {
    if rng.percent(70) {
        let mut limits = map([("memory", scalar(rng.pick(&["100m", "300m", "700m", "1500m"])))]);
        if rng.percent(30) {
            limits.set("cpus", scalar(rng.pick(&["0.25", "0.5", "1", "2"])));
        }
        deploy.set("resources", map([("limits", limits)]));
    } else if rng.percent(15) {
        let spec = map([("kind", scalar("gpu")), ("value", scalar(1))]);
        let gpus = Tree::List(vec![map([("discrete_resource_spec", spec)])]);
        deploy.set("resources", map([("reservations", map([("generic_resources", gpus)]))]));
    }
}

fn placement(deploy: &mut Tree, rng: &mut Rng) {
    let mut placement = map([]);
    if rng.percent(12) {
        let rules = ["node.labels.zone != west", "node.labels.zone == east", "node.platform.arch == amd64"];
        placement.set("constraints", scalars([*rng.pick(&rules)]));
    }
    if rng.percent(15) {
        let preference = map([("spread", scalar("node.labels.zone"))]);
        placement.set("preferences", Tree::List(vec![preference]));
    }
    if rng.percent(12) {
        placement.set("max_replicas_per_node", scalar(rng.between(1, 2)));
    }
    if placement.len() > 0 {
        deploy.set("placement", placement);
    }
}

fn policies(deploy: &mut Tree, rng: &mut Rng) {
    if rng.percent(60) {
        let policy = update(rng);
        deploy.set("update_config", policy);
    }
    if rng.percent(15) {
        let mut policy = update(rng);
        if policy.get("failure_action").is_some() {
            // A failed rollback cannot be rolled back.
            policy.set("failure_action", scalar(rng.pick(&["pause", "continue"])));
        }
        deploy.set("rollback_config", policy);
    }
    if rng.percent(30) {
        let mut policy = map([("condition", scalar(rng.pick(&["any", "on-failure", "none"])))]);
        if rng.percent(50) {
            policy.set("delay", scalar(rng.pick(&["0s", "3s", "15s"])));
        }
        if rng.percent(50) {
            policy.set("max_attempts", scalar(rng.between(1, 4)));
        }
        if rng.percent(50) {
            policy.set("window", scalar(rng.pick(&["10s", "60s"])));
        }
        deploy.set("restart_policy", policy);
    }
}

fn update(rng: &mut Rng) -> Tree {
    let mut policy = map([]);
    if rng.percent(60) {
        policy.set("parallelism", scalar(rng.between(0, 3)));
    }
    if rng.percent(30) {
        policy.set("delay", scalar(rng.pick(&["2s", "10s"])));
    }
    if rng.percent(50) {
        policy.set("order", scalar(rng.pick(&["start-first", "stop-first"])));
    }
    if rng.percent(30) {
        policy.set("monitor", scalar(rng.pick(&["3s", "15s"])));
    }
    if rng.percent(60) {
        policy.set("failure_action", scalar(rng.pick(&["rollback", "pause", "continue"])));
    }
    if rng.percent(30) {
        policy.set("max_failure_ratio", scalar(rng.pick(&["0.3", "0.5", "1"])));
    }
    policy
}

/// The keys under `x-longshore`.
fn extension(kind: WorkloadKind, earlier: &[Service], rng: &mut Rng) -> Tree {
    let mut extension = map([]);
    if rng.percent(25) {
        extension.set("priority", scalar(rng.pick(&["10", "50", "80"])));
    }
    if rng.percent(25) {
        extension.set("disconnect", disconnect(rng));
    }
    if rng.percent(20) && matches!(kind, WorkloadKind::Counted | WorkloadKind::Job) {
        extension.set("reschedule", reschedule(rng));
    }
    if rng.percent(8) {
        extension.set("secrets_required", scalars(["key"]));
    }
    if rng.percent(15) {
        extension.set("step_timeout", scalar(rng.pick(&["20s", "2m"])));
    }
    if rng.percent(10) {
        extension.set("surge", scalar(rng.between(1, 5)));
    }
    if rng.percent(10) {
        extension.set("pool", scalar(rng.pick(&["all", "batch"])));
    }
    if rng.percent(10) {
        extension.set("rebalance", scalar(rng.pick(&["off", "on-join"])));
    }
    if let Some(other) = earlier.last().filter(|_| rng.percent(12)) {
        let side = *rng.pick(&["near", "away_from"]);
        extension.set(side, scalars([other.name.as_str()]));
    }
    match kind {
        WorkloadKind::Counted => counted(&mut extension, rng),
        WorkloadKind::Job if rng.percent(50) => extension.set("max_concurrent", scalar(rng.between(1, 3))),
        WorkloadKind::Job | WorkloadKind::Volume | WorkloadKind::Global | WorkloadKind::GlobalJob => {}
    }
    extension
}

/// The keys that only a counted service can have.
fn counted(extension: &mut Tree, rng: &mut Rng) {
    if rng.percent(20) {
        extension.set("canary", scalar(rng.between(1, 2)));
        if rng.percent(50) {
            extension.set("auto_promote", scalar("true"));
        }
    }
    match rng.between(1, 20) {
        1 | 2 => extension.set("placement", scalar("pack")),
        3 | 4 => extension.set("placement", scalar("binpack")),
        5 => extension.set("placement", scalar("hash")),
        6 => {
            extension.set("placement", scalar("hosts"));
            extension.set("hosts", scalars(["n-1", "n-2", "n-3", "n-4", "n-5"]));
        }
        7 => extension.set("distinct_hosts", scalar("true")),
        8 => extension.set("all_or_nothing", scalar("true")),
        9 => extension.set("distinct_property", scalar("node.labels.zone")),
        _ => {}
    }
}

fn disconnect(rng: &mut Rng) -> Tree {
    map([
        ("lost_after", scalar(rng.pick(&["15s", "40s", "2m"]))),
        ("replace", scalar(rng.pick(&["true", "false"]))),
        ("reconcile", scalar(rng.pick(&["keep_replacement", "keep_original", "best_score", "longest_running"]))),
    ])
}

fn reschedule(rng: &mut Rng) -> Tree {
    map([
        ("attempts", scalar(rng.between(1, 3))),
        ("delay", scalar(rng.pick(&["0s", "5s", "20s"]))),
        ("delay_function", scalar(rng.pick(&["constant", "exponential", "fibonacci"]))),
        ("max_delay", scalar("1m")),
    ])
}
