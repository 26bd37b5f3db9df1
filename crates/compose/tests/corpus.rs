//! The golden corpus under `tests/compose`: one directory per case, resolved and compared with the expected output next to
//! it. `UPDATE_GOLDEN=1` rewrites the expected output.
//!
//! A case may have a file `args` with `-f`, `--profile`, `--env NAME=VALUE`, `--env-file` and `--name`, one to a line.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use longshore_compose::{Disk, Loaded, Memory, Output, Request, Secrets, config, load, load_text};
use longshore_model::{DeploymentSpec, ServiceSpec};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/compose")
}

fn cases() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(corpus())
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

fn name(case: &Path) -> String {
    case.file_name().expect("a name").to_string_lossy().into_owned()
}

/// The files of a case as if they lay under `/srv/<case>`, so that goldens name no real directory.
fn memory(case: &Path) -> Memory {
    let mut files = BTreeMap::new();
    collect(case, &format!("/srv/{}", name(case)), &mut files);
    Memory(files)
}

fn collect(directory: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let inside = format!("{prefix}/{}", name(&path));
        if path.is_dir() {
            collect(&path, &inside, files);
        } else {
            files.insert(inside, fs::read_to_string(&path).expect("a text"));
        }
    }
}

fn request(case: &Path, working_directory: String) -> Request {
    let mut request = Request { working_directory, ..Request::default() };
    let args = fs::read_to_string(case.join("args")).unwrap_or_default();
    for line in args.lines() {
        match line.split_once(' ').expect("a flag and a value") {
            ("-f", file) => request.files.push(file.to_owned()),
            ("--profile", profile) => drop(request.profiles.insert(profile.to_owned())),
            ("--env-file", file) => request.env_files.push(file.to_owned()),
            ("--name", name) => request.name = Some(name.to_owned()),
            ("--env", pair) => {
                let (name, value) = pair.split_once('=').expect("a pair");
                request.environment.insert(name.to_owned(), value.to_owned());
            }
            (flag, _) => panic!("{flag} is not an argument of a case"),
        }
    }
    request
}

fn virtual_request(case: &Path) -> Request {
    request(case, format!("/srv/{}", name(case)))
}

/// Compares a text with its golden file, or writes it. An empty text has no file.
fn golden(path: &Path, text: &str) -> Result<(), String> {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        if text.is_empty() {
            let _ = fs::remove_file(path);
        } else {
            fs::write(path, text).expect("written");
        }
        return Ok(());
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    if kept == text { Ok(()) } else { Err(format!("{} differs; now:\n{text}", path.display())) }
}

