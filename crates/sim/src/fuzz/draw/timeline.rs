//! What happens in a drawn scenario, and when.
//!
//! Owns: how often each verb comes up.

use super::{
    cluster,
    manifest::{Deployment, Kind},
};
use crate::fuzz::{
    dice::Dice,
    tree::{Tree, map, word},
};

/// Pauses between two happenings, in milliseconds: many at once, some while the last is still at work.
const PAUSES: &[u64] = &[0, 0, 20, 200, 500, 1000, 1000, 2000, 3000, 5000, 8000, 12_000, 30_000, 75_000];

/// What was drawn so far, so that what comes next makes sense.
struct Course {
    nodes: usize,
    deployments: Vec<Deployment>,
    secrets: u64,
}

/// Entries with their times, in order.
pub(super) fn timeline(dice: &mut Dice, nodes: usize, deployments: Vec<Deployment>) -> Vec<(u64, Tree)> {
    let mut course = Course { nodes, deployments, secrets: 0 };
    let mut at = 0;
    let mut entries = Vec::new();
    for _ in 0..dice.between(0, 24) {
        at += dice.pick(PAUSES);
        let mut entry = map([("at", word(format!("{at}ms")))]);
        for (key, value) in course.happening(dice) {
            entry.set(key, value);
        }
        entries.push((at, entry));
    }
    entries
}

type Keys = Vec<(&'static str, Tree)>;

impl Course {
    fn happening(&mut self, dice: &mut Dice) -> Keys {
        match dice.between(1, 100) {
            1..=34 => self.happen_to_node(dice),
            35..=54 => self.apply(dice),
            55..=60 => self.scale(dice),
            61..=70 => self.happen_to_replica(dice),
            71..=82 => self.happen_to_deployment(dice),
            83..=85 => self.join(dice),
            86..=88 => self.secret(),
            89..=91 => vec![("quota", quota(dice))],
            92..=95 => vec![("leader", word("change"))],
            96..=98 => self.pressure(dice),
            _ => vec![("rebalance", word("apply"))],
        }
    }

    fn node(&self, dice: &mut Dice) -> String {
        format!("n-{}", dice.between(1, self.nodes as u64))
    }

    fn happen_to_node(&self, dice: &mut Dice) -> Keys {
        let node = ("node", word(self.node(dice)));
        if dice.percent(8) {
            let zone = dice.pick(&["east", "west", "north", ""]);
            return vec![node, ("label", map([("zone", word(zone))]))];
        }
        let verbs = [
            "fail", "fail", "fail", "return", "return", "return", "isolate", "isolate", "isolate", "heal", "heal",
            "heal", "drain", "drain", "drain", "activate", "activate", "pause", "remove", "degrade", "override",
            "lost",
        ];
        let verb = *dice.pick(&verbs);
        let mut keys = vec![node, ("do", word(verb))];
        if matches!(verb, "drain" | "remove") && dice.percent(40) {
            keys.push(("deadline", word(dice.pick(&["5s", "30s", "2m"]))));
        }
        keys
    }

    fn deployment(&mut self, dice: &mut Dice) -> &mut Deployment {
        let most = self.deployments.len() as u64 - 1;
        let at = usize::try_from(dice.between(0, most)).expect("an index fits");
        &mut self.deployments[at]
    }

    fn apply(&mut self, dice: &mut Dice) -> Keys {
        let deployment = self.deployment(dice);
        deployment.change(dice);
        vec![("apply", map([(deployment.name.as_str(), deployment.applied())]))]
    }

    fn scale(&mut self, dice: &mut Dice) -> Keys {
        let deployment = self.deployment(dice);
        let service = dice.pick(&deployment.services);
        let most = match service.kind {
            Kind::Counted | Kind::Job => 7,
            Kind::Volume => 1,
            // It cannot be scaled; the nearest thing is to start it once more.
            Kind::Global | Kind::GlobalJob => {
                return vec![("restart", word(format!("{}/{}", deployment.name, service.name)))];
            }
        };
        let name = format!("{}/{}", deployment.name, service.name);
        vec![("scale", map([(name.as_str(), word(dice.between(0, most)))]))]
    }

    fn happen_to_replica(&mut self, dice: &mut Dice) -> Keys {
        let number = dice.between(0, 4);
        let node = self.node(dice);
        let deployment = self.deployment(dice);
        let service = dice.pick(&deployment.services);
        let slot = match service.kind {
            Kind::Counted | Kind::Job | Kind::Volume => number.to_string(),
            Kind::Global | Kind::GlobalJob => node,
        };
        let replica = format!("{}-{}-{slot}", deployment.name, service.name);
        let verb = dice.pick(&["crash", "crash", "unhealthy", "heal", "complete"]);
        vec![("replica", word(replica)), ("do", word(verb))]
    }

    fn happen_to_deployment(&mut self, dice: &mut Dice) -> Keys {
        let deployment = self.deployment(dice);
        let name = word(&deployment.name);
        match dice.between(1, 12) {
            1..=3 => vec![("rollback", name)],
            4 | 5 => vec![("promote", name)],
            6 | 7 => vec![("pause", name)],
            8 | 9 => vec![("resume", name)],
            10 | 11 => {
                let service = dice.pick(&deployment.services);
                vec![("restart", word(format!("{}/{}", deployment.name, service.name)))]
            }
            _ => vec![("remove", name)],
        }
    }

    fn join(&mut self, dice: &mut Dice) -> Keys {
        self.nodes += 1;
        vec![("join", cluster::node(&format!("n-{}", self.nodes), dice))]
    }

    fn secret(&mut self) -> Keys {
        self.secrets += 1;
        vec![("secret", map([("name", word("key")), ("version", word(self.secrets))]))]
    }

    fn pressure(&self, dice: &mut Dice) -> Keys {
        let mut pressure = map([
            ("node", word(self.node(dice))),
            ("cpu", word(dice.pick(&["0.95", "0.5", "0.1"]))),
            ("memory", word(dice.pick(&["0.9", "0.3"]))),
        ]);
        if dice.percent(20) {
            pressure.set("fixed", word("true"));
        }
        vec![("pressure", pressure)]
    }
}

fn quota(dice: &mut Dice) -> Tree {
    match dice.between(1, 3) {
        1 => map([("replicas", word(dice.between(2, 12)))]),
        2 => map([("memory", word(dice.pick(&["1GiB", "3GiB", "8GiB"])))]),
        _ => map([("replicas", word(100))]),
    }
}
