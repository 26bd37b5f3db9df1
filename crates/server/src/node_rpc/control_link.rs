//! The control plane as an agent sees it: in the same process on a server, over the network elsewhere.
//!
//! Owns: delivering the work feed to the agent, status reports and heartbeats to the leader, and secrets to replicas
//! that may read them.
//! Invariant: a report is acknowledged only once it is committed; a heartbeat without a leader is dropped, because the
//! next one supersedes it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use longshore_agent::{ControlLink, FileContents, LinkError, RegistryLogin, ReportAck};
use longshore_api::Envelope;
use longshore_model::{
    ApiErrorCode, Cursor, Heartbeat, NodeName, Report, WorkFeed, agent_protocol::FileRequest, node::NodeFingerprint,
};
use longshore_network::NetworkFeed;
use longshore_store::replicated::{Filter, Replicated, WatchEvent};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

use crate::{
    control::work_feed::NodeFeed,
    lifecycle::{
        node_context::{LeaderLocation, NodeContext},
        node_removal::removal_of,
    },
    node_rpc::{
        CallError, Hello, HelloAnswer, ReportAnswer, ServerAddress, pack,
        service::{self, NodeRequestError},
        unframe, unpack,
    },
};

/// Delivers heartbeats to the leader's loop while this member leads.
#[derive(Debug, Default)]
pub(crate) struct HeartbeatBus {
    leader: Mutex<Option<mpsc::Sender<(NodeName, Heartbeat)>>>,
    /// Heartbeat interval in milliseconds; 0 until a leader has set it.
    interval_ms: AtomicU64,
}

/// Refusals that every server would repeat, besides the removal of the node itself.
const FINAL_CODES: [ApiErrorCode; 2] = [ApiErrorCode::NotFound, ApiErrorCode::Forbidden];

/// Heartbeats waiting for the leader's loop; dropping some only costs freshness.
const HEARTBEAT_BUFFER: usize = 4096;

impl HeartbeatBus {
    /// Subscribes the loop of a new leader; the previous one is disconnected.
    pub(crate) fn subscribe(&self) -> mpsc::Receiver<(NodeName, Heartbeat)> {
        let (sender, beats) = mpsc::channel(HEARTBEAT_BUFFER);
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        beats
    }

