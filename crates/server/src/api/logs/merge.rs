//! Merges several streams by time.
//!
//! Owns: which stream to wait for. Each stream is ordered; the next item overall is known once every stream has shown
//! its next item. A stream that stays idle for the maximum wait is skipped until it sends again.
//! Invariant: no item is lost or reordered within its stream, also when `next` is cancelled; a cancelled wait continues
//! where it was, so no stream is waited for longer than the maximum.

use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use longshore_model::Time;
use tokio::{sync::mpsc, time::Instant};

/// An item with a time.
pub(crate) trait Timestamped {
    fn at(&self) -> Time;
}

/// The streams, each with a name.
#[derive(Debug)]
pub(crate) struct MergeByTime<K, T> {
    sources: Vec<Source<K, T>>,
    /// How long an active stream is waited for; without limit if absent.
    max_wait: Option<Duration>,
}

#[derive(Debug)]
struct Source<K, T> {
    name: K,
    items: mpsc::Receiver<T>,
    head: Option<T>,
    state: SourceState,
    /// When the current wait began. Stored here because `next` may be cancelled at any time.
    waiting_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceState {
    /// It sent lately: its next item may come before those of the others.
    Active,
    /// It sent nothing for the maximum wait.
    Idle,
    /// It has ended; its last item may still be in `head`.
    Ended,
}

/// The next thing that a merge returns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<K, T> {
    /// An item.
    Item(K, T),
    /// A stream has ended.
    End(K),
}

impl<K: Clone, T: Timestamped> MergeByTime<K, T> {
    pub(crate) const fn new(max_wait: Option<Duration>) -> Self {
        Self { sources: Vec::new(), max_wait }
    }

    pub(crate) fn add(&mut self, name: K, items: mpsc::Receiver<T>) {
        self.sources.push(Source { name, items, head: None, state: SourceState::Active, waiting_since: None });
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The next item, or the end of a stream; `None` without streams. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Next<K, T>> {
        loop {
            let over = |source: &Source<K, T>| source.head.is_none() && source.state == SourceState::Ended;
            if let Some(at) = self.sources.iter().position(over) {
                return Some(Next::End(self.sources.remove(at).name));
            }
            if self.sources.iter().any(|source| source.is_awaited(SourceState::Active)) {
                self.wait_for_active().await;
                continue;
            }
            self.sources.iter_mut().for_each(Source::poll_ready);
            let shown = self.sources.iter_mut().filter(|source| source.head.is_some());
            if let Some(first) = shown.min_by_key(|source| source.head.as_ref().map(Timestamped::at))
                && let Some(item) = first.head.take()
            {
                return Some(Next::Item(first.name.clone(), item));
            }
            if self.sources.is_empty() {
                return None;
            }
            poll_fn(|ctx| self.poll(ctx, SourceState::Idle)).await;
        }
    }

    async fn wait_for_active(&mut self) {
        let Some(max_wait) = self.max_wait else {
            return poll_fn(|ctx| self.poll(ctx, SourceState::Active)).await;
        };
        let now = Instant::now();
        let awaited = self.sources.iter_mut().filter(|source| source.is_awaited(SourceState::Active));
        let since = awaited.map(|source| *source.waiting_since.get_or_insert(now)).min().unwrap_or(now);
        let spoken = poll_fn(|ctx| self.poll(ctx, SourceState::Active));
        if tokio::time::timeout_at(since + max_wait, spoken).await.is_err() {
            for source in self.sources.iter_mut().filter(|source| source.waiting_since == Some(since)) {
                (source.state, source.waiting_since) = (SourceState::Idle, None);
            }
        }
    }

    /// Ready once a stream in this state has sent something or ended.
    fn poll(&mut self, ctx: &mut Context<'_>, state: SourceState) -> Poll<()> {
        let mut ready = Poll::Pending;
        for source in self.sources.iter_mut().filter(|source| source.is_awaited(state)) {
            match source.items.poll_recv(ctx) {
                Poll::Ready(Some(item)) => {
                    source.show(item);
                    ready = Poll::Ready(());
                }
                Poll::Ready(None) => {
                    (source.state, source.waiting_since, ready) = (SourceState::Ended, None, Poll::Ready(()));
                }
                Poll::Pending => {}
            }
        }
        ready
    }
}

impl<K, T> Source<K, T> {
    fn is_awaited(&self, state: SourceState) -> bool {
        self.head.is_none() && self.state == state
    }

