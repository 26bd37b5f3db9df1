//! Commands about the cluster: members, settings, tokens, secrets, registries, backups.

use std::collections::BTreeMap;

use longshore_api::{Changed, ClusterStatus, KeyRotated, LoginLink, NewToken, SecretRow, SecretStored, TokenRow};
use serde::{Deserialize, Serialize};

use super::Tour;

#[derive(Serialize, Deserialize)]
struct CreatedCluster {
    cluster: String,
    node: String,
}

#[derive(Serialize, Deserialize)]
struct JoinedCluster {
    cluster: String,
    servers: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct RecoveredCluster {
    cluster: String,
    node: String,
    index: u64,
}

#[derive(Serialize, Deserialize)]
struct WrittenBackup {
    file: String,
    bytes: usize,
}

pub(super) fn membership(tour: &mut Tour) {
    let status = tour.says("cluster status");
    let status = status.lines().filter(|line| !line.starts_with("cluster ")).collect::<Vec<_>>().join("\n");
    let address = format!("127.0.0.1:{}", tour.machine.port);
    let status = status.replace(&address, "ADDRESS").replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::assert_snapshot!(status, @r"
    exit 0
    the only voter is reachable; if it is lost, the cluster is

    NODE ROLE ADDRESS LOG VOTER LEADER REACHABLE BEHIND VERSION
    n1 server ADDRESS yes yes yes yes 0 VERSION

    without a policy: default; their manifests may ask everything (`longshore policy set`)
    ");
    insta::assert_snapshot!(tour.says("cluster token --worker"), @r"
    exit 0
    [TOKEN]
    ");
    insta::assert_snapshot!(tour.says("cluster init --data-dir made --node m1"), @r"
    exit 0
    created cluster [ID] with m1 as its first server
    hint: start `longshore server --listen ADDRESS`, then create join tokens with `longshore cluster token`
    ");
    insta::assert_snapshot!(tour.says("cluster init --data-dir made --node m1"), @r"
    exit 1
    error: the folder belongs to node `m1` of cluster [ID] already

    hint: a daemon that was started here once made a cluster of its own. If nothing of it is needed, stop the daemon (`systemctl stop longshore`), put the folder aside (`mv HERE/made HERE/made.old`), and try again; a join token is not used up by this
    ");
    insta::assert_snapshot!(tour.says("cluster join 127.0.0.1:1 --advertise 127.0.0.1:2 --token-file none"), @r"
    exit 1
    error: the token in `none` cannot be read: No such file or directory (os error 2)
    ");
    insta::assert_snapshot!(tour.says("cluster recover --data-dir nothing"), @r"
    exit 1
    error: the folder holds no server of a cluster
    ");
    insta::assert_snapshot!(tour.says("cluster rotate-key"), @r"
    exit 0
    secrets are encrypted with key 2 from now on
    ");
    tour.shape::<ClusterStatus>("cluster status");
    tour.shape::<NewToken>("cluster token");
    tour.shape::<CreatedCluster>("cluster init --data-dir made-too --node m1");
    for folder in ["joined", "joined-too", "joined-in-yaml"] {
        let token = tour.machine.ask(&["cluster", "token", "--worker"]).stdout;
        tour.machine.write("token", &String::from_utf8(token).unwrap());
        let join = format!(
            "cluster join {address} --advertise 127.0.0.1:2 --token-file token --data-dir {folder} --node {folder}"
        );
        if folder == "joined" {
            let said = tour.says(&join).replace(&address, "ADDRESS");
            insta::assert_snapshot!(said, @r"
            exit 0
            joined cluster [ID] its servers: ADDRESS
            hint: start `longshore server --listen ADDRESS` on this node
            ");
        } else if folder == "joined-too" {
            tour.shape::<JoinedCluster>(&join);
        } else {
            tour.shape_in_yaml::<JoinedCluster>(&join);
        }
    }
    tour.shape_in_yaml::<Changed>("node rm joined --force");
    tour.shape::<KeyRotated>("cluster rotate-key");
    tour.shape_in_yaml::<KeyRotated>("cluster rotate-key");
    tour.shape_in_yaml::<NewToken>("cluster token");
    tour.shape_in_yaml::<CreatedCluster>("cluster init --data-dir made-in-yaml --node m1");
}

pub(super) fn settings(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says("cluster settings gc_nodes=48h preemption=on"), @r"
    exit 0
    SETTING VALUE
    address_cooldown 1h
    cluster_prefix [PREFIX]
    container_overhead 0
    cpu_overcommit_ratio 4.0
    default_ephemeral_disk 4GiB
    default_memory 0
    down_after_missed 10
    drain_timeout 5m
    faulty_after_failures 5
    faulty_window 5m
    gc_finished 1h
    gc_nodes 48h
    heartbeat_interval 1s
    ipv4_pool 10.128.0.0/10
    mesh auto
    mesh_port 51820
    microvm_overhead 64MiB
    node_status_interval 30s
    preemption on
    suspect_after_missed 3
    ");
    insta::assert_snapshot!(tour.says("cluster settings drain_timeot=1m"), @r"
    exit 1
    error: unknown setting `drain_timeot` (request_invalid)

    hint: did you mean `drain_timeout`?
    ");
    tour.shape::<BTreeMap<String, String>>("cluster settings gc_nodes=24h preemption=off");
    tour.shape_in_yaml::<BTreeMap<String, String>>("cluster settings");
}

pub(super) fn tokens(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says("token ls"), @r"
    exit 0
    no tokens
    ");
    insta::assert_snapshot!(tour.says("token create ci --role deploy --namespace team --deployment shop --valid 30d"), @r"
    exit 0
    [TOKEN]
    ");
    insta::assert_snapshot!(tour.says("token create eyes --role view"), @r"
    exit 0
    [TOKEN]
    ");
    insta::assert_snapshot!(tour.says("token ls"), @r"
    exit 0
    ID NAME ROLE SCOPE EXPIRES
    [ID] ci deploy team/shop [DATE] [TIME]
    [ID] eyes view everywhere never
    ");
    let rows = tour.shape::<Vec<TokenRow>>("token ls");
    let ids: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    let said = tour.says(&format!("token rm {}", ids[0]));
    insta::assert_snapshot!(said, @r"
    exit 0
    done
    ");
    tour.shape::<Changed>(&format!("token rm {}", ids[1]));
    insta::assert_snapshot!(tour.says("token rm 0123456789abcdef"), @r"
    exit 1
    error: there is no token `0123456789abcdef` (unknown_token)

    hint: `longshore token ls` lists them
    ");
    tour.shape::<NewToken>("token create other --role admin");
    tour.shape_in_yaml::<NewToken>("token create another --role view");
    let rows = tour.shape::<Vec<TokenRow>>("token ls");
    tour.shape_in_yaml::<Changed>(&format!("token rm {}", rows[0]["id"].as_str().unwrap()));
    let link = tour.says("dashboard").replace(&tour.machine.port.to_string(), "PORT");
    let steady =
        |line: &str| line.split_once("code=").map_or(line.to_owned(), |(before, _)| format!("{before}code=[CODE]"));
    insta::assert_snapshot!(link.lines().map(steady).collect::<Vec<_>>().join("\n"), @r"
    exit 0
    https://127.0.0.1:PORT/ui/login?code=[CODE]
    hint: the certificate is the cluster's own, which a browser does not know; `--http 127.0.0.1:7475` makes a listener for browsers of the daemon's machine
    ");
    tour.shape::<LoginLink>("dashboard");
    tour.shape_in_yaml::<LoginLink>("dashboard");
}

pub(super) fn secrets_and_registries(tour: &mut Tour) {
    tour.machine.write("password.txt", "hunter2");
    insta::assert_snapshot!(tour.says("secret put db-pass --file password.txt"), @r"
    exit 0
    db-pass has version 1
    ");
    insta::assert_snapshot!(tour.says("secret put db-pass --file none.txt"), @r"
    exit 1
    error: the secret in `none.txt` cannot be read: No such file or directory (os error 2)
    ");
    insta::assert_snapshot!(tour.says("secret ls"), @r"
    exit 0
    SECRET VERSION DEPLOYMENT USED BY
    default/db-pass 1
    ");
    insta::assert_snapshot!(tour.says("registry login registry.example --username ann --password-file password.txt"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("registry ls"), @r"
    exit 0
    REGISTRY VERSION
    registry.example 1
    ");
    insta::assert_snapshot!(tour.says("secret rm db-pas"), @r"
    exit 1
    error: there is no secret `db-pas` (unknown_secret)

    hint: `longshore secret ls` lists them
    ");
    insta::assert_snapshot!(tour.says("secret rm db-pass"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("registry logout registry.example"), @r"
    exit 0
    done
    ");
    tour.shape::<SecretStored>("secret put db-pass --file password.txt");
    tour.shape::<SecretStored>("registry login registry.example --username ann --password-file password.txt");
    tour.shape::<Vec<SecretRow>>("registry ls");
    tour.shape::<Vec<SecretRow>>("secret ls");
    tour.shape::<Changed>("secret rm db-pass");
    tour.shape::<Changed>("registry logout registry.example");
    tour.shape_in_yaml::<SecretStored>("secret put db-pass --file password.txt");
    tour.shape_in_yaml::<SecretStored>("registry login registry.example --username ann --password-file password.txt");
    tour.shape_in_yaml::<Changed>("secret rm db-pass");
    tour.shape_in_yaml::<Changed>("registry logout registry.example");
    insta::assert_snapshot!(tour.says("secret ls"), @r"
    exit 0
    no secrets
    ");
    insta::assert_snapshot!(tour.says("registry ls"), @r"
    exit 0
    no registry logins
    ");
}

pub(super) fn backups(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says("backup cluster.backup"), @r"
    exit 0
    wrote # to cluster.backup
    ");
    insta::assert_snapshot!(tour.says("backup cluster.backup"), @r"
    exit 1
    error: `cluster.backup` exists already

    hint: name another file, or remove this one first
    ");
    tour.shape::<WrittenBackup>("backup again.backup");
    tour.shape_in_yaml::<WrittenBackup>("backup in-yaml.backup");
    let piped = tour.machine.ask(&["backup", "-"]).stdout;
    assert!(piped.len() > 1000 && !tour.machine.path("-").exists(), "{} bytes", piped.len());
    let said = tour.says("restore cluster.backup --data-dir restored --node r1");
    let steady = said.split(", index").next().unwrap();
    insta::assert_snapshot!(steady, @r"
    exit 0
    cluster [ID] continues with r1 as its only server
    ");
    insta::assert_snapshot!(tour.says("restore password.txt --data-dir restored-too --node r1"), @r"
    exit 1
    error: this is not a backup, or a damaged one: its header is wrong
    ");
    tour.shape::<RecoveredCluster>("restore cluster.backup --data-dir restored-too --node r1");
    // A restored directory that no daemon has used can be recovered too.
    tour.shape::<RecoveredCluster>("cluster recover --data-dir restored-too");
    tour.shape_in_yaml::<RecoveredCluster>("restore cluster.backup --data-dir restored-in-yaml --node r1");
    tour.shape_in_yaml::<RecoveredCluster>("cluster recover --data-dir restored-in-yaml");
}
