//! What only plain processes can do, or suffer.

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
    world::{Ground, check, in_slot},
};

pub(crate) fn stories() -> Vec<Story> {
    one_driver![Processes:
        a_check_can_ask_over_http_or_tcp,
        a_process_whose_shim_is_killed_runs_on_and_its_end_is_told_without_a_code,
        after_a_reboot_nothing_runs_and_that_is_what_is_said,
        a_number_given_to_somebody_else_after_a_reboot_is_not_touched,
        what_a_process_leaves_behind_ends_with_it,
        output_is_rotated_and_read_across_the_files,
        a_process_runs_as_the_user_it_asks_for,
        an_agent_beats_and_looks_as_often_as_the_control_plane_wants,
    ]
}

const SLEEP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn asking(words: [&str; 2]) -> Healthcheck {
    Healthcheck { test: words.map(str::to_owned).to_vec(), ..check("", 2) }
}

/// Answers every request, well or badly.
async fn server(is_well: Arc<AtomicBool>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let code = if is_well.load(Ordering::SeqCst) { "200 OK" } else { "503 Busy" };
            let mut request = [0; 512];
            let _ = stream.read(&mut request).await;
            let answer = format!("HTTP/1.1 {code}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

async fn a_check_can_ask_over_http_or_tcp(ground: Ground) {
    let is_well = Arc::new(AtomicBool::new(true));
    let address = server(Arc::clone(&is_well)).await;
    let node = ground.node();
    let url = format!("http://{address}/health");
    let http = ground.work(Driver::Exec, "http", SLEEP, |spec| {
        spec.container.healthcheck = Some(asking(["HTTP", &url]));
    });
    let tcp = ground.work(Driver::Exec, "tcp", SLEEP, |spec| {
        spec.container.healthcheck = Some(asking(["TCP", &address.to_string()]));
    });
    let closed = ground.work(Driver::Exec, "closed", SLEEP, |spec| {
        spec.container.healthcheck = Some(asking(["TCP", "127.0.0.1:1"]));
    });
    node.control.put_all(&[http.clone(), tcp.clone(), closed.clone()]);
    node.control.runs(&http).await;
    node.control.runs(&tcp).await;
    node.control.hears(&closed, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed)).await;
    is_well.store(false, Ordering::SeqCst);
    let seen = node.control.hears(&http, ReplicaState::Degraded, Some(RuntimeCode::HealthcheckFailed)).await;
    assert!(format!("{seen:?}").contains("503 Busy"), "{seen:?}");
    is_well.store(true, Ordering::SeqCst);
    let healed = || node.control.history(&http.key).last().is_some_and(|seen| seen.state == ReplicaState::Running);
    for _ in 0..300 {
        if healed() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(healed(), "it never recovered");
}

fn folder(ground: &Ground, work: &Work) -> PathBuf {
    ground.folder().join("agent/exec").join(work.container_name())
}

fn pid(ground: &Ground, work: &Work, who: &str) -> Pid {
    let text = std::fs::read_to_string(folder(ground, work).join("status.json")).unwrap();
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    Pid::from_raw(i32::try_from(status[who]["pid"].as_i64().unwrap()).unwrap()).unwrap()
}

async fn a_process_whose_shim_is_killed_runs_on_and_its_end_is_told_without_a_code(ground: Ground) {
    let node = ground.node();
    // Without its shim nobody reads its output; it says nothing.
    let work = ground.work(Driver::Exec, "web", "exec sleep 1000", |_| {});
    node.control.put(&work);
    node.control.runs(&work).await;
    kill_process(pid(&ground, &work, "shim"), Signal::KILL).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let last = node.control.history(&work.key).pop().unwrap();
    assert_eq!(last.state, ReplicaState::Running);
    kill_process(pid(&ground, &work, "child"), Signal::KILL).unwrap();
    let seen = node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    assert!(format!("{seen:?}").contains("nobody saw how it ended"), "{seen:?}");
}

async fn after_a_reboot_nothing_runs_and_that_is_what_is_said(ground: Ground) {
    let mut node = ground.node();
    let works: Vec<Work> =
        (0..3).map(|index| in_slot(&ground.work(Driver::Exec, "web", "exec sleep 1000", |_| {}), index)).collect();
    node.control.put_all(&works);
    for work in &works {
        node.control.runs(work).await;
    }
    // A machine that goes down takes everything at once, and leaves the files.
    node.lose_agent();
    for work in &works {
        kill_process(pid(&ground, work, "shim"), Signal::KILL).unwrap();
        kill_process(pid(&ground, work, "child"), Signal::KILL).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    node.start_agent();
    for work in &works {
        node.control.hears(work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
        let again = node.control.again(work);
        node.control.runs(&again).await;
    }
}

async fn a_number_given_to_somebody_else_after_a_reboot_is_not_touched(ground: Ground) {
    let mut node = ground.node();
    let work = ground.work(Driver::Exec, "web", "exec sleep 1000", |_| {});
    node.control.put(&work);
    node.control.runs(&work).await;
    node.lose_agent();
    // The files are from before the machine was started, and the numbers in them are in use again, start time and all.
    let file = folder(&ground, &work).join("status.json");
    let mut status: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for who in ["shim", "child"] {
        status[who]["boot"] = (status[who]["boot"].as_u64().unwrap() ^ 1).into();
    }
    std::fs::write(&file, status.to_string()).unwrap();
    let somebody = ["shim", "child"].map(|who| pid(&ground, &work, who));
    node.start_agent();
    node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    node.control.stop(&work);
    node.control.stopped(&work).await;
    for process in somebody {
        assert!(test_kill_process(process).is_ok(), "somebody else's process was ended");
        kill_process(process, Signal::KILL).unwrap();
    }
}

async fn what_a_process_leaves_behind_ends_with_it(ground: Ground) {
    let node = ground.node();
    let proof = ground.folder().join("child");
    let script = format!("sleep 1000 & echo $! > {}; sleep 0.5; exit 4", proof.display());
    let work = ground.work(Driver::Exec, "web", &script, |_| {});
    node.control.put(&work);
    node.control.hears(&work, ReplicaState::Failed, Some(RuntimeCode::Exited)).await;
    let child: u32 = std::fs::read_to_string(proof).unwrap().trim().parse().unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

async fn output_is_rotated_and_read_across_the_files(ground: Ground) {
    let node = ground.node();
    let script = format!("n=0; while [ $n -lt 500 ]; do echo line $n; n=$((n+1)); done; {SLEEP}");
    let work = ground.work(Driver::Exec, "web", &script, |spec| {
        let options = [("max-size".to_owned(), "2k".to_owned()), ("max-file".to_owned(), "3".to_owned())];
        spec.container.log_options.extend(options);
    });
    node.control.put(&work);
    node.control.runs(&work).await;
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
        .filter_map(|name| std::fs::metadata(folder(&ground, &work).join(name)).ok())
        .map(|file| file.len())
        .sum();
    assert!(kept <= 3 * 2048, "{kept} bytes are kept");
}

async fn a_process_runs_as_the_user_it_asks_for(ground: Ground) {
    if !rustix::process::geteuid().is_root() {
        println!("!! NOT TOLD: only root can run a process as somebody else");
        return;
    }
    let node = ground.node();
    let work = ground.work(Driver::Exec, "web", "test $(id -u):$(id -g) = 65534:65534 && exec sleep 1000", |spec| {
        spec.container.user = Some("65534:65534".to_owned());
        spec.container.working_dir = Some("/".to_owned());
    });
    node.control.put(&work);
    node.control.runs(&work).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let last = node.control.history(&work.key).pop().unwrap();
    assert_eq!(last.state, ReplicaState::Running);
}

async fn an_agent_beats_and_looks_as_often_as_the_control_plane_wants(ground: Ground) {
    let node = ground.node();
    node.control.beat(|_| true).await;
    node.control.wants_samples_every(Duration::from_hours(1));
    let samples = || node.control.beats().iter().filter(|beat| beat.pressure.is_some()).count();
    // The next may be under way already; after it there is none for an hour.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let taken = samples();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(samples(), taken, "it looks every second of its own accord");
    node.control.wants_beats_every(Duration::from_hours(1));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let told = node.control.beats().len();
    // Five of its own intervals.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(node.control.beats().len(), told);
}
