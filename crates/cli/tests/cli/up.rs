//! `longshore up`: starting, serving, signals and stopping.

use std::collections::BTreeSet;

use rustix::process::Signal;

use crate::{machine::Machine, terminal::Terminal};

const CTRL_C: &[u8] = b"\x03";

#[test]
fn the_example_is_served_and_ctrl_c_stops_it() {
    let machine = Machine::new();
    let mut terminal = machine.up(&[]);
    machine.wait_for("served", || machine.page().is_some());
    let page = machine.page().unwrap();
    assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    assert!(page.contains("Hello from hello-web-"), "{page}");
    let said = terminal.wait_for("Ctrl-C stops it and exits");
    let said = said[said.find("hello is active").unwrap()..].to_owned();
    // What the replicas write follows, in an order of its own.
    let said = said.lines().filter(|line| !line.contains(" | ")).collect::<Vec<_>>().join("\n");
    let said = said.replace(&machine.port.to_string(), "PORT");
    let said = said.replace(machine.path("data").to_str().unwrap(), "DATA");
    insta::assert_snapshot!(said, @r"
    hello is active, revision 1
      web  http://localhost:PORT

    Try next, in another terminal:
      export LONGSHORE_SOCKET=DATA/longshore.sock
      longshore status hello
      longshore why hello-web-0
      longshore scale hello web=4
      longshore dashboard

    Ctrl-C stops it and exits
    ");
    let link = machine.json(&["dashboard"]);
    let link = link["url"].as_str().expect("a link that a browser of this machine can follow");
    assert!(link.starts_with("http://127.0.0.1:") && !link.starts_with("http://127.0.0.1:0"), "{link}");
    terminal.press(CTRL_C);
    let status = terminal.wait_until_it_ends();
    assert!(status.success(), "{}", terminal.text());
    assert!(terminal.text().ends_with("stopped\n"), "{}", terminal.text());
    assert_eq!(machine.page(), None);
    assert_eq!(machine.processes(), []);
}

#[test]
fn sigterm_leaves_replicas_running_and_the_next_up_adopts_them() {
    let machine = Machine::new();
    let mut terminal = machine.up(&[]);
    terminal.wait_for("Ctrl-C stops it");
    let before = machine.processes();
    assert_eq!(before.len(), 3);
    terminal.signal(Signal::TERM);
    assert!(terminal.wait_until_it_ends().success());
    assert!(terminal.text().contains("hello keeps running"), "{}", terminal.text());
    assert_eq!(machine.processes(), before);
    assert!(machine.page().is_some());

    let mut again = machine.up(&["--keep"]);
    again.wait_for("Ctrl-C stops the daemon; replicas keep running");
    assert_eq!(machine.processes(), before);
    for replica in machine.json(&["status"])["replicas"].as_array().unwrap() {
        assert_eq!((&replica["restarts"], &replica["generation"]), (&0.into(), &1.into()), "{replica:#}");
    }
    again.press(CTRL_C);
    assert!(again.wait_until_it_ends().success());
    assert_eq!(machine.processes(), before);

    let mut last = machine.up(&[]);
    last.wait_for("Ctrl-C stops it");
    last.press(CTRL_C);
    assert!(last.wait_until_it_ends().success());
    assert_eq!(machine.processes(), []);
}

#[test]
fn three_nodes_share_the_replicas_and_those_of_an_isolated_node_are_replaced() {
    let machine = Machine::new();
    let mut terminal = machine.up(&["--nodes", "3"]);
    terminal.wait_for("longshore node isolate n-3");
    let on = |machine: &Machine| -> BTreeSet<String> {
        let status = machine.json(&["status"]);
        let running = status["replicas"].as_array().unwrap().iter().filter(|it| it["state"] == "running");
        running.map(|it| it["node"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(on(&machine), ["n", "n-2", "n-3"].map(str::to_owned).into());
    machine.json(&["node", "drain", "n-2"]);
    machine.wait_for("two nodes with all the work", || {
        on(&machine) == ["n", "n-3"].map(str::to_owned).into() && machine.processes().len() == 3
    });
    machine.json(&["node", "activate", "n-2"]);
    // `cut` and `mend` are the older names of `isolate` and `heal`.
    machine.json(&["node", "cut", "n-3"]);
    let lost = |machine: &Machine| {
        let status = machine.json(&["status"]);
        let replicas = status["replicas"].as_array().unwrap().clone();
        replicas.iter().filter(|it| it["state"] == "running" && it["node"] != "n-3").count()
    };
    machine.wait_for("three that run elsewhere", || lost(&machine) == 3);
    assert!(machine.processes().len() > 3, "an isolated node stopped its replicas");
    machine.json(&["node", "mend", "n-3"]);
    machine.wait_for("one of each again", || machine.processes().len() == 3 && lost(&machine) == 3);
    terminal.press(CTRL_C);
    assert!(terminal.wait_until_it_ends().success(), "{}", terminal.text());
    assert_eq!(machine.processes(), []);
}

#[test]
fn a_manifest_with_containers_is_refused_without_an_engine() {
    let machine = Machine::new();
    machine.write("compose.yaml", "services: { web: { image: nginx }, db: { image: postgres } }\n");
    let data = machine.path("data");
    let output = machine.ask(&["up", "--docker", "nowhere.sock", "--data-dir", data.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @r"
    error: services `db`, `web` need containers, and there is no Docker Engine on this machine

    hint: start Docker, or name its socket with `--docker`, or run processes without containers with `x-longshore: {driver: exec}`
    ");
    assert!(!data.exists(), "a data directory was created");
}

#[test]
fn a_deployment_that_never_runs_exits_with_4_after_ctrl_c() {
    let machine = Machine::new();
    machine.write(
        "compose.yaml",
        "name: broken\nservices:\n  web:\n    image: none\n    command: [sh, -c, \"exit 3\"]\n    \
         x-longshore: { driver: exec }\n",
    );
    // A relative data directory; replicas still get absolute paths.
    let arguments = ["up", "--node", "n", "--data-dir", "data"];
    let mut terminal = Terminal::run(&arguments, |command| {
        machine.prepare(command);
        command.env_remove("LONGSHORE_SOCKET");
    });
    terminal.wait_for("Ctrl-C stops it and exits");
    let said = terminal.text();
    assert!(said.contains("`broken` is failed: broken-web-0 failed on n: restart_exhausted"), "{said}");
    terminal.press(CTRL_C);
    assert_eq!(terminal.wait_until_it_ends().code(), Some(4), "{}", terminal.text());
}

#[test]
fn a_relative_data_directory_works_for_services_and_commands() {
    let machine = Machine::new();
    machine.write(
        "compose.yaml",
        "name: told\nconfigs: { note: { content: hi } }\nservices:\n  web:\n    image: none\n    configs: [note]\n    \
         command: [sleep, \"600\"]\n    x-longshore: { driver: exec }\n",
    );
    let mut terminal = Terminal::run(&["up", "--node", "n", "--data-dir", "data"], |command| {
        machine.prepare(command);
        command.env_remove("LONGSHORE_SOCKET");
    });
    let said = terminal.wait_for("Ctrl-C stops it and exits");
    let socket = machine.path("data/longshore.sock");
    assert!(said.contains(&format!("export LONGSHORE_SOCKET={}\n", socket.display())), "{said}");
    let note = machine.ask(&["exec", "told-web-0", "sh", "-c", "cd / && cat $LONGSHORE_FILE_NOTE"]);
    assert_eq!(String::from_utf8_lossy(&note.stdout), "hi", "{}", String::from_utf8_lossy(&note.stderr));
    terminal.press(CTRL_C);
    assert!(terminal.wait_until_it_ends().success(), "{}", terminal.text());
}

#[test]
fn a_running_daemon_is_used_and_left_running() {
    let mut machine = Machine::new();
    machine.start_daemon(1);
    let mut terminal = machine.up(&[]);
    assert!(terminal.wait_until_it_ends().success(), "{}", terminal.text());
    assert!(terminal.text().contains("hello is active, revision 1"), "{}", terminal.text());
    assert_eq!(machine.processes().len(), 3);
    machine.json(&["rm", "hello"]);
    machine.wait_for("nothing that runs", || machine.processes().is_empty());
}
