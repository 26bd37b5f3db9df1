//! A project on one server with a container engine, updated as its user updates it, while clients use its published port.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

#[path = "support/load.rs"]
mod load;

use std::{collections::BTreeSet, fs, net::SocketAddr};

use load::{Load, get};
use test_cluster::{Cluster, eventually};

const PORT: u16 = 18_490;

/// A web server with one replica and nothing said about updates, as most Compose files have it, and one with two.
fn project(version: &str) -> String {
    let page = "mkdir -p /tmp/www; echo $$VERSION of $$LONGSHORE_REPLICA > /tmp/www/index.html";
    let service = |name: &str, port: u16, more: &str| {
        format!(
            "  {name}:\n    image: busybox:1\n    pull_policy: never\n    restart: unless-stopped\n    \
             command: [\"sh\", \"-c\", \"{page}; exec httpd -f -p 80 -h /tmp/www\"]\n    \
             environment:\n      VERSION: \"{version}\"\n    ports: [\"{port}:80\"]\n    stop_grace_period: 2s\n{more}"
        )
    };
    let (web, api) = (
        service("web", PORT, ""),
        service("api", PORT + 1, "    deploy: { replicas: 2, update_config: { monitor: 1s } }\n"),
    );
    format!("name: shop\nservices:\n{web}{api}")
}

fn server(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 213, 77, 1], port))
}

fn up(cluster: &Cluster, version: &str) {
    let file = cluster.folder.path().join("shop.yaml");
    fs::write(&file, project(version)).unwrap();
    let said = cluster.nodes[0].ask(&["up", "-d", "-f", file.to_str().unwrap()]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn clients_of_one_server_notice_no_update_of_a_project_whatever_its_replicas() {
    let cluster = Cluster::on_engines(1);
    up(&cluster, "one");
    for port in [PORT, PORT + 1] {
        eventually("served", || get(server(port)).ok().filter(|page| page.contains("one of shop-")));
    }
    let load = [Load::start(server(PORT)), Load::start(server(PORT + 1))];
    up(&cluster, "two");
    let pages: BTreeSet<bool> =
        (0..10).flat_map(|_| [PORT, PORT + 1]).map(|port| get(server(port)).unwrap().contains("two of")).collect();
    assert_eq!(pages, BTreeSet::from([true]), "only the new version answers once the update is done");
    for rolled in load.map(Load::end) {
        println!("rolled under load: {rolled:?}");
        assert!(rolled.requests > 600, "too few requests to prove anything: {rolled:?}");
        assert_eq!(rolled.failed, 0, "{rolled:?}");
    }
    let ended = cluster.nodes[0].ask(&["rm", "shop", "--wait"]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
