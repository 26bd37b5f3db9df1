//! The README's `console` blocks, run against a daemon.

use std::path::Path;

use crate::{
    machine::{Machine, steady},
    terminal::Terminal,
};

/// A command of the README and what it shows below it.
struct Shown {
    command: String,
    output: String,
}

/// Every command in a block of the kind `console`.
fn shown(page: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            match line.strip_prefix("$ longshore ") {
                Some(command) => all.push(Shown { command: command.to_owned(), output: String::new() }),
                None => all.last_mut().unwrap().output.extend([line, "\n"]),
            }
        }
    }
    all
}

#[test]
fn the_console_blocks_of_the_readme_show_the_real_output() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("README.md")).unwrap();
    let shown = shown(&page);
    let (first, rest) = shown.split_first().unwrap();
    assert!(rest.len() >= 5, "the README lost its commands");
    let machine = Machine::new();
    let command = first.command.replace("examples/hello/compose.yaml", &Machine::example());
    let data = machine.path("data");
    let arguments: Vec<&str> = command.split(' ').chain(["--data-dir", data.to_str().unwrap()]).collect();
    let mut terminal = Terminal::run(&arguments, |command| machine.prepare(command));
    let said = terminal.wait_for("Ctrl-C stops it").replace(&machine.port.to_string(), "8080");
    assert!(said.contains(&first.output), "the README shows\n{}\nand it says\n{said}", first.output);
    for Shown { command, output } in rest {
        let answer = machine.ask(&command.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8(answer.stdout).unwrap().replace(&machine.port.to_string(), "8080");
        assert_eq!(steady(&said), steady(output), "longshore {command}");
        // The next block shows a converged cluster.
        machine.wait_for("convergence", || {
            let status = machine.json(&["status"]);
            status["deployments"][0]["status"] == "active"
                && machine.json(&["whatif"])["moves"] == serde_json::json!([])
        });
    }
    terminal.press(b"\x03");
    assert!(terminal.wait_until_it_ends().success(), "{}", terminal.text());
}
