//! The control plane, as the agent of a node sees it: in the same process where the node keeps the log, over the network
//! where it does not.
//!
//! Owns: carrying the feed to the agent, sightings and heartbeats to whoever leads, and files to those who may read them.
//! Invariant: a report counts as arrived only once it is decided; a heartbeat that nobody leads for is dropped, as the
//! next one says it all.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use longshore_agent::{ControlLink, FileContents, Heard, LinkError, RegistryLogin};
use longshore_model::{Cursor, Heartbeat, NodeName, Report, RequestCode, WorkFeed, node::Survey, work::FileWanted};
use longshore_store::replicated::{Filter, Replicated, Watched};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

use crate::{
    feed::NodeFeed,
    hub::{Hub, Leader},
    peer::{CallError, Hello, Reported, Server, Welcome, pack, unframe, unpack},
    reception::{self, ReceptionError},
};

/// Where heartbeats go while this member leads.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    leader: Mutex<Option<mpsc::Sender<(NodeName, Heartbeat)>>>,
    /// Time between two beats of a node, in milliseconds; 0 before a leader has looked how many there are.
    rhythm_ms: AtomicU64,
}

/// Refusals that no other server would take back.
const FINAL: [RequestCode; 4] =
    [RequestCode::NotFound, RequestCode::Forbidden, RequestCode::NodeRemoved, RequestCode::CertificateVoid];

/// Beats waiting to be heard; a leader too busy to hear more has missed nothing but freshness.
const BEATS: usize = 4096;

impl Pulse {
    /// A new leader listens; the one before no longer does.
    pub(crate) fn listen(&self) -> mpsc::Receiver<(NodeName, Heartbeat)> {
        let (sender, beats) = mpsc::channel(BEATS);
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        beats
    }

    /// How often nodes shall beat from now on.
    pub(crate) fn set_rhythm(&self, every: Duration) {
        self.rhythm_ms.store(u64::try_from(every.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn rhythm_ms(&self) -> u64 {
        self.rhythm_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn beat(&self, node: &NodeName, beat: Heartbeat) {
        let leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(leader) = leader {
            let _ = leader.try_send((node.clone(), beat));
        }
    }
}

/// The link of a node's agent.
pub(crate) struct Link {
    pub(crate) node: NodeName,
    pub(crate) hub: Arc<Hub>,
    pub(crate) reach: watch::Receiver<Reach>,
}

/// Whether an agent and the control plane hear each other. Only somebody who wants to see what happens cuts them off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// They do.
    Whole,
    /// They do not, as if a cable were torn.
    Cut,
}

fn heard(beat_every_ms: u64, sample_every_ms: u64) -> Heard {
    let wanted = |millis: u64| (millis > 0).then(|| Duration::from_millis(millis));
    Heard { beat_every: wanted(beat_every_ms), sample_every: wanted(sample_every_ms) }
}

/// How often a node shall be sampled. What was set a moment ago may be known a moment later.
pub(crate) fn sample_every_ms(store: &Replicated) -> u64 {
    u64::try_from(store.read_local().state.config().node_status_interval.as_millis()).unwrap_or(u64::MAX)
}

/// Messages under way to the agent.
const MESSAGES: usize = 64;
/// Time an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A feed that says nothing for so long is dead: the other side says something every few seconds.
const SILENCE: Duration = Duration::from_secs(15);

impl ControlLink for Link {
    fn connect(&self, _known: Option<Cursor>) -> BoxFuture<'_, Result<mpsc::Receiver<WorkFeed>, LinkError>> {
        Box::pin(async {
            self.is_whole()?;
            let messages = match self.hub.store() {
                Some(store) => follow(store, self.node.clone()).await?,
                None => self.follow_from_afar().await?,
            };
            Ok(until_cut(messages, self.reach.clone()))
        })
    }

    fn report(&self, reports: Vec<Report>) -> BoxFuture<'_, Result<Heard, LinkError>> {
        Box::pin(async move {
            self.is_whole()?;
            let message = pack(&reports).map_err(LinkError::Refused)?;
            // A leader that has just changed is told by the one before, or found by asking around.
            for _ in 0..3 {
                match self.hub.leader() {
                    Leader::Here(store) => {
                        let taken = reception::take_reports(&self.hub, &store, &self.node, reports).await;
                        let heard = || heard(self.hub.pulse.rhythm_ms(), sample_every_ms(&store));
                        return taken.map(|()| heard()).map_err(|error| away(&error));
                    }
                    Leader::There(server) => {
                        let reported: Reported = self.ask(&server, "/peer/report", message.clone()).await?;
                        match reported {
                            Reported::Taken { beat_every_ms, sample_every_ms } => {
                                return Ok(heard(beat_every_ms, sample_every_ms));
                            }
                            Reported::NotLeading(leader) => self.hub.found_leading(leader),
                        }
                    }
                    Leader::Unknown => self.look_for_leader().await?,
                }
            }
            Err(LinkError::Away("nobody leads".to_owned()))
        })
    }

    fn file(&self, wanted: FileWanted) -> BoxFuture<'_, Result<FileContents, LinkError>> {
        Box::pin(async move {
            match self.hub.store() {
                Some(store) => {
                    let contents = reception::file(&self.hub, &store, &self.node, &wanted).await;
                    contents.map(FileContents).map_err(|error| LinkError::Refused(error.to_string()))
                }
                None => self.ask_anybody("/peer/file", &wanted).await.map(FileContents),
            }
        })
    }

