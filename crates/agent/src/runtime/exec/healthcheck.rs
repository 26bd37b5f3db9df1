//! Health checks of a plain process, by the rules of Docker's health checks.
//!
//! Owns: when a probe runs, what its result means, and storing the health across a restart of the agent.
//! Invariant: a healthy process stays healthy until its check has failed `retries` times in a row; a restart of the
//! agent does not count as a failure.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use longshore_durable_file::{self as durable_file, Durability};
use longshore_model::container::Healthcheck;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::command;
use crate::{runtime::HealthStatus, shim::protocol::ProcessSpec, wakeups::Wakeups};

/// Most of a probe's output that is kept, in bytes.
const MAX_OUTPUT: usize = 4096;

pub(super) fn is_enabled(check: Option<&Healthcheck>) -> bool {
    check.is_some_and(|check| check.test.first().is_some_and(|word| word != "NONE"))
}

/// The health that the previous agent stored.
pub(super) fn stored_health(folder: &Path, check: Option<&Healthcheck>) -> HealthStatus {
    if !is_enabled(check) {
        return HealthStatus::Unchecked;
    }
    match std::fs::read_to_string(folder.join("health")).as_deref() {
        Ok("healthy") => HealthStatus::Healthy,
        Ok(text) => match text.split_once(' ') {
            Some(("unhealthy", output)) => HealthStatus::Unhealthy { failing_streak: 0, output: output.to_owned() },
            Some(_) | None => HealthStatus::Starting,
        },
        Err(_) => HealthStatus::Starting,
    }
}

/// Probes a process for ever. `age` is how long it has run already; an earlier agent may have started it.
pub(super) async fn run(
    folder: PathBuf,
    spec: ProcessSpec,
    age: Duration,
    health: Arc<Mutex<HealthStatus>>,
    wakeups: Arc<Wakeups>,
) {
    let Some(check) = spec.healthcheck.clone() else { return };
    let began = Instant::now();
    let mut streak = 0;
    loop {
        let period = StartPeriod::at(age + began.elapsed(), &check);
        let current = health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_starting = period == StartPeriod::Within && current == HealthStatus::Starting;
        let pause = if is_starting { check.start_interval } else { check.interval };
        tokio::time::sleep(pause.max(Duration::from_millis(10))).await;
        let result = probe(&spec, &check).await;
        streak = if result.is_ok() { 0 } else { streak + 1 };
        let period = StartPeriod::at(age + began.elapsed(), &check);
        let next = next_health(&current, result, streak, check.retries, period);
        if std::mem::discriminant(&next) != std::mem::discriminant(&current) {
            store(&folder, &next);
            *health.lock().unwrap_or_else(PoisonError::into_inner) = next;
            wakeups.wake(&spec.key);
        }
    }
}

/// Whether a process is in its start period, in which failures do not count until the first success.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartPeriod {
    Within,
    Over,
}

impl StartPeriod {
    fn at(age: Duration, check: &Healthcheck) -> Self {
        if age < check.start_period { Self::Within } else { Self::Over }
    }
}

/// The health after a probe; `streak` counts failures in a row, this one included.
fn next_health(
    current: &HealthStatus,
    result: Result<(), String>,
    streak: u32,
    retries: u32,
    period: StartPeriod,
) -> HealthStatus {
    match result {
        Ok(()) => HealthStatus::Healthy,
        Err(_) if *current == HealthStatus::Starting && period == StartPeriod::Within => HealthStatus::Starting,
        Err(output) if streak >= retries.max(1) => {
            HealthStatus::Unhealthy { failing_streak: u64::from(streak), output }
        }
        Err(_) => current.clone(),
    }
}

fn store(folder: &Path, health: &HealthStatus) {
    let text = match health {
        HealthStatus::Unchecked | HealthStatus::Starting => "starting".to_owned(),
        HealthStatus::Healthy => "healthy".to_owned(),
        HealthStatus::Unhealthy { output, .. } => format!("unhealthy {output}"),
    };
    let _ = durable_file::replace(&folder.join("health"), text.as_bytes(), Durability::Unsynced);
}

