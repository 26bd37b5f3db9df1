//! DNS messages: reading a question, writing an answer.
//!
//! Owns: the wire format, response codes, and what is left out of an answer that does not fit.
//! Invariant: no bytes make it panic; what is no question is not answered, so that two servers never answer each other.

use std::net::IpAddr;

use hickory_proto::{
    op::{DEFAULT_MAX_PAYLOAD_LEN, Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode},
    rr::{
        DNSClass, Name, RData, Record,
        rdata::{A, AAAA, PTR, SOA},
    },
};

use super::answer::Answer;

/// Length of the header that every message has.
const HEADER_BYTES: usize = 12;
/// Largest answer over UDP to somebody who did not name a size.
const PLAIN_UDP_BYTES: usize = 512;
/// Largest answer over UDP at all: one packet on any link.
const LARGEST_UDP_BYTES: usize = DEFAULT_MAX_PAYLOAD_LEN as usize;
/// Largest answer over TCP.
const LARGEST_TCP_BYTES: usize = u16::MAX as usize;
/// Seconds for which the absence of a name may be remembered: it may exist a moment later.
const NEGATIVE_TTL: u32 = 1;

/// How a question arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// What arrived.
pub(super) enum Arrived {
    Question(Question),
    /// To be answered with these bytes.
    Refused(Vec<u8>),
    /// Not to be answered.
    Ignored,
}

/// One question.
#[derive(Debug)]
pub(super) struct Question {
    metadata: Metadata,
    pub(super) query: Query,
    edns_bytes: Option<u16>,
}

/// Reads a message.
pub(super) fn read(bytes: &[u8]) -> Arrived {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Arrived::Ignored };
    let is_response = header[2] & 0x80 != 0;
    if is_response {
        return Arrived::Ignored;
    }
    let id = u16::from_be_bytes([header[0], header[1]]);
    let refused = |op_code, code| Arrived::Refused(bytes_of(&Message::error_msg(id, op_code, code)));
    let Ok(mut message) = Message::from_vec(bytes) else { return refused(OpCode::Query, ResponseCode::FormErr) };
    let metadata = message.metadata;
    if metadata.op_code != OpCode::Query {
        return refused(metadata.op_code, ResponseCode::NotImp);
    }
    match (message.queries.pop(), message.queries.is_empty()) {
        (Some(query), true) => {
            let edns_bytes = message.edns.as_ref().map(Edns::max_payload);
            Arrived::Question(Question { metadata, query, edns_bytes })
        }
        (Some(_), false) | (None, _) => refused(OpCode::Query, ResponseCode::FormErr),
    }
}

impl Question {
    /// Whether it is about the Internet class, the only one with names of ours.
    pub(super) fn is_internet(&self) -> bool {
        self.query.query_class == DNSClass::IN
    }

    /// The bytes of an answer. Over UDP, addresses that do not fit are left out and the answer says so.
    pub(super) fn reply(&self, answer: &Answer, transport: Transport) -> Vec<u8> {
        let limit = match (transport, self.edns_bytes) {
            (Transport::Tcp, _) => LARGEST_TCP_BYTES,
            (Transport::Udp, Some(asked)) => usize::from(asked).clamp(PLAIN_UDP_BYTES, LARGEST_UDP_BYTES),
            (Transport::Udp, None) => PLAIN_UDP_BYTES,
        };
        let mut message = self.message(answer);
        let whole = bytes_of(&message);
        if whole.len() <= limit {
            return whole;
        }
        // As many as fit rather than none: old resolvers never ask again over TCP.
        let records = std::mem::take(&mut message.answers);
        message.metadata.truncation = true;
        let empty = bytes_of(&message).len();
        let bytes_per_record = (whole.len() - empty).div_ceil(records.len().max(1)).max(1);
        message.answers = records.into_iter().take(limit.saturating_sub(empty) / bytes_per_record).collect();
        let part = bytes_of(&message);
        if part.len() <= limit {
            return part;
        }
        message.answers.clear();
        bytes_of(&message)
    }

    fn message(&self, answer: &Answer) -> Message {
        let mut message = Message::new(self.metadata.id, MessageType::Response, OpCode::Query);
        message.metadata = Metadata::response_from_request(&self.metadata);
        message.metadata.recursion_available = true;
        message.add_query(self.query.clone());
        let name = || self.query.name.clone();
        match answer {
            Answer::Addresses { ttl, addresses } => {
                message.metadata.authoritative = true;
                message.add_answers(addresses.iter().map(|address| Record::from_rdata(name(), *ttl, data(*address))));
            }
            Answer::Pointer(target) => {
                message.metadata.authoritative = true;
                let target = Name::from_ascii(target).map(|target| RData::PTR(PTR(target)));
                message.add_answers(target.into_iter().map(|data| Record::from_rdata(name(), NEGATIVE_TTL, data)));
            }
            Answer::NoData => {
                message.metadata.authoritative = true;
                message.add_authority(start_of_authority());
            }
            Answer::NameUnknown => {
                message.metadata.authoritative = true;
                message.metadata.response_code = ResponseCode::NXDomain;
                message.add_authority(start_of_authority());
            }
            Answer::Forward(_) | Answer::Failed => message.metadata.response_code = ResponseCode::ServFail,
        }
        if self.edns_bytes.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(DEFAULT_MAX_PAYLOAD_LEN);
            message.set_edns(edns);
        }
        message
    }
}

fn data(address: IpAddr) -> RData {
    match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    }
}

/// Whoever keeps a negative answer keeps it for the shorter of the record's life and its last field.
fn start_of_authority() -> Record {
    let minimum = NEGATIVE_TTL;
    let data = SOA::new(Name::root(), Name::root(), 1, 1, 1, 1, minimum);
    Record::from_rdata(Name::root(), NEGATIVE_TTL, RData::SOA(data))
}

/// The bytes of a message that was made here, which always has some.
fn bytes_of(message: &Message) -> Vec<u8> {
    message.to_vec().unwrap_or_default()
}
