//! What `restart` in a Compose file means on a real node, with containers and with plain processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

use std::{fmt::Write as _, fs, path::PathBuf};

use serde_json::Value;
use test_cluster::{Cluster, eventually};

/// A project on one node. Every start of a service appends a line to the file of its name.
struct Project {
    cluster: Cluster,
    starts: PathBuf,
}

impl Project {
    /// Applies services, each with its own keys and a script.
    fn apply(cluster: Cluster, driver: &str, services: &[(&str, &str, &str)]) -> Self {
        let starts = cluster.folder.path().join("starts");
        fs::create_dir(&starts).unwrap();
        let folder = starts.display();
        let mut manifest = "name: words\nservices:\n".to_owned();
        for (name, keys, script) in services {
            let script = script.replace("STARTS", &folder.to_string());
            let _ = write!(
                manifest,
                "  {name}:\n    image: busybox:1\n    pull_policy: never\n    volumes: [ \"{folder}:{folder}\" ]\n    \
                 x-longshore: {{ driver: {driver} }}\n    command: [ \"sh\", \"-c\", \"echo >> {folder}/{name}; {script}\" ]\n{keys}"
            );
        }
        if driver == "exec" {
            manifest = manifest
                .lines()
                .filter(|line| !line.contains("volumes:"))
                .fold(String::new(), |text, line| text + line + "\n");
        }
        fs::write(cluster.folder.path().join("words.yaml"), manifest).unwrap();
        let project = Self { cluster, starts };
        let applied = project.longshore("apply");
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
        assert_eq!(String::from_utf8_lossy(&applied.stderr), "", "no warning");
        project
    }

    fn longshore(&self, verb: &str) -> std::process::Output {
        let file = self.cluster.folder.path().join("words.yaml");
        self.cluster.nodes[0].ask(&[verb, "-f", file.to_str().unwrap()])
    }

    fn starts_of(&self, service: &str) -> usize {
        fs::read_to_string(self.starts.join(service)).map_or(0, |text| text.lines().count())
    }

    /// The row of a service's only replica, once it is in that state with that code.
    fn wait_for(&self, service: &str, state: &str, code: &str) -> Value {
        eventually(&format!("{service} is {state} {code}"), || {
            let status = self.cluster.nodes[0].json(&["status", "words"])?;
            let id = format!("words-{service}-0");
            let is_it = |row: &&Value| {
                row["id"] == id.as_str() && row["state"] == state && row["code"].as_str().unwrap_or_default() == code
            };
            status["replicas"].as_array()?.iter().find(is_it).cloned()
        })
    }
}

const ALWAYS: &str = "    restart: always\n";
const NO: &str = "    restart: \"no\"\n";
const TWICE: &str = "    restart: on-failure:2\n";
const AFTER_MIGRATE: &str = "    depends_on: { migrate: { condition: service_completed_successfully } }\n";
const RUN_ON: &str = "trap 'exit 0' TERM; while :; do sleep 1; done";

fn every_word_does_what_compose_says(cluster: Cluster, driver: &str) {
    let until_database = format!("test -e STARTS/database || exit 1; {RUN_ON}");
    let services = [
        ("web", ALWAYS, until_database.as_str()),
        ("migrate", NO, "sleep 1"),
        ("app", AFTER_MIGRATE, RUN_ON),
        ("twice", TWICE, "exit 1"),
        ("bad", NO, "exit 3"),
        ("good", "    restart: on-failure\n", "exit 0"),
    ];
    let project = Project::apply(cluster, driver, &services);

    project.wait_for("app", "running", "");
    project.wait_for("migrate", "completed", "");
    project.wait_for("good", "completed", "");
    let bad = project.wait_for("bad", "failed", "exited");
    assert_eq!((&bad["details"]["exit_code"], &bad["restarts"]), (&3.into(), &0.into()), "{bad:#}");
    project.wait_for("twice", "failed", "restart_exhausted");
    let web = project.wait_for("web", "failed", "restart_exhausted");
    assert!(web["returns_at_ms"].is_u64(), "{web:#}");

    // The database comes up long after the restarts were exhausted.
    fs::write(project.starts.join("database"), "").unwrap();
    let web = project.wait_for("web", "running", "");
    assert_eq!((&web["generation"], &web["restarts"]), (&1.into(), &3.into()), "{web:#}");
    for (service, starts) in [("web", 4), ("migrate", 1), ("app", 1), ("twice", 3), ("bad", 1), ("good", 1)] {
        assert_eq!(project.starts_of(service), starts, "{service}");
    }

    // `apply` runs nothing again that has ended, `up` does; nobody else notices.
    assert!(project.longshore("apply").status.success());
    project.longshore("up");
    eventually("what ran once ran again", || {
        ["migrate", "bad", "good"].iter().all(|service| project.starts_of(service) == 2).then_some(())
    });
    project.wait_for("migrate", "completed", "");
    assert_eq!((project.starts_of("app"), project.starts_of("web")), (1, 4));
}

#[test]
fn every_word_of_restart_does_what_compose_says_with_plain_processes() {
    every_word_does_what_compose_says(Cluster::of(1), "exec");
}

#[test]
fn every_word_of_restart_does_what_compose_says_with_containers() {
    every_word_does_what_compose_says(Cluster::on_engines(1), "docker");
}