    /// Takes an item of an idle stream that is already there.
    fn poll_ready(&mut self) {
        if self.is_awaited(SourceState::Idle)
            && let Ok(item) = self.items.try_recv()
        {
            self.show(item);
        }
    }

    fn show(&mut self, item: T) {
        (self.head, self.state, self.waiting_since) = (Some(item), SourceState::Active, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Timestamped for u64 {
        fn at(&self) -> Time {
            Time(*self)
        }
    }

    fn whole(items: &[u64]) -> mpsc::Receiver<u64> {
        let (to, from) = mpsc::channel(items.len());
        for item in items {
            to.try_send(*item).unwrap();
        }
        from
    }

    #[tokio::test]
    async fn existing_items_are_merged_by_time() {
        let mut merged = MergeByTime::new(None);
        merged.add('a', whole(&[1, 4, 9]));
        merged.add('b', whole(&[2, 3, 10]));
        let (mut items, mut ends) = (Vec::new(), Vec::new());
        while let Some(next) = merged.next().await {
            match next {
                Next::Item(name, at) => items.push((name, at)),
                Next::End(name) => ends.push(name),
            }
        }
        assert_eq!(items, [('a', 1), ('b', 2), ('b', 3), ('a', 4), ('a', 9), ('b', 10)]);
        assert_eq!(ends, ['a', 'b']);
    }

    #[tokio::test]
    async fn an_idle_stream_delays_the_others_once() {
        let mut merged = MergeByTime::new(Some(Duration::from_millis(50)));
        let (silent, nothing) = mpsc::channel(8);
        merged.add('s', nothing);
        merged.add('a', whole(&[5, 6, 7, 8]));
        let began = std::time::Instant::now();
        for at in 5..9 {
            assert_eq!(merged.next().await, Some(Next::Item('a', at)));
        }
        assert_eq!(merged.next().await, Some(Next::End('a')));
        assert!(began.elapsed() < Duration::from_secs(5), "it was waited for again and again");
        // Its item is returned, however late.
        silent.send(1).await.unwrap();
        assert_eq!(merged.next().await, Some(Next::Item('s', 1)));
    }

    #[tokio::test]
    async fn cancelling_next_does_not_restart_the_wait_for_an_idle_stream() {
        let max_wait = Duration::from_millis(200);
        let mut merged = MergeByTime::new(Some(max_wait));
        let (_silent, nothing) = mpsc::channel::<u64>(8);
        merged.add('s', nothing);
        merged.add('a', whole(&[5]));
        // Two halves of the maximum wait, and a third try that finds it used up.
        for _ in 0..2 {
            if let Ok(next) = tokio::time::timeout(max_wait / 2, merged.next()).await {
                assert_eq!(next, Some(Next::Item('a', 5)));
                return;
            }
        }
        let next = tokio::time::timeout(max_wait / 2, merged.next()).await;
        assert_eq!(next, Ok(Some(Next::Item('a', 5))), "it is waited for without end");
    }

    #[tokio::test]
    async fn nothing_is_lost_when_next_is_cancelled() {
        let mut merged = MergeByTime::new(None);
        let (late, items) = mpsc::channel(8);
        merged.add('a', items);
        merged.add('b', whole(&[3]));
        for _ in 0..3 {
            assert!(tokio::time::timeout(Duration::from_millis(5), merged.next()).await.is_err());
        }
        late.send(2).await.unwrap();
        drop(late);
        assert_eq!(merged.next().await, Some(Next::Item('a', 2)));
        assert_eq!(merged.next().await, Some(Next::End('a')));
        assert_eq!(merged.next().await, Some(Next::Item('b', 3)));
    }
}
