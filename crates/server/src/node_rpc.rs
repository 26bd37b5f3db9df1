//! The RPC protocol between nodes: messages, client, handlers, and the link of each agent to the control plane.
//!
//! ```text
//! members ─▶ /peer/raft                                     Raft messages, forwarded commands
//! daemons ─▶ /peer/network                                  published ports and their endpoints
//! agents  ─▶ /peer/hello /peer/servers /peer/work /peer/report /peer/file /peer/registry
//!                                                           fingerprint, servers, work feed, reports, secrets, logins
//! nodes   ─▶ /peer/vouch                                    is another node still a server
//! servers ─▶ /peer/logs /peer/exec                          logs of a replica, commands inside it
//! servers ─▶ /peer/engine                                   images and volumes of a node's engine
//! leader  ─▶ /peer/promote /peer/demote                     become a member, stop being one
//! servers ─▶ /peer/keys /peer/keys/fetch                    the cluster's keys
//! servers ─▶ /peer/loads /peer/conditions /peer/rebalance                 what only the leader knows
//! servers ─▶ /peer/progress                                 is it there, how far is it, which version
//! servers ─▶ /peer/trace                                    which request led to a state
//! joining ─▶ /join                                          a token for a certificate
//! ```
//!
//! Owns: messages and their transport, and what a server does for a node. Must not touch: scheduling decisions.
//! Invariant: both ends are authenticated before a message is sent; a joining node authenticates with its token. Every
//! message carries the protocol version, and another version is refused, never misread.

mod client;
pub(crate) mod control_link;
pub(crate) mod engine_query;
mod fingerprint_limits;
pub(crate) mod handlers;
pub(crate) mod logs_exec;
mod raft_transport;
pub(crate) mod service;
pub(crate) mod volume_removal;
mod wire;

pub(crate) use self::{
    client::{CallError, NODE_HEADER, PROTOCOL, PROTOCOL_HEADER, PeerClient, PeerConnection},
    raft_transport::MemberTransport,
    wire::{
        Hello, HelloAnswer, JoinAnswer, JoinRequest, Promotion, ReportAnswer, ServerAddress, ServerProgress,
        TraceNotice, VouchRequest, frame, pack, unframe, unpack,
    },
};
