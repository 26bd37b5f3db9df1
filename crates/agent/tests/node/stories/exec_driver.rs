//! Stories of the Exec driver only.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use longshore_model::{Driver, ReplicaState, RuntimeCode, Work, container::Healthcheck};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::one_driver;
use crate::{
    runner::{Needs, Story},
    test_node::{TestEnv, check, in_slot},
};

pub(crate) fn stories() -> Vec<Story> {
    one_driver![Processes:
        a_health_check_can_use_http_or_tcp,
        a_process_whose_shim_is_killed_keeps_running_and_its_exit_has_no_code,
        after_a_reboot_every_process_is_reported_as_failed,
        a_process_runs_again_after_a_reboot_and_a_reused_pid_is_not_killed,
        children_of_a_process_are_killed_with_it,
        output_is_rotated_and_read_across_the_files,
        a_process_runs_as_the_user_it_asks_for,
        the_control_plane_sets_the_intervals_of_heartbeats_and_samples,
    ]
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn asking(words: [&str; 2]) -> Healthcheck {
    Healthcheck { test: words.map(str::to_owned).to_vec(), ..check("", 2) }
}

/// Answers every request with 200 while healthy, else with 503.
async fn server(is_healthy: Arc<AtomicBool>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let code = if is_healthy.load(Ordering::SeqCst) { "200 OK" } else { "503 Busy" };
            let mut request = [0; 512];
            let _ = stream.read(&mut request).await;
            let answer = format!("HTTP/1.1 {code}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

async fn a_health_check_can_use_http_or_tcp(env: TestEnv) {
    let is_healthy = Arc::new(AtomicBool::new(true));
    let address = server(Arc::clone(&is_healthy)).await;
    let node = env.node();
    let url = format!("http://{address}/health");
    let http = env.work(Driver::Exec, "http", SLEEP, |spec| {
        spec.container.healthcheck = Some(asking(["HTTP", &url]));
    });
    let tcp = env.work(Driver::Exec, "tcp", SLEEP, |spec| {
        spec.container.healthcheck = Some(asking(["TCP", &address.to_string()]));
    });
    let closed = env.work(Driver::Exec, "closed", SLEEP, |spec| {
        spec.container.healthcheck = Some(asking(["TCP", "127.0.0.1:1"]));
    });
    node.control.put_all(&[http.clone(), tcp.clone(), closed.clone()]);
    node.control.wait_running(&http).await;
    node.control.wait_running(&tcp).await;
    node.control.wait_for_state(&closed, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed)).await;
    is_healthy.store(false, Ordering::SeqCst);
    let report = node.control.wait_for_state(&http, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed)).await;
    assert!(format!("{report:?}").contains("503 Busy"), "{report:?}");
    is_healthy.store(true, Ordering::SeqCst);
    let healed = || node.control.history(&http.key).last().is_some_and(|report| report.state == ReplicaState::Running);
    for _ in 0..300 {
        if healed() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(healed(), "it never recovered");
}

fn folder(env: &TestEnv, work: &Work) -> PathBuf {
    env.folder().join("agent/exec").join(work.container_name())
}

fn pid(env: &TestEnv, work: &Work, who: &str) -> Pid {
    let text = std::fs::read_to_string(folder(env, work).join("status.json")).unwrap();
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    Pid::from_raw(i32::try_from(status[who]["pid"].as_i64().unwrap()).unwrap()).unwrap()
}

async fn a_process_whose_shim_is_killed_keeps_running_and_its_exit_has_no_code(env: TestEnv) {
    let node = env.node();
    // It writes no output, because nobody reads the pipe without the shim.
    let work = env.work(Driver::Exec, "web", "exec sleep 1000", |_| {});
    node.control.put(&work);
    node.control.wait_running(&work).await;
    kill_process(pid(&env, &work, "shim"), Signal::KILL).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let last = node.control.history(&work.key).pop().unwrap();
    assert_eq!(last.state, ReplicaState::Running);
    kill_process(pid(&env, &work, "child"), Signal::KILL).unwrap();
    let report = node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    assert!(format!("{report:?}").contains("its exit code is unknown"), "{report:?}");
}

async fn after_a_reboot_every_process_is_reported_as_failed(env: TestEnv) {
    let mut node = env.node();
    let works: Vec<Work> =
        (0..3).map(|index| in_slot(&env.work(Driver::Exec, "web", "exec sleep 1000", |_| {}), index)).collect();
    node.control.put_all(&works);
    for work in &works {
        node.control.wait_running(work).await;
    }
    // Like a machine that goes down: all processes end at once, and the files stay.
    node.stop_agent();
    for work in &works {
        kill_process(pid(&env, work, "shim"), Signal::KILL).unwrap();
        kill_process(pid(&env, work, "child"), Signal::KILL).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    node.start_agent();
    for work in &works {
        node.control.wait_for_state(work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
        let again = node.control.start_next_attempt(work);
        node.control.wait_running(&again).await;
    }
}

async fn a_process_runs_again_after_a_reboot_and_a_reused_pid_is_not_killed(env: TestEnv) {
    let mut node = env.node();
    let work = env.work(Driver::Exec, "web", "exec sleep 1000", |_| {});
    node.control.put(&work);
    node.control.wait_running(&work).await;
    node.stop_agent();
    // As after a reboot in which other processes got the same pids and start times.
    let file = folder(&env, &work).join("status.json");
    let mut status: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for who in ["shim", "child"] {
        status[who]["boot"] = (status[who]["boot"].as_u64().unwrap() ^ 1).into();
    }
    std::fs::write(&file, status.to_string()).unwrap();
    // A lock ends with its boot, too.
    std::fs::remove_file(folder(&env, &work).join("lock")).unwrap();
    let reused = ["shim", "child"].map(|who| pid(&env, &work, who));
    node.control.clear_history();
    node.start_agent();
    node.control.wait_running(&work).await;
    assert!(!reused.contains(&pid(&env, &work, "child")), "another process was taken for the replica");
    let history = node.control.history(&work.key);
    assert!(history.iter().all(|report| report.state != ReplicaState::Failed), "a reboot is no failure: {history:#?}");
    for process in reused {
        assert!(test_kill_process(process).is_ok(), "a foreign process was killed");
        // No boot leaves another process in the replica's cgroup, which is killed as a whole.
        kill_process(process, Signal::KILL).unwrap();
    }
    node.control.stop(&work);
    node.control.wait_stopped(&work).await;
}

async fn children_of_a_process_are_killed_with_it(env: TestEnv) {
    let node = env.node();
    let proof = env.folder().join("child");
    let script = format!("sleep 1000 & echo $! > {}; sleep 0.5; exit 4", proof.display());
    let work = env.work(Driver::Exec, "web", &script, |_| {});
    node.control.put(&work);
    node.control.wait_for_state(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    let child: u32 = std::fs::read_to_string(proof).unwrap().trim().parse().unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

async fn output_is_rotated_and_read_across_the_files(env: TestEnv) {
    let node = env.node();
    let script = format!("n=0; while [ $n -lt 500 ]; do echo line $n; n=$((n+1)); done; {SLEEP}");
    let work = env.work(Driver::Exec, "web", &script, |spec| {
        let options = [("max-size".to_owned(), "2k".to_owned()), ("max-file".to_owned(), "3".to_owned())];
        spec.container.log_options.extend(options);
    });
    node.control.put(&work);
    node.control.wait_running(&work).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let options = longshore_agent::LogOptions { tail: Some(100), ..longshore_agent::LogOptions::default() };
    let mut lines = node.agent().logs(&work.key, work.attempt, options).await.unwrap();
    let mut texts = Vec::new();
    while let Some(line) = lines.recv().await {
        texts.push(String::from_utf8_lossy(&line.text).into_owned());
    }
    let expected: Vec<String> = (400..500).map(|number| format!("line {number}")).collect();
    assert_eq!(texts, expected);
    let kept: u64 = ["out.log", "out.log.1", "out.log.2", "out.log.3"]
        .iter()
        .filter_map(|name| std::fs::metadata(folder(&env, &work).join(name)).ok())
        .map(|file| file.len())
        .sum();
    assert!(kept <= 3 * 2048, "{kept} bytes are kept");
}

async fn a_process_runs_as_the_user_it_asks_for(env: TestEnv) {
    if !rustix::process::geteuid().is_root() {
        println!("!! NOT RUN: only root can run a process as another user");
        return;
    }
    let node = env.node();
    let work = env.work(Driver::Exec, "web", "test $(id -u):$(id -g) = 65534:65534 && exec sleep 1000", |spec| {
        spec.container.user = Some("65534:65534".to_owned());
        spec.container.working_dir = Some("/".to_owned());
    });
    node.control.put(&work);
    node.control.wait_running(&work).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let last = node.control.history(&work.key).pop().unwrap();
    assert_eq!(last.state, ReplicaState::Running);
}

async fn the_control_plane_sets_the_intervals_of_heartbeats_and_samples(env: TestEnv) {
    let node = env.node();
    node.control.wait_for_heartbeat(|_| true).await;
    node.control.set_sample_interval(Duration::from_hours(1));
    let samples = || node.control.heartbeats().iter().filter(|beat| beat.pressure.is_some()).count();
    // One sample may be under way already; after it there is none for an hour.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let taken = samples();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(samples(), taken, "it still samples at its own interval");
    node.control.set_heartbeat_interval(Duration::from_hours(1));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let received = node.control.heartbeats().len();
    // Five times its own interval.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(node.control.heartbeats().len(), received);
}
