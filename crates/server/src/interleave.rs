//! Several streams as one, in the order of time.
//!
//! Owns: whom to wait for. Each stream is in order by itself; which of them is next is known once each has shown its next
//! item. One that is silent shows none, and is not waited for again until it speaks.
//! Invariant: nothing is lost and nothing of one stream overtakes another item of it, also when waiting is broken off; and
//! waiting that was broken off goes on where it was, so that nobody is waited for longer than patience lasts.

use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use longshore_model::Time;
use tokio::{sync::mpsc, time::Instant};

/// Something that happened at some time.
pub(crate) trait Dated {
    fn at(&self) -> Time;
}

/// Streams, each with a name.
#[derive(Debug)]
pub(crate) struct Interleaved<K, T> {
    sources: Vec<Source<K, T>>,
    /// How long a stream that has just spoken is waited for; for ever, where nothing is said.
    patience: Option<Duration>,
}

#[derive(Debug)]
struct Source<K, T> {
    name: K,
    items: mpsc::Receiver<T>,
    head: Option<T>,
    pace: Pace,
    /// Since when its next word is waited for. Kept here because whoever waits may break off as often as they like.
    awaited_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// It spoke lately: its next word may belong before the others'.
    Lively,
    /// It has been silent.
    Quiet,
    /// It has ended; what it showed last may still be there.
    Over,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<K, T> {
    /// An item.
    Item(K, T),
    /// A stream has ended.
    End(K),
}

impl<K: Clone, T: Dated> Interleaved<K, T> {
    pub(crate) const fn new(patience: Option<Duration>) -> Self {
        Self { sources: Vec::new(), patience }
    }

    pub(crate) fn add(&mut self, name: K, items: mpsc::Receiver<T>) {
        self.sources.push(Source { name, items, head: None, pace: Pace::Lively, awaited_since: None });
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The next item, or the end of a stream; nothing where there is no stream. May be dropped at any time.
    pub(crate) async fn next(&mut self) -> Option<Next<K, T>> {
        loop {
            let over = |source: &Source<K, T>| source.head.is_none() && source.pace == Pace::Over;
            if let Some(at) = self.sources.iter().position(over) {
                return Some(Next::End(self.sources.remove(at).name));
            }
            if self.sources.iter().any(|source| source.waits(Pace::Lively)) {
                self.wait_for_the_lively().await;
                continue;
            }
            self.sources.iter_mut().for_each(Source::glance);
            let shown = self.sources.iter_mut().filter(|source| source.head.is_some());
            if let Some(first) = shown.min_by_key(|source| source.head.as_ref().map(Dated::at))
                && let Some(item) = first.head.take()
            {
                return Some(Next::Item(first.name.clone(), item));
            }
            if self.sources.is_empty() {
                return None;
            }
            poll_fn(|ctx| self.poll(ctx, Pace::Quiet)).await;
        }
    }

    async fn wait_for_the_lively(&mut self) {
        let Some(patience) = self.patience else {
            return poll_fn(|ctx| self.poll(ctx, Pace::Lively)).await;
        };
        let now = Instant::now();
        let awaited = self.sources.iter_mut().filter(|source| source.waits(Pace::Lively));
        let since = awaited.map(|source| *source.awaited_since.get_or_insert(now)).min().unwrap_or(now);
        let spoken = poll_fn(|ctx| self.poll(ctx, Pace::Lively));
        if tokio::time::timeout_at(since + patience, spoken).await.is_err() {
            for source in self.sources.iter_mut().filter(|source| source.awaited_since == Some(since)) {
                (source.pace, source.awaited_since) = (Pace::Quiet, None);
            }
        }
    }

    /// Ready once one of those that are waited for has spoken or ended.
    fn poll(&mut self, ctx: &mut Context<'_>, pace: Pace) -> Poll<()> {
        let mut ready = Poll::Pending;
        for source in self.sources.iter_mut().filter(|source| source.waits(pace)) {
            match source.items.poll_recv(ctx) {
                Poll::Ready(Some(item)) => {
                    source.show(item);
                    ready = Poll::Ready(());
                }
                Poll::Ready(None) => {
                    (source.pace, source.awaited_since, ready) = (Pace::Over, None, Poll::Ready(()));
                }
                Poll::Pending => {}
            }
        }
        ready
    }
}

impl<K, T> Source<K, T> {
    fn waits(&self, pace: Pace) -> bool {
        self.head.is_none() && self.pace == pace
    }

    /// Takes what is there already.
    fn glance(&mut self) {
        if self.waits(Pace::Quiet)
            && let Ok(item) = self.items.try_recv()
        {
            self.show(item);
        }
    }

    fn show(&mut self, item: T) {
        (self.head, self.pace, self.awaited_since) = (Some(item), Pace::Lively, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Dated for u64 {
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
    async fn what_is_there_comes_in_the_order_of_time() {
        let mut merged = Interleaved::new(None);
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
    async fn one_that_is_silent_holds_up_the_others_once() {
        let mut merged = Interleaved::new(Some(Duration::from_millis(50)));
        let (silent, nothing) = mpsc::channel(8);
        merged.add('s', nothing);
        merged.add('a', whole(&[5, 6, 7, 8]));
        let began = std::time::Instant::now();
        for at in 5..9 {
            assert_eq!(merged.next().await, Some(Next::Item('a', at)));
        }
        assert_eq!(merged.next().await, Some(Next::End('a')));
        assert!(began.elapsed() < Duration::from_secs(5), "it was waited for again and again");
        // What it says then is heard, however late.
        silent.send(1).await.unwrap();
        assert_eq!(merged.next().await, Some(Next::Item('s', 1)));
    }

    #[tokio::test]
    async fn one_that_is_silent_is_not_waited_for_anew_whenever_waiting_is_broken_off() {
        let patience = Duration::from_millis(200);
        let mut merged = Interleaved::new(Some(patience));
        let (_silent, nothing) = mpsc::channel::<u64>(8);
        merged.add('s', nothing);
        merged.add('a', whole(&[5]));
        // Two halves of the patience, and a third try that finds it at its end.
        for _ in 0..2 {
            if let Ok(next) = tokio::time::timeout(patience / 2, merged.next()).await {
                assert_eq!(next, Some(Next::Item('a', 5)));
                return;
            }
        }
        let next = tokio::time::timeout(patience / 2, merged.next()).await;
        assert_eq!(next, Ok(Some(Next::Item('a', 5))), "it is waited for without end");
    }

    #[tokio::test]
    async fn nothing_is_lost_when_waiting_is_broken_off() {
        let mut merged = Interleaved::new(None);
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
