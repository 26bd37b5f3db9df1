//! Warnings about published ports that a node cannot listen on.
//!
//! Owns: the warning's text. Must not touch: how a port is opened.

use longshore_api::{Client, PortCondition};

use crate::output::print;

/// Prints a warning for every published port of a deployment that a node cannot listen on. It is no part of the answer
/// to a request, so a failure to ask for it is none of the request.
pub(crate) async fn print_warnings(client: &Client, namespace: &str, deployment: &str) {
    let Ok(status) = client.status(namespace, Some(deployment)).await else { return };
    for PortCondition { node, code, message, .. } in status.conditions {
        print::stderr(&format!("warning: {code} on {node}: {message}"));
    }
}
