//! What nodes say to each other.
//!
//! Invariant: fields are named and added with a default, so that nodes of two versions understand each other.

use longshore_api::Token;
use longshore_model::{
    MemberId, NodeName,
    access::{Digest, SeatPart},
    node::Survey,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::vault::Vault;

/// A member of the control plane, as nodes know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Server {
    pub(crate) name: NodeName,
    pub(crate) address: String,
}

/// A node says what it has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) survey: Survey,
    /// Where it is reached, should that have changed.
    #[serde(default)]
    pub(crate) address: Option<String>,
}

/// The answer to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// Whom to ask from now on.
    pub(crate) servers: Vec<Server>,
}

/// What came of reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reported {
    /// They arrived.
    Taken {
        /// Time until the node's next heartbeat, in milliseconds.
        beat_every_ms: u64,
        /// Time between two samples of the node, in milliseconds; a server of an earlier version does not say.
        #[serde(default)]
        sample_every_ms: u64,
    },
    /// Somebody else leads.
    NotLeading(Option<Server>),
}

/// A node shall keep the log from now on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Promotion {
    pub(crate) member: MemberId,
    pub(crate) vault: Vault,
}

/// Whether this node, with this certificate, is a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Vouched {
    pub(crate) node: NodeName,
    pub(crate) fingerprint: Digest,
}

/// Which request a state comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Traced {
    pub(crate) index: u64,
    /// Its place in a trace, as a header says it.
    pub(crate) context: String,
}

/// Somebody wants to join.
#[derive(Serialize, Deserialize)]
pub(crate) struct Coming {
    /// The secret part of its token goes along: it is what lets it in.
    pub(crate) token: String,
    pub(crate) node: NodeName,
    pub(crate) address: String,
    pub(crate) public_key: Vec<u8>,
}

impl Coming {
    pub(crate) fn new(token: &Token, node: NodeName, address: String, public_key: &[u8]) -> Self {
        Self { token: token.reveal(), node, address, public_key: public_key.to_vec() }
    }
}

/// It may.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Admitted {
    pub(crate) cluster: String,
    pub(crate) member: MemberId,
    pub(crate) part: SeatPart,
    pub(crate) authority: Vec<u8>,
    pub(crate) certificate: Vec<u8>,
    pub(crate) servers: Vec<Server>,
}

/// A message in bytes.
pub(crate) fn pack(message: &impl Serialize) -> Result<Vec<u8>, String> {
    rmp_serde::to_vec_named(message).map_err(|error| error.to_string())
}

/// A message out of bytes.
pub(crate) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    rmp_serde::from_slice(bytes).map_err(|error| error.to_string())
}

/// Largest message of a stream; one node's whole work is in one.
const LARGEST_FRAME: usize = 256 * 1024 * 1024;

/// A message of a stream: its length, then itself.
pub(crate) fn frame(message: &impl Serialize) -> Result<Vec<u8>, String> {
    let body = pack(message)?;
    let length = u32::try_from(body.len()).map_err(|_| "the message is too large".to_owned())?;
    Ok([&length.to_be_bytes()[..], &body].concat())
}

/// Takes the first whole message off what has arrived; `None` until it is whole.
pub(crate) fn unframe<T: DeserializeOwned>(arrived: &mut Vec<u8>) -> Result<Option<T>, String> {
    let Some((head, rest)) = arrived.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*head) as usize;
    if length > LARGEST_FRAME {
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
    fn a_stream_is_cut_into_its_messages_however_it_arrives() {
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
