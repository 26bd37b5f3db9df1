//! Every command: what it says to people, the shape of what it says to programs, and the examples in its help.
//!
//! Stories below take a machine through everything. Each command they run is noted, and in the end the tree of commands,
//! as the help texts list it, is walked: one that no story has shown, or whose answer for programs nobody has read, fails.

mod asking;
mod cluster;
mod examples;
mod forms;
mod local;
mod nodes;
mod simulated;
mod steering;
mod tree;

use std::{collections::BTreeSet, fmt::Write as _};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use self::{
    forms::{is_exactly, is_question, read, unmeasured},
    tree::Tree,
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

/// A daemon of two nodes, with a shop that runs.
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

/// A machine, and which commands were shown on it.
pub(super) struct Tour {
    machine: Machine,
    tree: Tree,
    shown: BTreeSet<String>,
    shaped: BTreeSet<String>,
    in_yaml: BTreeSet<String>,
}

impl Tour {
    fn begin(machine: Machine) -> Self {
        let tree = Tree::of(&machine);
        Self { machine, tree, shown: BTreeSet::new(), shaped: BTreeSet::new(), in_yaml: BTreeSet::new() }
    }

    /// What a command says, with its exit code in front.
    fn says(&mut self, line: &str) -> String {
        self.shown.insert(self.tree.leaf(line));
        let output = self.machine.ask(&line.split(' ').collect::<Vec<_>>());
        let mut text = format!("exit {}\n", output.status.code().unwrap());
        let _ = write!(text, "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let folder = self.machine.path("");
        steady(&text.replace(folder.to_str().unwrap().trim_end_matches('/'), "HERE"))
    }

    /// The same without the lines of progress, which depend on when somebody looked.
    fn says_in_the_end(&mut self, line: &str) -> String {
        let said = self.says(line);
        let is_news = |line: &&str| !line.starts_with("shop-") && !line.starts_with("n1");
        said.lines().filter(is_news).fold(String::new(), |out, line| out + line + "\n")
    }

    /// Has a command answer a program: as `T`, with nothing left over or missing. A question is asked in YAML as well, and
    /// the answer is the same.
    fn shape<T: DeserializeOwned + Serialize>(&mut self, line: &str) -> Value {
        let leaf = self.tree.leaf(line);
        let words: Vec<&str> = line.split(' ').collect();
        let answer = self.machine.json(&words);
        is_exactly::<T>(&answer);
        if is_question(&leaf) {
            // What goes on meanwhile may come between the two.
            self.machine.wait_for(&format!("the same in both forms: {line}"), || {
                unmeasured(&self.machine.json(&words)) == unmeasured(&self.yaml::<T>(line))
            });
            self.in_yaml.insert(leaf.clone());
        }
        self.shaped.insert(leaf);
        answer
    }

    /// Says a word, which may be said only once, and has the answer in YAML.
    fn shape_in_yaml<T: DeserializeOwned + Serialize>(&mut self, line: &str) {
        self.yaml::<T>(line);
        self.in_yaml.insert(self.tree.leaf(line));
    }

    fn yaml<T: DeserializeOwned + Serialize>(&self, line: &str) -> Value {
        let output = self.machine.ask(&line.split(' ').chain(["-o", "yaml"]).collect::<Vec<_>>());
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let answer = read(&String::from_utf8(output.stdout).unwrap());
        is_exactly::<T>(&answer);
        answer
    }

    /// Commands that no story has shown.
    fn untold(&self) -> Vec<&String> {
        self.tree.leaves().filter(|leaf| !self.shown.contains(*leaf)).collect()
    }

    /// Commands that answer programs, and whose answer no story has read.
    fn unread(&self) -> Vec<&String> {
        self.tree.for_programs().filter(|leaf| !self.shaped.contains(*leaf)).collect()
    }

    /// The same of YAML.
    fn unread_in_yaml(&self) -> Vec<&String> {
        self.tree.for_programs().filter(|leaf| !self.in_yaml.contains(*leaf)).collect()
    }

    /// Commands that answer people only.
    fn for_people(&self) -> Vec<&String> {
        let for_programs: BTreeSet<&String> = self.tree.for_programs().collect();
        self.tree.leaves().filter(|leaf| !for_programs.contains(leaf)).collect()
    }
}

#[test]
fn every_command_is_shown_to_people_and_read_by_programs() {
    let mut tour = Tour::begin(shop());
    asking::questions(&mut tour);
    asking::plans(&mut tour);
    asking::mistakes(&mut tour);
    steering::what_cannot_be_had(&mut tour);
    steering::a_change_is_held_and_goes_on(&mut tour);
    steering::counts_and_quotas(&mut tour);
    steering::beside_replicas(&mut tour);
    nodes::words(&mut tour);
    nodes::a_node_is_emptied(&mut tour);
    cluster::who_belongs_to_it(&mut tour);
    cluster::what_it_goes_by(&mut tour);
    cluster::who_may_ask(&mut tour);
    cluster::secrets_and_registries(&mut tour);
    cluster::everything_in_a_file(&mut tour);
    local::manifests(&mut tour);
    local::simulations(&mut tour);
    local::daemons(&mut tour);
    asking::shapes(&mut tour);
    steering::shapes(&mut tour);
    nodes::shapes(&mut tour);
    asking::who_did_what(&mut tour);
    assert_eq!(tour.untold(), Vec::<&String>::new(), "commands that no story shows");
    assert_eq!(tour.unread(), Vec::<&String>::new(), "commands whose answer for programs nobody reads");
    assert_eq!(tour.unread_in_yaml(), Vec::<&String>::new(), "commands whose answer in YAML nobody reads");
    assert_eq!(tour.for_people(), forms::FOR_PEOPLE, "commands that answer people only");
    let _ = tour.machine.ask(&["rm", "shop", "--wait"]);
}