    fn registry_login(&self, registry: String) -> BoxFuture<'_, Result<Option<RegistryLogin>, LinkError>> {
        Box::pin(async move {
            let login: Option<(String, String)> = match self.hub.store() {
                Some(store) => reception::registry_login(&self.hub, &store, &self.node, &registry)
                    .await
                    .map_err(|error| away(&error))?,
                None => self.ask_anybody("/peer/registry", &registry).await?,
            };
            Ok(login.map(|(username, password)| RegistryLogin { username, password }))
        })
    }
}

impl Link {
    /// The link of the node this daemon is.
    pub(crate) fn of(hub: &Arc<Hub>) -> Self {
        Self { node: hub.node(), hub: Arc::clone(hub), reach: watch::channel(Reach::Whole).1 }
    }

    fn is_whole(&self) -> Result<(), LinkError> {
        match *self.reach.borrow() {
            Reach::Whole => Ok(()),
            Reach::Cut => Err(LinkError::Away("the node is cut off".to_owned())),
        }
    }

    /// Says what this machine has.
    pub(crate) async fn hello(&self, survey: Survey) -> Result<(), LinkError> {
        let address = self.hub.place().address;
        let hello = Hello { survey, address };
        let welcome = match self.hub.store() {
            Some(store) => {
                reception::welcome(&self.hub, &store, &self.node, hello).await.map_err(|error| away(&error))?
            }
            None => self.ask_anybody("/peer/hello", &hello).await?,
        };
        let Welcome { servers } = welcome;
        self.hub.learn(servers);
        Ok(())
    }

    /// Those who keep the log, as those say whom this node has trusted so far.
    pub(crate) async fn servers(&self) -> Result<Vec<Server>, LinkError> {
        let Welcome { servers } = self.ask_anybody("/peer/servers", &()).await?;
        self.hub.learn(servers.clone());
        Ok(servers)
    }

    async fn follow_from_afar(&self) -> Result<mpsc::Receiver<WorkFeed>, LinkError> {
        let mut last = LinkError::Away("no server is known".to_owned());
        for server in self.hub.servers() {
            match tokio::time::timeout(PATIENCE, self.hub.calls.stream(&server, "/peer/work", Vec::new())).await {
                Ok(Ok(body)) => {
                    let (sender, messages) = mpsc::channel(MESSAGES);
                    tokio::spawn(hear(body, sender));
                    return Ok(messages);
                }
                Ok(Err(CallError::Refused(envelope))) => {
                    if let Some(cursor) = self.hub.expulsion.hear(&envelope) {
                        return Ok(nothing_more(cursor));
                    }
                    last = LinkError::Away(format!("{}: {envelope}", server.name));
                }
                Ok(Err(error)) => last = LinkError::Away(format!("{}: {error}", server.name)),
                Err(_) => last = LinkError::Away(format!("{}: it takes too long", server.name)),
            }
        }
        Err(last)
    }

    async fn look_for_leader(&self) -> Result<(), LinkError> {
        let nothing = pack(&Vec::<Report>::new()).map_err(LinkError::Refused)?;
        for server in self.hub.servers() {
            match self.ask(&server, "/peer/report", nothing.clone()).await {
                Ok(Reported::Taken { beat_every_ms: _, sample_every_ms: _ }) => self.hub.found_leading(Some(server)),
                Ok(Reported::NotLeading(Some(leader))) => self.hub.found_leading(Some(leader)),
                Ok(Reported::NotLeading(None)) | Err(_) => continue,
            }
            return Ok(());
        }
        Err(LinkError::Away("nobody leads".to_owned()))
    }

