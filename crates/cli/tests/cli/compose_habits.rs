//! The verbs that users of Docker Compose type without thinking, on a real daemon with the exec driver.

use serde_json::{Value, json};

use crate::machine::{Machine, steady};

const SHOP: &str = "\
name: shop
services:
  web:
    image: none
    command: [sh, -c, \"echo serving; exec sleep 600\"]
    x-longshore: { driver: exec }
    stop_grace_period: 1s
    deploy: { replicas: 2, update_config: { monitor: 50ms } }
    ports: [\"18080:80\"]
  db:
    image: none
    command: [sleep, \"600\"]
    x-longshore: { driver: exec }
    stop_grace_period: 1s
    deploy: { update_config: { monitor: 50ms } }
";
const BLOG: &str = "\
name: blog
services:
  web:
    image: none
    command: [sleep, \"600\"]
    x-longshore: { driver: exec }
    stop_grace_period: 1s
";

/// A machine with a daemon and an active deployment `shop`, whose manifest is the Compose file of the folder.
fn shop() -> Machine {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    machine.write("compose.yaml", SHOP);
    succeeds(&machine, "apply --wait");
    machine
}

/// What a command prints, after its exit code.
fn says(machine: &Machine, line: &str) -> String {
    let output = machine.ask(&line.split(' ').collect::<Vec<_>>());
    let code = output.status.code().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    steady(&format!("exit {code}\n{out}{err}"))
}

fn succeeds(machine: &Machine, line: &str) -> String {
    let said = says(machine, line);
    assert!(said.starts_with("exit 0"), "{line}: {said}");
    said
}

fn states(machine: &Machine) -> Vec<(Value, Value)> {
    let status = machine.json(&["status", "shop"]);
    let rows = status["replicas"].as_array().unwrap().iter();
    rows.map(|row| (row["id"].clone(), row["state"].clone())).collect()
}

#[test]
fn a_stopped_deployment_stays_stopped_when_the_daemon_restarts_and_starts_with_the_same_replicas() {
    let mut machine = shop();
    assert_eq!(machine.processes().len(), 3);
    let said = says(&machine, "stop");
    assert!(said.contains("shop is stopped\n"), "{said}");
    assert_eq!(machine.processes(), [], "stop waits until every process has ended");
    let status = machine.json(&["status", "shop"]);
    assert_eq!(status["deployments"][0]["status"], "stopped");
    let stopped = ["shop-db-0", "shop-web-0", "shop-web-1"].map(|id| (json!(id), json!("stopped")));
    assert_eq!(states(&machine), stopped);
    assert_eq!(says(&machine, "stop"), "exit 0\nunchanged\n");
    let why = says(&machine, "why shop-web-0");
    assert!(why.contains("`shop` is stopped; `longshore start shop` starts it"), "{why}");

    machine.kill_daemon();
    machine.start_daemon(1);
    // Long enough for an agent to start what it was once given.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(machine.processes(), []);
    assert_eq!(machine.json(&["status", "shop"])["deployments"][0]["status"], "stopped");

    succeeds(&machine, "start --wait");
    assert_eq!(machine.processes().len(), 3);
    let running = ["shop-db-0", "shop-web-0", "shop-web-1"].map(|id| (json!(id), json!("running")));
    assert_eq!(states(&machine), running);
    assert_eq!(machine.json(&["status", "shop"])["deployments"][0]["revision"], 1);
}

#[test]
fn up_apply_and_restart_start_what_is_stopped_and_scale_does_not() {
    let machine = shop();
    succeeds(&machine, "stop");
    succeeds(&machine, "scale web=1");
    assert_eq!(machine.processes(), []);
    succeeds(&machine, "up");
    assert_eq!(machine.processes().len(), 3, "the Compose file says two of web and one of db");
    succeeds(&machine, "stop shop");
    succeeds(&machine, "apply --wait");
    assert_eq!(machine.processes().len(), 3);
    succeeds(&machine, "stop shop --no-wait");
    succeeds(&machine, "restart web --wait");
    assert_eq!(machine.processes().len(), 3);
    let said = says(&machine, "stop web");
    assert_eq!(
        said,
        "exit 1\nerror: `web` is a service of `shop`, and `stop` is for a whole deployment\n\nhint: `longshore stop shop`, \
         or `longshore scale shop web=0` for this service alone\n"
    );
}

#[test]
fn down_removes_the_deployment_of_this_folder_and_only_that() {
    let machine = shop();
    machine.write("blog.yaml", BLOG);
    succeeds(&machine, "apply -f blog.yaml --wait");
    // It has no volumes, so there is nothing to ask about.
    let said = succeeds(&machine, "down -v");
    assert!(said.ends_with("done\n"), "{said}");
    assert_eq!(machine.processes().len(), 1);
    assert_eq!(machine.json(&["status"])["deployments"][0]["name"], "blog");
    assert_eq!(says(&machine, "down"), "exit 0\nunchanged\n`shop` is not deployed\n");
    succeeds(&machine, "down -f blog.yaml");
    assert_eq!(machine.processes(), []);
    machine.write("compose.yaml", "services: 7\n");
    let said = says(&machine, "down");
    assert!(said.starts_with("exit 2\nerror: the deployment is not known"), "{said}");
    assert!(said.ends_with("hint: name the deployment with `-p`\n"), "{said}");
}

#[test]
fn a_service_is_found_by_its_name_and_a_running_replica_is_picked() {
    let machine = shop();
    machine.wait_for("a line", || says(&machine, "logs web").contains("serving"));
    assert_eq!(succeeds(&machine, "exec web printenv LONGSHORE_REPLICA"), "exit 0\nshop-web-0\n");
    assert_eq!(succeeds(&machine, "exec db printenv LONGSHORE_REPLICA"), "exit 0\nshop-db-0\n");
    assert!(succeeds(&machine, "logs").contains("serving"), "the deployment of this folder");
    succeeds(&machine, "scale web=3 --wait");
    assert_eq!(machine.processes().len(), 4);
    succeeds(&machine, "restart --wait");
    let restarted = machine.json(&["status", "shop"]);
    let generations = restarted["replicas"].as_array().unwrap().iter().map(|row| row["generation"].as_u64().unwrap());
    assert!(generations.clone().all(|generation| generation > 1), "{restarted:#}");

    machine.write("blog.yaml", BLOG);
    succeeds(&machine, "apply -f blog.yaml --wait");
    assert!(succeeds(&machine, "exec web printenv LONGSHORE_REPLICA").contains("shop-web-"), "this folder's");
    machine.write("compose.yaml", "name: other\nservices: { x: { image: x } }\n");
    assert_eq!(
        says(&machine, "exec web true"),
        "exit 1\nerror: several deployments have a service `web`: `blog`, `shop`\n\nhint: name one of them, for instance \
         `blog/web`\n"
    );
    assert_eq!(
        says(&machine, "logs"),
        "exit 1\nerror: `other`, the project of this folder, is not deployed\n\nhint: `longshore up` runs it; deployed are \
         `blog`, `shop`\n"
    );
    assert!(succeeds(&machine, "exec blog/web printenv LONGSHORE_REPLICA").contains("blog-web-0"));
}

#[test]
fn ps_images_and_port_show_the_deployment_of_this_folder() {
    let machine = shop();
    machine.write("blog.yaml", BLOG);
    succeeds(&machine, "apply -f blog.yaml --wait");
    insta::assert_snapshot!(says(&machine, "ps"), @r"
    exit 0
    REPLICA IMAGE SERVICE STATE NODE PORTS
    shop-db-0 none db running n
    shop-web-0 none web running n 0.0.0.0:18080->80/tcp
    shop-web-1 none web running n 0.0.0.0:18080->80/tcp
    ");
    assert_eq!(says(&machine, "ps web -q"), "exit 0\nshop-web-0\nshop-web-1\n");
    assert!(says(&machine, "ps --all").contains("blog-web-0"));
    insta::assert_snapshot!(says(&machine, "images"), @r"
    exit 0
    IMAGE SERVICE NODES
    none shop/db n
    none shop/web n
    ");
    assert_eq!(says(&machine, "port web 80"), "exit 0\n0.0.0.0:18080\n");
    assert_eq!(says(&machine, "port db"), "exit 0\nno published ports\n");
    assert!(says(&machine, "port web 443").contains("`shop/web` publishes no port 443/tcp"));
}

#[test]
fn a_word_of_compose_that_is_no_command_says_what_to_use() {
    let machine = Machine::new();
    insta::assert_snapshot!(says(&machine, "attach web"), @r"
    exit 2
    error: there is no command `attach`

    hint: `longshore logs -f SERVICE` shows its output, `longshore exec -it SERVICE sh` opens a shell in it
    ");
    assert!(says(&machine, "kill web").contains("`longshore stop`"));
    assert!(says(&machine, "pause --help").contains("holds no process"));
}

#[test]
fn events_are_printed_as_they_happen() {
    let machine = shop();
    let mut follower = std::process::Command::new(env!("CARGO_BIN_EXE_longshore"));
    machine.prepare(&mut follower);
    let log = std::fs::File::create(machine.path("events")).unwrap();
    let mut follower = follower.args(["events", "--deployment", "shop", "-o", "json"]).stdout(log).spawn().unwrap();
    let printed = || std::fs::read_to_string(machine.path("events")).unwrap();
    machine.wait_for("an event", || {
        succeeds(&machine, "stop");
        succeeds(&machine, "start --wait");
        printed().contains("deployment_stopped")
    });
    machine.wait_for("the start", || printed().contains("\"kind\":\"placed\""));
    follower.kill().unwrap();
    follower.wait().unwrap();
    for line in printed().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["deployment"], "shop");
    }
}

#[test]
fn files_are_copied_out_of_a_replica_and_into_it() {
    let machine = shop();
    machine.write("note.txt", "from here");
    let inside = machine.path("inside");
    std::fs::create_dir(&inside).unwrap();
    let inside = inside.to_str().unwrap();
    succeeds(&machine, &format!("cp note.txt web:{inside}"));
    assert_eq!(std::fs::read_to_string(machine.path("inside/note.txt")).unwrap(), "from here");
    succeeds(&machine, &format!("cp note.txt shop-web-1:{inside}/renamed.txt"));
    assert_eq!(std::fs::read_to_string(machine.path("inside/renamed.txt")).unwrap(), "from here");
    succeeds(&machine, &format!("cp db:{inside} copied"));
    assert_eq!(std::fs::read_to_string(machine.path("copied/note.txt")).unwrap(), "from here");
    succeeds(&machine, &format!("cp db:{inside}/renamed.txt copied"));
    assert_eq!(std::fs::read_to_string(machine.path("copied/renamed.txt")).unwrap(), "from here");
    let missing = says(&machine, &format!("cp web:{inside}/nothing ."));
    assert!(missing.starts_with("exit 1\n"), "{missing}");
    assert!(missing.contains("was not copied"), "{missing}");
}

#[test]
fn up_in_the_background_starts_a_daemon_that_outlives_it_and_says_what_happens_at_reboot() {
    let machine = Machine::new();
    machine.write("compose.yaml", SHOP);
    let data = machine.path("data");
    let said = succeeds(&machine, &format!("up -d --node n --data-dir {}", data.display()));
    assert!(said.contains("shop is active, revision 1"), "{said}");
    assert!(said.contains("nothing starts it after a reboot: run `longshore up -d` again"), "{said}");
    let pid = said.split("as process ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    assert!(rustix::process::test_kill_process(pid).is_ok(), "the daemon runs on");
    assert_eq!(rustix::process::getsid(Some(pid)).unwrap(), pid, "it has a session of its own");
    assert_eq!(machine.processes().len(), 3);
    let again = succeeds(&machine, &format!("up -d --node n --data-dir {}", data.display()));
    assert!(!again.contains("in the background"), "the daemon that runs is used: {again}");
    succeeds(&machine, "down");
    assert_eq!(machine.processes(), []);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    machine.wait_for("the end of the daemon", || !says(&machine, "node ls").starts_with("exit 0"));
}