async fn probe(spec: &ProcessSpec, check: &Healthcheck) -> Result<(), String> {
    let words: Vec<&str> = check.test.iter().map(String::as_str).collect();
    let answer = async {
        match words[..] {
            ["CMD-SHELL", script] => run_command(spec, &["/bin/sh", "-c", script], check.timeout).await,
            ["CMD", ref argv @ ..] => run_command(spec, argv, check.timeout).await,
            ["TCP", address] => TcpStream::connect(address).await.map(drop).map_err(|error| error.to_string()),
            ["HTTP", url] => http(url).await,
            _ => Err(format!("`{}` is not a health check", words.join(" "))),
        }
    };
    let timed_out = || format!("no answer within {:?}", check.timeout);
    tokio::time::timeout(check.timeout, answer).await.unwrap_or_else(|_| Err(timed_out()))
}

async fn run_command(spec: &ProcessSpec, argv: &[&str], limit: Duration) -> Result<(), String> {
    let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    let mut command = command::command(spec, &argv).ok_or("the check has no command")?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let child = command.spawn().map_err(|error| error.to_string())?;
    let group = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    // Slightly sooner than the caller's time-out, so that the probe's process group is killed before the future is
    // dropped.
    let ended = tokio::time::timeout(limit.mul_f32(0.95), child.wait_with_output()).await;
    let Ok(ended) = ended else {
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        return Err(format!("no answer within {limit:?}"));
    };
    let ended = ended.map_err(|error| error.to_string())?;
    let output = [ended.stdout, ended.stderr].concat();
    let output = String::from_utf8_lossy(&output[..output.len().min(MAX_OUTPUT)]).trim().to_owned();
    if ended.status.success() { Ok(()) } else { Err(output) }
}

/// One request written by hand: only the status line is needed, and an HTTP client would be the largest dependency
/// here.
async fn http(url: &str) -> Result<(), String> {
    let rest = url.strip_prefix("http://").ok_or("only http:// can be probed")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    let mut stream = TcpStream::connect(&address).await.map_err(|error| error.to_string())?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: longshore\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut head = Vec::new();
    let read = (&mut stream).take(MAX_OUTPUT as u64).read_to_end(&mut head).await;
    read.map_err(|error| error.to_string())?;
    let line = String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    match line.split_whitespace().nth(1).and_then(|code| code.parse::<u16>().ok()) {
        Some(200..=399) => Ok(()),
        Some(_) | None => Err(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing() -> Result<(), String> {
        Err("no".to_owned())
    }

    #[test]
    fn only_failures_in_a_row_after_the_start_period_make_a_process_unhealthy() {
        assert_eq!(next_health(&HealthStatus::Starting, failing(), 9, 3, StartPeriod::Within), HealthStatus::Starting);
        assert_eq!(next_health(&HealthStatus::Starting, failing(), 2, 3, StartPeriod::Over), HealthStatus::Starting);
        assert!(matches!(
            next_health(&HealthStatus::Starting, failing(), 3, 3, StartPeriod::Over),
            HealthStatus::Unhealthy { failing_streak: 3, .. }
        ));
        assert_eq!(next_health(&HealthStatus::Healthy, failing(), 2, 3, StartPeriod::Over), HealthStatus::Healthy);
    }

    #[test]
    fn one_success_makes_a_process_healthy_and_ends_the_start_period() {
        assert_eq!(next_health(&HealthStatus::Starting, Ok(()), 0, 3, StartPeriod::Within), HealthStatus::Healthy);
        assert!(matches!(
            next_health(&HealthStatus::Healthy, failing(), 3, 3, StartPeriod::Within),
            HealthStatus::Unhealthy { .. }
        ));
    }
}
