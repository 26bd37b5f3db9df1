//! Nodes talking to nodes.
//!
//! ```text
//! members   ─▶ /peer/raft                                    votes and entries of the log, commands handed on
//! agents    ─▶ /peer/hello /peer/servers /peer/work /peer/report /peer/file /peer/registry
//!                                                             what a node has, whom it asks, what it does, sees, may read
//! anybody   ─▶ /peer/vouch                                    is somebody else still a server
//! servers   ─▶ /peer/logs /peer/exec                          what a replica writes, and commands beside it
//! leader    ─▶ /peer/promote /peer/demote                     a node keeps the log from now on, or no longer
//! servers   ─▶ /peer/keys /peer/keys/fetch                    the cluster's keys
//! servers   ─▶ /peer/loads /peer/rebalance                    what only the leader knows
//! servers   ─▶ /peer/trace                                    which request a state comes from
//! newcomers ─▶ /join                                          a token for a certificate
//! ```
//!
//! Owns: what is said, and carrying it. Must not touch: what comes of it.
//! Invariant: both ends have proven who they are before a word is said; newcomers prove it by their token. Every word says
//! which version of these messages it belongs to, and those of another are refused, never misread.

mod client;
mod transport;
mod wire;

pub(crate) use self::{
    client::{CallError, Calls, Connection, NODE_HEADER, PROTOCOL, PROTOCOL_HEADER},
    transport::MemberTransport,
    wire::{
        Admitted, Coming, Hello, Promotion, Reported, Server, Traced, Vouched, Welcome, frame, pack, unframe, unpack,
    },
};
