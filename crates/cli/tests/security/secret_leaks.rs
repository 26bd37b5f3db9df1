//! Known secrets are stored, and then searched for in logs, answers, the audit log and on disk.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    raw_http::{ask, over_other_listeners, request},
    test_cluster::{Cluster, files_containing, token_part},
};

const SECRET: &str = "correct-horse-battery-staple-8f41";

/// Whether a file on disk below a folder contains these bytes.
pub(crate) fn is_on_disk(folder: &Path, needle: &str) -> bool {
    // The secrets of running replicas are on a tmpfs there.
    let in_memory = |path: &PathBuf| path.to_string_lossy().contains("/agent/secrets/");
    !files_containing(folder, needle.as_bytes()).iter().all(in_memory)
}

#[test]
fn nothing_secret_is_in_logs_audit_answers_or_on_disk() {
    let cluster = Cluster::exposed_with_worker();
    let (node, folder) = (&cluster.nodes[0], cluster.folder.path());
    let typed = tempfile::NamedTempFile::new().unwrap();
    fs::write(typed.path(), SECRET).unwrap();
    node.expect_json(&["secret", "put", "db-pass", "--file", typed.path().to_str().unwrap()]);
    let admin = node.token(&["ops", "--role", "admin"]);
    let joining = node.text(&["cluster", "token"]);
    // Malformed requests: an error that repeats the body would leak the secret.
    let put = |body: &str| {
        let length = body.len();
        let head = format!(
            "PUT /v1/secrets/other HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {admin}\r\nContent-Length: {length}\r\n\r\n"
        );
        ask(node, format!("{head}{body}").as_bytes()).unwrap()
    };
    let wrong = [
        format!("\"{SECRET}\""),
        format!("{{\"{SECRET}\": 1}}"),
        format!("{{\"contents\": [\"{SECRET}\"]}}"),
        format!("{{\"contents\": \"{SECRET}\", \"x\": \"{SECRET}\"}}"),
        SECRET.to_owned(),
    ];
    for body in &wrong {
        let answer = put(body);
        assert_eq!(answer.code(), "request_invalid", "{body}");
        assert!(!answer.body.contains(SECRET), "{}", answer.body);
    }
    let mut said = Vec::new();
    for path in ["deployments", "replicas", "pending", "nodes", "audit?most=1000", "cluster", "tokens", "secrets"] {
        said.push(ask(node, &request(&format!("GET /v1/{path}"), Some(&admin))).unwrap());
        let [local, plain] = over_other_listeners(node, &request(&format!("GET /v1/{path}"), Some(&admin)));
        said.extend([local.unwrap(), plain.unwrap()]);
    }
    said.push(ask(node, &request("GET /metrics", Some(&admin))).unwrap());
    let backup = folder.join("cluster.backup");
    assert!(node.ask(&["backup", backup.to_str().unwrap()]).status.success());

    let secrets = [SECRET.to_owned(), token_part(&admin, 3), token_part(&joining, 3)];
    for secret in &secrets {
        for answer in &said {
            assert!(!answer.body.contains(secret), "{}", answer.body);
        }
        // The logs are in the same folder, at level `trace`.
        assert_eq!(files_containing(folder, secret.as_bytes()), Vec::<PathBuf>::new());
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
