//! The status of the control plane: who is there, how far each server is, and how many losses the quorum survives.
//!
//! Owns: the question to every server, and its time limit. Must not touch: membership.
//! Invariant: it answers without a quorum, too, from this server's own state: that is when it is needed most.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{Json, extract::State};
use futures_util::future::join_all;
use longshore_api::{ClusterStatus, MemberRow};
use longshore_model::{
    Health, NodeName,
    access::{NodeMembership, NodeRole},
};
use longshore_store::{
    State as ClusterState,
    replicated::{LeadershipRole, Replicated},
};

use crate::{
    api::{ApiResult, ApiState},
    node_rpc::{CallError, ServerAddress, ServerProgress, unpack},
};

/// Time a server has to answer; one that needs longer does not help a quorum either.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What this server answers to another one.
pub(crate) fn own_progress(api: &ApiState) -> ServerProgress {
    let applied_entry = api.ctx.store().map_or(0, |store| store.status().applied_entry);
    ServerProgress { version: env!("CARGO_PKG_VERSION").to_owned(), applied_entry }
}

pub(crate) async fn cluster(State(api): State<Arc<ApiState>>) -> ApiResult<ClusterStatus> {
    let store = api.store()?;
    let read = store.read().await;
    let has_quorum = read.is_ok();
    let state = read.map_or_else(|_| store.read_local().state, |read| read.state);
    let seen = ask_all(&api, &state).await;
    let status = store.status();
    let last_entry = seen.values().flatten().map(|seen| seen.applied_entry).max().unwrap_or(status.last_entry);
    let rows = state.access().memberships();
    let mut members: Vec<MemberRow> =
        rows.map(|(node, membership)| member_row(&store, node, membership, seen.get(node))).collect();
    for row in members.iter_mut().filter(|row| !seen.contains_key(&NodeName::from(row.node.as_str()))) {
        // Workers are not asked: their heartbeats tell.
        row.reachable = state.node(&NodeName::from(row.node.as_str())).is_some_and(|node| is_heard(node.health));
    }
    for row in members.iter_mut().filter(|row| row.keeps_log) {
        row.lag = row.lag.map(|applied| last_entry.saturating_sub(applied));
    }
    let voters = count(&members, |row| row.votes);
    let reachable_voters = count(&members, |row| row.votes && row.reachable);
    Ok(Json(ClusterStatus {
        cluster: api.ctx.record().cluster,
        this_node: api.ctx.node().to_string(),
        leading_here: store.leadership().borrow().role == LeadershipRole::Leading,
        term: status.term,
        index: state.index().0,
        log_entry: status.last_entry,
        members,
        has_quorum,
        voters,
        reachable_voters,
        namespaces_without_policy: state.access().namespaces_without_policy().map(|name| name.to_string()).collect(),
        survives_losses: reachable_voters.saturating_sub(voters / 2 + 1),
    }))
}

fn count(members: &[MemberRow], of: impl Fn(&MemberRow) -> bool) -> u32 {
    u32::try_from(members.iter().filter(|row| of(row)).count()).unwrap_or(u32::MAX)
}

const fn is_heard(health: Health) -> bool {
    match health {
        Health::Ready | Health::Degraded => true,
        Health::Suspect | Health::Down => false,
    }
}

/// The answer of every server, by node; `None` for one that does not answer.
async fn ask_all(api: &ApiState, state: &ClusterState) -> BTreeMap<NodeName, Option<ServerProgress>> {
    let servers = state.access().memberships().filter(|(_, membership)| membership.role == NodeRole::Server);
    let asked = servers.map(|(node, membership)| async move {
        if *node == api.ctx.node() {
            return (node.clone(), Some(own_progress(api)));
        }
        let server = ServerAddress { name: node.clone(), address: membership.address.clone() };
        (node.clone(), ask(api, &server).await)
    });
    join_all(asked).await.into_iter().collect()
}

async fn ask(api: &ApiState, server: &ServerAddress) -> Option<ServerProgress> {
    let asked = tokio::time::timeout(TIMEOUT, api.ctx.peers.post(server, "/peer/progress", Vec::new())).await;
    match asked.ok()? {
        Ok(answer) => Some(unpack(&answer).unwrap_or_default()),
        // A server of an older version does not know the question.
        Err(CallError::Refused(_)) => Some(ServerProgress::default()),
        Err(CallError::NoAnswer { .. }) => None,
    }
}

/// A row; `lag` holds the applied entry until the newest one is known.
fn member_row(
    store: &Replicated,
    node: &NodeName,
    membership: &NodeMembership,
    seen: Option<&Option<ServerProgress>>,
) -> MemberRow {
    let (members, leadership) = (store.members(), store.leadership().borrow().clone());
    let progress = seen.and_then(Option::as_ref);
    let known = progress.filter(|progress| !progress.version.is_empty());
    MemberRow {
        node: node.to_string(),
        member: membership.member.0,
        address: membership.address.clone(),
        role: membership.role.into(),
        part: membership.role.into(),
        keeps_log: members.members.contains_key(&membership.member),
        votes: members.voters.contains(&membership.member),
        leads: leadership.leader.as_ref().is_some_and(|leader| leader.id == membership.member),
        reachable: progress.is_some(),
        lag: known.map(|progress| progress.applied_entry).filter(|applied| *applied > 0),
        version: known.map(|progress| progress.version.clone()),
    }
}
