//! Looking over a replica's shoulder: output, commands beside it, its files, its load.

use std::time::Duration;

use bytes::Bytes;
use longshore_agent::{
    ExecInput, ExecOutput, ExecRequest, ExecSession, Follow, LogLine, LogOptions, LogStream, Terminal,
};
use longshore_model::{
    Driver, ReplicaState, RuntimeCode, Work,
    container::{FileKind, FileMount},
    work::Standing,
};
use tokio::sync::mpsc;

use super::both;
use crate::{
    runner::{Needs, Story},
    world::{Ground, Node},
};

pub(crate) fn stories() -> Vec<Story> {
    both![
        output_is_kept_apart_and_can_be_cut_to_its_end,
        output_can_be_followed_until_the_replica_ends,
        a_command_runs_beside_a_replica_and_gives_its_code,
        a_command_that_cannot_be_run_gives_the_code_a_shell_gives,
        a_command_on_a_terminal_knows_its_size_and_a_change_of_it,
        a_command_nobody_reads_any_more_is_ended,
        a_secret_is_a_file_in_memory_and_gone_with_its_replica,
        a_secret_that_does_not_exist_is_a_failed_start,
        a_busy_replica_and_its_machine_are_measured,
    ]
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

async fn running(ground: &Ground, driver: Driver, script: &str) -> (Node, Work) {
    let node = ground.node();
    let work = ground.work(driver, "web", script, |_| {});
    node.control.put(&work);
    node.control.runs(&work).await;
    (node, work)
}

pub(super) async fn all(mut lines: mpsc::Receiver<LogLine>) -> Vec<LogLine> {
    let mut all = Vec::new();
    let reading = async {
        while let Some(line) = lines.recv().await {
            all.push(line);
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reading).await.expect("the lines never end");
    all
}

pub(super) fn texts(lines: &[LogLine]) -> Vec<String> {
    lines.iter().map(|line| String::from_utf8_lossy(&line.text).into_owned()).collect()
}

async fn output_is_kept_apart_and_can_be_cut_to_its_end(ground: Ground, driver: Driver) {
    let script = format!("for n in 1 2 3; do echo out $n; done; echo wrong >&2; {SLEEP}");
    let (node, work) = running(&ground, driver, &script).await;
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

async fn output_can_be_followed_until_the_replica_ends(ground: Ground, driver: Driver) {
    let script = "n=0; while [ $n -lt 5 ]; do echo line $n; n=$((n+1)); sleep 0.3; done; exit 3";
    let (node, work) = running(&ground, driver, script).await;
    let options = LogOptions { follow: Follow::Yes, ..LogOptions::default() };
    let lines = all(node.agent().logs(&work.key, work.attempt, options).await.unwrap()).await;
    assert_eq!(texts(&lines), ["line 0", "line 1", "line 2", "line 3", "line 4"]);
    node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
}

fn request(script: &str, terminal: Terminal) -> ExecRequest {
    ExecRequest { command: ["sh", "-c", script].map(str::to_owned).to_vec(), terminal, ..ExecRequest::default() }
}

async fn finished(mut session: ExecSession) -> (String, Option<i64>) {
    let mut said = Vec::new();
    let reading = async {
        while let Some(output) = session.output.recv().await {
            match output {
                ExecOutput::Bytes(output) => said.extend_from_slice(&output.bytes),
                ExecOutput::Exit(code) => return code,
            }
        }
        None
    };
    let code = tokio::time::timeout(Duration::from_secs(30), reading).await.expect("the command never ends");
    (String::from_utf8_lossy(&said).into_owned(), code)
}

async fn a_command_runs_beside_a_replica_and_gives_its_code(ground: Ground, driver: Driver) {
    let (node, work) = running(&ground, driver, SLEEP).await;
    let asked = request("read word; echo heard $word; exit 5", Terminal::None);
    let session = node.agent().exec(&work.key, work.attempt, asked).await.unwrap();
    session.input.send(ExecInput::Bytes(Bytes::from_static(b"hello\n"))).await.unwrap();
    assert_eq!(finished(session).await, ("heard hello\n".to_owned(), Some(5)));
}

async fn a_command_that_cannot_be_run_gives_the_code_a_shell_gives(ground: Ground, driver: Driver) {
    let (node, work) = running(&ground, driver, SLEEP).await;
    for (command, code) in [("/no/such/thing", 127), ("no-such-thing", 127), ("/etc", 126)] {
        let code = match driver {
            Driver::Exec => Some(code),
            // Engines differ, and theirs is passed on.
            Driver::Docker | Driver::Microvm => {
                let asked = ground.engine().try_docker(&["exec", &work.container_name(), command]);
                asked.status.code().map(i64::from)
            }
        };
        assert!(matches!(code, Some(126 | 127)), "{code:?}");
        for terminal in [Terminal::None, Terminal::Size { columns: 80, rows: 24 }] {
            let asked = ExecRequest { command: vec![command.to_owned()], terminal, ..ExecRequest::default() };
            let session = node.agent().exec(&work.key, work.attempt, asked).await.unwrap();
            let (said, given) = finished(session).await;
            assert_eq!(given, code, "{command} on {terminal:?}: {said}");
            assert!(said.contains(command), "{said:?}");
        }
    }
    let killed = request("kill -9 $$", Terminal::None);
    let session = node.agent().exec(&work.key, work.attempt, killed).await.unwrap();
    assert_eq!(finished(session).await.1, Some(137), "a signal counts from 128");
}

async fn a_command_on_a_terminal_knows_its_size_and_a_change_of_it(ground: Ground, driver: Driver) {
    let (node, work) = running(&ground, driver, SLEEP).await;
    let script = "test -t 0 && read word && stty size && exit 0";
    let asked = request(script, Terminal::Size { columns: 80, rows: 24 });
    let session = node.agent().exec(&work.key, work.attempt, asked).await.unwrap();
    session.input.send(ExecInput::Resize { columns: 132, rows: 50 }).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    session.input.send(ExecInput::Bytes(Bytes::from_static(b"go\r"))).await.unwrap();
    let (said, code) = finished(session).await;
    assert!(said.contains("50 132"), "{said:?}");
    assert_eq!(code, Some(0));
}

/// Whether a process runs with exactly these words, in whatever container.
fn runs(words: &[&str]) -> bool {
    let wanted = words.join("\0") + "\0";
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.into_iter().any(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == wanted.as_bytes()))
}

async fn a_command_nobody_reads_any_more_is_ended(ground: Ground, driver: Driver) {
    let (node, work) = running(&ground, driver, SLEEP).await;
    let odd = ["sleep", &format!("7{}.5", std::process::id() * 2 + u32::from(driver == Driver::Docker))];
    let asked = ExecRequest { command: odd.map(str::to_owned).to_vec(), ..ExecRequest::default() };
    let session = node.agent().exec(&work.key, work.attempt, asked).await.unwrap();
    let until = async |there| {
        while runs(&odd) != there {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), until(true)).await.expect("it never ran");
    drop(session);
    tokio::time::timeout(Duration::from_secs(30), until(false)).await.expect("it runs for ever");
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

async fn a_secret_is_a_file_in_memory_and_gone_with_its_replica(ground: Ground, driver: Driver) {
    let node = ground.node();
    node.control.put_file("db_pass", b"hunter2");
    let place = match driver {
        Driver::Exec => "$LONGSHORE_FILE_DB_PASS",
        Driver::Docker | Driver::Microvm => "/run/secrets/db_pass",
    };
    let script = format!("test \"$(cat {place})\" = hunter2 || exit 9; stat -f -c %T {place}; {SLEEP}");
    let work = ground.work(driver, "web", &script, |spec| spec.container.files = vec![secret("db_pass")]);
    node.control.put(&work);
    node.control.runs(&work).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let lines = all(node.agent().logs(&work.key, work.attempt, LogOptions::default()).await.unwrap()).await;
    assert_eq!(texts(&lines), ["tmpfs"]);
    let folder = ground.folder().join("agent/secrets").join(work.container_name());
    assert!(folder.exists());
    node.control.stop(&work);
    node.control.stopped(&work).await;
    assert!(!folder.exists(), "its files outlived it");
}

async fn a_secret_that_does_not_exist_is_a_failed_start(ground: Ground, driver: Driver) {
    let node = ground.node();
    let work = ground.work(driver, "web", SLEEP, |spec| spec.container.files = vec![secret("missing")]);
    node.control.put(&work);
    let seen = node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::StartFailed)).await;
    assert!(format!("{seen:?}").contains("`missing` could not be had"), "{seen:?}");
}

async fn a_busy_replica_and_its_machine_are_measured(ground: Ground, driver: Driver) {
    let (node, work) = running(&ground, driver, "trap 'exit 0' TERM; while :; do :; done").await;
    // On a machine that is busy with other things its share is small; one that sleeps uses none at all.
    let busy = |beat: &longshore_model::Heartbeat| {
        beat.usage.iter().any(|usage| usage.key == work.key && usage.cpu_millis > 20 && usage.memory_bytes > 0)
    };
    let mut found = false;
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        found = node.control.beats().iter().any(busy);
        if found {
            break;
        }
    }
    assert!(found, "{:#?}", node.control.beats().iter().rfind(|beat| beat.pressure.is_some()));
    let pressure = node.control.beats().iter().find_map(|beat| beat.pressure).unwrap();
    assert!(pressure.cpu_millionths > 0 && pressure.memory_millionths > 0, "{pressure:?}");
    let beat = node.control.beat(|beat| beat.standing == Standing::Settled).await;
    assert!(beat.answering.contains(&driver), "{beat:?}");
}