#[test]
fn every_case_gives_its_expected_output() {
    let mut wrong = Vec::new();
    for case in cases() {
        let report = config(&virtual_request(&case), &memory(&case), Output::Yaml, Secrets::Hidden);
        assert_eq!(!report.problems.has_errors(), !report.text.is_empty(), "{}", case.display());
        let mut said = report.problems.to_string();
        if !said.is_empty() {
            said.push('\n');
        }
        wrong.extend(golden(&case.join("expected.yaml"), &report.text).err());
        wrong.extend(golden(&case.join("expected.txt"), &said).err());
        let refusal = name(&case).starts_with("refused-");
        assert_eq!(report.problems.has_errors(), refusal, "{}: {said}", case.display());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn there_are_at_least_sixty_cases_that_resolve() {
    let good = cases().iter().filter(|case| !name(case).starts_with("refused-")).count();
    assert!(good >= 60, "{good}");
}

#[test]
fn the_output_of_config_resolves_to_the_same_deployment() {
    for case in cases() {
        let Ok(first) = load(&virtual_request(&case), &memory(&case)) else { continue };
        let text = longshore_compose::print(&first, Output::Yaml, Secrets::Hidden, &Memory::default());
        let (second, _) = load_text("printed.yaml", &text, first.deployment.as_str(), "default")
            .unwrap_or_else(|problems| panic!("{}:\n{problems}\n{text}", case.display()));
        for (service, spec) in &first.spec.services {
            assert_eq!(**spec, *second.services[service], "{} {service}", case.display());
        }
        assert_eq!((&first.spec.networks, &first.spec.volumes), (&second.networks, &second.volumes));
        let json = longshore_compose::print(&first, Output::Json, Secrets::Hidden, &Memory::default());
        let (third, _) = load_text("printed.json", &json, first.deployment.as_str(), "default").expect("JSON is YAML");
        assert_eq!(second, third);
    }
}

/// The parts that both programs must agree on.
fn compared(spec: &ServiceSpec) -> serde_json::Value {
    let mut mounts = spec.mounts.clone();
    mounts.sort_by(|a, b| a.target.cmp(&b.target));
    for mount in &mut mounts {
        // Compose prints default options for mounts in short syntax.
        mount.options.clear();
    }
    serde_json::json!({
        "image": spec.container.image,
        "environment": spec.container.environment,
        "ports": spec.ports,
        "volumes": mounts,
        "command": spec.container.command,
        "deploy": [
            serde_json::json!(spec.kind), serde_json::json!(spec.replicas), serde_json::json!(spec.labels),
            serde_json::json!(spec.placement.constraints), serde_json::json!(spec.placement.preferences),
            serde_json::json!(spec.placement.max_replicas_per_node), serde_json::json!(spec.resources),
            serde_json::json!(spec.update), serde_json::json!(spec.rollback), serde_json::json!(spec.restart),
        ],
    })
}

/// The arguments of `docker compose config` for one case.
fn question(case: &Path, deployment: &str) -> serde_json::Value {
    let request = request(case, String::new());
    let mut args = vec!["-p".to_owned(), deployment.to_owned()];
    args.extend(request.files.iter().flat_map(|file| ["-f".to_owned(), file.clone()]));
    args.extend(request.env_files.iter().flat_map(|file| ["--env-file".to_owned(), file.clone()]));
    args.push("config".to_owned());
    let mut environment = request.environment.clone();
    environment.entry("HOME".to_owned()).or_insert("/root".to_owned());
    let profiles: Vec<String> = request.profiles.iter().cloned().collect();
    environment.insert("COMPOSE_PROFILES".to_owned(), profiles.join(","));
    let directory = fs::canonicalize(case).expect("a directory");
    serde_json::json!({ "directory": directory, "args": args, "environment": environment })
}

/// Runs all cases in one process: starting Python for each case would take a minute.
const DRIVER: &str = r#"
import contextlib, io, json, os, sys
from compose.cli.main import main
path = os.environ["PATH"]
answers = []
for question in json.load(sys.stdin):
    os.chdir(question["directory"])
    os.environ.clear()
    os.environ.update(question["environment"], PATH=path)
    sys.argv = ["docker-compose"] + question["args"]
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            main()
        answers.append(out.getvalue())
    except SystemExit as end:
        answers.append(out.getvalue() if not end.code else None)
    except Exception:
        answers.append(None)
json.dump(answers, sys.stdout)
"#;

/// The output for each case; `None` where the file is refused.
fn ask(program: &Path, questions: &[serde_json::Value]) -> Vec<Option<String>> {
    let first = fs::read(program).unwrap_or_default();
    let first = String::from_utf8_lossy(first.split(|byte| *byte == b'\n').next().unwrap_or_default()).into_owned();
    match first.strip_prefix("#!").filter(|line| line.contains("python")) {
        Some(python) => ask_python(python.trim(), questions),
        None => questions.iter().map(|question| ask_once(program, question)).collect(),
    }
}

fn ask_python(python: &str, questions: &[serde_json::Value]) -> Vec<Option<String>> {
    let mut child = Command::new(python)
        .args(["-c", DRIVER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the interpreter of docker-compose");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(serde_json::to_string(questions).expect("JSON").as_bytes()).expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    serde_json::from_slice(&output.stdout).expect("answers")
}

fn ask_once(program: &Path, question: &serde_json::Value) -> Option<String> {
    let texts = |value: &serde_json::Value| -> Vec<String> { serde_json::from_value(value.clone()).expect("texts") };
    let environment: BTreeMap<String, String> =
        serde_json::from_value(question["environment"].clone()).expect("variables");
    let output = Command::new(program)
        .args(texts(&question["args"]))
        .current_dir(question["directory"].as_str().expect("a directory"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(environment)
        .output()
        .expect("it runs");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join("docker-compose")).find(|program| program.is_file())
}

fn differences(case: &Path, ours: &DeploymentSpec, theirs: &DeploymentSpec) -> Vec<String> {
    let mut found = Vec::new();
    let names = |spec: &DeploymentSpec| spec.services.keys().map(ToString::to_string).collect::<Vec<_>>();
    if names(ours) != names(theirs) {
        found.push(format!("{}: services {:?} and {:?}", name(case), names(ours), names(theirs)));
        return found;
    }
    for (service, spec) in &ours.services {
        let (ours, theirs) = (compared(spec), compared(&theirs.services[service]));
        for key in ["image", "environment", "ports", "volumes", "command", "deploy"] {
            if ours[key] != theirs[key] {
                found.push(format!(
                    "{} {service} {key}:\n  ours   {}\n  theirs {}",
                    name(case),
                    ours[key],
                    theirs[key]
                ));
            }
        }
    }
    found
}

/// Prints to the terminal directly, because the test harness hides the output of passing tests.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
fn docker_compose_gives_the_same_result_where_it_accepts_the_file() {
    let Some(program) = program() else {
        say("SKIPPED: docker-compose is not installed, so the comparison with it did not run");
        return;
    };
    let ours: Vec<(PathBuf, Loaded)> = cases()
        .into_iter()
        .filter_map(|case| {
            let directory = fs::canonicalize(&case).expect("a directory").to_string_lossy().into_owned();
            let loaded = load(&request(&case, directory), &Disk).ok()?;
            Some((case, loaded))
        })
        .collect();
    let questions: Vec<_> = ours.iter().map(|(case, loaded)| question(case, loaded.deployment.as_str())).collect();
    let answers = ask(&program, &questions);
    let (mut agreed, mut refused, mut wrong) = (0, Vec::new(), Vec::new());
    for ((case, ours), answer) in ours.iter().zip(answers) {
        let Some(text) = answer else {
            refused.push(name(case));
            continue;
        };
        let files = Memory([("/theirs.yaml".to_owned(), text)].into());
        let theirs = Request {
            files: vec!["theirs.yaml".to_owned()],
            working_directory: "/".to_owned(),
            name: Some(ours.deployment.to_string()),
            profiles: request(case, String::new()).profiles,
            ..Request::default()
        };
        let theirs = load(&theirs, &files).unwrap_or_else(|problems| panic!("{}: {problems}", name(case)));
        wrong.extend(differences(case, &ours.spec, &theirs.spec));
        agreed += 1;
    }
    say(&format!("docker-compose took {agreed} cases and refused {}: {}", refused.len(), refused.join(", ")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(agreed >= 30, "only {agreed} cases were compared");
}
