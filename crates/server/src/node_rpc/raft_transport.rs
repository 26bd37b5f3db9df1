//! Transport of the store's Raft messages between members.

use std::sync::Arc;

use longshore_store::replicated::{Call, Delivery, Member, Transport, Unreachable};

use crate::node_rpc::{CallError, PeerClient, ServerAddress};

/// Sends messages of the store through the peer client.
pub(crate) struct MemberTransport(pub(crate) Arc<PeerClient>);

impl Transport for MemberTransport {
    fn call<'a>(&'a self, to: &'a Member, message: Vec<u8>) -> Call<'a> {
        Box::pin(async move {
            let server = ServerAddress { name: to.name.clone(), address: to.address.clone() };
            let unreachable = |why, sent| Unreachable { to: to.id, why, sent };
            match self.0.post(&server, "/peer/raft", message).await {
                Ok(answer) => Ok(answer.into()),
                Err(CallError::NoAnswer { why, sent }) => Err(unreachable(why, sent)),
                // A refusal means that the message was not processed.
                Err(CallError::Refused(envelope)) => Err(unreachable(envelope.to_string(), Delivery::NotSent)),
            }
        })
    }
}
