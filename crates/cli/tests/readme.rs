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

/// Replaces the measured microseconds, which differ from run to run.
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
fn the_diagnostics_in_the_readme_are_the_real_ones() {
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

/// Blocks of a page, each with its language.
fn fenced(page: &str) -> Vec<(String, String)> {
    let parts: Vec<&str> = page.split("```").collect();
    let inside = parts.iter().skip(1).step_by(2);
    let pair = |block: &&str| block.split_once('\n').map(|(kind, text)| (kind.to_owned(), text.to_owned()));
    inside.filter_map(pair).collect()
}

#[test]
fn every_block_is_one_that_a_test_runs() {
    let page = fs::read_to_string(root().join("README.md")).expect("there is a README");
    for (kind, text) in fenced(&page) {
        match kind.as_str() {
            // Run on a real daemon, by `cli/readme_console.rs`.
            "console" => assert!(text.starts_with("$ longshore "), "{text}"),
            "yaml" => assert!(text.starts_with("nodes:"), "no test runs\n{text}"),
            "text" => {
                let known = text.starts_with("after ") || text.starts_with("$ longshore validate");
                assert!(known, "no test runs\n{text}");
            }
            "sh" => text.lines().for_each(is_a_target),
            other => panic!("no test runs a block of the kind `{other}`"),
        }
    }
}

/// Asserts that `make` would run the expected step for a line of the README.
fn is_a_target(line: &str) {
    let target = line.strip_prefix("make ").and_then(|rest| rest.split(' ').next()).expect("only `make` is shown");
    let output = Command::new("make").args(["-n", target]).current_dir(root()).output().expect("make is there");
    let steps = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "make {target}: {}", String::from_utf8_lossy(&output.stderr));
    let step = if target == "demo" { "examples/hello/demo.sh" } else { "cargo test --workspace" };
    assert!(steps.contains(step), "make {target} does not {step}:\n{steps}");
}

#[test]
fn the_demo_serves_its_page_and_says_what_to_try_next() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let mut demo = Command::new(root().join("examples/hello/demo.sh"));
    demo.arg(env!("CARGO_BIN_EXE_longshore")).env("HELLO_PORT", port.to_string()).stdin(std::process::Stdio::null());
    let output = demo.output().expect("the script is there");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["200 OK", "Hello from hello-web-", "Try next", "longshore node drain", "hello-web-0 is on"] {
        assert!(said.contains(part), "`{part}` is not in\n{said}");
    }
}

/// Commands a page names: lines of its `sh` blocks, and words between backticks.
fn named(page: &str) -> Vec<String> {
    let blocks = fenced(page).into_iter().filter(|(kind, _)| kind == "sh");
    let lines: Vec<String> = blocks.flat_map(|(_, text)| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let prose: String = page.split("```").step_by(2).collect();
    let spans = prose.split('`').skip(1).step_by(2).map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    let bare = |line: String| {
        line.split(" #").next().unwrap_or_default().split(['|', '>']).next().unwrap_or_default().trim().to_owned()
    };
    lines.into_iter().chain(spans).map(bare).filter(|line| line.starts_with("longshore ")).collect()
}

#[test]
fn every_command_that_a_page_names_is_one_of_this_binary() {
    let mut pages = vec![root().join("README.md")];
    for folder in ["docs", "docs/errors"] {
        let files = fs::read_dir(root().join(folder)).expect("the pages are there").flatten().map(|entry| entry.path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    }
    let (mut tried, mut unknown) = (0, Vec::new());
    for page in pages {
        for line in named(&fs::read_to_string(&page).expect("it is text")) {
            let arguments: Vec<&str> = line.split(' ').skip(1).chain(["--help"]).collect();
            let output = longshore(&root(), &arguments);
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                unknown.push(format!("{}: `{line}`: {said}", page.display()));
            }
            tried += 1;
        }
    }
    assert_eq!(unknown, Vec::<String>::new());
    assert!(tried > 80, "only {tried} commands were found");
}

#[test]
fn the_systemd_unit_starts_the_daemon_and_stops_nothing_else() {
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
