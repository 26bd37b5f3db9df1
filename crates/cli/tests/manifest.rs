//! `longshore config` and `longshore validate` from the command line: files, pipes, exit codes.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const SHOP: &str = "services:
  web:
    image: \"nginx:${TAG:-1.27}\"
    ports: [\"8080:80\"]
    secrets: [token]
  debug:
    image: busybox
    profiles: [debug]
secrets:
  token: { environment: SHOP_TOKEN }
";

const TYPOS: &str = "services:
  web:
    image: nginx
    container_name: web
    enviroment:
      MODE: prod
    networks: [front]
    depends_on: [db]
";

/// A directory of its own for each test, called `shop`.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str, files: &[(&str, &[u8])]) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test).join("shop");
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the target folder can be written");
        for (name, content) in files {
            fs::write(path.join(name), content).expect("the target folder can be written");
        }
        Self(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.args(arguments).current_dir(&self.0).env_clear().env("SHOP_TOKEN", "hunter2");
        command
    }

    /// Exit code, standard output, standard error.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        self.captured(&self.command(arguments).output().expect("the binary was built"))
    }

    fn piped(&self, arguments: &[&str], input: &[u8]) -> (Option<i32>, String, String) {
        let mut child = self.command(arguments);
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().expect("the binary was built");
        // A child that fails early may exit before it has read everything.
        let _ = child.stdin.take().expect("a pipe").write_all(input);
        self.captured(&child.wait_with_output().expect("it ends"))
    }

    fn captured(&self, output: &Output) -> (Option<i32>, String, String) {
        let here = self.0.to_string_lossy();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&*here, "[DIR]");
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }
}

