//! The store's messages, carried between members.

use std::sync::Arc;

use longshore_store::replicated::{Call, Member, Sent, Transport, Unreachable};

use super::{CallError, Calls, Server};

/// Carries messages of the store.
pub(crate) struct MemberTransport(pub(crate) Arc<Calls>);

impl Transport for MemberTransport {
    fn call<'a>(&'a self, to: &'a Member, message: Vec<u8>) -> Call<'a> {
        Box::pin(async move {
            let server = Server { name: to.name.clone(), address: to.address.clone() };
            let unreachable = |why, sent| Unreachable { to: to.id, why, sent };
            match self.0.post(&server, "/peer/raft", message).await {
                Ok(answer) => Ok(answer.into()),
                Err(CallError::Silent { why, sent }) => Err(unreachable(why, sent)),
                // Whoever says no has not handed the message on.
                Err(CallError::Refused(envelope)) => Err(unreachable(envelope.to_string(), Sent::No)),
            }
        })
    }
}
