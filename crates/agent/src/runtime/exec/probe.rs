//! Health of a plain process: the engine's rules for a health check, kept by us.
//!
//! Owns: when a probe is made, what its outcome means, and remembering it over a restart of the agent.
//! Invariant: a healthy process stays healthy until its check has failed as often in a row as allowed; a restart of the
//! agent is no failure.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use longshore_model::container::Healthcheck;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::session;
use crate::{
    runtime::{Pokes, Pulse},
    shim::order::{Order, replace},
};

/// Most that is kept of what a probe says.
const LONGEST_OUTPUT: usize = 4096;

pub(super) fn is_wanted(check: Option<&Healthcheck>) -> bool {
    check.is_some_and(|check| check.test.first().is_some_and(|word| word != "NONE"))
}

/// What was known when the agent last looked.
pub(super) fn remembered(folder: &Path, check: Option<&Healthcheck>) -> Pulse {
    if !is_wanted(check) {
        return Pulse::Unchecked;
    }
    match std::fs::read_to_string(folder.join("health")).as_deref() {
        Ok("healthy") => Pulse::Healthy,
        Ok(text) => match text.split_once(' ') {
            Some(("unhealthy", output)) => Pulse::Unhealthy { streak: 0, output: output.to_owned() },
            Some(_) | None => Pulse::Starting,
        },
        Err(_) => Pulse::Starting,
    }
}

/// Probes a process that has been up for `age` already, perhaps by the hand of an earlier agent.
pub(super) async fn run(folder: PathBuf, order: Order, age: Duration, pulse: Arc<Mutex<Pulse>>, pokes: Arc<Pokes>) {
    let Some(check) = order.healthcheck.clone() else { return };
    let began = Instant::now();
    let mut streak = 0;
    loop {
        let first = Age::of(age + began.elapsed(), &check);
        let current = pulse.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let hurry = first == Age::Young && current == Pulse::Starting;
        let pause = if hurry { check.start_interval } else { check.interval };
        tokio::time::sleep(pause.max(Duration::from_millis(10))).await;
        let outcome = probe(&order, &check).await;
        streak = if outcome.is_ok() { 0 } else { streak + 1 };
        let next = judged(&current, outcome, streak, check.retries, Age::of(age + began.elapsed(), &check));
        if std::mem::discriminant(&next) != std::mem::discriminant(&current) {
            remember(&folder, &next);
            *pulse.lock().unwrap_or_else(PoisonError::into_inner) = next;
            pokes.poke(&order.key);
        }
    }
}

/// Whether a process is still in its start period, in which failures do not count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    Young,
    Grown,
}

impl Age {
    fn of(age: Duration, check: &Healthcheck) -> Self {
        if age < check.start_period { Self::Young } else { Self::Grown }
    }
}

/// What a probe's outcome makes of what was known.
fn judged(current: &Pulse, outcome: Result<(), String>, streak: u32, retries: u32, age: Age) -> Pulse {
    match outcome {
        Ok(()) => Pulse::Healthy,
        Err(_) if *current == Pulse::Starting && age == Age::Young => Pulse::Starting,
        Err(output) if streak >= retries.max(1) => Pulse::Unhealthy { streak: u64::from(streak), output },
        Err(_) => current.clone(),
    }
}

fn remember(folder: &Path, pulse: &Pulse) {
    let text = match pulse {
        Pulse::Unchecked | Pulse::Starting => "starting".to_owned(),
        Pulse::Healthy => "healthy".to_owned(),
        Pulse::Unhealthy { output, .. } => format!("unhealthy {output}"),
    };
    let _ = replace(folder, "health", text.as_bytes());
}

async fn probe(order: &Order, check: &Healthcheck) -> Result<(), String> {
    let words: Vec<&str> = check.test.iter().map(String::as_str).collect();
    let made = async {
        match words[..] {
            ["CMD-SHELL", script] => command(order, &["/bin/sh", "-c", script], check.timeout).await,
            ["CMD", ref argv @ ..] => command(order, argv, check.timeout).await,
            ["TCP", address] => TcpStream::connect(address).await.map(drop).map_err(|error| error.to_string()),
            ["HTTP", url] => http(url).await,
            _ => Err(format!("`{}` is no health check", words.join(" "))),
        }
    };
    let late = || format!("no answer within {:?}", check.timeout);
    tokio::time::timeout(check.timeout, made).await.unwrap_or_else(|_| Err(late()))
}

async fn command(order: &Order, argv: &[&str], limit: Duration) -> Result<(), String> {
    let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    let mut command = session::command(order, &argv).ok_or("the check has no command")?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let child = command.spawn().map_err(|error| error.to_string())?;
    let group = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    // A little before the caller gives up, so that what the probe started is ended with it.
    let ended = tokio::time::timeout(limit.mul_f32(0.95), child.wait_with_output()).await;
    let Ok(ended) = ended else {
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        return Err(format!("no answer within {limit:?}"));
    };
    let ended = ended.map_err(|error| error.to_string())?;
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said[..said.len().min(LONGEST_OUTPUT)]).trim().to_owned();
    if ended.status.success() { Ok(()) } else { Err(said) }
}

/// One request by hand: a client library would be the largest part of this driver, for one line of text.
async fn http(url: &str) -> Result<(), String> {
    let rest = url.strip_prefix("http://").ok_or("only http:// can be probed")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    let mut stream = TcpStream::connect(&address).await.map_err(|error| error.to_string())?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: longshore\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut head = Vec::new();
    let read = (&mut stream).take(LONGEST_OUTPUT as u64).read_to_end(&mut head).await;
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
    fn failures_count_in_a_row_and_not_in_the_start_period() {
        assert_eq!(judged(&Pulse::Starting, failing(), 9, 3, Age::Young), Pulse::Starting);
        assert_eq!(judged(&Pulse::Starting, failing(), 2, 3, Age::Grown), Pulse::Starting);
        assert!(matches!(judged(&Pulse::Starting, failing(), 3, 3, Age::Grown), Pulse::Unhealthy { streak: 3, .. }));
        assert_eq!(judged(&Pulse::Healthy, failing(), 2, 3, Age::Grown), Pulse::Healthy);
    }

    #[test]
    fn one_success_is_health_and_ends_the_start_period() {
        assert_eq!(judged(&Pulse::Starting, Ok(()), 0, 3, Age::Young), Pulse::Healthy);
        assert!(matches!(judged(&Pulse::Healthy, failing(), 3, 3, Age::Young), Pulse::Unhealthy { .. }));
    }
}
