//! Progress of a deployment while a command waits for it.
//!
//! Owns: the wording and the layout. Must not touch: the daemon; the caller polls it.

use std::{collections::BTreeMap, fmt::Write as _};

use longshore_api::{Deployment, Replica, ReplicaState, Service};
use serde_json::Value;

use crate::output::style::{Colour, Tone, escape_control};

/// Replicas listed per service; further ones are counted.
const LISTED: usize = 8;

/// One line per service, and one for each replica that does not run yet.
pub(crate) fn services(deployment: &Deployment, replicas: &[Replica], colour: Colour) -> String {
    let widest = deployment.services.iter().map(|service| service.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for service in &deployment.services {
        let (mark, tone) = if service.running + service.completed >= service.desired && service.desired > 0 {
            ("✓", Tone::Good)
        } else {
            ("·", Tone::Busy)
        };
        let name = format!("{:widest$}", service.name);
        let _ = writeln!(out, "{} {name}  {}", colour.paint(tone, mark), counts(service, replicas));
        let ours = newest(replicas).into_iter().filter(|it| it.service == service.name);
        let unfinished: Vec<&Replica> = ours.filter(|it| !is_done(it)).collect();
        for replica in unfinished.iter().take(LISTED) {
            let _ = writeln!(out, "    {}  {}", replica.id, replica_state(replica, colour));
        }
        if unfinished.len() > LISTED {
            let _ = writeln!(out, "    … {} more", unfinished.len() - LISTED);
        }
    }
    out
}

fn counts(service: &Service, replicas: &[Replica]) -> String {
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    let current = newest(replicas);
    for replica in current.iter().filter(|it| it.service == service.name && !is_done(it)) {
        *others.entry(replica.state.as_str()).or_default() += 1;
    }
    let before = replicas.iter().filter(|it| it.service == service.name && !current.contains(it)).count();
    if before > 0 {
        others.insert("to be replaced", before);
    }
    let mut out = match service.completed {
        0 => format!("{}/{} running", service.running, service.desired),
        completed if completed == service.desired => "completed".to_owned(),
        completed => format!("{}/{} running · {completed} completed", service.running, service.desired - completed),
    };
    for (state, count) in others {
        let _ = write!(out, " · {count} {state}");
    }
    out
}

/// The newest generation of each slot, in the order of the slots. During a change the slot also has an older
/// generation, which says nothing about progress.
fn newest(replicas: &[Replica]) -> Vec<&Replica> {
    let mut newest: BTreeMap<&str, u32> = BTreeMap::new();
    for replica in replicas {
        let highest = newest.entry(&replica.id).or_default();
        *highest = replica.generation.max(*highest);
    }
    replicas.iter().filter(|replica| newest.get(replica.id.as_str()) == Some(&replica.generation)).collect()
}

fn is_done(replica: &Replica) -> bool {
    matches!(replica.state, ReplicaState::Running | ReplicaState::Completed)
}

/// One replica in a few words: its state, its node, its code and the details of the code.
pub(crate) fn replica_state(replica: &Replica, colour: Colour) -> String {
    let mut out = colour.paint(Tone::of_replica(&replica.state), replica.state.as_str());
    if let Some(node) = &replica.node {
        let _ = write!(out, " on {node}");
    }
    if let Some(code) = &replica.code {
        let _ = write!(out, ": {code}");
    }
    for name in ["reason", "output", "exit_code", "percent"] {
        match replica.details.get(name) {
            Some(Value::String(text)) => {
                let _ = write!(out, ", {}", escape_control(text.lines().next().unwrap_or_default()));
            }
            Some(Value::Number(number)) if name == "exit_code" => _ = write!(out, " with code {number}"),
            Some(Value::Number(number)) => _ = write!(out, " {number}%"),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {}
        }
    }
    out
}

/// Remembers the last state printed for each replica and reports changes.
#[derive(Debug, Default)]
pub(crate) struct ChangeReporter(BTreeMap<String, (u32, String)>);

impl ChangeReporter {
    /// One line for each replica whose state changed since the last call.
    pub(crate) fn changes(&mut self, replicas: &[Replica], colour: Colour) -> Vec<String> {
        let mut lines = Vec::new();
        for replica in newest(replicas) {
            // The generation counts too: between two polls a new replica may have replaced a running one.
            let now = (replica.generation, replica_state(replica, colour));
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
    use longshore_api::{Code, DeploymentStatus, Driver};

    use super::*;

    fn replica(id: &str, state: &str, code: Option<&str>) -> Replica {
        Replica {
            id: id.to_owned(),
            namespace: "default".to_owned(),
            deployment: "shop".to_owned(),
            service: "web".to_owned(),
            node: (state != "pending").then(|| "n1".to_owned()),
            state: state.into(),
            code: code.map(Code::from),
            details: BTreeMap::new(),
            generation: 1,
            attempt: 0,
            revision: 1,
            restarts: 0,
            since_ms: None,
            address: None,
            returns_at_ms: None,
            ended: false,
        }
    }

    fn shop(desired: u32, running: u32) -> Deployment {
        let service = Service {
            name: "web".to_owned(),
            image: "web:1".to_owned(),
            strategy: "spread".to_owned(),
            driver: Driver::Docker,
            desired,
            wanted: desired,
            running,
            completed: 0,
            ports: Vec::new(),
        };
        Deployment {
            namespace: "default".to_owned(),
            name: "shop".to_owned(),
            status: DeploymentStatus::Progressing,
            reasons: Vec::new(),
            revision: 1,
            revisions: vec![1],
            rollout: None,
            services: vec![service],
        }
    }

    #[test]
    fn a_service_lists_the_replicas_it_still_waits_for() {
        let mut failed = replica("shop-web-2", "failed", Some("exited"));
        failed.details.insert("exit_code".to_owned(), 3.into());
        let waits = replica("shop-web-1", "pending", Some("no_capacity_memory"));
        let replicas = [replica("shop-web-0", "running", None), waits, failed];
        insta::assert_snapshot!(services(&shop(3, 1), &replicas, Colour::Off), @r"
        · web  1/3 running · 1 failed · 1 pending
            shop-web-1  pending: no_capacity_memory
            shop-web-2  failed on n1: exited with code 3
        ");
        insta::assert_snapshot!(services(&shop(1, 1), &replicas[..1], Colour::Off), @"✓ web  1/1 running");
    }

    #[test]
    fn a_slot_is_reported_by_its_newest_generation_only() {
        let of = |state: &str, generation| Replica { generation, ..replica("shop-web-0", state, None) };
        let mut reporter = ChangeReporter::default();
        let mut changes = |replicas: &[Replica]| reporter.changes(replicas, Colour::Off);
        assert_eq!(changes(&[of("running", 1)]), ["shop-web-0 running on n1"]);
        assert_eq!(changes(&[of("running", 1), of("starting", 2)]), ["shop-web-0 starting on n1"]);
        assert_eq!(changes(&[of("draining", 1), of("running", 2)]), ["shop-web-0 running on n1"]);
        assert_eq!(changes(&[of("running", 2)]), [""; 0], "the removal of the old generation is not reported");
        assert_eq!(changes(&[of("running", 3)]), ["shop-web-0 running on n1"], "replaced between two polls");
        assert_eq!(changes(&[]), ["shop-web-0 gone"]);
        let drawn = services(&shop(1, 1), &[of("draining", 1), of("running", 2)], Colour::Off);
        assert_eq!(drawn, "✓ web  1/1 running · 1 to be replaced\n");
    }

    #[test]
    fn replicas_are_reported_in_the_order_of_their_numbers() {
        let replicas = [replica("shop-web-9", "starting", None), replica("shop-web-10", "starting", None)];
        let lines = ChangeReporter::default().changes(&replicas, Colour::Off);
        assert_eq!(lines, ["shop-web-9 starting on n1", "shop-web-10 starting on n1"]);
    }

    #[test]
    fn an_unchanged_replica_is_not_reported_again() {
        let mut reporter = ChangeReporter::default();
        let first = [replica("shop-web-0", "starting", None)];
        assert_eq!(reporter.changes(&first, Colour::Off), ["shop-web-0 starting on n1"]);
        assert!(reporter.changes(&first, Colour::Off).is_empty());
        assert_eq!(reporter.changes(&[], Colour::Off), ["shop-web-0 gone"]);
    }
}
