//! What commands say about changes that fail, wait or take their time: stories of somebody who has only these words.

use std::{collections::BTreeMap, process::Output, time::Instant};

use serde_json::Value;

use crate::machine::Machine;

/// A shop whose web service runs `command` under `sh -c`.
fn shop(machine: &Machine, command: &str, further: &str) {
    let text = format!(
        "name: shop\nservices:\n  web:\n    image: none\n    command: [sh, -c, \"{command}\"]\n    stop_grace_period: 2s\n{further}    \
         x-longshore: {{ driver: exec }}\n"
    );
    machine.write("compose.yaml", &text);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn apply(machine: &Machine) -> Output {
    machine.ask(&["apply", "-f", "compose.yaml", "--wait"])
}

#[test]
fn a_version_that_crashes_is_rolled_back_with_its_last_words() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    shop(&machine, "exec sleep 600", "");
    assert!(apply(&machine).status.success());
    // One stream: nothing orders the lines of two.
    shop(&machine, "exec >&2; echo connecting; echo no database; exit 3", "");
    let failed = apply(&machine);
    assert_eq!(failed.status.code(), Some(4), "{}", text(&failed.stderr));
    assert_eq!(text(&failed.stdout), "", "nothing reads like a success after the error");
    let said = text(&failed.stderr);
    let verdict: String = said.lines().skip_while(|line| !line.starts_with("error:")).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(verdict, @r"
    error: `shop` failed and was rolled back: shop-web-0 of revision 2 failed too often (restart_exhausted); it was failed on n: restart_exhausted with code 3
    the last lines of shop-web-0:
      | connecting
      | no database
    revision 1 is in force again

    hint: `longshore status shop` shows the replicas, `longshore why REPLICA` explains one
    ");
    let status = text(&machine.ask(&["status"]).stdout);
    assert!(status.contains("shop: revision 2 was rolled back, 1 is in force: shop-web-0"), "{status}");
    assert!(status.contains("  | no database"), "{status}");
    let rollout = &machine.json(&["status"])["deployments"][0]["rollout"];
    assert_eq!(rollout["failure_reason"], "restart_exhausted", "{rollout:#}");
    assert_eq!(rollout["failure"]["details"]["last_lines"][1], "no database", "{rollout:#}");
    let audit = machine.json(&["audit"]);
    let codes: BTreeMap<&str, &Value> =
        audit.as_array().unwrap().iter().map(|it| (it["action"].as_str().unwrap(), &it["code"])).collect();
    assert_eq!(codes["rollout_aborted"], "restart_exhausted", "{audit:#}");
    assert_eq!(codes["rolled_back"], "restart_exhausted", "{audit:#}");
    assert!(!audit.to_string().contains("no database"), "the audit log holds no output");
}

#[test]
fn a_first_version_that_crashes_shows_its_last_words_too() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    shop(&machine, "echo no configuration; exit 1", "");
    let failed = apply(&machine);
    let said = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(4), "{said}");
    assert!(said.contains("the last lines of shop-web-0:\n  | no configuration"), "{said}");
    let why = text(&machine.ask(&["why", "shop-web-0"]).stdout);
    assert!(why.contains("it is failed: restart_exhausted, exit_code 1"), "{why}");
    assert!(why.contains("  | no configuration"), "{why}");
}

#[test]
fn what_fits_on_no_node_ends_the_waiting_with_the_reason() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    shop(&machine, "exec sleep 600", "    deploy: { resources: { limits: { memory: 900000G } } }\n");
    let begun = Instant::now();
    let failed = apply(&machine);
    let said = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(4), "{said}");
    assert!(begun.elapsed().as_secs() < 60, "the reason was known at once");
    assert!(
        said.contains("error: `shop` has no node for shop-web-0: no_capacity_memory\n0 of 1 node fit: needs"),
        "{said}"
    );
}

/// The old process takes its two seconds to stop, and only then may the new one start: for that time the slot has two rows.
#[test]
fn waiting_off_a_terminal_prints_one_line_per_change_of_state() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    let stop_first = "    deploy: { update_config: { order: stop-first, monitor: 1s } }\n";
    shop(&machine, "trap '' TERM; while true; do sleep 1; done", stop_first);
    assert!(apply(&machine).status.success());
    let restarted = machine.ask(&["restart", "shop", "web", "--wait"]);
    assert!(restarted.status.success(), "{}", text(&restarted.stderr));
    assert_eq!(text(&restarted.stdout), "shop/web was restarted\n");
    let said = text(&restarted.stderr);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in said.lines() {
        *counts.entry(line).or_default() += 1;
    }
    assert!(counts.values().all(|count| *count <= 2), "a list that flaps:\n{said}");
    assert!(said.lines().count() <= 8, "one line per change of state:\n{said}");
}

#[test]
fn scaling_is_done_as_soon_as_the_replicas_run() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    shop(&machine, "exec sleep 600", "    deploy: { update_config: { monitor: 120s } }\n");
    assert!(apply(&machine).status.success());
    let begun = Instant::now();
    let scaled = machine.ask(&["scale", "shop", "web=3", "--wait"]);
    assert_eq!(text(&scaled.stdout), "shop/web runs 3 replicas\n", "{}", text(&scaled.stderr));
    assert!(begun.elapsed().as_secs() < 60, "it does not wait for the monitor time");
    let back = machine.ask(&["scale", "shop", "web=1"]);
    assert_eq!(
        text(&back.stdout),
        "scaling shop/web to 1 replica; `longshore status shop -w` shows its progress\n",
        "what has only begun is not called done"
    );
}

/// `why` is asked about every row of `status`, again and again, while a node is lost and returns.
#[test]
fn why_answers_for_every_replica_whatever_its_state() {
    let mut machine = Machine::new();
    machine.start_daemon(2);
    shop(&machine, "exec sleep 600", "    deploy: { replicas: 4, placement: { max_replicas_per_node: 2 } }\n");
    assert!(apply(&machine).status.success());
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut ask_about_all = || {
        for row in machine.json(&["status"])["replicas"].as_array().unwrap() {
            let id = row["id"].as_str().unwrap();
            let why = machine.ask(&["why", id]);
            // A row may be gone by the time it is asked about; one that is still listed has an answer.
            let listed = || machine.json(&["status"])["replicas"].as_array().unwrap().iter().any(|it| it["id"] == id);
            assert!(why.status.success() || !listed(), "{row:#}: {}", text(&why.stderr));
            *seen.entry(row["state"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    };
    ask_about_all();
    let isolated = machine.ask(&["node", "isolate", "n-2"]);
    assert!(isolated.status.success());
    machine.wait_for("a node that is down", || {
        ask_about_all();
        machine.json(&["node", "inspect", "n-2"])["health"] == "down"
    });
    ask_about_all();
    let lost = machine.ask(&["node", "lost", "n-2"]);
    assert!(lost.status.success(), "{}", text(&lost.stderr));
    machine.wait_for("a replica that waits", || {
        ask_about_all();
        let status = machine.json(&["status"]);
        status["replicas"].as_array().unwrap().iter().any(|it| it["state"] == "pending")
    });
    ask_about_all();
    assert!(machine.ask(&["node", "heal", "n-2"]).status.success());
    machine.wait_for("the node's return", || {
        ask_about_all();
        machine.json(&["status"])["deployments"][0]["status"] == "active"
    });
    assert!(seen.contains_key("lost") && seen.contains_key("pending"), "{seen:?}");
}
