//! What clients see: wire types, the error envelope, and a typed client.
//!
//! Owns: the names and shapes of the public API. Every type here is made from the model's by hand, so that a change
//! inside cannot leak out unnoticed.
//! Must not touch: the store, the scheduler, and how a request is answered.
//! Invariant: fields are added, never renamed; a client ignores what it does not know.

mod access;
mod audit;
pub mod base64;
mod client;
pub mod connection;
mod deployment;
mod dry_run;
mod enums;
mod envelope;
mod event;
mod logs_exec;
mod namespace;
mod network;
mod node;
mod replica;
pub mod tls;
mod token;
mod why;

pub use access::{
    ClusterStatus, JoinTokenRequest, KeyRotated, LoginLink, LoginRequest, MemberRow, NewToken, SecretRequest,
    SecretRow, SecretStored, TokenRequest, TokenRow, WhoAmI,
};
pub use audit::AuditEntry;
pub use client::{Changes, Client, ClientError, Endpoint, LogLines, SessionInput, SessionOutput};
pub use deployment::{
    AppliedManifest, ApplyRequest, Awaited, Changed, ComposeVolumes, Deployment, FailedReplica, OneOffJob, Port,
    PortCondition, PullChoice, RollbackRequest, Rollout, RunRequest, ScaleRequest, Service, Status,
};
pub use dry_run::{
    Convergence, Headroom, ManifestPlan, Move, NewCount, NewNode, ServiceChange, ServicePlan, WhatIf, WhatIfRequest,
};
pub use enums::{
    AfterDrain, AuditOutcome, Code, ConstraintRole, DeploymentStatus, DrainBlocker, DrainOutcome, Driver, Health,
    Intent, NodeRole, ObjectKind, PortMode, Protocol, ReplicaState, RolloutState, StatusReason, TokenRole,
};
pub use envelope::Envelope;
pub use event::{Change, Event, HistoryEntry};
pub use logs_exec::{ExecRequest, Frame, FrameError, LogEntry, LogQuery, LogSource, SESSION_PROTOCOL, TerminalSize};
pub use namespace::{
    Amounts, DeniedDemand, EvenOutMove, NamespaceRow, OtherRules, Policy, PolicyRequest, PolicyTest, Quota, VolumeRow,
};
pub use network::{NetworkRow, NodeNetwork, ServiceEndpoint, ServiceNetwork};
pub use node::{
    DeviceGroup, Disk, Drain, DrainRequest, LabelRequest, Load, Node, NodeAttributesRequest, NodeCondition, RemoveNode,
    UndrainedReplica,
};
pub use replica::Replica;
pub use token::{Pin, Token, TokenError, TokenKind};
pub use why::{Candidate, Pending, Why};