    /// Sets the heartbeat interval for nodes.
    pub(crate) fn set_interval(&self, every: Duration) {
        self.interval_ms.store(u64::try_from(every.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn interval_ms(&self) -> u64 {
        self.interval_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn publish(&self, node: &NodeName, heartbeat: Heartbeat) {
        let leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(leader) = leader {
            let _ = leader.try_send((node.clone(), heartbeat));
        }
    }
}

/// The link of one node's agent.
pub(crate) struct NodeLink {
    pub(crate) node: NodeName,
    pub(crate) ctx: Arc<NodeContext>,
    pub(crate) state: watch::Receiver<LinkState>,
}

/// Whether an agent can reach the control plane. Operators isolate a node on purpose to see what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// It can.
    Connected,
    /// It cannot, as if its cable were cut.
    Isolated,
}

fn heard_answer(beat_every_ms: u64, sample_every_ms: u64) -> ReportAck {
    let wanted = |millis: u64| (millis > 0).then(|| Duration::from_millis(millis));
    ReportAck { heartbeat_interval: wanted(beat_every_ms), sample_interval: wanted(sample_every_ms) }
}

/// The interval at which a node samples its load. A recent change of the setting may arrive later.
pub(crate) fn sample_every_ms(store: &Replicated) -> u64 {
    u64::try_from(store.read_local().state.config().node_status_interval.as_millis()).unwrap_or(u64::MAX)
}

/// Messages buffered for the agent.
const FEED_BUFFER: usize = 64;
/// Time for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A server that is silent for this long is no longer the only one asked. Shorter than a heartbeat's time limit.
const HEDGE_DELAY: Duration = Duration::from_millis(500);
/// A feed without a message for this long is dead: the other side sends three keepalives in that time. Shorter than
/// the grace of a silent node, so that work decided because of a lost server reaches the nodes that were fed by it.
const FEED_TIMEOUT: Duration = Duration::from_secs(6);

impl ControlLink for NodeLink {
    fn connect(&self, _known: Option<Cursor>) -> BoxFuture<'_, Result<mpsc::Receiver<WorkFeed>, LinkError>> {
        Box::pin(async {
            self.ensure_connected()?;
            let messages = if let Some(store) = self.ctx.store() {
                open_feed(store, self.node.clone()).await?
            } else {
                // The agent stops everything and connects again.
                let removed = |cursor| WorkFeed::Snapshot { cursor, work: Vec::new() };
                self.open_remote_feed("/peer/work", removed).await?
            };
            Ok(until_isolated(messages, self.state.clone()))
        })
    }

    fn report(&self, reports: Vec<Report>) -> BoxFuture<'_, Result<ReportAck, LinkError>> {
        Box::pin(async move {
            self.ensure_connected()?;
            let reports = self.with_conditions(reports);
            let message = pack(&reports).map_err(LinkError::Refused)?;
            // After a change of leader, the previous one names the new one, or it is searched for.
            for _ in 0..3 {
                match self.ctx.leader() {
                    LeaderLocation::Local(store) => {
                        let taken = service::accept_reports(&self.ctx, &store, &self.node, reports).await;
                        let answer = || heard_answer(self.ctx.heartbeats.interval_ms(), sample_every_ms(&store));
                        return taken.map(|()| answer()).map_err(|error| unavailable(&error));
                    }
                    LeaderLocation::Remote(server) => {
                        let reported: ReportAnswer = self.ask(&server, "/peer/report", message.clone()).await?;
                        match reported {
                            ReportAnswer::Accepted { beat_every_ms, sample_every_ms, servers } => {
                                self.ctx.save_servers(servers);
                                return Ok(heard_answer(beat_every_ms, sample_every_ms));
                            }
                            ReportAnswer::NotLeading(leader) => self.ctx.set_leader(leader),
                        }
                    }
                    LeaderLocation::Unknown => self.find_leader().await?,
                }
            }
            Err(LinkError::Unreachable("there is no leader".to_owned()))
        })
    }

    fn file(&self, wanted: FileRequest) -> BoxFuture<'_, Result<FileContents, LinkError>> {
        Box::pin(async move {
            match self.ctx.store() {
                Some(store) => {
                    let contents = service::file(&self.ctx, &store, &self.node, &wanted).await;
                    contents.map(FileContents).map_err(|error| match error {
                        // Without a quorum for a moment: the same answer a worker would get, and try again.
                        NodeRequestError::Propose(_)
                        | NodeRequestError::Read(_)
                        | NodeRequestError::NotBootstrapped => unavailable(&error),
                        NodeRequestError::Refused(_)
                        | NodeRequestError::Identity(_)
                        | NodeRequestError::Keyring(_)
                        | NodeRequestError::NotAssigned(_)
                        | NodeRequestError::NoContents(_)
                        | NodeRequestError::InvalidName
                        | NodeRequestError::AddressTaken { .. }
                        | NodeRequestError::AbsurdFingerprint(_) => LinkError::Refused(error.to_string()),
                    })
                }
                None => self.ask_any_server("/peer/file", &wanted).await.map(FileContents),
            }
        })
    }

    fn registry_login(&self, registry: String) -> BoxFuture<'_, Result<Option<RegistryLogin>, LinkError>> {
        Box::pin(async move {
            let login: Option<(String, String)> = match self.ctx.store() {
                Some(store) => service::registry_login(&self.ctx, &store, &self.node, &registry)
                    .await
                    .map_err(|error| unavailable(&error))?,
                None => self.ask_any_server("/peer/registry", &registry).await?,
            };
            Ok(login.map(|(username, password)| RegistryLogin { username, password }))
        })
    }
}

