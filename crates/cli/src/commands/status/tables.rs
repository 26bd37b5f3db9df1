//! The tables of `longshore status`: deployments, services, replicas, and rollouts that failed.
//!
//! Owns: the columns and their wording. Must not touch: the daemon; the caller hands in its answer.
//! Invariant: two generations of one replica differ in a column, so that no two rows read alike.

use std::{fmt::Write as _, time::SystemTime};

use longshore_api::{Code, Deployment, Port, PortMode, Replica, RolloutState, Service, Status, StatusReason};

use crate::output::{
    progress, qualified,
    style::{Colour, Tone, escape_control},
    table,
};

pub(super) fn tables(status: &Status) -> String {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
    tables_at(status, now_ms, Colour::of_stdout())
}

fn tables_at(status: &Status, now_ms: u64, colour: Colour) -> String {
    if status.deployments.is_empty() {
        return "nothing is deployed\n".to_owned();
    }
    let deployments: Vec<Vec<String>> = status.deployments.iter().map(|it| deployment_row(it, colour)).collect();
    let mut out = table::draw(&["DEPLOYMENT", "STATUS", "REVISION", "RUNNING", "REASONS"], &deployments);
    let services = status.deployments.iter().flat_map(|it| it.services.iter().map(|service| service_row(it, service)));
    let services: Vec<Vec<String>> = services.collect();
    if !services.is_empty() {
        out.push('\n');
        out.push_str(&table::draw(&["SERVICE", "IMAGE", "RUNNING", "PORTS"], &services));
    }
    if !status.replicas.is_empty() {
        out.push('\n');
        out.push_str(&replica_table(&status.replicas, now_ms, colour));
    }
    for it in &status.conditions {
        let _ = write!(out, "\n{}: {} on {}: {}\n", colour.paint(Tone::Bad, "warning"), it.code, it.node, it.message);
    }
    for failure in status.deployments.iter().filter_map(failed_rollout) {
        let _ = write!(out, "\n{failure}\n");
    }
    out
}

fn deployment_row(it: &Deployment, colour: Colour) -> Vec<String> {
    let sum = |part: fn(&Service) -> u32| it.services.iter().map(part).sum();
    let running = progress::running(sum(|it| it.running), sum(|it| it.desired), sum(|it| it.completed));
    let word = colour.paint(Tone::of_deployment(&it.status), it.status.as_str());
    let reasons: Vec<&str> = it.reasons.iter().map(StatusReason::as_str).collect();
    vec![qualified(&it.namespace, &it.name), word, it.revision.to_string(), running, reasons.join(", ")]
}

fn service_row(deployment: &Deployment, service: &Service) -> Vec<String> {
    let name = format!("{}/{}", qualified(&deployment.namespace, &deployment.name), service.name);
    let ports: Vec<String> = service.ports.iter().map(published).collect();
    let running = progress::running(service.running, service.desired, service.completed);
    vec![name, escape_control(&service.image), running, ports.join(", ")]
}

/// A published port as Docker writes it.
fn published(port: &Port) -> String {
    let outside = port.published.map_or_else(|| "*".to_owned(), |published| published.to_string());
    let mode = if port.mode == PortMode::Host { " (host)" } else { "" };
    format!("{outside}->{}/{}{mode}", port.target, port.protocol)
}

fn replica_table(replicas: &[Replica], now_ms: u64, colour: Colour) -> String {
    let bound = replicas.iter().any(|it| it.details.contains_key("ports"));
    let rows = replicas.iter().map(|it| {
        let state = colour.paint(Tone::of_replica(&it.state), it.state.as_str());
        // A slot that waits for a node has no generation yet; the API repeats the number of the one before.
        let (generation, revision) = match &it.node {
            Some(_) => (it.generation.to_string(), it.revision.to_string()),
            None => (String::new(), String::new()),
        };
        let age = it.since_ms.map_or_else(String::new, |since| age(now_ms.saturating_sub(since)));
        let node = it.node.clone().unwrap_or_default();
        let mut row = vec![it.id.clone(), state, node, generation, revision, age, it.restarts.to_string()];
        if bound {
            row.push(bindings(it));
        }
        row.push(it.code.as_ref().map_or("", Code::as_str).to_owned());
        row
    });
    let mut heading = vec!["REPLICA", "STATE", "NODE", "GENERATION", "REVISION", "AGE", "RESTARTS"];
    if bound {
        heading.push("PORTS");
    }
    heading.push("CODE");
    table::draw(&heading, &rows.collect::<Vec<_>>())
}

/// The ports that the engine has bound for a replica.
fn bindings(replica: &Replica) -> String {
    let words = replica.bound_ports().into_iter().map(|port| escape_control(&format!("{}->{}", port.at, port.target)));
    words.collect::<Vec<_>>().join(", ")
}

