//! Someone with a Compose project and a Docker Engine: images that are rebuilt, pushed anew or not there yet run as they
//! should, and the data that Compose left behind is used or left alone, never replaced by an empty volume.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/lone_engine.rs"]
mod lone_engine;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use lone_engine::{Machine, REGISTRY};

/// Prints its page, and ends at once when it is asked to.
const SERVE: &str = "trap 'exit 0' TERM; cat /page; while :; do sleep 1 & wait $$!; done";
const DOCKERFILE: &str = "FROM busybox:1\nCOPY page /page\n";

/// Builds an image whose page says this.
fn build(machine: &Machine, image: &str, page: &str) {
    machine.write("image", "page", page);
    let folder = machine.write("image", "Dockerfile", DOCKERFILE);
    machine.docker(&["build", "--tag", image, folder.to_str().unwrap()]);
}

fn generation(machine: &Machine, replica: &str) -> u64 {
    machine.replica(replica).unwrap()["generation"].as_u64().unwrap()
}

fn up(machine: &Machine, folder: &Path, further: &[&str]) -> String {
    let engine = machine.path("docker.sock");
    machine.tell(folder, &[&["up", "--docker", engine.to_str().unwrap()], further].concat())
}

#[test]
fn up_build_runs_what_was_built_and_a_rollback_what_was_built_before() {
    let machine = Machine::start();
    let compose = format!("name: shop\nservices: {{ web: {{ build: ., command: [sh, -c, \"{SERVE}\"] }} }}\n");
    machine.write("shop", "compose.yaml", &compose);
    machine.write("shop", "Dockerfile", DOCKERFILE);
    let folder = machine.write("shop", "page", "one");
    up(&machine, &folder, &["--build"]);
    assert_eq!(machine.file_in("shop-web-0", "/page"), "one");
    assert_eq!(generation(&machine, "shop-web-0"), 1);

    machine.write("shop", "page", "two");
    // Without `--build` nothing is built, and nothing restarts.
    up(&machine, &folder, &[]);
    assert_eq!((machine.file_in("shop-web-0", "/page"), generation(&machine, "shop-web-0")), ("one".to_owned(), 1));
    up(&machine, &folder, &["--build"]);
    assert_eq!(machine.file_in("shop-web-0", "/page"), "two");

    // The same content again is the same image.
    let before = generation(&machine, "shop-web-0");
    up(&machine, &folder, &["--build"]);
    assert_eq!(generation(&machine, "shop-web-0"), before);
    let plan = machine.tell(&folder, &["plan"]);
    assert!(plan.contains("unchanged"), "{plan}");

    // A plan says that an image changed, before anything runs it.
    machine.write("shop", "page", "three");
    machine.docker(&["build", "--tag", "shop-web", folder.to_str().unwrap()]);
    let plan = machine.json(&["plan", "-f", folder.join("compose.yaml").to_str().unwrap()]).unwrap();
    assert_eq!(plan["services"][0]["recreated_by"], serde_json::json!(["image (resolved)"]), "{plan:#}");

    machine.tell(&folder, &["rollback", "shop", "--wait"]);
    assert_eq!(machine.file_in("shop-web-0", "/page"), "one");
}

