//! What the README shows is what a reader gets who types it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// The blocks of a language in the README, in order.
fn blocks(language: &str) -> Vec<String> {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README");
    let opening = format!("```{language}\n");
    let after = readme.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned());
    after.collect()
}

fn longshore(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    command.args(arguments).current_dir(folder).output().expect("the binary was built")
}

/// A text without the microseconds it took, which differ from run to run.
fn timeless(text: &str) -> String {
    let words = text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let is_figure = |at: usize| words.get(at + 1).is_some_and(|unit| unit == "µs");
    let kept = words.iter().enumerate().map(|(at, word)| if is_figure(at) { "N" } else { word.as_str() });
    kept.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_first_scenario_is_shown_as_it_is_and_ends_as_shown() {
    let example = fs::read_to_string(root().join("examples/first.yaml")).expect("the example is there");
    let shown = blocks("yaml").into_iter().next().expect("the README shows a scenario");
    let without_remark = example.trim_start_matches(|c| c != '\n').trim_start();
    assert_eq!(without_remark, shown);
    let output = longshore(&root(), &["sim", "run", "examples/first.yaml"]);
    let drawn = String::from_utf8(output.stdout).expect("it is text");
    let promised = blocks("text").into_iter().find(|block| block.starts_with("after ")).expect("and how it ends");
    assert_eq!(timeless(&drawn).trim_end(), timeless(&promised).trim_end());
}

#[test]
fn a_compose_file_with_those_mistakes_is_told_of_them_in_those_words() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let text = "services:\n  web:\n    image: web:1\n    enviroment: { MODE: prod }\n    networks: [front]\n";
    fs::write(folder.path().join("compose.yaml"), text).expect("the folder can be written");
    let promised = blocks("text").into_iter().find(|block| block.starts_with("$ longshore validate"));
    let promised = promised.expect("the README shows what a mistake looks like");
    let (typed, answer) = promised.split_once('\n').expect("a command and its answer");
    let arguments: Vec<&str> = typed.split(' ').skip(2).collect();
    let output = longshore(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr).trim_end(), answer.trim_end());
}

#[test]
fn the_unit_starts_a_daemon_that_this_binary_knows_and_ends_nothing_else() {
    let unit = fs::read_to_string(root().join("packaging/longshore.service")).expect("the unit is there");
    let value = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)).expect("it is set");
    assert_eq!(value("KillMode="), "process", "whatever the daemon has started outlives it");
    let started = value("ExecStart=").strip_suffix(" $LONGSHORE_OPTIONS").expect("this machine's options come last");
    let installed = fs::read_to_string(root().join("docs/install.md")).expect("the page is there");
    let options = installed.split("LONGSHORE_OPTIONS=\"").nth(1).and_then(|rest| rest.split('"').next());
    let mut arguments: Vec<&str> = started.split(' ').skip(1).collect();
    arguments.extend(options.expect("the page shows options").split(' '));
    arguments.push("--help");
    let output = longshore(&root(), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
