//! Compose files in, a resolved deployment or precise diagnostics out.
//!
//! Owns: everything about how a deployment is written down.
//! Must not touch: the cluster. What can only be known there (nodes, secrets, other deployments) is not judged here.
//! Invariant: no input panics, and every problem names its file, line and column.

#![expect(
    clippy::redundant_closure,
    clippy::redundant_closure_for_method_calls,
    reason = "a method of a reader belongs to one lifetime, a row of the key table must serve any"
)]

mod command;
pub mod constraint;
mod deployment;
pub mod diagnostic;
mod dotenv;
pub mod files;
pub mod hash;
mod interpolate;
mod keys;
mod load;
mod merge;
mod overlay;
mod page;
mod paths;
mod project;
pub mod reader;
mod render;
pub mod scope;
mod service;
pub mod settings;
pub mod suggest;
pub mod units;
mod whole;
mod words;
pub mod yaml;

pub use command::{Output, Report, config, print};
pub use diagnostic::{Diagnostic, Diagnostics, Place, Severity, Sources};
pub use files::{Disk, Files, Memory};
pub use load::{Loaded, Request, load, load_embedded, load_text};
pub use page::page;
pub use reader::Extensions;
pub use render::Secrets;
pub use service::Recipe;
