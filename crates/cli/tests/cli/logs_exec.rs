//! `logs` and `exec`, from a pipe and from a terminal.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use longshore_api::LogEntry;

use crate::{
    machine::Machine,
    terminal::{TIMEOUT, Terminal},
};

const TALK: &str = "\
name: talk
services:
  web:
    image: none
    command: [sh, -c, \"echo hello from $$LONGSHORE_REPLICA; echo trouble >&2; exec sleep 600\"]
    x-longshore: { driver: exec }
    deploy: { replicas: 2, update_config: { monitor: 50ms } }
";

fn talk() -> Machine {
    let mut machine = Machine::new();
    machine.start_daemon_of("n1", 2);
    machine.write("compose.yaml", TALK);
    let applied = machine.ask(&["apply", "-f", "compose.yaml", "--wait"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    machine.wait_for("everybody said hello", || lines(&machine, &["logs", "talk"]).len() == 4);
    machine
}

fn lines(machine: &Machine, arguments: &[&str]) -> Vec<String> {
    let output = machine.ask(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Exit code, standard output and standard error.
fn output_of(machine: &Machine, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = machine.ask(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn spawn(machine: &Machine, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    machine.prepare(&mut command);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn log_lines_carry_the_replica_and_can_be_limited() {
    let machine = talk();
    let mut all = lines(&machine, &["logs", "talk/web"]);
    all.sort();
    assert_eq!(
        all,
        [
            "talk-web-0 | hello from talk-web-0",
            "talk-web-0 | trouble",
            "talk-web-1 | hello from talk-web-1",
            "talk-web-1 | trouble"
        ]
    );
    let entries = lines(&machine, &["logs", "talk", "-o", "json"]);
    let entries: Vec<LogEntry> = entries.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(entries.is_sorted_by_key(|entry| entry.at_ms), "{entries:?}");
    assert_eq!(entries.iter().filter(|entry| entry.node == "n1-2" && entry.replica == "talk-web-1").count(), 2);
    assert_eq!(lines(&machine, &["logs", "talk-web-1"]).len(), 2);
    assert_eq!(lines(&machine, &["logs", "talk", "--tail", "1"]).len(), 2, "one of each");
    assert_eq!(lines(&machine, &["logs", "talk", "--since", "0s"]), [""; 0]);
    assert_eq!(lines(&machine, &["logs", "talk", "--since", "1h"]).len(), 4);
    let dated = lines(&machine, &["logs", "talk-web-0", "-t"]);
    assert!(dated.iter().all(|line| line.starts_with("talk-web-0 | 20") && line.contains("Z ")), "{dated:?}");
    let (code, _, error) = output_of(&machine, &["logs", "talc"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("there is no replica, service or deployment `talc` (not_found)"), "{error}");
    let (code, _, error) = output_of(&machine, &["logs", "talk/wep"]);
    assert!(code == Some(1) && error.contains("not_found"), "{error}");
    let _ = machine.ask(&["rm", "talk", "--wait"]);
}

/// Waits for a line.
fn wait_for_line(lines: &Receiver<String>, wanted: &str) {
    while lines.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("never `{wanted}`")) != wanted {}
}

#[test]
fn following_a_service_includes_later_replicas_and_ends_with_the_last() {
    let machine = talk();
    let mut follower = spawn(&machine, &["logs", "talk/web", "-f", "--tail", "1"]);
    let (to, heard) = channel();
    let out = BufReader::new(follower.stdout.take().unwrap());
    thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
    // `--tail 1` limits replicas that exist when following begins; later ones are printed in full.
    heard.recv_timeout(TIMEOUT).unwrap();
    assert!(machine.ask(&["scale", "talk", "web=3"]).status.success());
    wait_for_line(&heard, "talk-web-2 | hello from talk-web-2");
    assert!(machine.ask(&["restart", "talk", "web", "--wait"]).status.success());
    wait_for_line(&heard, "talk-web-0 | hello from talk-web-0");
    assert!(follower.try_wait().unwrap().is_none());
    assert!(machine.ask(&["rm", "talk", "--wait"]).status.success());
    assert!(follower.wait().unwrap().success(), "nothing is left to follow");
}

#[test]
fn following_before_any_replica_runs_prints_later_ones() {
    let mut machine = Machine::new();
    machine.start_daemon_of("n1", 1);
    machine.write("compose.yaml", &TALK.replace("replicas: 2", "replicas: 0"));
    assert!(machine.ask(&["apply", "-f", "compose.yaml"]).status.success());
    let mut follower = spawn(&machine, &["logs", "talk", "-f"]);
    let (to, heard) = channel();
    let out = BufReader::new(follower.stdout.take().unwrap());
    thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
    // Long enough for a command that does not wait to exit.
    thread::sleep(Duration::from_secs(1));
    assert!(follower.try_wait().unwrap().is_none(), "it did not wait");
    assert!(machine.ask(&["scale", "talk", "web=1"]).status.success());
    wait_for_line(&heard, "talk-web-0 | hello from talk-web-0");
    assert!(machine.ask(&["rm", "talk", "--wait"]).status.success());
    assert!(follower.wait().unwrap().success());
}

#[test]
fn the_output_of_the_start_before_a_restart_is_kept() {
    let mut machine = Machine::new();
    machine.start_daemon_of("n1", 1);
    let text = TALK.replace("exec sleep 600", "exit 3").replace("replicas: 2,", "replicas: 1,");
    machine.write("compose.yaml", &text.replace("update_config", "restart_policy: { delay: 0s }, update_config"));
    let applied = machine.ask(&["apply", "-f", "compose.yaml", "--wait"]);
    assert_eq!(applied.status.code(), Some(4), "{}", String::from_utf8_lossy(&applied.stderr));
    let all = lines(&machine, &["logs", "talk"]);
    assert_eq!(all.iter().filter(|line| line.ends_with("hello from talk-web-0")).count(), 2, "{all:?}");
    let why = lines(&machine, &["why", "talk-web-0"]);
    let told = "it is failed: restart_exhausted, exit_code 3; restarted 2 times, this is attempt 2";
    assert_eq!(why[1], told, "{why:#?}");
}

#[test]
fn exec_forwards_exit_code_output_and_input() {
    let machine = talk();
    let script = "echo $WORD $LONGSHORE_REPLICA; echo wrong >&2; exit 5";
    let asked = ["exec", "-e", "WORD=yes", "talk-web-1", "sh", "-c", script];
    assert_eq!(output_of(&machine, &asked), (Some(5), "yes talk-web-1\n".to_owned(), "wrong\n".to_owned()));
    assert_eq!(
        output_of(&machine, &["exec", "talk-web-0", "cat"]),
        (Some(0), String::new(), String::new()),
        "no input"
    );
    let (code, _, error) = output_of(&machine, &["exec", "talk-wep-0", "true"]);
    assert!(code == Some(1) && error.contains("there is no replica `talk-wep-0` (not_found)"), "{error}");
    assert!(error.contains("did you mean `talk-web-0`?"), "{error}");
    let (code, _, error) = output_of(&machine, &["exec", "talk-web-0", "/no/such/program"]);
    assert!(code == Some(127) && error.contains("/no/such/program: No such file"), "{error}");
    assert_eq!(output_of(&machine, &["exec", "talk-web-0", "/"]).0, Some(126), "it exists and is not executable");
    let (code, _, error) = output_of(&machine, &["exec", "-t", "talk-web-0", "true"]);
    assert!(code == Some(1) && error.contains("`-t` needs a terminal"), "{error}");

    // More than any buffer on the way holds, in both directions at the same time.
    let mut echo = spawn(&machine, &["exec", "-i", "talk-web-1", "cat"]);
    let (sent, mut back) = (vec![b'x'; 8 << 20], Vec::new());
    let (mut input, expected) = (echo.stdin.take().unwrap(), sent.len());
    let writer = thread::spawn(move || input.write_all(&sent));
    echo.stdout.take().unwrap().read_to_end(&mut back).unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!((back.len(), echo.wait().unwrap().code()), (expected, Some(0)));

    let records = machine.json(&["audit", "--type", "exec_asked"]);
    let records = records.as_array().unwrap();
    let subjects: Vec<&str> = records.iter().map(|record| record["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["talk-web-1", "talk-web-0", "talk-web-0", "talk-web-0", "talk-web-1"]);
    assert!(
        records.iter().all(|record| record["actor"] == "operator/root" && record["outcome"] == "done"),
        "{records:?}"
    );
    assert!(!serde_json::to_string(records).unwrap().contains("WORD"), "a command may hold a secret");
    let _ = machine.ask(&["rm", "talk", "--wait"]);
}

/// Whether a process runs with exactly this command line.
fn runs(words: &[&str]) -> bool {
    let wanted = words.join("\0") + "\0";
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.into_iter().any(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == wanted.as_bytes()))
}

#[test]
fn killing_exec_ends_the_remote_command() {
    let machine = talk();
    let odd = ["sleep", &format!("{}.25", 40_000 + u32::from(machine.port))];
    let mut left = spawn(&machine, &["exec", "talk-web-1", odd[0], odd[1]]);
    machine.wait_for("the command runs", || runs(&odd));
    left.kill().unwrap();
    left.wait().unwrap();
    machine.wait_for("the command is gone", || !runs(&odd));
    let _ = machine.ask(&["rm", "talk", "--wait"]);
}

#[test]
fn an_interactive_shell_uses_the_local_terminal_and_follows_its_size() {
    let machine = talk();
    let mut terminal = Terminal::run(&["exec", "-it", "talk-web-1", "sh"], |command| machine.prepare(command));
    terminal.press(b"echo I am $LONGSHORE_REPLICA; stty size\r");
    terminal.wait_for("I am talk-web-1\n40 100");
    terminal.resize(50, 132);
    // The new size arrives asynchronously.
    thread::sleep(Duration::from_millis(500));
    terminal.press(b"stty size\r");
    terminal.wait_for("\n50 132");
    // Ctrl-C goes to the remote command.
    terminal.press(b"sleep 600\r");
    thread::sleep(Duration::from_millis(500));
    terminal.press(b"\x03");
    terminal.press(b"echo still $((40 + 2))\r");
    terminal.wait_for("still 42");
    terminal.press(b"exit 3\r");
    assert_eq!(terminal.wait_until_it_ends().code(), Some(3));
    let _ = machine.ask(&["rm", "talk", "--wait"]);
}
