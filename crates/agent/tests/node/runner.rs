//! Runs stories in parallel, each on its own async runtime, and stops the engine at the end.

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

use crate::{docker_engine::Engine, stories, test_node::TestEnv};

/// What a story needs besides its own folder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Plain processes.
    Processes,
    /// The engine.
    Docker,
    /// The engine without other stories, because the story restarts it or uses the whole machine.
    DockerAlone,
    /// Like `DockerAlone`, but takes minutes; only run with `--heavy`.
    Heavy,
}

/// One story.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) run: fn(TestEnv) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// Time-out of a story.
const STORY_TIMEOUT: Duration = Duration::from_mins(8);
/// Stories that run at once. They mostly wait.
const AT_ONCE: usize = 8;

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let heavy = arguments.iter().any(|argument| argument == "--heavy");
    let names: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_selected = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part.as_str()));
    let mut chosen = stories::all();
    chosen.retain(|story| is_selected(story.name) && (story.needs == Needs::Heavy) == heavy);
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
                    if !run_one(story, engine) {
                        failed.lock().unwrap().push(story.name);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.extend(chosen.iter().filter(alone).filter(|story| !run_one(story, engine)).map(|story| story.name));
    failed
}

fn run_one(story: &Story, engine: Option<&Arc<Engine>>) -> bool {
    let began = Instant::now();
    let env = TestEnv::new(story.name, engine);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async { tokio::time::timeout(STORY_TIMEOUT, (story.run)(env.clone())).await })
    }));
    runtime.block_on(env.clear());
    runtime.shutdown_timeout(Duration::from_secs(1));
    let outcome = match result {
        Ok(Ok(())) => "ok",
        Ok(Err(_)) => "FAILED: it timed out",
        Err(_) => "FAILED",
    };
    println!("story {} ... {outcome} ({:.1} s)", story.name, began.elapsed().as_secs_f32());
    outcome == "ok"
}
