//! Runs stories side by side, each on a runtime of its own, and takes the engine down at the end.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{engine::Engine, stories, world::Ground};

/// What a story needs besides its own folder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Plain processes.
    Processes,
    /// The engine.
    Docker,
    /// The engine, alone: it is restarted, or the machine is filled.
    DockerAlone,
    /// Like `DockerAlone`, and minutes of time: only on demand.
    Heavy,
}

/// One story.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) tell: fn(Ground) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// Longest time a story may take; one that hangs is a failed one.
const PATIENCE: Duration = Duration::from_mins(8);
/// Stories at once. They wait more than they work.
const AT_ONCE: usize = 8;

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let heavy = arguments.iter().any(|argument| argument == "--heavy");
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut chosen = stories::all();
    chosen.retain(|story| is_wanted(story.name) && (story.needs == Needs::Heavy) == heavy);
    let engine = if chosen.iter().any(|story| story.needs != Needs::Processes) {
        match Engine::start() {
            Ok(Ok(engine)) => Some(Arc::new(engine)),
            Ok(Err(reason)) => {
                println!("!! NOT RUN: every story that needs Docker, because {reason}");
                chosen.retain(|story| story.needs == Needs::Processes);
                None
            }
            Err(reason) => {
                println!("FAILED: there is no engine to test with: {reason}");
                return ExitCode::FAILURE;
            }
        }
    } else {
        None
    };
    let failed = run(&chosen, engine.as_ref());
    println!("{} stories, {} failed", chosen.len(), failed.len());
    for name in &failed {
        println!("FAILED: {name}");
    }
    drop(engine);
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(chosen: &[Story], engine: Option<&Arc<Engine>>) -> Vec<&'static str> {
    let alone = |story: &&Story| matches!(story.needs, Needs::DockerAlone | Needs::Heavy);
    let together: Vec<&Story> = chosen.iter().filter(|story| !alone(story)).collect();
    let failed = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(story) = together.get(next.fetch_add(1, Ordering::SeqCst)) {
                    if !tell(story, engine) {
                        failed.lock().unwrap().push(story.name);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.extend(chosen.iter().filter(alone).filter(|story| !tell(story, engine)).map(|story| story.name));
    failed
}

fn tell(story: &Story, engine: Option<&Arc<Engine>>) -> bool {
    let began = Instant::now();
    let ground = Ground::new(story.name, engine);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let held = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async { tokio::time::timeout(PATIENCE, (story.tell)(ground.clone())).await })
    }));
    runtime.block_on(ground.clear());
    runtime.shutdown_timeout(Duration::from_secs(1));
    let word = match held {
        Ok(Ok(())) => "ok",
        Ok(Err(_)) => "FAILED: it never ended",
        Err(_) => "FAILED",
    };
    println!("story {} ... {word} ({:.1} s)", story.name, began.elapsed().as_secs_f32());
    word == "ok"
}
