//! Starting an attempt: from its work to a started process.
//!
//! Owns: the steps of a start, and which of them are retried here. A process that started and exited is not: the
//! control plane decides about that.

use std::time::Duration;

use longshore_model::{
    ReplicaState, RuntimeCode, Work, error_chain,
    replica::{Detail, Details, RegistryAnswer},
};
use tokio::{sync::SemaphorePermit, time::Instant};

use super::{AgentContext, clear_previous, is_to_resume, policy_check, wait_for_driver};
use crate::{
    backoff::Backoff,
    control_link::LinkError,
    pulls::{PullHandle, PullProgress, PullStatus},
    runtime::{Handle, Phase, PreparedFile, Runtime, RuntimeError},
    secret_files::PrepareFilesError,
    status_report::{self, report, text},
};

/// Time between two reports of a pull's progress. Reports are replicated, so there are no more than needed to see it
/// move.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Time until a start without a free subnet is retried; one becomes free when another deployment is removed.
const NO_SUBNET_RETRY: Duration = Duration::from_secs(15);
/// How long a replica that ended with its machine waits for the control plane before it is started again.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time until a start is retried whose driver did not answer, or whose dependency was not ready.
const RETRY: Duration = Duration::from_secs(1);

/// The result of preparing an attempt.
pub(super) enum Prepared<'s> {
    /// It exists already, created by this or an earlier agent.
    Exists(Handle),
    /// It exists, and ended with its engine or machine.
    ToResume { handle: Handle, permit: SemaphorePermit<'s> },
    /// It can be created. The permit is held until it has started.
    ToCreate { files: Vec<PreparedFile>, permit: SemaphorePermit<'s> },
    /// It cannot be started, which has been reported.
    Failed,
}

/// The result of launching an attempt.
pub(super) enum Launch {
    Started(Handle),
    /// It could not be started, which has been reported.
    Failed,
    /// The outcome is unknown, or may differ later.
    RetryAfter(Duration),
}

/// Does everything that can be cancelled. Starts over if the driver becomes unavailable meanwhile.
pub(super) async fn prepare<'s>(ctx: &'s AgentContext, runtime: &dyn Runtime, work: &Work) -> Prepared<'s> {
    loop {
        let preparing = prepare_once(ctx, runtime, work);
        if let Some(prepared) = ctx.drivers.while_available(runtime.driver(), preparing).await {
            return prepared;
        }
        wait_for_driver(ctx, runtime, work).await;
    }
}

async fn prepare_once<'s>(ctx: &'s AgentContext, runtime: &dyn Runtime, work: &Work) -> Prepared<'s> {
    if let Some(existing) = clear_previous::clear_previous(ctx, runtime, work).await {
        return prepare_existing(ctx, runtime, work, existing.handle).await;
    }
    if ctx.markers.exists(&work.container_name()) {
        ctx.outbox.push(status_report::removed_externally(work));
        return Prepared::Failed;
    }
    let files = async {
        policy_check::denied(work).map_or(Ok(()), Err)?;
        pull_image(ctx, runtime, work).await?;
        wait_for_dependencies(ctx, runtime, work).await?;
        prepare_files(ctx, work).await
    };
    let files = match files.await {
        Ok(files) => files,
        Err(reason) => {
            ctx.outbox.push(status_report::start_failed(work, &reason));
            return Prepared::Failed;
        }
    };
    match ctx.start_permits.acquire().await {
        Ok(permit) => Prepared::ToCreate { files, permit },
        Err(_closed) => Prepared::Failed,
    }
}

/// Finds out whether an existing attempt has to be resumed. Its secrets were in memory, so they may be gone with the
/// machine's last boot.
async fn prepare_existing<'s>(
    ctx: &'s AgentContext,
    runtime: &dyn Runtime,
    work: &Work,
    handle: Handle,
) -> Prepared<'s> {
    let is_to_resume = runtime.inspect(&handle).await.is_ok_and(|inspection| is_to_resume(ctx, work, &inspection));
    if !is_to_resume {
        return Prepared::Exists(handle);
    }
    // While the machine was away, another node may have taken over. Without an answer the last known work counts.
    let _ = tokio::time::timeout(SNAPSHOT_TIMEOUT, ctx.synced.subscribe().wait_for(|synced| *synced)).await;
    let prepared = async {
        wait_for_dependencies(ctx, runtime, work).await?;
        prepare_files(ctx, work).await
    };
    if let Err(reason) = prepared.await {
        ctx.outbox.push(status_report::start_failed(work, &reason));
        return Prepared::Failed;
    }
    match ctx.start_permits.acquire().await {
        Ok(permit) => Prepared::ToResume { handle, permit },
        Err(_closed) => Prepared::Failed,
    }
}

