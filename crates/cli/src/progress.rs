//! How a deployment comes along, while somebody waits for it.
//!
//! Owns: the words and the drawing. Must not touch: the daemon; what is drawn was asked for by somebody else.

use std::{collections::BTreeMap, fmt::Write as _};

use longshore_api::{Deployment, Replica, Service};
use serde_json::Value;

use crate::style::{Colour, Tone, plain};

/// Replicas listed of one service; the others are counted.
const LISTED: usize = 8;

/// One line a service, and one for each replica that does not run yet.
pub(crate) fn draw(deployment: &Deployment, replicas: &[Replica], colour: Colour) -> String {
    let widest = deployment.services.iter().map(|service| service.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for service in &deployment.services {
        let (mark, tone) = if service.running >= service.wanted && service.wanted > 0 {
            ("✓", Tone::Good)
        } else {
            ("·", Tone::Busy)
        };
        let name = format!("{:widest$}", service.name);
        let _ = writeln!(out, "{} {name}  {}", colour.paint(tone, mark), counts(service, replicas));
        let ours = newest(replicas).into_iter().filter(|it| it.service == service.name);
        let restless: Vec<&Replica> = ours.filter(|it| !is_well(it)).collect();
        for replica in restless.iter().take(LISTED) {
            let _ = writeln!(out, "    {}  {}", replica.id, standing(replica, colour));
        }
        if restless.len() > LISTED {
            let _ = writeln!(out, "    … {} more", restless.len() - LISTED);
        }
    }
    out
}

fn counts(service: &Service, replicas: &[Replica]) -> String {
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    let current = newest(replicas);
    for replica in current.iter().filter(|it| it.service == service.name && !is_well(it)) {
        *others.entry(&replica.state).or_default() += 1;
    }
    let before = replicas.iter().filter(|it| it.service == service.name && !current.contains(it)).count();
    if before > 0 {
        others.insert("to be replaced", before);
    }
    let mut out = format!("{}/{} running", service.running, service.wanted);
    for (state, count) in others {
        let _ = write!(out, " · {count} {state}");
    }
    out
}

/// Each slot by its newest generation: while it is changed an older one is there too, and says nothing of how far it is.
/// In the order they came in, which is that of their numbers.
fn newest(replicas: &[Replica]) -> Vec<&Replica> {
    let mut newest: BTreeMap<&str, u32> = BTreeMap::new();
    for replica in replicas {
        let known = newest.entry(&replica.id).or_default();
        *known = replica.generation.max(*known);
    }
    replicas.iter().filter(|replica| newest.get(replica.id.as_str()) == Some(&replica.generation)).collect()
}

fn is_well(replica: &Replica) -> bool {
    matches!(replica.state.as_str(), "running" | "completed")
}

/// How one replica does, in a few words: its state, where, and what stands in the way.
pub(crate) fn standing(replica: &Replica, colour: Colour) -> String {
    let tone = match replica.state.as_str() {
        "running" | "completed" => Tone::Good,
        "failed" | "degraded" | "lost" => Tone::Bad,
        "stopped" | "draining" => Tone::Quiet,
        _ => Tone::Busy,
    };
    let mut out = colour.paint(tone, &replica.state);
    if let Some(node) = &replica.node {
        let _ = write!(out, " on {node}");
    }
    if let Some(code) = &replica.code {
        let _ = write!(out, ": {code}");
    }
    for name in ["reason", "output", "exit_code", "percent"] {
        match replica.details.get(name) {
            Some(Value::String(text)) => _ = write!(out, ", {}", plain(text.lines().next().unwrap_or_default())),
            Some(Value::Number(number)) if name == "exit_code" => _ = write!(out, " with code {number}"),
            Some(Value::Number(number)) => _ = write!(out, " {number}%"),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {}
        }
    }
    out
}

/// What became of each replica since it was last asked; one line for each that changed.
#[derive(Debug, Default)]
pub(crate) struct Told(BTreeMap<String, (u32, String)>);

impl Told {
    pub(crate) fn news(&mut self, replicas: &[Replica], colour: Colour) -> Vec<String> {
        let mut lines = Vec::new();
        for replica in newest(replicas) {
            // Between two looks one may have taken the other's place, and run as well as that did.
            let now = (replica.generation, standing(replica, colour));
            if self.0.get(&replica.id) != Some(&now) {
                lines.push(format!("{} {}", replica.id, now.1));
                self.0.insert(replica.id.clone(), now);
            }
        }
        self.0.retain(|id, _| {
            let stays = replicas.iter().any(|replica| replica.id == *id);
            if !stays {
                lines.push(format!("{id} {}", colour.paint(Tone::Quiet, "gone")));
            }
            stays
        });
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(id: &str, state: &str, code: Option<&str>) -> Replica {
        Replica {
            id: id.to_owned(),
            namespace: "default".to_owned(),
            deployment: "shop".to_owned(),
            service: "web".to_owned(),
            node: (state != "pending").then(|| "n1".to_owned()),
            state: state.to_owned(),
            code: code.map(str::to_owned),
            details: BTreeMap::new(),
            generation: 1,
            attempt: 0,
            revision: 1,
            restarts: 0,
            since_ms: None,
            address: None,
        }
    }

    fn shop(wanted: u32, running: u32) -> Deployment {
        let service = Service {
            name: "web".to_owned(),
            image: "web:1".to_owned(),
            strategy: "spread".to_owned(),
            driver: "docker".to_owned(),
            wanted,
            running,
            ports: Vec::new(),
        };
        Deployment {
            namespace: "default".to_owned(),
            name: "shop".to_owned(),
            status: "progressing".to_owned(),
            reasons: Vec::new(),
            revision: 1,
            revisions: vec![1],
            rollout: None,
            services: vec![service],
        }
    }

    #[test]
    fn a_service_says_what_it_still_waits_for() {
        let mut failed = replica("shop-web-2", "failed", Some("exited"));
        failed.details.insert("exit_code".to_owned(), 3.into());
        let waits = replica("shop-web-1", "pending", Some("no_capacity_memory"));
        let replicas = [replica("shop-web-0", "running", None), waits, failed];
        insta::assert_snapshot!(draw(&shop(3, 1), &replicas, Colour::Off), @r"
        · web  1/3 running · 1 failed · 1 pending
            shop-web-1  pending: no_capacity_memory
            shop-web-2  failed on n1: exited with code 3
        ");
        insta::assert_snapshot!(draw(&shop(1, 1), &replicas[..1], Colour::Off), @"✓ web  1/1 running");
    }

    #[test]
    fn a_slot_that_is_changed_is_told_by_what_comes_and_not_by_what_goes() {
        let of = |state: &str, generation| Replica { generation, ..replica("shop-web-0", state, None) };
        let mut told = Told::default();
        let mut news = |replicas: &[Replica]| told.news(replicas, Colour::Off);
        assert_eq!(news(&[of("running", 1)]), ["shop-web-0 running on n1"]);
        assert_eq!(news(&[of("running", 1), of("starting", 2)]), ["shop-web-0 starting on n1"]);
        assert_eq!(news(&[of("draining", 1), of("running", 2)]), ["shop-web-0 running on n1"]);
        assert_eq!(news(&[of("running", 2)]), [""; 0], "that the old one went is no news of the slot");
        assert_eq!(news(&[of("running", 3)]), ["shop-web-0 running on n1"], "another took its place unseen");
        assert_eq!(news(&[]), ["shop-web-0 gone"]);
        let drawn = draw(&shop(1, 1), &[of("draining", 1), of("running", 2)], Colour::Off);
        assert_eq!(drawn, "✓ web  1/1 running · 1 to be replaced\n");
    }

    #[test]
    fn the_tenth_is_told_after_the_ninth() {
        let replicas = [replica("shop-web-9", "starting", None), replica("shop-web-10", "starting", None)];
        let told = Told::default().news(&replicas, Colour::Off);
        assert_eq!(told, ["shop-web-9 starting on n1", "shop-web-10 starting on n1"]);
    }

    #[test]
    fn what_did_not_change_is_not_told_again() {
        let mut told = Told::default();
        let first = [replica("shop-web-0", "starting", None)];
        assert_eq!(told.news(&first, Colour::Off), ["shop-web-0 starting on n1"]);
        assert!(told.news(&first, Colour::Off).is_empty());
        assert_eq!(told.news(&[], Colour::Off), ["shop-web-0 gone"]);
    }
}
