//! Compose files in, a resolved deployment or precise diagnostics out.
//!
//! Owns: everything about how a deployment is written down.
//! Must not touch: the cluster. What can only be known there (nodes, secrets, other deployments) is not judged here.
//! Invariant: no input panics, and every problem names its file, line and column.

pub mod constraint;
pub mod diagnostic;
pub mod reader;
pub mod suggest;
pub mod units;
pub mod yaml;

pub use diagnostic::{Diagnostic, Diagnostics, Place, Severity, Sources};
pub use reader::Extensions;
