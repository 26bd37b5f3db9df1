//! Asks the engines of nodes what they have, when a manifest is applied.
//!
//! ```text
//! apply ──▶ server ── agents of this process
//!             └────── /peer/engine ──▶ other nodes ── their agents
//! ```
//!
//! Owns: which nodes are asked, and for how long. Must not touch: what follows from the answers.
//! Invariant: a node that does not answer in time is named as silent; logins for registries never leave this process.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use longshore_agent::{EngineAnswer, EngineQuery, RegistryLogin};
use longshore_model::{Driver, Health, NodeName};
use longshore_store::State;
use serde::{Deserialize, Serialize};

use crate::{
    lifecycle::node_context::NodeContext,
    node_rpc::{ServerAddress, control_link::LinkState, pack, unpack},
};

/// Time a node has to answer, with a registry in between. An apply waits for it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Most other nodes that are asked: an image that none of these has is looked for at its registry.
const MAX_OTHERS: usize = 32;

/// A question to the engine of one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeerEngineQuery {
    pub(crate) node: NodeName,
    pub(crate) query: EngineQuery,
}

/// The answers of the engines that answered.
#[derive(Debug, Default)]
pub(crate) struct EngineAnswers {
    /// The engine of this machine, by the first of its nodes.
    pub(crate) own: Option<(NodeName, EngineAnswer)>,
    /// Other nodes, by name.
    pub(crate) others: BTreeMap<NodeName, EngineAnswer>,
    /// Nodes with an engine that were not asked or did not answer, so that nothing is known of what they have.
    pub(crate) silent: Vec<NodeName>,
}

impl EngineAnswers {
    /// All answers, that of this machine first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&NodeName, &EngineAnswer)> {
        self.own.iter().map(|(node, answer)| (node, answer)).chain(&self.others)
    }
}

/// Asks the engine of this machine and those of the other nodes.
pub(crate) async fn ask(ctx: &NodeContext, state: &State, query: &EngineQuery) -> EngineAnswers {
    // An image is as good from any node; a volume is on one of them, and missing it would shadow its data.
    let most = if query.compose_project.is_some() { usize::MAX } else { MAX_OTHERS };
    let others: Vec<ServerAddress> = other_engines(ctx, state).take(most).collect();
    let asked = join_all(others.iter().map(|server| ask_other(ctx, server, query)));
    let no_logins = BTreeMap::new();
    let (own, answers) = tokio::join!(ask_own(ctx, query, &no_logins), asked);
    let named = others.into_iter().map(|server| server.name).zip(answers);
    let others: BTreeMap<NodeName, EngineAnswer> = named.filter_map(|(node, answer)| Some((node, answer?))).collect();
    let silent = engines(ctx, state).filter(|node| !others.contains_key(*node)).cloned().collect();
    EngineAnswers { own, others, silent }
}

/// Asks registries through the engine of this machine, else through that of another node, which has no logins then.
pub(crate) async fn ask_registries(
    ctx: &NodeContext,
    state: &State,
    query: &EngineQuery,
    logins: &BTreeMap<String, RegistryLogin>,
) -> EngineAnswer {
    if let Some((_, answer)) =
        ask_own(ctx, query, logins).await.filter(|(_, answer)| *answer != EngineAnswer::default())
    {
        return answer;
    }
    match other_engines(ctx, state).next() {
        Some(server) => ask_other(ctx, &server, query).await.unwrap_or_default(),
        None => EngineAnswer::default(),
    }
}

/// Whether other machines have engines, too.
pub(crate) fn has_other_engines(ctx: &NodeContext, state: &State) -> bool {
    other_engines(ctx, state).next().is_some()
}

/// Nodes of other machines that offer Docker, reachable or not.
fn engines<'a>(ctx: &'a NodeContext, state: &'a State) -> impl Iterator<Item = &'a NodeName> {
    let offers = state.nodes().filter(|node| node.drivers.contains(&Driver::Docker));
    offers.map(|node| &node.name).filter(|node| ctx.agents.of(node).is_none())
}

/// Nodes of other machines that are ready and offer Docker.
fn other_engines<'a>(ctx: &'a NodeContext, state: &'a State) -> impl Iterator<Item = ServerAddress> + 'a {
    let offers = state.nodes().filter(|node| node.health == Health::Ready && node.drivers.contains(&Driver::Docker));
    offers.filter(|node| ctx.agents.of(&node.name).is_none()).filter_map(|node| {
        let membership = state.access().membership(&node.name)?;
        Some(ServerAddress { name: node.name.clone(), address: membership.address.clone() })
    })
}

/// The first node of this process whose engine answers; they share one engine.
async fn ask_own(
    ctx: &NodeContext,
    query: &EngineQuery,
    logins: &BTreeMap<String, RegistryLogin>,
) -> Option<(NodeName, EngineAnswer)> {
    for (node, agent) in ctx.agents.connected() {
        match tokio::time::timeout(ANSWER_TIMEOUT, agent.query_engine(query, logins)).await {
            Ok(Ok(answer)) => return Some((node, answer)),
            Ok(Err(error)) => tracing::debug!(%node, %error, "the engine was not asked"),
            Err(_) => return None,
        }
    }
    None
}

async fn ask_other(ctx: &NodeContext, server: &ServerAddress, query: &EngineQuery) -> Option<EngineAnswer> {
    let question = pack(&PeerEngineQuery { node: server.name.clone(), query: query.clone() }).ok()?;
    let asked = ctx.peers.post(server, "/peer/engine", question);
    match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
        Ok(Ok(answer)) => unpack(&answer).ok(),
        // An older node does not know the question.
        Ok(Err(error)) => {
            tracing::debug!(node = %server.name, %error, "the engine of a node was not asked");
            None
        }
        Err(_) => None,
    }
}

/// The answer of an engine of this process, for another server; `None` if the node is not one of this process.
pub(crate) async fn answer(ctx: &NodeContext, asked: &PeerEngineQuery) -> Option<EngineAnswer> {
    let (agent, state) = ctx.agents.of(&asked.node)?;
    if state != LinkState::Connected {
        return None;
    }
    agent.query_engine(&asked.query, &BTreeMap::new()).await.ok()
}