/// Waits for the image and reports the progress of its pull.
async fn pull_image(ctx: &AgentContext, runtime: &dyn Runtime, work: &Work) -> Result<(), String> {
    let mut backoff = Backoff::for_requests();
    loop {
        match runtime.pull_image(work).await {
            Ok(None) => return Ok(()),
            Ok(Some(pull)) => {
                wait_for_pull(ctx, work, pull).await;
                return Ok(());
            }
            Err(RuntimeError::Unavailable { .. }) => tokio::time::sleep(backoff.next_pause()).await,
            Err(
                error @ (RuntimeError::Refused(_)
                | RuntimeError::NoSubnet(_)
                | RuntimeError::DependencyNotReady(_)
                | RuntimeError::NotFound),
            ) => return Err(error.to_string()),
        }
    }
}

/// Waits until the replicas whose namespaces it shares run on this node.
async fn wait_for_dependencies(ctx: &AgentContext, runtime: &dyn Runtime, work: &Work) -> Result<(), String> {
    loop {
        match runtime.check_dependencies(work).await {
            Ok(()) => return Ok(()),
            Err(RuntimeError::DependencyNotReady(reason)) => report_dependency_not_ready(ctx, work, &reason),
            Err(RuntimeError::Unavailable { .. }) => {}
            Err(error @ (RuntimeError::Refused(_) | RuntimeError::NoSubnet(_) | RuntimeError::NotFound)) => {
                return Err(error.to_string());
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn report_dependency_not_ready(ctx: &AgentContext, work: &Work, reason: &str) {
    let code = Some(RuntimeCode::DependencyNotReady);
    ctx.outbox.push(report(work, ReplicaState::Pending, code, text("reason", reason)));
}

async fn wait_for_pull(ctx: &AgentContext, work: &Work, mut pull: PullHandle) {
    let mut reported_at: Option<Instant> = None;
    let mut last_error: Option<String> = None;
    loop {
        let status = pull.status.borrow_and_update().clone();
        match status {
            PullStatus::Done => return,
            // A retry that has downloaded nothing yet is no news: the reason of the last failure stays visible.
            PullStatus::Pulling(progress) if last_error.is_some() && progress.total_bytes == 0 => {}
            PullStatus::Pulling(progress) => {
                if reported_at.is_none_or(|at| at.elapsed() >= PROGRESS_INTERVAL) {
                    reported_at = Some(Instant::now());
                    let mut details = progress_details(&work.spec.container.image, progress);
                    if let Some(reason) = &last_error {
                        details.insert("last_error".to_owned(), Detail::Text(reason.clone()));
                    }
                    ctx.outbox.push(report(work, ReplicaState::Pulling, Some(RuntimeCode::Pulling), details));
                }
            }
            PullStatus::Failed { reason, tries, pause } => {
                reported_at = None;
                let mut details = text("reason", &format!("{}: {reason}", work.spec.container.image));
                if let Some(answer) = registry_answer(&reason) {
                    details.insert(RegistryAnswer::DETAIL.to_owned(), Detail::Text(answer.as_str().to_owned()));
                }
                last_error = Some(reason);
                details.insert("tries".to_owned(), Detail::Number(tries));
                details.insert("retry_in_secs".to_owned(), Detail::Number(pause.as_secs()));
                ctx.outbox.push(report(work, ReplicaState::Pending, Some(RuntimeCode::ImagePullFailed), details));
            }
        }
        if pull.status.changed().await.is_err() {
            // The pull ended without a result, which happens only in a shutdown.
            return std::future::pending().await;
        }
    }
}

/// What a registry definitely answered, which no retry changes by itself. Engines pass it on as text only.
fn registry_answer(reason: &str) -> Option<RegistryAnswer> {
    let reason = reason.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| reason.contains(word));
    if says(&["denied", "unauthorized"]) {
        return Some(RegistryAnswer::Denied);
    }
    says(&["manifest unknown", "name unknown", "not found: manifest"]).then_some(RegistryAnswer::NotFound)
}

fn progress_details(image: &str, progress: PullProgress) -> Details {
    let mut details = text("image", image);
    if progress.total_bytes > 0 {
        details.insert("done_bytes".to_owned(), Detail::Number(progress.done_bytes));
        details.insert("total_bytes".to_owned(), Detail::Number(progress.total_bytes));
    }
    details
}

/// Fetches its secrets and configs from the control plane, waiting while that is unreachable.
async fn prepare_files(ctx: &AgentContext, work: &Work) -> Result<Vec<PreparedFile>, String> {
    let mut backoff = Backoff::for_requests();
    loop {
        match ctx.files.prepare(work, &*ctx.link).await {
            Ok(files) => return Ok(files),
            Err(PrepareFilesError::Contents { cause: LinkError::Unreachable(_), .. }) => {
                tokio::time::sleep(backoff.next_pause()).await;
            }
            Err(error) => return Err(error_chain(&error)),
        }
    }
}

/// Creates and starts the attempt. Must not be cancelled: the engine carries out a request that was sent either way.
pub(super) async fn launch(ctx: &AgentContext, runtime: &dyn Runtime, work: &Work, prepared: Prepared<'_>) -> Launch {
    let (handle, permit) = match prepared {
        Prepared::Failed => return Launch::Failed,
        Prepared::Exists(handle) => (handle, None),
        Prepared::ToResume { handle, permit } => return resume(ctx, runtime, work, handle, permit).await,
        Prepared::ToCreate { files, permit } => {
            ctx.report_state(work, ReplicaState::Starting);
            match runtime.create(work, &files).await {
                Ok(handle) => (handle, Some(permit)),
                Err(error) => return not_launched(ctx, work, &error),
            }
        }
    };
    if let Err(error) = ctx.markers.set(&work.container_name(), &handle) {
        tracing::warn!(replica = %work.key, %error, "the marker of a created replica could not be written");
    }
    let was_started = match runtime.inspect(&handle).await {
        Ok(inspection) => inspection.phase != Phase::Created,
        Err(RuntimeError::NotFound) => return Launch::RetryAfter(Duration::ZERO),
        Err(error) => return not_launched(ctx, work, &error),
    };
    if was_started {
        return Launch::Started(handle);
    }
    if let Err(error) = runtime.start(&handle).await {
        if matches!(error, RuntimeError::DependencyNotReady(_)) {
            // It refers to the namespace of a replica that is gone, and must be created again for the next one.
            ctx.markers.clear(&work.container_name());
            let _ = runtime.remove(&handle).await;
        }
        return not_launched(ctx, work, &error);
    }
    drop(permit);
    run_post_start(ctx, runtime, work, handle).await
}

/// Starts an attempt again that ended with its engine or machine. Where that is not possible any more, because its
/// network is gone perhaps, the same attempt is created anew.
async fn resume(
    ctx: &AgentContext,
    runtime: &dyn Runtime,
    work: &Work,
    handle: Handle,
    permit: SemaphorePermit<'_>,
) -> Launch {
    ctx.report_state(work, ReplicaState::Starting);
    match runtime.resume(work, &handle).await {
        Ok(()) => {
            drop(permit);
            run_post_start(ctx, runtime, work, handle).await
        }
        Err(error @ RuntimeError::Unavailable { .. }) => not_launched(ctx, work, &error),
        Err(
            error @ (RuntimeError::Refused(_)
            | RuntimeError::NoSubnet(_)
            | RuntimeError::DependencyNotReady(_)
            | RuntimeError::NotFound),
        ) => {
            tracing::info!(replica = %work.key, %error, "it cannot be started as it is, and is created anew");
            ctx.markers.clear(&work.container_name());
            let _ = runtime.remove(&handle).await;
            Launch::RetryAfter(Duration::ZERO)
        }
    }
}

async fn run_post_start(ctx: &AgentContext, runtime: &dyn Runtime, work: &Work, handle: Handle) -> Launch {
    for hook in &work.spec.container.post_start {
        let failure = match runtime.run_hook(&handle, hook).await {
            Ok(0) => continue,
            Ok(code) => format!("a post_start hook ended with code {code}"),
            // Whether it was run is unknown.
            Err(RuntimeError::Unavailable { .. }) => return Launch::RetryAfter(RETRY),
            Err(error) => format!("a post_start hook could not be run: {error}"),
        };
        ctx.outbox.push(status_report::start_failed(work, &failure));
        return Launch::Failed;
    }
    Launch::Started(handle)
}

/// Reports why an attempt was not launched, and decides whether to retry.
fn not_launched(ctx: &AgentContext, work: &Work, error: &RuntimeError) -> Launch {
    match error {
        RuntimeError::Unavailable { .. } => {
            ctx.outbox.push(status_report::start_delayed(work, &error.to_string()));
            Launch::RetryAfter(RETRY)
        }
        RuntimeError::NoSubnet(reason) => {
            let code = Some(RuntimeCode::SubnetPoolExhausted);
            ctx.outbox.push(report(work, ReplicaState::Failed, code, text("reason", reason)));
            Launch::RetryAfter(NO_SUBNET_RETRY)
        }
        RuntimeError::DependencyNotReady(reason) => {
            report_dependency_not_ready(ctx, work, reason);
            Launch::RetryAfter(RETRY)
        }
        RuntimeError::Refused(reason) => {
            ctx.outbox.push(status_report::start_failed(work, reason));
            Launch::Failed
        }
        RuntimeError::NotFound => {
            ctx.outbox.push(status_report::removed_externally(work));
            Launch::Failed
        }
    }
}
