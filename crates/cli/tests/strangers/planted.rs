//! What is secret is planted, and then looked for everywhere it must not be.

use std::{fs, path::Path};

use crate::{
    rig::{Cluster, part},
    wire::{ask, request, through_other_doors},
};

const PLANTED: &str = "correct-horse-battery-staple-8f41";

/// Files below a folder that hold these bytes, those in memory aside.
fn holders(folder: &Path, needle: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = entries.flat_map(|path| {
        if path.is_dir() {
            return holders(&path, needle);
        }
        let held = fs::read(&path).is_ok_and(|bytes| bytes.windows(needle.len()).any(|at| at == needle.as_bytes()));
        if held { vec![path.display().to_string()] } else { Vec::new() }
    });
    found.collect()
}

/// Whether a folder holds these bytes anywhere.
pub(crate) fn is_held(folder: &Path, needle: &str) -> bool {
    let on_disk = holders(folder, needle).into_iter();
    // What is shown to replicas is in memory.
    on_disk.filter(|path| !path.contains("/agent/secrets/")).count() > 0
}

#[test]
fn nothing_secret_is_in_logs_audit_answers_or_on_disk() {
    let cluster = Cluster::with_worker();
    let (node, folder) = (&cluster.nodes[0], cluster.folder.path());
    let typed = tempfile::NamedTempFile::new().unwrap();
    fs::write(typed.path(), PLANTED).unwrap();
    node.told(&["secret", "put", "db-pass", "--file", typed.path().to_str().unwrap()]);
    let admin = node.token(&["ops", "--role", "admin"]);
    let joining = node.text(&["cluster", "token"]);
    // Said wrongly: whoever repeats what it did not understand repeats a secret.
    let put = |body: &str| {
        let length = body.len();
        let head = format!(
            "PUT /v1/secrets/other HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {admin}\r\nContent-Length: {length}\r\n\r\n"
        );
        ask(node, format!("{head}{body}").as_bytes()).unwrap()
    };
    let wrong = [
        format!("\"{PLANTED}\""),
        format!("{{\"{PLANTED}\": 1}}"),
        format!("{{\"contents\": [\"{PLANTED}\"]}}"),
        format!("{{\"contents\": \"{PLANTED}\", \"x\": \"{PLANTED}\"}}"),
        PLANTED.to_owned(),
    ];
    for body in &wrong {
        let answer = put(body);
        assert_eq!(answer.code(), "request_invalid", "{body}");
        assert!(!answer.body.contains(PLANTED), "{}", answer.body);
    }
    let mut said = Vec::new();
    for path in ["deployments", "replicas", "pending", "nodes", "audit?most=1000", "cluster", "tokens", "secrets"] {
        said.push(ask(node, &request(&format!("GET /v1/{path}"), Some(&admin))).unwrap());
        let [local, plain] = through_other_doors(node, &request(&format!("GET /v1/{path}"), Some(&admin)));
        said.extend([local.unwrap(), plain.unwrap()]);
    }
    said.push(ask(node, &request("GET /metrics", Some(&admin))).unwrap());
    let backup = folder.join("cluster.backup");
    assert!(node.ask(&["backup", backup.to_str().unwrap()]).status.success());

    let secrets = [PLANTED.to_owned(), part(&admin, 3), part(&joining, 3)];
    for secret in &secrets {
        for answer in &said {
            assert!(!answer.body.contains(secret), "{}", answer.body);
        }
        // Logs are beside the folders of the nodes, and at their most talkative.
        assert_eq!(holders(folder, secret), Vec::<String>::new());
    }
    assert!(said.iter().any(|answer| answer.body.contains("db-pass")), "the secret is not even listed");
    for node in &cluster.nodes {
        assert!(fs::metadata(node.log_file()).unwrap().len() > 0, "there is no log to look at");
        let mode =
            |path: &Path| std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions()) & 0o777;
        assert_eq!(mode(&node.data), 0o700);
        for name in ["node.key", "place.json"] {
            assert_eq!(mode(&node.data.join(name)), 0o600, "{name}");
        }
    }
}
