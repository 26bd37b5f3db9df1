//! Images on their way to this machine.
//!
//! Owns: one fetch per image however many replicas wait for it, how many run at once, and the pauses between tries.
//! Must not touch: replicas. They hold a ticket and read the news; the fetch ends when the last ticket is dropped.
//! Invariant: an image is tried for ever while anybody waits, and a stuck one holds up nobody who waits for another.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    sync::{Notify, Semaphore, watch},
    task::AbortHandle,
};

use crate::backoff::Backoff;

/// An image as asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ImageWanted {
    pub(crate) reference: String,
    /// `os/arch`, empty for the engine's own.
    pub(crate) platform: String,
}

/// How a fetch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PullNews {
    /// Under way.
    Fetching(Amount),
    /// It failed, and is tried again after the pause.
    Failed { reason: String, tries: u64, pause: Duration },
    /// The image is here.
    Done,
}

/// How much of an image has arrived, as far as the registry has said how big it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
}

/// Where a fetch tells how far it is.
pub(crate) type Progress = watch::Sender<PullNews>;
/// One try at fetching an image, with the reason in words if it fails.
pub(crate) type Fetch = Arc<dyn Fn(ImageWanted, Arc<Progress>) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// A place in the queue for an image.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) news: watch::Receiver<PullNews>,
    _pull: Arc<Pull>,
}

#[derive(Debug)]
struct Pull {
    news: watch::Receiver<PullNews>,
    hurry: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All fetches of a driver.
pub(crate) struct Pulls {
    fetch: Fetch,
    permits: Arc<Semaphore>,
    backoff: Backoff,
    running: Mutex<BTreeMap<ImageWanted, Weak<Pull>>>,
}

impl Pulls {
    pub(crate) fn new(parallel: usize, backoff: Backoff, fetch: Fetch) -> Self {
        Self { fetch, permits: Arc::new(Semaphore::new(parallel.max(1))), backoff, running: Mutex::default() }
    }

    /// Joins the fetch of an image, or begins one. Whoever joins one that is pausing ends the pause: a replica that comes
    /// now is usually there because somebody has just mended what was wrong.
    pub(crate) fn join(&self, wanted: &ImageWanted) -> Ticket {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|_, pull| pull.strong_count() > 0);
        let unfinished =
            running.get(wanted).and_then(Weak::upgrade).filter(|pull| *pull.news.borrow() != PullNews::Done);
        let pull = unfinished.unwrap_or_else(|| {
            let pull = Arc::new(self.begin(wanted.clone()));
            running.insert(wanted.clone(), Arc::downgrade(&pull));
            pull
        });
        pull.hurry.notify_one();
        Ticket { news: pull.news.clone(), _pull: pull }
    }

    fn begin(&self, wanted: ImageWanted) -> Pull {
        let (progress, news) = watch::channel(PullNews::Fetching(Amount::default()));
        let hurry = Arc::new(Notify::new());
        let errand = Errand {
            fetch: Arc::clone(&self.fetch),
            permits: Arc::clone(&self.permits),
            backoff: self.backoff.clone(),
            hurry: Arc::clone(&hurry),
            progress: Arc::new(progress),
        };
        let task = tokio::spawn(errand.run(wanted)).abort_handle();
        Pull { news, hurry, task }
    }
}

/// One image, tried until it is here.
struct Errand {
    fetch: Fetch,
    permits: Arc<Semaphore>,
    backoff: Backoff,
    hurry: Arc<Notify>,
    progress: Arc<Progress>,
}

impl Errand {
    async fn run(mut self, wanted: ImageWanted) {
        for tries in 1.. {
            let outcome = {
                // Held for one try and not for the pauses: eight images that do not exist must not keep out one that does.
                let Ok(_permit) = self.permits.acquire().await else { return };
                (self.fetch)(wanted.clone(), Arc::clone(&self.progress)).await
            };
            let Err(reason) = outcome else {
                self.progress.send_replace(PullNews::Done);
                return;
            };
            let pause = self.backoff.pause();
            tracing::warn!(image = wanted.reference, reason, tries, "image pull failed; will retry");
            // Whoever joined while the try was under way has waited for it, and asks for no other.
            let _ = tokio::time::timeout(Duration::ZERO, self.hurry.notified()).await;
            self.progress.send_replace(PullNews::Failed { reason, tries, pause });
            let _ = tokio::time::timeout(pause, self.hurry.notified()).await;
            self.progress.send_replace(PullNews::Fetching(Amount::default()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::FutureExt;

    use super::*;

    fn image(name: &str) -> ImageWanted {
        ImageWanted { reference: name.to_owned(), platform: String::new() }
    }

    fn short() -> Backoff {
        Backoff::from(Duration::from_millis(20), Duration::from_secs(1))
    }

    /// Counts tries; those up to the given number fail, images named `stuck` never end.
    fn pulls(failing: u64, backoff: Backoff) -> (Pulls, Arc<AtomicU64>) {
        let tries = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&tries);
        let fetch: Fetch = Arc::new(move |wanted, _| {
            let nth = counted.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                if wanted.reference == "stuck" {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                if nth <= failing { Err("no such tag".to_owned()) } else { Ok(()) }
            }
            .boxed()
        });
        (Pulls::new(2, backoff, fetch), tries)
    }

    async fn done(ticket: &mut Ticket) {
        ticket.news.wait_for(|news| *news == PullNews::Done).await.unwrap();
    }

    #[tokio::test]
    async fn fifty_replicas_fetch_an_image_once() {
        let (pulls, tries) = pulls(0, short());
        let mut tickets: Vec<Ticket> = (0..50).map(|_| pulls.join(&image("web"))).collect();
        for ticket in &mut tickets {
            done(ticket).await;
        }
        assert_eq!(tries.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_failing_image_is_tried_with_growing_pauses_until_it_is_there() {
        let (pulls, tries) = pulls(3, short());
        let began = tokio::time::Instant::now();
        done(&mut pulls.join(&image("web"))).await;
        assert_eq!(tries.load(Ordering::SeqCst), 4);
        assert!(began.elapsed() >= Duration::from_millis(20 + 40 + 80), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_newcomer_ends_the_pause() {
        let (pulls, _) = pulls(1, Backoff::from(Duration::from_mins(5), Duration::from_mins(5)));
        let mut first = pulls.join(&image("web"));
        first.news.wait_for(|news| matches!(news, PullNews::Failed { .. })).await.unwrap();
        let second =
            tokio::time::timeout(Duration::from_secs(20), async { done(&mut pulls.join(&image("web"))).await });
        assert!(second.await.is_ok(), "it waited for the pause to end");
    }

    #[tokio::test]
    async fn a_stuck_image_does_not_hold_up_another_and_ends_with_its_last_waiter() {
        let (pulls, tries) = pulls(0, short());
        let stuck = pulls.join(&image("stuck"));
        done(&mut pulls.join(&image("web"))).await;
        drop(stuck);
        tokio::task::yield_now().await;
        let _again = pulls.join(&image("stuck"));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(tries.load(Ordering::SeqCst), 3);
    }
}