#[test]
fn a_tag_that_was_pushed_anew_is_rolled_and_a_registry_that_is_away_costs_nothing() {
    let mut machine = Machine::start();
    machine.start_registry();
    let image = format!("{REGISTRY}/web:1");
    let push = |machine: &Machine, page: &str| {
        build(machine, &image, page);
        machine.eventually("pushed", || machine.try_docker(&["push", &image]).status.success().then_some(()));
        // The node has to pull it.
        machine.docker(&["rmi", "--no-prune", &image]);
    };
    push(&machine, "one");
    let compose =
        format!("name: shop\nservices: {{ web: {{ image: \"{image}\", command: [sh, -c, \"{SERVE}\"] }} }}\n");
    let folder = machine.write("shop", "compose.yaml", &compose);
    machine.tell(&folder, &["apply", "--wait"]);
    assert_eq!(machine.file_in("shop-web-0", "/page"), "one");
    let runs = machine.docker(&["ps", "--no-trunc", "--format", "{{.Image}}"]);
    assert!(runs.starts_with(&format!("{REGISTRY}/web@sha256:")), "{runs}");

    push(&machine, "two");
    machine.tell(&folder, &["apply", "--wait"]);
    assert_eq!(machine.file_in("shop-web-0", "/page"), "two");
    let unchanged = machine.tell(&folder, &["apply", "--wait"]);
    assert!(unchanged.contains("unchanged"), "{unchanged}");

    // `up` takes what the machine has, as Compose does, and `pull` asks the registry.
    push(&machine, "three");
    machine.tell(&folder, &["pull", "--wait"]);
    assert_eq!(machine.file_in("shop-web-0", "/page"), "three");
    let newest = machine.tell(&folder, &["pull", "shop"]);
    assert!(newest.contains("has the newest images"), "{newest}");

    machine.stop_registry();
    let began = Instant::now();
    let unchanged = machine.tell(&folder, &["apply", "--wait"]);
    assert!(unchanged.contains("unchanged"), "{unchanged}");
    machine.tell(&folder, &["restart", "shop", "web", "--wait"]);
    machine.tell(&folder, &["rm", "shop", "--wait"]);
    machine.tell(&folder, &["apply", "--wait"]);
    assert_eq!(machine.file_in("shop-web-1", "/page"), "three");
    assert!(began.elapsed() < Duration::from_secs(40), "it waited for a registry: {:?}", began.elapsed());
}

#[test]
fn an_image_that_is_built_while_its_start_waits_is_noticed() {
    let machine = Machine::start();
    let compose = format!("name: shop\nservices: {{ web: {{ build: ., command: [sh, -c, \"{SERVE}\"] }} }}\n");
    machine.write("shop", "compose.yaml", &compose);
    machine.write("shop", "page", "late");
    let folder = machine.write("shop", "Dockerfile", DOCKERFILE);
    let said = machine.tell(&folder, &["apply"]);
    assert!(said.contains("note: service `web` has `build` and is not built by `apply`"), "{said}");
    machine.eventually("it waits for its image", || {
        (machine.replica("shop-web-0")?["code"] == "image_pull_failed").then_some(())
    });
    machine.docker(&["build", "--tag", "shop-web", folder.to_str().unwrap()]);
    let began = Instant::now();
    machine.eventually("running", || (machine.replica("shop-web-0")?["state"] == "running").then_some(()));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!((machine.file_in("shop-web-0", "/page"), generation(&machine, "shop-web-0")), ("late".to_owned(), 1));
}

/// A database that Compose runs, with a volume of its own.
fn database(name: &str, volume: &str) -> String {
    let serve = "trap 'exit 0' TERM; while :; do sleep 1 & wait $$!; done";
    format!(
        "version: \"3.8\"\nservices:\n  db:\n    image: busybox:1\n    command: [sh, -c, \"{serve}\"]\n    volumes: \
         [\"data:/data\"]\nvolumes:\n  data: {volume}\nx-project: {name}\n"
    )
}

#[test]
fn data_of_a_compose_project_is_adopted_or_left_alone_and_never_shadowed() {
    let machine = Machine::start();
    let folder = machine.write("shop", "docker-compose.yml", &database("shop", "{}"));
    machine.compose(&folder, &["up", "-d"]);
    machine.compose(&folder, &["exec", "-T", "db", "sh", "-c", "echo precious > /data/rows"]);
    machine.compose(&folder, &["down"]);

    let refused = machine.ask_in(&folder, &["apply"]);
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{words}");
    for word in ["`data` (`shop_data` on node `n1`)", "`--adopt-volumes`", "`--fresh-volumes`"] {
        assert!(words.contains(word), "{word} is not in {words}");
    }
    assert_eq!(machine.json(&["status"]).unwrap()["deployments"], serde_json::json!([]));
    let plan = machine.tell(&folder, &["plan"]);
    assert!(plan.contains("--adopt-volumes"), "{plan}");

    machine.tell(&folder, &["apply", "--adopt-volumes", "--wait"]);
    assert_eq!(machine.file_in("shop-db-0", "/data/rows"), "precious");
    let unchanged = machine.tell(&folder, &["apply", "--wait"]);
    assert!(unchanged.contains("unchanged"), "{unchanged}");
    // Also after the deployment was removed and came back.
    machine.tell(&folder, &["rm", "shop", "--wait"]);
    up(&machine, &folder, &[]);
    assert_eq!(machine.file_in("shop-db-1", "/data/rows"), "precious");
    let names = machine.docker(&["volume", "ls", "--format", "{{.Name}}"]);
    assert_eq!(names, "shop_data");
}