impl NodeLink {
    /// The link of the daemon's own node.
    pub(crate) fn of(ctx: &Arc<NodeContext>) -> Self {
        Self { node: ctx.node(), ctx: Arc::clone(ctx), state: watch::channel(LinkState::Connected).1 }
    }

    /// Heartbeats also carry what is wrong with the machine's published ports and overlay, which the agent does not know.
    fn with_conditions(&self, mut reports: Vec<Report>) -> Vec<Report> {
        for report in &mut reports {
            if let Report::Heartbeat(heartbeat) = report {
                heartbeat.conditions = self.ctx.conditions();
            }
        }
        reports
    }

    fn ensure_connected(&self) -> Result<(), LinkError> {
        match *self.state.borrow() {
            LinkState::Connected => Ok(()),
            LinkState::Isolated => Err(LinkError::Unreachable("the node is isolated".to_owned())),
        }
    }

    /// Reports the machine's fingerprint.
    pub(crate) async fn hello(&self, fingerprint: NodeFingerprint) -> Result<(), LinkError> {
        let address = self.ctx.record().address;
        let hello = Hello { fingerprint, address };
        let answer = match self.ctx.store() {
            Some(store) => {
                service::register(&self.ctx, &store, &self.node, hello).await.map_err(|error| unavailable(&error))?
            }
            None => self.ask_any_server("/peer/hello", &hello).await?,
        };
        let HelloAnswer { servers } = answer;
        self.ctx.save_servers(servers);
        Ok(())
    }

    /// The current servers, according to those that this node knows.
    pub(crate) async fn servers(&self) -> Result<Vec<ServerAddress>, LinkError> {
        let HelloAnswer { servers } = self.ask_any_server("/peer/servers", &()).await?;
        self.ctx.save_servers(servers.clone());
        Ok(servers)
    }

    /// The network state of this machine with these nodes, as a snapshot and then as changes.
    pub(crate) async fn network_feed(
        &self,
        nodes: BTreeSet<NodeName>,
    ) -> Result<mpsc::Receiver<NetworkFeed>, LinkError> {
        self.ensure_connected()?;
        if let Some(store) = self.ctx.store() {
            return open_network_feed(&self.ctx, &store, nodes).await;
        }
        let removed =
            |cursor| NetworkFeed::Snapshot { cursor, services: Vec::new(), nodes: Vec::new(), settings: None };
        self.open_remote_feed("/peer/network", removed).await
    }

