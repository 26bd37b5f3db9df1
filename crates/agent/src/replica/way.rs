//! What an attempt finds of those before it, and what becomes of that.
//!
//! Owns: ending earlier attempts of a generation, keeping the output of the last of them, and forgetting what attempts
//! that are no more were given.
//! Must not touch: an attempt that is asked for.
//! Invariant: at most one ended attempt is kept per generation, and none once the generation ends.

use std::collections::BTreeSet;

use longshore_model::{Attempt, ReplicaState, Work, replica::Details, work::container_name};

use super::{Shared, end_found};
use crate::{
    backoff::Backoff,
    book::Book,
    runtime::{Found, Phase, Runtime, RuntimeError},
    sighting::sighting,
};

/// Ends every other attempt of the generation; what is left is the one wanted, if it exists, and the output of the one
/// before it: who wants to know why something was started again looks there.
pub(super) async fn clear(shared: &Shared, runtime: &Runtime, work: &Work) -> Option<Found> {
    let mut backoff = Backoff::for_neighbours();
    loop {
        match cleared(shared, runtime, work).await {
            Ok(own) => return own,
            Err(error) => tracing::debug!(replica = %work.key, %error, "earlier attempts could not be ended yet"),
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}

async fn cleared(shared: &Shared, runtime: &Runtime, work: &Work) -> Result<Option<Found>, RuntimeError> {
    let attempts = runtime.attempts(&work.key).await?;
    let (mut own, mut others): (Vec<Found>, Vec<Found>) = attempts.into_iter().partition(|found| found.answers(work));
    others.sort_by_key(|found| found.attempt);
    let last = others.pop_if(|newest| newest.attempt < work.attempt);
    for other in others {
        end_found(shared, runtime, &other).await?;
    }
    if let Some(last) = last {
        put_aside(shared, runtime, work, &last).await?;
    }
    if let Some(before) = work.attempt.0.checked_sub(1) {
        // Also where somebody else took it away.
        forget(shared, &container_name(&work.key, Attempt(before)));
    }
    Ok(own.pop())
}

/// Ends the attempt before, and keeps what it wrote.
async fn put_aside(shared: &Shared, runtime: &Runtime, work: &Work, last: &Found) -> Result<(), RuntimeError> {
    match runtime.look(&last.handle).await.map(|seen| seen.phase) {
        Ok(Phase::Up(_)) => say_why(shared, work),
        Ok(Phase::Ended(_)) => {}
        // It never wrote anything.
        Ok(Phase::Made | Phase::Refused { .. }) => return end_found(shared, runtime, last).await,
        Err(RuntimeError::Gone) => return Ok(()),
        Err(error) => return Err(error),
    }
    runtime.end(&last.handle, &last.ending).await?;
    runtime.retire(&last.handle);
    forget(shared, &container_name(&last.key, last.attempt));
    Ok(())
}

fn forget(shared: &Shared, container: &str) {
    shared.marks.clear(container);
    shared.files.clear(container);
}

/// The attempt before still runs and is told to stop. Why, was the last thing said about it.
fn say_why(shared: &Shared, work: &Work) {
    let last = shared.outbox.last(&work.key).filter(|last| last.attempt < work.attempt);
    let (code, details) = last.map_or((None, Details::new()), |last| (last.code, last.details));
    shared.outbox.say(sighting(work, ReplicaState::Draining, code, details));
}

/// Forgets what was kept for attempts that neither exist nor are asked for: secrets of a container that somebody took away
/// while nobody looked, and marks that would only lie.
pub(crate) async fn forget_leftovers(shared: &Shared, book: impl Fn() -> Book) -> Result<(), RuntimeError> {
    // Listed first: what is written from here on belongs to work that is in the book by the time it is asked.
    let (given, marked) = (shared.files.given(), shared.marks.all());
    let mut needed = BTreeSet::new();
    for runtime in shared.runtimes.values() {
        needed.extend(runtime.list().await?.iter().map(|found| container_name(&found.key, found.attempt)));
    }
    needed.extend(book().work().map(Work::container_name));
    given.iter().filter(|name| !needed.contains(*name)).for_each(|name| shared.files.clear(name));
    marked.iter().filter(|name| !needed.contains(*name)).for_each(|name| shared.marks.clear(name));
    Ok(())
}