#[test]
fn an_empty_volume_is_made_only_on_request_and_a_named_one_is_used_as_it_is() {
    let machine = Machine::start();
    let folder = machine.write("shop", "docker-compose.yml", &database("shop", "{}"));
    machine.compose(&folder, &["up", "-d"]);
    machine.compose(&folder, &["exec", "-T", "db", "sh", "-c", "echo precious > /data/rows"]);
    machine.compose(&folder, &["down"]);
    machine.tell(&folder, &["apply", "--fresh-volumes", "--wait"]);
    let empty = machine.ask_in(&folder, &["exec", "shop-db-0", "cat", "/data/rows"]);
    assert!(!empty.status.success(), "it is not empty");
    // The choice is made once.
    machine.tell(&folder, &["apply", "--wait"]);
    let kept = machine.tell(&folder, &["apply", "--adopt-volumes"]);
    assert!(kept.contains("has data of its own, so `shop_data` on node `n1` was not adopted"), "{kept}");
    let names = machine.docker(&["volume", "ls", "--format", "{{.Name}}"]);
    assert_eq!(names.lines().collect::<Vec<_>>(), ["longshore_shop_data", "shop_data"]);

    machine.tell(&folder, &["rm", "shop", "--wait"]);
    // Another deployment names Compose's volume, as external and without.
    let external = database("external", "{ external: true, name: shop_data }");
    let folder = machine.write("external", "docker-compose.yml", &external);
    machine.tell(&folder, &["apply", "--wait"]);
    assert_eq!(machine.file_in("external-db-0", "/data/rows"), "precious");
    machine.tell(&folder, &["rm", "external", "--wait"]);
    let folder = machine.write("named", "docker-compose.yml", &database("named", "{ name: named_rows }"));
    machine.tell(&folder, &["apply", "--wait"]);
    let names = machine.docker(&["volume", "ls", "--format", "{{.Name}}"]);
    assert_eq!(names.lines().collect::<Vec<_>>(), ["longshore_shop_data", "named_rows", "shop_data"]);
}

#[test]
fn down_with_volumes_deletes_the_data_of_its_own_volumes_and_no_other() {
    let machine = Machine::start();
    machine.docker(&[
        "volume",
        "create",
        "--label",
        "com.docker.compose.project=shop",
        "--label",
        "com.docker.compose.volume=old",
        "shop_old",
    ]);
    let text = "name: shop\nservices:\n  db:\n    image: busybox:1\n    pull_policy: never\n    stop_grace_period: 0s\n    \
                command: [sh, -c, \"test -e /data/row || echo first > /data/row; exec sleep 600\"]\n    \
                volumes: [ \"data:/data\", \"old:/old\" ]\nvolumes: { data: {}, old: {} }\n";
    let folder = machine.write("shop", "compose.yaml", text);
    machine.tell(&folder, &["apply", "--wait", "--adopt-volumes"]);
    assert_eq!(machine.file_in("shop-db-0", "/data/row"), "first");
    let fails = |arguments: &[&str]| {
        let output = machine.ask_in(&folder, arguments);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let in_use = fails(&["volume", "rm", "shop_data", "--yes"]);
    assert!(in_use.contains("volume `shop_data` is in use by `shop/db` (volume_in_use)"), "{in_use}");
    let unasked = fails(&["down", "-v"]);
    assert!(unasked.contains("`--yes` deletes it without asking"), "{unasked}");
    assert_eq!(machine.replica("shop-db-0").unwrap()["state"], "running", "nothing was done");
    let kept = machine.tell(&folder, &["down", "-v", "--yes"]);
    assert!(kept.contains("volume shop_data is deleted"), "{kept}");
    assert!(kept.contains("`shop_old` on node `n1` was not created by Longshore, so its data is left alone"), "{kept}");
    assert_eq!(machine.docker(&["volume", "ls", "-q"]).trim(), "shop_old");
    machine.tell(&folder, &["apply", "--wait"]);
    assert_eq!(machine.file_in("shop-db-1", "/data/row"), "first");
    let shown = machine.tell(&folder, &["volume", "inspect", "shop_data"]);
    assert!(shown.contains("longshore_shop_data") && shown.contains("shop/db"), "{shown}");
}
