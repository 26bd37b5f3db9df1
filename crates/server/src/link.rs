//! The control plane, as the agent of the same process sees it.
//!
//! Owns: carrying the feed to the agent, sightings to the store and heartbeats to whoever leads.
//! Invariant: a report counts as arrived only once it is decided; a heartbeat that nobody leads for is dropped, as the
//! next one says it all.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use longshore_agent::{ControlLink, FileContents, LinkError, RegistryLogin};
use longshore_model::{Actor, Command, Cursor, Heartbeat, NodeName, Report, Sighting, WorkFeed, work::FileWanted};
use longshore_store::replicated::{Filter, Outcome, Proposal, Replicated, Watched};
use tokio::sync::mpsc;

use crate::{clock, feed::NodeFeed};

/// Where heartbeats go while this member leads.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    leader: Mutex<Option<mpsc::Sender<(NodeName, Heartbeat)>>>,
}

/// Beats waiting to be heard; a leader too busy to hear more has missed nothing but freshness.
const BEATS: usize = 4096;

impl Pulse {
    /// A new leader listens; the one before no longer does.
    pub(crate) fn listen(&self) -> mpsc::Receiver<(NodeName, Heartbeat)> {
        let (sender, beats) = mpsc::channel(BEATS);
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        beats
    }

    fn beat(&self, node: &NodeName, beat: Heartbeat) {
        let leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(leader) = leader {
            let _ = leader.try_send((node.clone(), beat));
        }
    }
}

/// The link of this node's agent.
pub(crate) struct LocalLink {
    pub(crate) node: NodeName,
    pub(crate) store: Replicated,
    pub(crate) pulse: Arc<Pulse>,
}

/// Messages under way to the agent.
const MESSAGES: usize = 64;

impl ControlLink for LocalLink {
    fn connect(&self, _known: Option<Cursor>) -> BoxFuture<'_, Result<mpsc::Receiver<WorkFeed>, LinkError>> {
        Box::pin(async {
            let reading = self.store.read().await.map_err(|error| LinkError::Away(error.to_string()))?;
            let (sender, messages) = mpsc::channel(MESSAGES);
            let (feed, snapshot) = NodeFeed::open(self.node.clone(), &reading.state);
            let after = reading.state.index();
            tokio::spawn(carry(self.store.clone(), feed, snapshot, after, sender));
            Ok(messages)
        })
    }

    fn report(&self, reports: Vec<Report>) -> BoxFuture<'_, Result<(), LinkError>> {
        Box::pin(async move {
            let mut seen = Vec::new();
            for report in reports {
                match report {
                    Report::Seen(sighting) => seen.push(sighting),
                    Report::Beat(beat) => self.pulse.beat(&self.node, beat),
                }
            }
            self.observe(seen).await
        })
    }

    fn file(&self, wanted: FileWanted) -> BoxFuture<'_, Result<FileContents, LinkError>> {
        let refusal = LinkError::Refused(format!("the contents of `{}` are not kept by this daemon", wanted.name));
        Box::pin(async { Err(refusal) })
    }

    fn registry_login(&self, _registry: String) -> BoxFuture<'_, Result<Option<RegistryLogin>, LinkError>> {
        Box::pin(async { Ok(None) })
    }
}

impl LocalLink {
    async fn observe(&self, seen: Vec<Sighting>) -> Result<(), LinkError> {
        let at = clock::now();
        let proposals = seen.into_iter().map(|sighting| Proposal {
            command: Command::Observe(sighting.stamped(at)),
            key: None,
            actor: Actor::Node(self.node.clone()),
            at,
        });
        for answer in self.store.propose_all(proposals.collect()).await {
            let applied = answer.map_err(|error| LinkError::Away(error.to_string()))?;
            match applied.outcome {
                Outcome::Changed | Outcome::Unchanged => {}
                // It is about something that is gone by now; saying it again would not help.
                Outcome::Refused(error) => tracing::debug!(code = error.code(), "sighting refused"),
                Outcome::KeyReused => tracing::debug!("sighting refused"),
            }
        }
        Ok(())
    }
}

/// Sends the snapshot, then every change, until the agent or the store is gone, or the feed has to start over.
async fn carry(
    store: Replicated,
    mut feed: NodeFeed,
    snapshot: WorkFeed,
    after: longshore_model::StateIndex,
    agent: mpsc::Sender<WorkFeed>,
) {
    if agent.send(snapshot).await.is_err() {
        return;
    }
    let mut watcher = store.watch(after, Filter::All);
    loop {
        let heard = tokio::select! {
            heard = watcher.next() => heard,
            () = agent.closed() => return,
        };
        match heard {
            Watched::Changes { through, changes } => {
                let state = store.read_local().state;
                let news = feed.news(&state, through, &changes);
                if let Some(news) = news
                    && agent.send(news).await.is_err()
                {
                    return;
                }
            }
            // The agent connects again and gets a snapshot.
            Watched::Resync | Watched::Closed => return,
        }
    }
}
