//! Image pulls of this machine.
//!
//! Owns: one pull per image however many replicas wait for it, how many run at once, and the pauses between tries.
//! Must not touch: replicas. They hold a [`PullHandle`] and read its status; dropping the last handle cancels the pull.
//! Invariant: a pull is retried for as long as a handle exists, and a stuck pull does not delay another image.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;
use longshore_model::ResolvedImage;
use tokio::{
    sync::{Notify, Semaphore, watch},
    task::AbortHandle,
};

use crate::backoff::Backoff;

/// The image to pull.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ImageRequest {
    pub(crate) reference: String,
    /// `os/arch`; empty for the engine's own platform.
    pub(crate) platform: String,
    /// The exact image, if the reference was resolved.
    pub(crate) resolved: Option<ResolvedImage>,
    pub(crate) refresh: Refresh,
}

impl ImageRequest {
    /// What the engine knows it by.
    pub(crate) fn name(&self) -> &str {
        self.resolved.as_ref().map_or(&*self.reference, |resolved| &*resolved.0)
    }
}

/// Whether an image that is on the node is pulled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refresh {
    IfAbsent,
    Always,
}

/// The status of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PullStatus {
    /// A try is under way, or waits for one of the parallel pulls to end.
    Pulling(PullProgress),
    /// A try failed; the next one starts after the pause.
    Failed { reason: String, tries: u64, pause: Duration },
    /// The image is on this node.
    Done,
}

/// Downloaded bytes, over the layers whose size is known so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PullProgress {
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
}

/// Where a pull publishes its status.
pub(crate) type PullStatusSender = watch::Sender<PullStatus>;
/// One try to pull an image. The error is a message for people.
pub(crate) type PullFn =
    Arc<dyn Fn(ImageRequest, Arc<PullStatusSender>) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Whether the node has an image by now.
pub(crate) type IsPresentFn = Arc<dyn Fn(ImageRequest) -> BoxFuture<'static, bool> + Send + Sync>;

/// Time between two looks for an image that was built or loaded while its next pull is awaited.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Keeps a pull alive and shows its status.
#[derive(Debug)]
pub(crate) struct PullHandle {
    pub(crate) status: watch::Receiver<PullStatus>,
    _pull: Arc<Pull>,
}

#[derive(Debug)]
struct Pull {
    status: watch::Receiver<PullStatus>,
    retry_now: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All pulls of a driver.
pub(crate) struct Pulls {
    pull: PullFn,
    is_present: IsPresentFn,
    permits: Arc<Semaphore>,
    backoff: Backoff,
    running: Mutex<BTreeMap<ImageRequest, Weak<Pull>>>,
}

impl Pulls {
    pub(crate) fn new(parallel: usize, backoff: Backoff, pull: PullFn, is_present: IsPresentFn) -> Self {
        let permits = Arc::new(Semaphore::new(parallel.max(1)));
        Self { pull, is_present, permits, backoff, running: Mutex::default() }
    }

    /// Joins the pull of an image, or begins one. Joining ends a pause between tries, because a new replica often
    /// exists because somebody has just fixed the cause of the failure.
    pub(crate) fn join(&self, image: &ImageRequest) -> PullHandle {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|_, pull| pull.strong_count() > 0);
        let unfinished =
            running.get(image).and_then(Weak::upgrade).filter(|pull| *pull.status.borrow() != PullStatus::Done);
        let pull = unfinished.unwrap_or_else(|| {
            let pull = Arc::new(self.begin(image.clone()));
            running.insert(image.clone(), Arc::downgrade(&pull));
            pull
        });
        pull.retry_now.notify_one();
        PullHandle { status: pull.status.clone(), _pull: pull }
    }

    fn begin(&self, image: ImageRequest) -> Pull {
        let (sender, status) = watch::channel(PullStatus::Pulling(PullProgress::default()));
        let retry_now = Arc::new(Notify::new());
        let task = PullTask {
            pull: Arc::clone(&self.pull),
            is_present: Arc::clone(&self.is_present),
            permits: Arc::clone(&self.permits),
            backoff: self.backoff.clone(),
            retry_now: Arc::clone(&retry_now),
            status: Arc::new(sender),
        };
        let task = tokio::spawn(task.run(image)).abort_handle();
        Pull { status, retry_now, task }
    }
}

/// Tries to pull one image until it succeeds.
struct PullTask {
    pull: PullFn,
    is_present: IsPresentFn,
    permits: Arc<Semaphore>,
    backoff: Backoff,
    retry_now: Arc<Notify>,
    status: Arc<PullStatusSender>,
}

