//! The overlay network on three hosts with an engine each: services reach each other by name, wherever they run, and
//! nobody else's.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

use std::{
    fs,
    process::{Command, Output},
};

use test_cluster::{Cluster, eventually};

const SERVICES: [&str; 3] = ["web", "api", "db"];

/// Three services, each on a host of its own, whose pages name them. The machine's `getent` and `curl` ask like any
/// program with a libc.
fn project(name: &str, port: u16) -> String {
    let service = |(service, host, ports): (&str, &str, String)| {
        let page = format!("mkdir -p /tmp/www; echo {service} of {name} > /tmp/www/index.html");
        format!(
            "  {service}:
    image: busybox:1
    pull_policy: never
    command: [\"sh\", \"-c\", \"{page}; exec httpd -f -p 80 -h /tmp/www\"]
    volumes: [\"/usr:/usr:ro\", \"/lib:/lib:ro\", \"/lib64:/lib64:ro\"]
    ports: [{ports}]
    deploy:
      placement:
        constraints: [\"node.hostname == {host}\"]
"
        )
    };
    let [web, api, db] = SERVICES;
    let services =
        [(web, "n1", format!("\"{port}:80\"")), (api, "n2", String::new()), (db, "n3", String::new())].map(service);
    format!("name: {name}\nservices:\n{}", services.concat())
}

fn apply(cluster: &Cluster, name: &str, port: u16) {
    let file = cluster.folder.path().join("project.yaml");
    fs::write(&file, project(name, port)).unwrap();
    let applied = cluster.nodes[0].ask(&["apply", "-f", file.to_str().unwrap(), "--wait"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
}

/// A replica's container.
struct Container<'a> {
    cluster: &'a Cluster,
    host: usize,
    id: String,
}

impl<'a> Container<'a> {
    /// The one of a service, on the host that the project names.
    fn of(cluster: &'a Cluster, project: &str, service: &str) -> Self {
        let host = SERVICES.iter().position(|name| *name == service).unwrap();
        let engine = cluster.nodes[host].engine.as_ref().unwrap();
        let id = engine.docker(&["ps", "-q", "--filter", &format!("name=longshore_{project}-{service}-0")]);
        Self { cluster, host, id }
    }

    fn run(&self, program: &[&str]) -> Output {
        let socket = format!("unix://{}", self.cluster.nodes[self.host].engine.as_ref().unwrap().socket().display());
        Command::new("docker").args(["--host", &socket, "exec", &self.id]).args(program).output().unwrap()
    }

    /// Its address of this kind: `IPAddress` or `GlobalIPv6Address`.
    fn address(&self, kind: &str) -> String {
        let engine = self.cluster.nodes[self.host].engine.as_ref().unwrap();
        let format = format!("{{{{range .NetworkSettings.Networks}}}}{{{{.{kind}}}}}{{{{end}}}}");
        engine.docker(&["inspect", "-f", &format, &self.id])
    }

    /// What a name resolves to.
    fn resolve(&self, name: &str) -> Option<String> {
        let output = self.run(&["/usr/bin/getent", "hosts", name]);
        Some(String::from_utf8(output.stdout).unwrap().split_whitespace().next()?.to_owned())
    }

    /// The page at a host, which may be a name.
    fn page(&self, host: &str) -> Option<String> {
        let output = self.run(&["/usr/bin/curl", "-sS", "-m", "2", &format!("http://{host}/")]);
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

#[test]
fn services_on_three_hosts_reach_each_other_by_name_and_nobody_elses_also_while_daemons_are_dead() {
    let mut cluster = Cluster::with_overlay(3);
    share_the_image(&cluster);
    for node in ["n1", "n2", "n3"] {
        eventually("the overlay is there", || {
            let network = cluster.nodes[0].json(&["node", "inspect", node])?["network"].clone();
            (network["gives_addresses"] == true && network["reaches_peers"] == true).then_some(())
        });
    }
    apply(&cluster, "shop", 18_580);
    apply(&cluster, "blog", 18_581);
    for project in ["shop", "blog"] {
        for from in SERVICES {
            everyone_is_reached(&Container::of(&cluster, project, from), project);
        }
    }
    every_host_serves(18_580, "web of shop");
    every_host_serves(18_581, "web of blog");
    strangers_are_not_reached(&cluster);

    cluster.nodes[0].kill();
    cluster.nodes[1].kill();
    everyone_is_reached(&Container::of(&cluster, "shop", "web"), "shop");
    everyone_is_reached(&Container::of(&cluster, "blog", "api"), "blog");
    every_host_serves(18_580, "web of shop");
}

/// Every service of its project, by name; a name is one and the same address of the service.
fn everyone_is_reached(client: &Container, project: &str) {
    for service in SERVICES {
        let page = format!("{service} of {project}");
        eventually(&page, || client.page(service).filter(|found| *found == page));
        let address = client.resolve(service).unwrap();
        assert_eq!(client.page(&address), Some(page), "{service} at {address}");
    }
}

fn every_host_serves(port: u16, page: &str) {
    for number in 1..=3 {
        eventually(page, || {
            let url = format!("http://10.213.77.{number}:{port}/");
            let output = Command::new("curl").args(["-sS", "-m", "2", &url]).output().unwrap();
            (String::from_utf8(output.stdout).unwrap().trim() == page).then_some(())
        });
    }
}

/// Both families lead to a replica of one's own project on another host, and to none of another project.
fn strangers_are_not_reached(cluster: &Cluster) {
    let client = Container::of(cluster, "shop", "web");
    let (own, foreign) = (Container::of(cluster, "shop", "api"), Container::of(cluster, "blog", "api"));
    assert_eq!(client.page(&own.address("IPAddress")).as_deref(), Some("api of shop"));
    assert_eq!(client.page(&format!("[{}]", own.address("GlobalIPv6Address"))).as_deref(), Some("api of shop"));
    assert_eq!(client.page(&foreign.address("IPAddress")), None);
    assert_eq!(client.page(&format!("[{}]", foreign.address("GlobalIPv6Address"))), None);
    let neighbour = Container::of(cluster, "blog", "web");
    assert_eq!(client.page(&neighbour.address("IPAddress")), None, "on the same host");
    assert_eq!(client.page(&neighbour.resolve("api").unwrap()), None, "by the other project's VIP");
    assert_ne!(client.resolve("api"), neighbour.resolve("api"));
    assert_eq!(client.resolve("nowhere"), None);
}

/// Every engine made the image by itself; a service runs one and the same everywhere.
fn share_the_image(cluster: &Cluster) {
    let file = cluster.folder.path().join("image.tar");
    let engines: Vec<_> = cluster.nodes.iter().map(|node| node.engine.as_ref().unwrap()).collect();
    engines[0].docker(&["save", "--output", file.to_str().unwrap(), "busybox:1"]);
    for engine in &engines[1..] {
        engine.docker(&["load", "--input", file.to_str().unwrap()]);
    }
}
