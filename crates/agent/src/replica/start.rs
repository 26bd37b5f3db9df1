//! From work to a process that has started.
//!
//! Owns: the steps of a start, and which of them may be tried again here. A process that started and ended is not: that is
//! for the control plane to decide.

use std::time::Duration;

use longshore_model::{
    ReplicaState, RuntimeCode, Work,
    replica::{Detail, Details},
};
use tokio::{sync::SemaphorePermit, time::Instant};

use super::{Shared, say, unseen, way};
use crate::{
    backoff::Backoff,
    files::PlaceFilesError,
    link::LinkError,
    pulls::{Amount, PullNews, Ticket},
    runtime::{Handle, Phase, PlacedFile, Runtime, RuntimeError},
    sighting::{self, sighting, text},
};

/// Progress is a report of its own, and reports are replicated: often enough to see it move, no more.
const PROGRESS: Duration = Duration::from_secs(5);
/// Time until a network without room is tried again; a block is free when another deployment goes.
const NO_SUBNET: Duration = Duration::from_secs(15);
/// Time until a driver is asked again that did not answer in the middle of a start.
const UNANSWERED: Duration = Duration::from_secs(1);

/// What a launch needs.
pub(super) enum Ready<'s> {
    /// It exists already, made here or by an earlier agent.
    Exists(Handle),
    /// It can be made; the permit is held until it has started.
    ToMake(Vec<PlacedFile>, SemaphorePermit<'s>),
    /// It cannot be, and that has been said.
    No,
}

/// What came of a launch.
pub(super) enum Launch {
    /// It has been started.
    Up(Handle),
    /// It could not be, and that has been said.
    Over,
    /// Nobody knows, or it may work later.
    Again(Duration),
}

/// Everything up to the point of no return. Begun anew when the driver went away meanwhile and came back.
pub(super) async fn prepare<'s>(shared: &'s Shared, runtime: &Runtime, work: &Work) -> Ready<'s> {
    loop {
        let preparing = prepare_here(shared, runtime, work);
        if let Some(ready) = shared.drivers.while_here(runtime.driver(), preparing).await {
            return ready;
        }
        unseen(shared, runtime, work).await;
    }
}

async fn prepare_here<'s>(shared: &'s Shared, runtime: &Runtime, work: &Work) -> Ready<'s> {
    if let Some(found) = way::clear(shared, runtime, work).await {
        return Ready::Exists(found.handle);
    }
    if shared.marks.is_set(&work.container_name()) {
        shared.outbox.say(sighting::gone(work));
        return Ready::No;
    }
    if let Err(reason) = fetched(shared, runtime, work).await {
        shared.outbox.say(sighting::start_failed(work, &reason));
        return Ready::No;
    }
    if let Err(reason) = accompanied(shared, runtime, work).await {
        shared.outbox.say(sighting::start_failed(work, &reason));
        return Ready::No;
    }
    let files = match placed(shared, work).await {
        Ok(files) => files,
        Err(reason) => {
            shared.outbox.say(sighting::start_failed(work, &reason));
            return Ready::No;
        }
    };
    match shared.permits.acquire().await {
        Ok(permit) => Ready::ToMake(files, permit),
        Err(_closed) => Ready::No,
    }
}

/// Waits for the image, and says how it goes.
async fn fetched(shared: &Shared, runtime: &Runtime, work: &Work) -> Result<(), String> {
    let mut backoff = Backoff::for_neighbours();
    loop {
        match runtime.fetch(work).await {
            Ok(None) => return Ok(()),
            Ok(Some(ticket)) => {
                follow(shared, work, ticket).await;
                return Ok(());
            }
            Err(RuntimeError::Away { .. }) => tokio::time::sleep(backoff.pause()).await,
            Err(
                error @ (RuntimeError::Refused(_)
                | RuntimeError::NoSubnet(_)
                | RuntimeError::NotYet(_)
                | RuntimeError::Gone),
            ) => return Err(error.to_string()),
        }
    }
}

/// Waits for those it shares a namespace with. To try without them would use up a restart for nothing.
async fn accompanied(shared: &Shared, runtime: &Runtime, work: &Work) -> Result<(), String> {
    loop {
        match runtime.company(work).await {
            Ok(()) => return Ok(()),
            Err(RuntimeError::NotYet(reason)) => alone(shared, work, &reason),
            Err(RuntimeError::Away { .. }) => {}
            Err(error @ (RuntimeError::Refused(_) | RuntimeError::NoSubnet(_) | RuntimeError::Gone)) => {
                return Err(error.to_string());
            }
        }
        tokio::time::sleep(UNANSWERED).await;
    }
}

fn alone(shared: &Shared, work: &Work, reason: &str) {
    let code = Some(RuntimeCode::DependencyNotReady);
    shared.outbox.say(sighting(work, ReplicaState::Pending, code, text("reason", reason)));
}