#[test]
fn config_prints_the_resolved_manifest() {
    let shop = Scratch::new("config", &[("compose.yaml", SHOP.as_bytes()), (".env", b"TAG=1.28\n")]);
    let (code, out, err) = shop.run(&["config"]);
    assert_eq!(code, Some(0));
    assert_eq!(err, "");
    insta::assert_snapshot!(out, @r#"
    name: shop
    networks:
      default:
        name: shop_default
    secrets:
      token:
        environment: SHOP_TOKEN
        name: shop_token
    services:
      web:
        deploy:
          mode: replicated
          replicas: 1
        image: nginx:1.28
        networks:
          default: {}
        ports:
          - mode: ingress
            protocol: tcp
            published: "8080"
            target: 80
        secrets:
          - source: token
            target: /run/secrets/token
        spec_hash: ae8a5ad424c051426752259bc808f680d444b938935b150b3ed4fb2c00fb7fa9
    "#);
    let (code, again, _) = shop.piped(&["config", "-f", "-"], out.as_bytes());
    assert_eq!((code, again), (Some(0), out));
}

#[test]
fn config_prints_json_and_takes_profiles_env_files_and_names() {
    let shop = Scratch::new("config-json", &[("compose.yaml", SHOP.as_bytes()), ("prod.env", b"TAG=2\n")]);
    let (code, out, _) =
        shop.run(&["config", "--profile", "debug", "--env-file", "prod.env", "-p", "other", "-o", "json"]);
    let manifest: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!((code, &manifest["name"]), (Some(0), &"other".into()));
    assert_eq!(manifest["services"]["web"]["image"], "nginx:2");
    assert_eq!(manifest["services"]["debug"]["spec_hash"].as_str().map(str::len), Some(64));
}

#[test]
fn a_secret_is_printed_only_when_asked_for() {
    let shop = Scratch::new("secrets", &[("compose.yaml", SHOP.as_bytes())]);
    assert!(!shop.run(&["config"]).1.contains("hunter2"));
    assert!(shop.run(&["config", "--show-secrets"]).1.contains("hunter2"));
}

#[test]
fn files_are_found_as_compose_finds_them_and_the_overlay_beside_them() {
    let shop = Scratch::new(
        "defaults",
        &[
            ("docker-compose.yml", SHOP.as_bytes()),
            ("docker-compose.override.yml", b"services: { web: { image: web } }\n"),
            ("jaco.yaml", b"deployment: shop\nservices: [ { name: web, replicas: 3 } ]\n"),
            ("big.yaml", b"deployment: shop\nservices: [ { name: web, replicas: 7 } ]\n"),
        ],
    );
    let replicas = |arguments: &[&str]| {
        let manifest: serde_json::Value = serde_json::from_str(&shop.run(arguments).1).expect("it is JSON");
        (manifest["services"]["web"]["image"].clone(), manifest["services"]["web"]["deploy"]["replicas"].clone())
    };
    assert_eq!(replicas(&["config", "-o", "json"]), ("web".into(), 3.into()));
    assert_eq!(replicas(&["config", "-o", "json", "--overlay", "big.yaml"]), ("web".into(), 7.into()));
    assert_eq!(replicas(&["config", "-o", "json", "-f", "docker-compose.yml"]), ("nginx:1.27".into(), 1.into()));
}

#[test]
fn validate_reports_every_problem_with_its_position() {
    let shop = Scratch::new("typos", &[("compose.yaml", TYPOS.as_bytes())]);
    let (code, out, err) = shop.run(&["validate"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    insta::assert_snapshot!(err, @r"
    compose.yaml:4:5: warning: `container_name` in service `web` has no effect: containers are named after their replica, since there can be several
      |
    4 |     container_name: web
      |     ^^^^^^^^^^^^^^

    compose.yaml:5:5: error: unknown key `enviroment` in service `web`
      |
    5 |     enviroment:
      |     ^^^^^^^^^^

    hint: did you mean `environment`?

    compose.yaml:7:16: error: service `web` names the network `front`, which is not declared
      |
    7 |     networks: [front]
      |                ^^^^^

    hint: add it to the top-level `networks`, for instance `networks: {front: {}}`

    compose.yaml:8:18: error: service `web` names the service `db` in `depends_on`, which does not exist
      |
    8 |     depends_on: [db]
      |                  ^^

    3 errors, 1 warning
    ");
    assert_eq!(shop.run(&["config"]), (code, out, err));
}

#[test]
fn validate_prints_diagnostics_as_json() {
    let shop = Scratch::new("typos-json", &[("compose.yaml", TYPOS.as_bytes())]);
    let (code, out, err) = shop.run(&["validate", "-o", "json"]);
    assert_eq!((code, err.as_str()), (Some(2), ""));
    let problems: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(problems.as_array().map(Vec::len), Some(4));
    insta::assert_snapshot!(serde_json::to_string_pretty(&problems[1]).expect("JSON"), @r#"
    {
      "column": 5,
      "excerpt": "    enviroment:",
      "file": "compose.yaml",
      "hint": "did you mean `environment`?",
      "length": 10,
      "line": 5,
      "message": "unknown key `enviroment` in service `web`",
      "severity": "error"
    }
    "#);
}

#[test]
fn warnings_do_not_fail() {
    let shop = Scratch::new(
        "warned",
        &[("compose.yaml", b"services: { web: { image: nginx, restart: always, container_name: web } }\n")],
    );
    let (code, out, err) = shop.run(&["validate"]);
    assert_eq!((code, out.as_str()), (Some(0), "deployment `shop` is valid: 1 service\n"));
    insta::assert_snapshot!(err, @r"
    compose.yaml:1:51: warning: `container_name` in service `web` has no effect: containers are named after their replica, since there can be several
      |
    1 | services: { web: { image: nginx, restart: always, container_name: web } }
      |                                                   ^^^^^^^^^^^^^^

    1 warning
    ");
    let (code, out, _) = shop.run(&["validate", "-o", "json"]);
    assert_eq!((code, out.matches("\"severity\": \"warning\"").count()), (Some(0), 1));
}

#[test]
fn standard_input_has_a_name_of_its_own() {
    let shop = Scratch::new("stdin", &[]);
    let (code, _, err) = shop.piped(&["validate", "-f", "-"], b"services:\n  web: { imgae: nginx }\n");
    assert_eq!(code, Some(2));
    assert!(err.starts_with("<stdin>:2:3: error: service `web` has neither `image` nor `build`\n"), "{err}");
    let (code, _, err) = shop.piped(&["validate", "-f", "-"], b"a: \xff\n");
    assert_eq!(code, Some(2));
    assert!(err.starts_with("<stdin>:1:4: error: the file `<stdin>` is not text in UTF-8\n"), "{err}");
    assert_eq!(shop.piped(&["validate", "-f", "-"], &vec![b'#'; 20 << 20]).0, Some(2));
}

#[test]
fn an_unreadable_file_is_refused_with_2_and_a_position() {
    let shop = Scratch::new(
        "unreadable",
        &[("binary.yaml", b"services:\n  b: \xff\xfe"), ("good.yaml", SHOP.as_bytes()), ("env", b"\xff")],
    );
    fs::create_dir(shop.0.join("folder.yaml")).expect("the target folder can be written");
    let cases = [
        (
            vec!["-f", "none.yaml"],
            "none.yaml:1:1: error: the file `none.yaml` does not exist\n\nhint: check the path\n",
        ),
        (vec!["-f", "folder.yaml"], "folder.yaml:1:1: error: the file `folder.yaml` is a directory\n"),
        (vec!["-f", "binary.yaml"], "binary.yaml:2:6: error: the file `binary.yaml` is not text in UTF-8\n"),
        (vec!["-f", "good.yaml", "--env-file", "env"], "env:1:1: error: the file `env` is not text in UTF-8\n"),
        (vec![], "compose.yaml:1:1: error: no Compose file; looked for `compose.yaml`"),
    ];
    for (arguments, beginning) in cases {
        for command in ["config", "validate"] {
            let arguments: Vec<&str> = std::iter::once(command).chain(arguments.iter().copied()).collect();
            let (code, out, err) = shop.run(&arguments);
            assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?} {err}");
            assert!(err.starts_with(beginning), "{arguments:?} {err}");
        }
    }
}

#[test]
fn a_default_file_that_cannot_be_read_is_not_overlooked() {
    let shop = Scratch::new("overlooked", &[("compose.yaml", b"a: \xff"), ("docker-compose.yml", SHOP.as_bytes())]);
    let (code, _, err) = shop.run(&["validate"]);
    assert_eq!(code, Some(2));
    assert!(err.starts_with("compose.yaml:1:4: error: the file `compose.yaml` is not text in UTF-8\n"), "{err}");
}

#[test]
fn a_closed_pipe_is_no_reason_to_panic() {
    let shop = Scratch::new("pipe", &[("compose.yaml", SHOP.as_bytes())]);
    let mut child = shop.command(&["config"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary was built");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.ends_with("\n1 warning\n"), "{said}");
}

#[test]
fn the_help_has_examples() {
    let shop = Scratch::new("help", &[]);
    for command in ["config", "validate"] {
        let (code, out, _) = shop.run(&[command, "--help"]);
        assert_eq!(code, Some(0));
        assert!(out.contains(&format!("Examples:\n  longshore {command}")), "{out}");
    }
}