impl PullTask {
    async fn run(mut self, image: ImageRequest) {
        for tries in 1.. {
            let outcome = {
                // Held during a try and not during pauses, so that images that do not exist cannot block one that does.
                let Ok(_permit) = self.permits.acquire().await else { return };
                (self.pull)(image.clone(), Arc::clone(&self.status)).await
            };
            let Err(reason) = outcome else {
                self.status.send_replace(PullStatus::Done);
                return;
            };
            let pause = self.backoff.next_pause();
            tracing::warn!(image = image.reference, reason, tries, "image pull failed; will retry");
            // A replica that joined during the try does not ask for another one at once.
            let _ = tokio::time::timeout(Duration::ZERO, self.retry_now.notified()).await;
            self.status.send_replace(PullStatus::Failed { reason, tries, pause });
            if self.pause(pause, &image).await == Pause::ImageAppeared {
                self.status.send_replace(PullStatus::Done);
                return;
            }
            self.status.send_replace(PullStatus::Pulling(PullProgress::default()));
        }
    }
}

/// How a pause between two tries ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    Over,
    ImageAppeared,
}

impl PullTask {
    /// Waits until the next try is due or asked for, or until the image is on the node without one.
    async fn pause(&self, pause: Duration, image: &ImageRequest) -> Pause {
        let due = tokio::time::Instant::now() + pause;
        loop {
            let until = due.min(tokio::time::Instant::now() + LOOK_INTERVAL);
            if tokio::time::timeout_at(until, self.retry_now.notified()).await.is_ok() {
                return Pause::Over;
            }
            if (self.is_present)(image.clone()).await {
                return Pause::ImageAppeared;
            }
            if until == due {
                return Pause::Over;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::FutureExt;

    use super::*;

    fn image(name: &str) -> ImageRequest {
        ImageRequest { reference: name.to_owned(), platform: String::new(), resolved: None, refresh: Refresh::IfAbsent }
    }

    fn short() -> Backoff {
        Backoff::new(Duration::from_millis(20), Duration::from_secs(1))
    }

    /// Counts tries. The first `failing` fail, and a pull of the image `stuck` never ends.
    fn pulls(failing: u64, backoff: Backoff) -> (Pulls, Arc<AtomicU64>) {
        let tries = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&tries);
        let pull: PullFn = Arc::new(move |image, _| {
            let nth = counted.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                if image.reference == "stuck" {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                if nth <= failing { Err("no such tag".to_owned()) } else { Ok(()) }
            }
            .boxed()
        });
        (Pulls::new(2, backoff, pull, Arc::new(|image| async move { image.reference == "built" }.boxed())), tries)
    }

    async fn done(pull: &mut PullHandle) {
        pull.status.wait_for(|status| *status == PullStatus::Done).await.unwrap();
    }

    #[tokio::test]
    async fn fifty_replicas_pull_an_image_once() {
        let (pulls, tries) = pulls(0, short());
        let mut handles: Vec<PullHandle> = (0..50).map(|_| pulls.join(&image("web"))).collect();
        for handle in &mut handles {
            done(handle).await;
        }
        assert_eq!(tries.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_failing_pull_is_retried_with_growing_pauses_until_it_succeeds() {
        let (pulls, tries) = pulls(3, short());
        let began = tokio::time::Instant::now();
        done(&mut pulls.join(&image("web"))).await;
        assert_eq!(tries.load(Ordering::SeqCst), 4);
        assert!(began.elapsed() >= Duration::from_millis(20 + 40 + 80), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn joining_a_pull_ends_its_pause() {
        let (pulls, _) = pulls(1, Backoff::new(Duration::from_mins(5), Duration::from_mins(5)));
        let mut first = pulls.join(&image("web"));
        first.status.wait_for(|status| matches!(status, PullStatus::Failed { .. })).await.unwrap();
        let second =
            tokio::time::timeout(Duration::from_secs(20), async { done(&mut pulls.join(&image("web"))).await });
        assert!(second.await.is_ok(), "it waited for the pause to end");
    }

    #[tokio::test]
    async fn an_image_that_appears_on_the_node_ends_the_wait_for_its_registry() {
        let (pulls, tries) = pulls(u64::MAX, Backoff::new(Duration::from_mins(5), Duration::from_mins(5)));
        let mut pull = pulls.join(&image("built"));
        let appeared = tokio::time::timeout(Duration::from_secs(20), done(&mut pull));
        assert!(appeared.await.is_ok(), "it waited for the pause to end");
        assert_eq!(tries.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_stuck_pull_does_not_delay_another_and_ends_with_its_last_handle() {
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
