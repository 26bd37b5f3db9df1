//! Every command: its text for people, the shape of its JSON and YAML, and the examples in its help.
//!
//! The modules below run commands on one machine and record each. At the end the tree of commands, as the help texts
//! list it, is compared: a command that no module has run, or whose JSON or YAML none has parsed, fails the test.

mod cluster;
mod command_tree;
mod deployments;
mod help_examples;
mod local;
mod nodes;
mod output_formats;
mod queries;
mod sim_formats;

use std::{collections::BTreeSet, fmt::Write as _};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use self::{
    command_tree::CommandTree,
    output_formats::{assert_shape, is_query, parse_yaml, without_numbers},
};
use crate::machine::{Machine, steady};

pub(super) const SHOP: &str = "\
name: shop
services:
  web:
    image: none
    command: [sleep, \"600\"]
    x-longshore: { driver: exec }
    deploy: { replicas: 2, resources: { limits: { memory: 16m } }, update_config: { monitor: 50ms } }
";
const REPORT: &str = r#"  report:
    image: none
    command: [sleep, "600"]
    x-longshore: { driver: exec }
    deploy: { resources: { limits: { memory: 900000g } } }
"#;

/// A daemon with two nodes and an active deployment `shop`.
pub(super) fn shop() -> Machine {
    let mut machine = Machine::new();
    let listen = format!("127.0.0.1:{}", machine.port);
    machine.start_daemon_with("n1", 2, &["--listen", &listen]);
    machine.write("compose.yaml", SHOP);
    machine.write("compose.prod.yaml", "services: { web: { environment: { MODE: prod } } }\n");
    machine.write("compose.more.yaml", "services: { web: { environment: { MODE: prod }, deploy: { replicas: 3 } } }\n");
    machine.write("routes.yaml", "deployment: shop\nroutes: [ { domain: shop.example, service: web, port: 80 } ]\n");
    machine.write("compose.wider.yaml", "services: { web: { deploy: { replicas: 3 } } }\n");
    machine.write("report.yaml", &format!("{SHOP}{REPORT}"));
    let applied = machine.ask(&["apply", "-f", "compose.yaml", "--wait"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    machine
}

/// A machine, and the commands that were run on it.
pub(super) struct Tour {
    machine: Machine,
    tree: CommandTree,
    shown: BTreeSet<String>,
    shaped: BTreeSet<String>,
    in_yaml: BTreeSet<String>,
}

impl Tour {
    fn begin(machine: Machine) -> Self {
        let tree = CommandTree::of(&machine);
        Self { machine, tree, shown: BTreeSet::new(), shaped: BTreeSet::new(), in_yaml: BTreeSet::new() }
    }

    /// The output of a command, after its exit code.
    fn says(&mut self, line: &str) -> String {
        self.shown.insert(self.tree.leaf(line));
        let output = self.machine.ask(&line.split(' ').collect::<Vec<_>>());
        let mut text = format!("exit {}\n", output.status.code().unwrap());
        let _ = write!(text, "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let folder = self.machine.path("");
        steady(&text.replace(folder.to_str().unwrap().trim_end_matches('/'), "HERE"))
    }

    /// The same without progress lines, which depend on timing.
    fn says_without_progress(&mut self, line: &str) -> String {
        let said = self.says(line);
        let is_no_progress = |line: &&str| !line.starts_with("shop-") && !line.starts_with("n1");
        said.lines().filter(is_no_progress).fold(String::new(), |out, line| out + line + "\n")
    }

    /// Runs a command with `-o json` and asserts that the answer is exactly a `T`. A query is repeated with `-o yaml`,
    /// and the answer must be the same.
    fn shape<T: DeserializeOwned + Serialize>(&mut self, line: &str) -> Value {
        let leaf = self.tree.leaf(line);
        let words: Vec<&str> = line.split(' ').collect();
        let answer = self.machine.json(&words);
        assert_shape::<T>(&answer);
        if is_query(&leaf) {
            // The state may change between the two requests.
            self.machine.wait_for(&format!("the same answer in JSON and YAML: {line}"), || {
                without_numbers(&self.machine.json(&words)) == without_numbers(&self.yaml::<T>(line))
            });
            self.in_yaml.insert(leaf.clone());
        }
        self.shaped.insert(leaf);
        answer
    }

    /// Runs a command that changes something with `-o yaml`, and asserts the shape of the answer.
    fn shape_in_yaml<T: DeserializeOwned + Serialize>(&mut self, line: &str) {
        self.yaml::<T>(line);
        self.in_yaml.insert(self.tree.leaf(line));
    }

    fn yaml<T: DeserializeOwned + Serialize>(&self, line: &str) -> Value {
        let output = self.machine.ask(&line.split(' ').chain(["-o", "yaml"]).collect::<Vec<_>>());
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let answer = parse_yaml(&String::from_utf8(output.stdout).unwrap());
        assert_shape::<T>(&answer);
        answer
    }

    /// Records a command that prints until it is killed, or needs more than this machine has; a story of its own runs it.
    fn endless(&mut self, line: &str) {
        let leaf = self.tree.leaf(line);
        for recorded in [&mut self.shown, &mut self.shaped, &mut self.in_yaml] {
            recorded.insert(leaf.clone());
        }
    }

    /// Commands that were never run.
    fn not_run(&self) -> Vec<&String> {
        self.tree.leaves().filter(|leaf| !self.shown.contains(*leaf)).collect()
    }

    /// Commands with `-o` whose JSON was never parsed.
    fn json_not_parsed(&self) -> Vec<&String> {
        self.tree.with_formats().filter(|leaf| !self.shaped.contains(*leaf)).collect()
    }

    /// Commands with `-o` whose YAML was never parsed.
    fn yaml_not_parsed(&self) -> Vec<&String> {
        self.tree.with_formats().filter(|leaf| !self.in_yaml.contains(*leaf)).collect()
    }

    /// Commands without `-o`.
    fn text_only(&self) -> Vec<&String> {
        let with_formats: BTreeSet<&String> = self.tree.with_formats().collect();
        self.tree.leaves().filter(|leaf| !with_formats.contains(leaf)).collect()
    }
}

#[test]
fn every_command_has_tested_text_json_and_yaml() {
    let mut tour = Tour::begin(shop());
    queries::queries(&mut tour);
    queries::plans(&mut tour);
    queries::mistakes(&mut tour);
    deployments::a_service_that_fits_no_node(&mut tour);
    deployments::a_canary_waits_for_promotion(&mut tour);
    deployments::counts_and_quotas(&mut tour);
    deployments::policies(&mut tour);
    deployments::logs_and_exec(&mut tour);
    nodes::intents(&mut tour);
    nodes::a_node_is_drained(&mut tour);
    cluster::membership(&mut tour);
    cluster::settings(&mut tour);
    cluster::tokens(&mut tour);
    cluster::secrets_and_registries(&mut tour);
    cluster::backups(&mut tour);
    local::manifests(&mut tour);
    local::simulations(&mut tour);
    local::daemons(&mut tour);
    deployments::compose_habits(&mut tour);
    queries::shapes(&mut tour);
    deployments::shapes(&mut tour);
    nodes::shapes(&mut tour);
    queries::audit(&mut tour);
    assert_eq!(tour.not_run(), Vec::<&String>::new(), "commands that were not run");
    assert_eq!(tour.json_not_parsed(), Vec::<&String>::new(), "commands whose JSON was not parsed");
    assert_eq!(tour.yaml_not_parsed(), Vec::<&String>::new(), "commands whose YAML was not parsed");
    assert_eq!(tour.text_only(), output_formats::TEXT_ONLY, "commands without -o");
    let _ = tour.machine.ask(&["rm", "shop", "--wait"]);
}
