//! Logs, exec, secrets and resource usage of a replica.

use std::time::Duration;

use bytes::Bytes;
use longshore_agent::{ExecInput, ExecOutput, ExecRequest, ExecSession, LogLine, LogOptions, LogStream, Terminal};
use longshore_model::{
    Driver, ReplicaState, RuntimeCode, Work,
    agent_protocol::CleanupState,
    container::{FileKind, FileMount},
    rebalance::Share,
};
use tokio::sync::mpsc;

use super::both;
use crate::{
    runner::{Needs, Story},
    test_node::{Node, TestEnv},
};

pub(crate) fn stories() -> Vec<Story> {
    both![
        stdout_and_stderr_are_separate_and_a_tail_can_be_read,
        output_can_be_followed_until_the_replica_ends,
        exec_runs_a_command_and_returns_its_exit_code,
        a_command_that_cannot_be_run_returns_a_shells_exit_code,
        a_command_on_a_terminal_sees_its_size_and_resizes,
        a_command_whose_session_is_dropped_is_killed,
        a_secret_is_a_file_in_memory_and_removed_with_its_replica,
        a_secret_that_does_not_exist_is_a_failed_start,
        a_busy_replica_and_its_machine_are_measured,
    ]
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

async fn running(env: &TestEnv, driver: Driver, script: &str) -> (Node, Work) {
    let node = env.node();
    let work = env.work(driver, "web", script, |_| {});
    node.control.put(&work);
    node.control.wait_running(&work).await;
    (node, work)
}

pub(super) async fn all(mut lines: mpsc::Receiver<LogLine>) -> Vec<LogLine> {
    let mut all = Vec::new();
    let reading = async {
        while let Some(line) = lines.recv().await {
            all.push(line);
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reading).await.expect("the log stream never ends");
    all
}

pub(super) fn texts(lines: &[LogLine]) -> Vec<String> {
    lines.iter().map(|line| String::from_utf8_lossy(&line.text).into_owned()).collect()
}

async fn stdout_and_stderr_are_separate_and_a_tail_can_be_read(env: TestEnv, driver: Driver) {
    let script = format!("for n in 1 2 3; do echo out $n; done; echo wrong >&2; {SLEEP}");
    let (node, work) = running(&env, driver, &script).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let read = async |options| all(node.agent().logs(&work.key, work.attempt, options).await.unwrap()).await;
    let lines = read(LogOptions::default()).await;
    let mut sorted = texts(&lines);
    sorted.sort();
    assert_eq!(sorted, ["out 1", "out 2", "out 3", "wrong"]);
    let wrong = lines.iter().find(|line| line.text == "wrong").unwrap();
    assert_eq!(wrong.stream, LogStream::Stderr);
    let tail = read(LogOptions { tail: Some(2), ..LogOptions::default() }).await;
    assert_eq!(tail.len(), 2);
    let later = longshore_model::Time(lines[0].at.0 + 3_600_000);
    assert_eq!(read(LogOptions { since: Some(later), ..LogOptions::default() }).await, []);
}

async fn output_can_be_followed_until_the_replica_ends(env: TestEnv, driver: Driver) {
    let script = "n=0; while [ $n -lt 5 ]; do echo line $n; n=$((n+1)); sleep 0.3; done; exit 3";
    let (node, work) = running(&env, driver, script).await;
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let lines = all(node.agent().logs(&work.key, work.attempt, options).await.unwrap()).await;
    assert_eq!(texts(&lines), ["line 0", "line 1", "line 2", "line 3", "line 4"]);
    node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
}

fn request(script: &str, terminal: Terminal) -> ExecRequest {
    ExecRequest { command: ["sh", "-c", script].map(str::to_owned).to_vec(), terminal, ..ExecRequest::default() }
}

async fn finished(mut session: ExecSession) -> (String, Option<i64>) {
    let mut bytes = Vec::new();
    let reading = async {
        while let Some(output) = session.output.recv().await {
            match output {
                ExecOutput::Bytes(output) => bytes.extend_from_slice(&output.bytes),
                ExecOutput::Exit(code) => return code,
            }
        }
        None
    };
    let code = tokio::time::timeout(Duration::from_secs(30), reading).await.expect("the command never ends");
    (String::from_utf8_lossy(&bytes).into_owned(), code)
}

async fn exec_runs_a_command_and_returns_its_exit_code(env: TestEnv, driver: Driver) {
    let (node, work) = running(&env, driver, SLEEP).await;
    let asked = request("read word; echo got $word; exit 5", Terminal::None);
    let session = node.agent().exec(&work.key, work.attempt, asked).await.unwrap();
    session.input.send(ExecInput::Bytes(Bytes::from_static(b"hello\n"))).await.unwrap();
    assert_eq!(finished(session).await, ("got hello\n".to_owned(), Some(5)));
}

async fn a_command_that_cannot_be_run_returns_a_shells_exit_code(env: TestEnv, driver: Driver) {
    let (node, work) = running(&env, driver, SLEEP).await;
    for (command, code) in [("/no/such/thing", 127), ("no-such-thing", 127), ("/etc", 126)] {
        let code = match driver {
            Driver::Exec => Some(code),
            // Engines differ, and the engine's code is passed on.
            Driver::Docker | Driver::Microvm => {
                let asked = env.engine().try_docker(&["exec", &work.container_name(), command]);
                asked.status.code().map(i64::from)
            }
        };
        assert!(matches!(code, Some(126 | 127)), "{code:?}");
        for terminal in [Terminal::None, Terminal::Size { columns: 80, rows: 24 }] {
            let asked = ExecRequest { command: vec![command.to_owned()], terminal, ..ExecRequest::default() };
            let session = node.agent().exec(&work.key, work.attempt, asked).await.unwrap();
            let (output, given) = finished(session).await;
            assert_eq!(given, code, "{command} on {terminal:?}: {output}");
            assert!(output.contains(command), "{output:?}");
        }
    }
    let killed = request("kill -9 $$", Terminal::None);
    let session = node.agent().exec(&work.key, work.attempt, killed).await.unwrap();
    assert_eq!(finished(session).await.1, Some(137), "a signal gives 128 plus its number");
}

async fn a_command_on_a_terminal_sees_its_size_and_resizes(env: TestEnv, driver: Driver) {
    let (node, work) = running(&env, driver, SLEEP).await;
    let script = "test -t 0 && read word && stty size && exit 0";
    let asked = request(script, Terminal::Size { columns: 80, rows: 24 });
    let session = node.agent().exec(&work.key, work.attempt, asked).await.unwrap();
    session.input.send(ExecInput::Resize { columns: 132, rows: 50 }).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    session.input.send(ExecInput::Bytes(Bytes::from_static(b"go\r"))).await.unwrap();
    let (output, code) = finished(session).await;
    assert!(output.contains("50 132"), "{output:?}");
    assert_eq!(code, Some(0));
}

/// Whether a process with exactly this command line runs, in any container.
fn is_running(words: &[&str]) -> bool {
    let wanted = words.join("\0") + "\0";
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.into_iter().any(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == wanted.as_bytes()))
}

async fn a_command_whose_session_is_dropped_is_killed(env: TestEnv, driver: Driver) {
    let (node, work) = running(&env, driver, SLEEP).await;
    let odd = ["sleep", &format!("7{}.5", std::process::id() * 2 + u32::from(driver == Driver::Docker))];
    let asked = ExecRequest { command: odd.map(str::to_owned).to_vec(), ..ExecRequest::default() };
    let session = node.agent().exec(&work.key, work.attempt, asked).await.unwrap();
    let until = async |there| {
        while is_running(&odd) != there {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), until(true)).await.expect("it never ran");
    drop(session);
    tokio::time::timeout(Duration::from_secs(30), until(false)).await.expect("it is never killed");
    assert_eq!(node.control.history(&work.key).last().unwrap().state, ReplicaState::Running);
}

pub(super) fn secret(name: &str) -> FileMount {
    FileMount {
        target: format!("/run/secrets/{name}"),
        name: name.into(),
        kind: FileKind::Secret,
        uid: None,
        gid: None,
        mode: Some(0o400),
    }
}

async fn a_secret_is_a_file_in_memory_and_removed_with_its_replica(env: TestEnv, driver: Driver) {
    let node = env.node();
    node.control.put_file("db_pass", b"hunter2");
    let place = match driver {
        Driver::Exec => "$LONGSHORE_FILE_DB_PASS",
        Driver::Docker | Driver::Microvm => "/run/secrets/db_pass",
    };
    let script = format!("test \"$(cat {place})\" = hunter2 || exit 9; stat -f -c %T {place}; {SLEEP}");
    let work = env.work(driver, "web", &script, |spec| spec.container.files = vec![secret("db_pass")]);
    node.control.put(&work);
    node.control.wait_running(&work).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let lines = all(node.agent().logs(&work.key, work.attempt, LogOptions::default()).await.unwrap()).await;
    assert_eq!(texts(&lines), ["tmpfs"]);
    let folder = env.folder().join("agent/secrets").join(work.container_name());
    assert!(folder.exists());
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
    assert!(!folder.exists(), "its files were not removed");
}

async fn a_secret_that_does_not_exist_is_a_failed_start(env: TestEnv, driver: Driver) {
    let node = env.node();
    let work = env.work(driver, "web", SLEEP, |spec| spec.container.files = vec![secret("missing")]);
    node.control.put(&work);
    let report = node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    assert!(format!("{report:?}").contains("`missing` could not be fetched"), "{report:?}");
}

async fn a_busy_replica_and_its_machine_are_measured(env: TestEnv, driver: Driver) {
    let (node, work) = running(&env, driver, "trap 'exit 0' TERM; while :; do :; done").await;
    // On a busy machine its share is small, but a sleeping replica would use none.
    let busy = |beat: &longshore_model::Heartbeat| {
        beat.usage.iter().any(|usage| usage.key == work.key && usage.cpu_millis > 20 && usage.memory_bytes > 0)
    };
    let mut found = false;
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        found = node.control.heartbeats().iter().any(busy);
        if found {
            break;
        }
    }
    assert!(found, "{:#?}", node.control.heartbeats().iter().rfind(|beat| beat.pressure.is_some()));
    let pressure = node.control.heartbeats().iter().find_map(|beat| beat.pressure).unwrap();
    assert!(pressure.cpu > Share::NONE && pressure.memory > Share::NONE, "{pressure:?}");
    let beat = node.control.wait_for_heartbeat(|beat| beat.cleanup == CleanupState::Done).await;
    assert!(beat.answering.contains(&driver), "{beat:?}");
}