    async fn ask_anybody<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        question: &impl serde::Serialize,
    ) -> Result<T, LinkError> {
        let message = pack(question).map_err(LinkError::Refused)?;
        let mut last = LinkError::Away("no server is known".to_owned());
        for server in self.hub.servers() {
            match self.ask(&server, path, message.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(LinkError::Refused(why)) => return Err(LinkError::Refused(why)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        server: &Server,
        path: &str,
        message: Vec<u8>,
    ) -> Result<T, LinkError> {
        let asked = tokio::time::timeout(PATIENCE, self.hub.calls.post(server, path, message)).await;
        let away = |why: String| {
            // Whoever does not answer does not lead, as far as anybody here can tell.
            self.hub.found_leading(None);
            LinkError::Away(format!("{}: {why}", server.name))
        };
        match asked {
            Ok(Ok(answer)) => unpack(&answer).map_err(LinkError::Refused),
            Ok(Err(CallError::Refused(envelope))) => {
                self.hub.expulsion.hear(&envelope);
                let is_final = FINAL.iter().any(|code| code.code() == envelope.code);
                let told = envelope.to_string();
                Err(if is_final { LinkError::Refused(told) } else { away(told) })
            }
            Ok(Err(error)) => Err(away(error.to_string())),
            Err(_) => Err(away("it takes too long".to_owned())),
        }
    }
}

/// The last word to a node that was removed: nothing is wanted there. The agent ends what it runs, and connects again.
fn nothing_more(cursor: Cursor) -> mpsc::Receiver<WorkFeed> {
    let (sender, messages) = mpsc::channel(1);
    // There is room for one.
    let _ = sender.try_send(WorkFeed::Snapshot { cursor, work: Vec::new() });
    messages
}

/// The same messages, until the link is cut.
fn until_cut(mut from: mpsc::Receiver<WorkFeed>, mut reach: watch::Receiver<Reach>) -> mpsc::Receiver<WorkFeed> {
    let (sender, messages) = mpsc::channel(MESSAGES);
    tokio::spawn(async move {
        loop {
            let cut = async {
                // Whoever could cut it may be gone; then it stays whole.
                if reach.wait_for(|reach| *reach == Reach::Cut).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let message = tokio::select! {
                message = from.recv() => message,
                () = sender.closed() => return,
                () = cut => return,
            };
            let Some(message) = message else { return };
            if sender.send(message).await.is_err() {
                return;
            }
        }
    });
    messages
}

fn away(error: &ReceptionError) -> LinkError {
    LinkError::Away(error.to_string())
}

/// How a stream of messages came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// All of it was heard, or nobody wants to hear more.
    Whole,
    /// It broke off, fell silent, or was not understood.
    Broken,
}

/// Reads messages that come over the network, until they end or nothing comes any more.
pub(crate) async fn hear<T: DeserializeOwned>(mut body: Incoming, to: mpsc::Sender<T>) -> Finish {
    let mut arrived = Vec::new();
    loop {
        let frame = tokio::select! {
            frame = tokio::time::timeout(SILENCE, body.frame()) => frame,
            () = to.closed() => return Finish::Whole,
        };
        let data = match frame {
            Ok(Some(Ok(frame))) => frame.into_data(),
            Ok(None) => return Finish::Whole,
            Ok(Some(Err(_))) | Err(_) => return Finish::Broken,
        };
        arrived.extend_from_slice(&data.unwrap_or_default());
        loop {
            match unframe::<Option<T>>(&mut arrived) {
                // A sign of life.
                Ok(Some(None)) => {}
                Ok(Some(Some(message))) => {
                    if to.send(message).await.is_err() {
                        return Finish::Whole;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(error, "what another node says is not understood");
                    return Finish::Broken;
                }
            }
        }
    }
}

/// The feed of a node, from the store of this process.
pub(crate) async fn follow(store: Replicated, node: NodeName) -> Result<mpsc::Receiver<WorkFeed>, LinkError> {
    let reading = store.read().await.map_err(|error| LinkError::Away(error.to_string()))?;
    let (sender, messages) = mpsc::channel(MESSAGES);
    let (feed, snapshot) = NodeFeed::open(node, &reading.state);
    let after = reading.state.index();
    tokio::spawn(carry(store, feed, snapshot, after, sender));
    Ok(messages)
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
