//! Deletes the data of a volume on the node that has it.
//!
//! Owns: reaching that node. Must not touch: whether the volume may be deleted.
//! Invariant: without an answer nothing is assumed: the data may be there or not, and the request can be repeated.

use std::time::Duration;

use longshore_agent::VolumeRemoval;
use longshore_model::NodeName;
use longshore_store::State;
use serde::{Deserialize, Serialize};

use crate::{
    lifecycle::node_context::NodeContext,
    node_rpc::{ServerAddress, control_link::LinkState, pack, unpack},
};

/// Time a node has; an engine deletes a large volume file by file.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);

/// A request to delete a volume of one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeerVolumeRemoval {
    pub(crate) node: NodeName,
    /// Its name in the engine.
    pub(crate) volume: String,
}

/// Deletes a volume of a node, wherever the node is. The error says why nothing is known.
pub(crate) async fn remove(
    ctx: &NodeContext,
    state: &State,
    request: &PeerVolumeRemoval,
) -> Result<VolumeRemoval, String> {
    if ctx.agents.of(&request.node).is_some() {
        return remove_here(ctx, request).await;
    }
    let away = || format!("node `{}` has no address", request.node);
    let membership = state.access().membership(&request.node).ok_or_else(away)?;
    let server = ServerAddress { name: request.node.clone(), address: membership.address.clone() };
    let message = pack(request)?;
    let asked = ctx.peers.post(&server, "/peer/volume/remove", message);
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, asked).await;
    let answer = answer.map_err(|_| format!("node `{}` does not answer", request.node))?;
    unpack::<Result<VolumeRemoval, String>>(&answer.map_err(|error| error.to_string())?)?
}

/// Deletes a volume of a node of this process.
pub(crate) async fn remove_here(ctx: &NodeContext, request: &PeerVolumeRemoval) -> Result<VolumeRemoval, String> {
    match ctx.agents.of(&request.node) {
        Some((agent, LinkState::Connected)) => {
            agent.remove_volume(&request.volume).await.map_err(|error| error.to_string())
        }
        Some((_, LinkState::Isolated)) | None => Err(format!("node `{}` cannot be reached", request.node)),
    }
}