/// How long a state has lasted, in its largest unit.
fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The last rollout of a deployment, if it failed: what became of it, and why.
fn failed_rollout(deployment: &Deployment) -> Option<String> {
    let rollout = deployment.rollout.as_ref()?;
    let (name, to) = (qualified(&deployment.namespace, &deployment.name), rollout.to);
    let outcome = match rollout.state {
        RolloutState::RolledBack => format!("revision {to} was rolled back, {} is in force", deployment.revision),
        RolloutState::Aborted => format!("revision {to} is being rolled back to {}", deployment.revision),
        RolloutState::Paused => format!("the rollout of revision {to} is paused"),
        RolloutState::InProgress
        | RolloutState::AwaitingPromotion
        | RolloutState::Completed
        | RolloutState::Superseded
        | RolloutState::Unknown(_) => return None,
    };
    Some(format!("{name}: {outcome}: {}", progress::rollout_failure(rollout)?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn replica(id: &str, state: &str, generation: u32, node: Option<&str>) -> Value {
        json!({
            "id": id, "namespace": "default", "deployment": "shop", "service": "web", "node": node, "state": state,
            "code": null, "details": {}, "generation": generation, "attempt": 0, "revision": generation, "restarts": 0,
            "since_ms": node.map(|_| 10_000), "address": null,
        })
    }

    fn service(name: &str, image: &str, counts: [u32; 3], ports: &Value) -> Value {
        let [desired, running, completed] = counts;
        json!({
            "name": name, "image": image, "strategy": "spread", "driver": "docker", "desired": desired,
            "wanted": desired, "running": running, "completed": completed, "ports": ports,
        })
    }

    fn shop(rollout: &Value, services: &[Value], replicas: &[Value]) -> String {
        let deployment = json!({
            "namespace": "default", "name": "shop", "status": "active", "reasons": [], "revision": 1,
            "revisions": [1, 2], "rollout": rollout, "services": services,
        });
        let status = json!({ "deployments": [deployment], "replicas": replicas });
        tables_at(&serde_json::from_value(status).unwrap(), 75_000, Colour::Off)
    }

    #[test]
    fn a_job_that_is_done_is_no_replica_that_is_missing() {
        let ports = json!([{ "target": 80, "published": 8080, "protocol": "tcp", "mode": "ingress" }]);
        let services =
            [service("migrate", "shop:2", [1, 0, 1], &json!([])), service("web", "shop:2", [2, 2, 0], &ports)];
        insta::assert_snapshot!(shop(&Value::Null, &services, &[]), @r"
        DEPLOYMENT  STATUS  REVISION  RUNNING            REASONS
        shop        active  1         2/2 · 1 completed

        SERVICE       IMAGE   RUNNING      PORTS
        shop/migrate  shop:2  1 completed
        shop/web      shop:2  2/2          8080->80/tcp
        ");
    }

    #[test]
    fn two_generations_of_a_replica_and_the_slot_that_waits_are_told_apart() {
        let mut old = replica("shop-web-0", "draining", 1, Some("n1"));
        old["details"] = json!({ "ports": ["80/tcp=0.0.0.0:32768"] });
        let new = replica("shop-web-0", "starting", 2, Some("n2"));
        let mut waits = replica("shop-web-1", "pending", 1, None);
        waits["code"] = json!("no_capacity_memory");
        let rows = [old, new, replica("shop-web-1", "draining", 1, Some("n1")), waits];
        insta::assert_snapshot!(shop(&Value::Null, &[], &rows), @r"
        DEPLOYMENT  STATUS  REVISION  RUNNING  REASONS
        shop        active  1         0/0

        REPLICA     STATE     NODE  GENERATION  REVISION  AGE  RESTARTS  PORTS                  CODE
        shop-web-0  draining  n1    1           1         1m   0         0.0.0.0:32768->80/tcp
        shop-web-0  starting  n2    2           2         1m   0
        shop-web-1  draining  n1    1           1         1m   0
        shop-web-1  pending                                    0                                no_capacity_memory
        ");
    }

    #[test]
    fn a_rollout_that_failed_says_why_until_the_next_one() {
        let rollout = json!({
            "number": 3, "from": 1, "to": 2, "state": "rolled_back", "failure_reason": "step_timeout",
            "failed_replica": "shop-web-0", "failure": {
                "generation": 2, "node": "n1", "state": "pending", "code": "image_pull_failed",
                "details": { "reason": "shop:2: manifest unknown" },
            },
        });
        insta::assert_snapshot!(shop(&rollout, &[], &[]), @r"
        DEPLOYMENT  STATUS  REVISION  RUNNING  REASONS
        shop        active  1         0/0

        shop: revision 2 was rolled back, 1 is in force: shop-web-0 of revision 2 was not running in time (step_timeout); it was pending on n1: image_pull_failed, shop:2: manifest unknown
        ");
    }

    #[test]
    fn an_age_is_told_in_its_largest_unit() {
        assert_eq!([0, 59_999, 60_000, 7_200_000, 200_000_000].map(age), ["0s", "59s", "1m", "2h", "2d"]);
    }
}
