//! Compose files in, a resolved deployment or precise diagnostics out.
//!
//! Owns: the syntax of manifests: files, merging, variables, keys, and printing a resolved manifest.
//! Must not touch: the cluster. What depends on its nodes, secrets or other deployments is not checked here.
//! Invariant: no input panics, and every problem names its file, line and column.

#![expect(
    clippy::redundant_closure,
    clippy::redundant_closure_for_method_calls,
    reason = "a method of a reader belongs to one lifetime, a row of the key table must serve any"
)]

mod config_output;
pub mod constraint;
pub mod declarations;
mod deployment;
pub mod diagnostic;
mod dotenv;
pub mod files;
pub mod hash;
mod interpolate;
mod key_table_doc;
mod keys;
mod load;
mod merge;
mod overlay;
mod paths;
mod project;
pub mod reader;
mod render;
mod service;
mod shell_words;
mod validate;
pub mod yaml;

pub use config_output::{Output, Report, config, print};
pub use diagnostic::{Diagnostic, Diagnostics, Location, Severity, Sources};
pub use files::{Disk, Files, Memory};
pub use key_table_doc::key_table_doc;
pub use load::{Loaded, Request, load, load_embedded, load_text};
pub use reader::Extensions;
pub use render::Secrets;
pub use service::BuildSpec;

pub use longshore_model::{suggest, units};
