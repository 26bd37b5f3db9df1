//! The tree of commands as the help texts list it; hidden commands are not part of it.

use std::collections::BTreeMap;

use crate::machine::Machine;

/// Commands for trying things out, which no help lists.
const HIDDEN: [&str; 2] = ["node isolate", "node heal"];

/// The help of every command that has no subcommands.
pub(super) struct CommandTree {
    helps: BTreeMap<String, String>,
}

impl CommandTree {
    pub(super) fn of(machine: &Machine) -> Self {
        let mut helps = BTreeMap::new();
        let mut open = vec![Vec::<String>::new()];
        while let Some(path) = open.pop() {
            let asked: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
            let help = String::from_utf8(machine.ask(&asked).stdout).unwrap();
            let subcommands = subcommands(&help);
            if subcommands.is_empty() {
                helps.insert(path.join(" "), help);
            }
            open.extend(subcommands.into_iter().map(|word| [path.clone(), vec![word]].concat()));
        }
        assert!(helps.len() > 50, "the tree was not found: {:?}", helps.keys());
        Self { helps }
    }

    pub(super) fn leaves(&self) -> impl Iterator<Item = &String> {
        self.helps.keys()
    }

    /// Those with an option `-o`.
    pub(super) fn with_formats(&self) -> impl Iterator<Item = &String> {
        self.helps.iter().filter(|(_, help)| help.contains("--output <")).map(|(leaf, _)| leaf)
    }

    /// The command that a line runs.
    pub(super) fn leaf(&self, line: &str) -> String {
        let fits = |leaf: &&String| line == *leaf || line.starts_with(&format!("{leaf} "));
        let found = self.leaves().find(fits).cloned();
        let hidden = || HIDDEN.into_iter().map(str::to_owned).find(|leaf| fits(&leaf));
        found.or_else(hidden).unwrap_or_else(|| panic!("`{line}` is not a command of the tree"))
    }

    /// The examples in the help of a command, as they are typed.
    pub(super) fn examples(&self, leaf: &str) -> Vec<&str> {
        let lines = self.helps[leaf].lines().skip_while(|line| *line != "Examples:").skip(1);
        let shown = lines.take_while(|line| !line.is_empty());
        shown.map(|line| line.trim().split("   ").next().unwrap().split("  ").next().unwrap()).collect()
    }
}

/// Commands listed in a help text.
fn subcommands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let first =
        |line: &str| line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty()).map(str::to_owned);
    listed.filter_map(first).filter(|word| word != "help").collect()
}