    /// Opens a feed at the first server that answers. A node that was removed gets the one message of `removed`.
    async fn open_remote_feed<T: DeserializeOwned + Send + 'static>(
        &self,
        path: &str,
        removed: impl Fn(Cursor) -> T,
    ) -> Result<mpsc::Receiver<T>, LinkError> {
        let removed = &removed;
        self.first_answer(|server| async move {
            let opened = self.ctx.peers.stream(&server, path, Vec::new());
            match tokio::time::timeout(ANSWER_TIMEOUT, opened).await {
                Ok(Ok(body)) => {
                    let (sender, messages) = mpsc::channel(FEED_BUFFER);
                    tokio::spawn(read_messages(body, sender));
                    Ok(messages)
                }
                Ok(Err(CallError::Refused(envelope))) => {
                    let removed_at = self.ctx.removal.record_refusal(&self.node, &envelope);
                    let refused = || LinkError::Unreachable(format!("{}: {envelope}", server.name));
                    removed_at.map(|cursor| single_message(removed(cursor))).ok_or_else(refused)
                }
                Ok(Err(error)) => Err(LinkError::Unreachable(format!("{}: {error}", server.name))),
                Err(_) => Err(LinkError::Unreachable(format!("{}: it timed out", server.name))),
            }
        })
        .await
    }

    /// Asks all servers at once who leads: one that vanished without a word must not delay the others' answers, because
    /// the heartbeat that waits for them is given up after one interval.
    async fn find_leader(&self) -> Result<(), LinkError> {
        let nothing = pack(&Vec::<Report>::new()).map_err(LinkError::Refused)?;
        let ask = |server: ServerAddress| async {
            let answer = self.ask(&server, "/peer/report", nothing.clone()).await;
            (server, answer)
        };
        let mut answers: FuturesUnordered<_> = self.ctx.servers().into_iter().map(ask).collect();
        while let Some((server, answer)) = answers.next().await {
            match answer {
                Ok(ReportAnswer::Accepted { servers, .. }) => {
                    self.ctx.save_servers(servers);
                    self.ctx.set_leader(Some(server));
                }
                // It may name the one that vanished; then the next call finds out.
                Ok(ReportAnswer::NotLeading(Some(leader))) => self.ctx.set_leader(Some(leader)),
                Ok(ReportAnswer::NotLeading(None)) | Err(_) => continue,
            }
            return Ok(());
        }
        Err(LinkError::Unreachable("there is no leader".to_owned()))
    }

    async fn ask_any_server<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        question: &impl serde::Serialize,
    ) -> Result<T, LinkError> {
        let message = pack(question).map_err(LinkError::Refused)?;
        let (link, message) = (self, &message);
        self.first_answer(|server| async move { link.ask(&server, path, message.clone()).await }).await
    }

    /// The first answer of any server, or the first refusal that is final. Servers are asked in order, and the next one
    /// is asked as well once the ones before it have been silent for [`HEDGE_DELAY`].
    async fn first_answer<T, F>(&self, ask: impl Fn(ServerAddress) -> F) -> Result<T, LinkError>
    where
        F: Future<Output = Result<T, LinkError>>,
    {
        let mut last = LinkError::Unreachable("no server is known".to_owned());
        let mut servers = self.ctx.servers().into_iter();
        let mut asked = FuturesUnordered::new();
        loop {
            if asked.is_empty() {
                let Some(server) = servers.next() else { return Err(last) };
                asked.push(ask(server));
            }
            tokio::select! {
                Some(answer) = asked.next() => match answer {
                    Ok(answer) => return Ok(answer),
                    Err(LinkError::Refused(why)) => return Err(LinkError::Refused(why)),
                    Err(error) => last = error,
                },
                () = tokio::time::sleep(HEDGE_DELAY), if servers.len() > 0 => asked.extend(servers.next().map(&ask)),
            }
        }
    }

    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        server: &ServerAddress,
        path: &str,
        message: Vec<u8>,
    ) -> Result<T, LinkError> {
        let mut forget = ForgetUnlessAnswered { ctx: &self.ctx, server, answered: false };
        let asked = tokio::time::timeout(ANSWER_TIMEOUT, self.ctx.peers.post(server, path, message)).await;
        let away = |why: String| LinkError::Unreachable(format!("{}: {why}", server.name));
        match asked {
            Ok(Ok(answer)) => {
                forget.answered = true;
                unpack(&answer).map_err(LinkError::Refused)
            }
            Ok(Err(CallError::Refused(envelope))) => {
                self.ctx.removal.record_refusal(&self.node, &envelope);
                let told = envelope.to_string();
                if !is_final(&self.node, &envelope) {
                    return Err(away(told));
                }
                forget.answered = true;
                Err(LinkError::Refused(told))
            }
            Ok(Err(error)) => Err(away(error.to_string())),
            Err(_) => Err(away("it timed out".to_owned())),
        }
    }
}

/// Forgets that a server leads unless its answer arrived. A caller gives a heartbeat up by dropping it, and a call to a
/// server that vanished without a word never ends by itself, so only the drop can tell.
struct ForgetUnlessAnswered<'a> {
    ctx: &'a NodeContext,
    server: &'a ServerAddress,
    answered: bool,
}

impl Drop for ForgetUnlessAnswered<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.ctx.forget_leader(self.server);
        }
    }
}

