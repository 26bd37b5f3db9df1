//! The generated timeline.
//!
//! Owns: how often each verb comes up.

use super::{
    cluster,
    manifest::{Deployment, WorkloadKind},
};
use crate::fuzz::{
    rng::Rng,
    tree::{Tree, map, scalar},
};

/// Pauses between two steps, in milliseconds: many at once, some while the last step still has effects.
const PAUSES: &[u64] = &[0, 0, 20, 200, 500, 1000, 1000, 2000, 3000, 5000, 8000, 12_000, 30_000, 75_000];

/// What was generated so far, so that the next steps make sense.
struct Progress {
    nodes: usize,
    deployments: Vec<Deployment>,
    secrets: u64,
}

/// Entries with their times, in order.
pub(super) fn timeline(rng: &mut Rng, nodes: usize, deployments: Vec<Deployment>) -> Vec<(u64, Tree)> {
    let mut progress = Progress { nodes, deployments, secrets: 0 };
    let mut at = 0;
    let mut entries = Vec::new();
    for _ in 0..rng.between(0, 24) {
        at += rng.pick(PAUSES);
        let mut entry = map([("at", scalar(format!("{at}ms")))]);
        for (key, value) in progress.step(rng) {
            entry.set(key, value);
        }
        entries.push((at, entry));
    }
    entries
}

type Keys = Vec<(&'static str, Tree)>;

impl Progress {
    fn step(&mut self, rng: &mut Rng) -> Keys {
        match rng.between(1, 100) {
            1..=34 => self.node_step(rng),
            35..=54 => self.apply(rng),
            55..=60 => self.scale(rng),
            61..=70 => self.replica_step(rng),
            71..=82 => self.deployment_step(rng),
            83..=85 => self.join(rng),
            86..=88 => self.secret(),
            89..=91 => vec![("quota", quota(rng))],
            92..=95 => vec![("leader", scalar("change"))],
            96..=98 => self.pressure(rng),
            _ => vec![("rebalance", scalar("apply"))],
        }
    }

    fn node(&self, rng: &mut Rng) -> String {
        format!("n-{}", rng.between(1, self.nodes as u64))
    }

    fn node_step(&self, rng: &mut Rng) -> Keys {
        let node = ("node", scalar(self.node(rng)));
        if rng.percent(8) {
            let zone = rng.pick(&["east", "west", "north", ""]);
            return vec![node, ("label", map([("zone", scalar(zone))]))];
        }
        let verbs = [
            "fail", "fail", "fail", "return", "return", "return", "isolate", "isolate", "isolate", "heal", "heal",
            "heal", "drain", "drain", "drain", "activate", "activate", "pause", "remove", "degrade", "override",
            "lost",
        ];
        let verb = *rng.pick(&verbs);
        let mut keys = vec![node, ("do", scalar(verb))];
        if matches!(verb, "drain" | "remove") && rng.percent(40) {
            keys.push(("deadline", scalar(rng.pick(&["5s", "30s", "2m"]))));
        }
        keys
    }

    fn deployment(&mut self, rng: &mut Rng) -> &mut Deployment {
        let most = self.deployments.len() as u64 - 1;
        let at = usize::try_from(rng.between(0, most)).expect("an index fits");
        &mut self.deployments[at]
    }

    fn apply(&mut self, rng: &mut Rng) -> Keys {
        let deployment = self.deployment(rng);
        deployment.change(rng);
        let verb = if rng.percent(20) { "up" } else { "apply" };
        vec![(verb, map([(deployment.name.as_str(), deployment.manifest())]))]
    }

    fn scale(&mut self, rng: &mut Rng) -> Keys {
        let deployment = self.deployment(rng);
        let service = rng.pick(&deployment.services);
        let most = match service.kind {
            WorkloadKind::Counted | WorkloadKind::Job => 7,
            WorkloadKind::Volume => 1,
            // It cannot be scaled, so it is restarted instead.
            WorkloadKind::Global | WorkloadKind::GlobalJob => {
                return vec![("restart", scalar(format!("{}/{}", deployment.name, service.name)))];
            }
        };
        let name = format!("{}/{}", deployment.name, service.name);
        vec![("scale", map([(name.as_str(), scalar(rng.between(0, most)))]))]
    }

    fn replica_step(&mut self, rng: &mut Rng) -> Keys {
        let number = rng.between(0, 4);
        let node = self.node(rng);
        let deployment = self.deployment(rng);
        let service = rng.pick(&deployment.services);
        let slot = match service.kind {
            WorkloadKind::Counted | WorkloadKind::Job | WorkloadKind::Volume => number.to_string(),
            WorkloadKind::Global | WorkloadKind::GlobalJob => node,
        };
        let replica = format!("{}-{}-{slot}", deployment.name, service.name);
        let verb = rng.pick(&["crash", "crash", "unhealthy", "heal", "complete"]);
        vec![("replica", scalar(replica)), ("do", scalar(verb))]
    }

    fn deployment_step(&mut self, rng: &mut Rng) -> Keys {
        let deployment = self.deployment(rng);
        let name = scalar(&deployment.name);
        match rng.between(1, 16) {
            1..=3 => vec![("rollback", name)],
            4 | 5 => vec![("promote", name)],
            6 | 7 => vec![("pause", name)],
            8 | 9 => vec![("resume", name)],
            10 | 11 => {
                let service = rng.pick(&deployment.services);
                vec![("restart", scalar(format!("{}/{}", deployment.name, service.name)))]
            }
            12 | 13 => vec![("stop", name)],
            14 | 15 => vec![("start", name)],
            _ => vec![("remove", name)],
        }
    }

    fn join(&mut self, rng: &mut Rng) -> Keys {
        self.nodes += 1;
        vec![("join", cluster::node(&format!("n-{}", self.nodes), rng))]
    }

    fn secret(&mut self) -> Keys {
        self.secrets += 1;
        vec![("secret", map([("name", scalar("key")), ("version", scalar(self.secrets))]))]
    }

    fn pressure(&self, rng: &mut Rng) -> Keys {
        let mut pressure = map([
            ("node", scalar(self.node(rng))),
            ("cpu", scalar(rng.pick(&["0.95", "0.5", "0.1"]))),
            ("memory", scalar(rng.pick(&["0.9", "0.3"]))),
        ]);
        if rng.percent(20) {
            pressure.set("fixed", scalar("true"));
        }
        vec![("pressure", pressure)]
    }
}

fn quota(rng: &mut Rng) -> Tree {
    match rng.between(1, 3) {
        1 => map([("replicas", scalar(rng.between(2, 12)))]),
        2 => map([("memory", scalar(rng.pick(&["1GiB", "3GiB", "8GiB"])))]),
        _ => map([("replicas", scalar(100))]),
    }
}
