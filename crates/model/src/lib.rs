//! The nouns of Longshore: ids, specs, entities, states, reasons, commands, events and plans.
//!
//! Owns: every type that two crates share.
//! Must not touch: logic, IO, clocks. A method here may parse, compare or print a value, never decide anything.
//! Invariant: every stored type is serialised with named fields, and a renamed field or variant keeps its stored name
//! with `serde(rename)`, so that old data stays readable.

pub mod access;
pub mod address_plan;
pub mod agent_protocol;
pub mod api_error_code;
pub mod audit;
mod bound_port;
pub mod command;
pub mod constraint;
pub mod container;
mod derived_settings;
pub mod device;
pub mod diff;
pub mod drain;
mod error_chain;
pub mod event;
mod explanation_text;
mod flat_key;
pub mod hex;
pub mod ids;
pub mod image;
pub mod node;
pub mod node_attributes;
pub mod overlay;
pub mod placement_spec;
pub mod plan;
pub mod policy;
pub mod reason;
pub mod rebalance;
pub mod refusal;
pub mod replica;
mod replica_key;
pub mod restart_fingerprint;
pub mod rollout;
pub mod service;
pub mod settings;
pub mod suggest;
pub mod tenant_policy;
pub mod time;
pub mod units;
pub mod volume;
mod yes_no;

pub use address_plan::AddressPlan;
pub use agent_protocol::{Cursor, Desired, Heartbeat, ReplicaReport, Report, Work, WorkFeed};
pub use api_error_code::ApiErrorCode;
pub use audit::{Actor, AuditAction, AuditEvent, AuditOutcome};
pub use bound_port::BoundPort;
pub use command::{Command, Observation};
pub use constraint::{Attribute, Constraint, Operator};
pub use diff::{Effect, FieldChange, RevisionDiff, ServiceDiff};
pub use drain::{AfterDrain, Drain, DrainOutcome, Evacuation, NodePlan};
pub use error_chain::error_chain;
pub use event::Event;
pub use ids::{
    Attempt, DeploymentName, Generation, GroupKey, MemberId, NamespaceName, NodeName, NodeNumber, PoolName,
    RevisionNumber, RolloutNumber, SecretName, ServiceName, SlotIndex, SlotKey, StateIndex, VolumeKey, VolumeName,
};
pub use image::ResolvedImage;
pub use node::{Capacity, ConstraintRole, Driver, Health, Intent, Node, Platform};
pub use node_attributes::NodeAttributes;
pub use overlay::{MeshIdentity, MeshKind, MeshMode, NodeNetwork};
pub use plan::{Explanation, GroupPlan, NearMiss, Placement, Plan, PlanItem, Wait};
pub use reason::{NodeConditionCode, Reason, RuntimeCode, SkipReason};
pub use refusal::Refusal;
pub use replica::{Assignment, DeploymentStatus, ReplicaState, Reservation, Slot};
pub use replica_key::{ReplicaKey, SlotGeneration};
pub use rollout::{DeploymentPlan, Rollout, RolloutState};
pub use service::{DeploymentSpec, PlacementSpec, ServiceKind, ServiceSpec, Strategy};
pub use settings::ClusterConfig;
pub use tenant_policy::{NamespacePolicy, PolicyRule};
pub use time::Time;
