//! Messages between nodes.
//!
//! Invariant: fields are named, and new ones have a default, so that nodes of two versions understand each other.

use ipnet::Ipv4Net;
use longshore_api::Token;
use longshore_model::{
    MemberId, NodeName,
    access::{Digest, NodeRole},
    node::NodeFingerprint,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::security::keyring::Keyring;

/// Name and address of a member of the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerAddress {
    pub(crate) name: NodeName,
    pub(crate) address: String,
}

/// A node reports its fingerprint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    #[serde(rename = "survey")]
    pub(crate) fingerprint: NodeFingerprint,
    /// Its address, should that have changed.
    #[serde(default)]
    pub(crate) address: Option<String>,
}

/// The answer to a [`Hello`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HelloAnswer {
    /// The current servers.
    pub(crate) servers: Vec<ServerAddress>,
}

/// The answer to status reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReportAnswer {
    /// They were committed.
    #[serde(rename = "taken")]
    Accepted {
        /// Heartbeat interval in milliseconds.
        beat_every_ms: u64,
        /// Sampling interval in milliseconds; older servers do not send it.
        #[serde(default)]
        sample_every_ms: u64,
        /// The current servers, so that no node keeps a list of servers that are gone.
        #[serde(default)]
        servers: Vec<ServerAddress>,
    },
    /// Another member leads, if one is known.
    NotLeading(Option<ServerAddress>),
}

/// How far a server is, and which version it runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerProgress {
    pub(crate) version: String,
    /// Last applied log entry; 0 if it keeps no log.
    pub(crate) applied_entry: u64,
}

/// Makes a node a member of the Raft group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Promotion {
    pub(crate) member: MemberId,
    #[serde(rename = "vault")]
    pub(crate) keyring: Keyring,
}

/// Asks whether this node, with this certificate, is a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VouchRequest {
    pub(crate) node: NodeName,
    pub(crate) fingerprint: Digest,
}

/// Tells the leader which request led to a state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TraceNotice {
    pub(crate) index: u64,
    /// The trace context, in the format of the `traceparent` header.
    pub(crate) context: String,
}

/// A node wants to join.
#[derive(Serialize, Deserialize)]
pub(crate) struct JoinRequest {
    /// The whole token, secret part included: it is the credential.
    pub(crate) token: String,
    pub(crate) node: NodeName,
    pub(crate) address: String,
    pub(crate) public_key: Vec<u8>,
}

impl JoinRequest {
    pub(crate) fn new(token: &Token, node: NodeName, address: String, public_key: &[u8]) -> Self {
        Self { token: token.reveal(), node, address, public_key: public_key.to_vec() }
    }
}

/// The node was admitted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JoinAnswer {
    pub(crate) cluster: String,
    pub(crate) member: MemberId,
    #[serde(rename = "part")]
    pub(crate) role: NodeRole,
    pub(crate) authority: Vec<u8>,
    pub(crate) certificate: Vec<u8>,
    pub(crate) servers: Vec<ServerAddress>,
    /// Where the IPv4 addresses of the overlay come from; older servers do not say.
    #[serde(default)]
    pub(crate) ipv4_pool: Option<Ipv4Net>,
}

/// A message as `MessagePack`.
pub(crate) fn pack(message: &impl Serialize) -> Result<Vec<u8>, String> {
    rmp_serde::to_vec_named(message).map_err(|error| error.to_string())
}

/// A message from `MessagePack`.
pub(crate) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    rmp_serde::from_slice(bytes).map_err(|error| error.to_string())
}

/// Largest message of a stream in bytes; a node's whole work is one message.
const MAX_FRAME: usize = 256 * 1024 * 1024;

/// A message of a stream: its length, then the message.
pub(crate) fn frame(message: &impl Serialize) -> Result<Vec<u8>, String> {
    let body = pack(message)?;
    let length = u32::try_from(body.len()).map_err(|_| "the message is too large".to_owned())?;
    Ok([&length.to_be_bytes()[..], &body].concat())
}

/// Takes the first complete message from the buffer; `None` until it is complete.
pub(crate) fn unframe<T: DeserializeOwned>(arrived: &mut Vec<u8>) -> Result<Option<T>, String> {
    let Some((head, rest)) = arrived.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*head) as usize;
    if length > MAX_FRAME {
        return Err(format!("a message of {length} bytes was announced"));
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    let message = unpack(body)?;
    arrived.drain(..4 + length);
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_split_into_its_messages_however_it_arrives() {
        let sent: Vec<u8> = ["a", "bc"].iter().flat_map(|word| frame(word).unwrap()).collect();
        let (mut arrived, mut heard) = (Vec::new(), Vec::<String>::new());
        for byte in sent {
            arrived.push(byte);
            heard.extend(unframe(&mut arrived).unwrap());
        }
        assert_eq!(heard, ["a", "bc"]);
        assert!(unframe::<String>(&mut vec![255; 8]).is_err());
    }
}