/// Whether every server would repeat the refusal. A removed server refuses everybody with its own removal, which says
/// nothing about the node that asked.
fn is_final(node: &NodeName, refusal: &Envelope) -> bool {
    FINAL_CODES.iter().any(|code| code.code() == refusal.code) || removal_of(node, refusal).is_some()
}

/// A feed of one message.
fn single_message<T>(message: T) -> mpsc::Receiver<T> {
    let (sender, messages) = mpsc::channel(1);
    // The channel has room for one message.
    let _ = sender.try_send(message);
    messages
}

/// The same messages, until the node is isolated.
fn until_isolated(
    mut from: mpsc::Receiver<WorkFeed>,
    mut state: watch::Receiver<LinkState>,
) -> mpsc::Receiver<WorkFeed> {
    let (sender, messages) = mpsc::channel(FEED_BUFFER);
    tokio::spawn(async move {
        loop {
            let cut = async {
                // Without a sender the link stays connected.
                if state.wait_for(|state| *state == LinkState::Isolated).await.is_err() {
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

fn unavailable(error: &NodeRequestError) -> LinkError {
    LinkError::Unreachable(error.to_string())
}

/// How a stream of messages ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// It was received completely, or the receiver was dropped.
    Complete,
    /// It broke off, timed out, or held an invalid message.
    Broken,
}

/// Reads messages from the network until they end or time out.
pub(crate) async fn read_messages<T: DeserializeOwned>(mut body: Incoming, to: mpsc::Sender<T>) -> StreamEnd {
    let mut arrived = Vec::new();
    loop {
        let frame = tokio::select! {
            frame = tokio::time::timeout(FEED_TIMEOUT, body.frame()) => frame,
            () = to.closed() => return StreamEnd::Complete,
        };
        let data = match frame {
            Ok(Some(Ok(frame))) => frame.into_data(),
            Ok(None) => return StreamEnd::Complete,
            Ok(Some(Err(_))) | Err(_) => return StreamEnd::Broken,
        };
        arrived.extend_from_slice(&data.unwrap_or_default());
        loop {
            match unframe::<Option<T>>(&mut arrived) {
                // A keepalive.
                Ok(Some(None)) => {}
                Ok(Some(Some(message))) => {
                    if to.send(message).await.is_err() {
                        return StreamEnd::Complete;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(error, "a message of another node cannot be parsed");
                    return StreamEnd::Broken;
                }
            }
        }
    }
}

/// The work feed of a node, from the store of this process.
pub(crate) async fn open_feed(store: Replicated, node: NodeName) -> Result<mpsc::Receiver<WorkFeed>, LinkError> {
    let reading = store.read().await.map_err(|error| LinkError::Unreachable(error.to_string()))?;
    let (sender, messages) = mpsc::channel(FEED_BUFFER);
    let (feed, snapshot) = NodeFeed::open(node, &reading.state);
    let after = reading.state.index();
    tokio::spawn(send_feed(store, feed, snapshot, after, sender));
    Ok(messages)
}

/// Sends the snapshot, then every change, until the agent or the store is gone or the feed has to be reopened.
async fn send_feed(
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
        let event = tokio::select! {
            event = watcher.next() => event,
            () = agent.closed() => return,
        };
        match event {
            WatchEvent::Changes { through, changes } => {
                let state = store.read_local().state;
                let message = feed.next_changes(&state, through, &changes);
                if let Some(message) = message
                    && agent.send(message).await.is_err()
                {
                    return;
                }
            }
            // The agent connects again and gets a snapshot.
            WatchEvent::Resync | WatchEvent::Closed => return,
        }
    }
}

/// The network state of a machine with these nodes, from the store of this process.
pub(crate) async fn open_network_feed(
    ctx: &NodeContext,
    store: &Replicated,
    nodes: BTreeSet<NodeName>,
) -> Result<mpsc::Receiver<NetworkFeed>, LinkError> {
    let reading = store.read().await.map_err(|error| LinkError::Unreachable(error.to_string()))?;
    Ok(ctx.network_feeds.open(store, &ctx.record().cluster, reading.state.index(), nodes).await)
}