async fn follow(shared: &Shared, work: &Work, mut ticket: Ticket) {
    let mut said_at: Option<Instant> = None;
    loop {
        let news = ticket.news.borrow_and_update().clone();
        match news {
            PullNews::Done => return,
            PullNews::Fetching(amount) => {
                if said_at.is_none_or(|at| at.elapsed() >= PROGRESS) {
                    said_at = Some(Instant::now());
                    let details = progress(&work.spec.container.image, amount);
                    shared.outbox.say(sighting(work, ReplicaState::Pulling, Some(RuntimeCode::Pulling), details));
                }
            }
            PullNews::Failed { reason, tries, pause } => {
                said_at = None;
                let mut details = text("reason", &format!("{}: {reason}", work.spec.container.image));
                details.insert("tries".to_owned(), Detail::Number(tries));
                details.insert("retry_in_secs".to_owned(), Detail::Number(pause.as_secs()));
                shared.outbox.say(sighting(work, ReplicaState::Pending, Some(RuntimeCode::ImagePullFailed), details));
            }
        }
        if ticket.news.changed().await.is_err() {
            // The fetch is gone without a word, which only a shutdown does.
            return std::future::pending().await;
        }
    }
}

fn progress(image: &str, amount: Amount) -> Details {
    let mut details = text("image", image);
    if amount.total_bytes > 0 {
        details.insert("done_bytes".to_owned(), Detail::Number(amount.done_bytes));
        details.insert("total_bytes".to_owned(), Detail::Number(amount.total_bytes));
    }
    details
}

/// Its secrets and configs, which only the control plane has.
async fn placed(shared: &Shared, work: &Work) -> Result<Vec<PlacedFile>, String> {
    let mut backoff = Backoff::for_neighbours();
    loop {
        match shared.files.place(work, &*shared.link).await {
            Ok(files) => return Ok(files),
            Err(PlaceFilesError::Contents { cause: LinkError::Away(_), .. }) => {
                tokio::time::sleep(backoff.pause()).await;
            }
            Err(error) => return Err(chain(&error)),
        }
    }
}

fn chain(error: &PlaceFilesError) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Makes and starts it. Not to be cancelled: a request that is on its way to an engine is carried out all the same.
pub(super) async fn launch(shared: &Shared, runtime: &Runtime, work: &Work, ready: Ready<'_>) -> Launch {
    let (handle, permit) = match ready {
        Ready::No => return Launch::Over,
        Ready::Exists(handle) => (handle, None),
        Ready::ToMake(files, permit) => {
            say(shared, work, ReplicaState::Starting);
            match runtime.make(work, &files).await {
                Ok(handle) => (handle, Some(permit)),
                Err(error) => return failed(shared, work, &error),
            }
        }
    };
    if let Err(error) = shared.marks.set(&work.container_name(), &handle) {
        tracing::warn!(replica = %work.key, %error, "what was made could not be noted");
    }
    let begun = match runtime.look(&handle).await {
        Ok(seen) => seen.phase != Phase::Made,
        Err(RuntimeError::Gone) => return Launch::Again(Duration::ZERO),
        Err(error) => return failed(shared, work, &error),
    };
    if begun {
        return Launch::Up(handle);
    }
    if let Err(error) = runtime.start(&handle).await {
        if matches!(error, RuntimeError::NotYet(_)) {
            // It was made for a replica that is no longer there, and has to be made anew for the next.
            shared.marks.clear(&work.container_name());
            let _ = runtime.remove(&handle).await;
        }
        return failed(shared, work, &error);
    }
    drop(permit);
    hooked(shared, runtime, work, handle).await
}

async fn hooked(shared: &Shared, runtime: &Runtime, work: &Work, handle: Handle) -> Launch {
    for hook in &work.spec.container.post_start {
        let failure = match runtime.hook(&handle, hook).await {
            Ok(0) => continue,
            Ok(code) => format!("a post_start hook ended with code {code}"),
            Err(error) => format!("a post_start hook could not be run: {error}"),
        };
        shared.outbox.say(sighting::start_failed(work, &failure));
        return Launch::Over;
    }
    Launch::Up(handle)
}

fn failed(shared: &Shared, work: &Work, error: &RuntimeError) -> Launch {
    match error {
        RuntimeError::Away { .. } => Launch::Again(UNANSWERED),
        RuntimeError::NoSubnet(reason) => {
            let code = Some(RuntimeCode::SubnetPoolExhausted);
            shared.outbox.say(sighting(work, ReplicaState::Failed, code, text("reason", reason)));
            Launch::Again(NO_SUBNET)
        }
        RuntimeError::NotYet(reason) => {
            alone(shared, work, reason);
            Launch::Again(UNANSWERED)
        }
        RuntimeError::Refused(reason) => {
            shared.outbox.say(sighting::start_failed(work, reason));
            Launch::Over
        }
        RuntimeError::Gone => {
            shared.outbox.say(sighting::gone(work));
            Launch::Over
        }
    }
}
