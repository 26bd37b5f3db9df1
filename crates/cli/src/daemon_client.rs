//! What every command uses to talk to a daemon: the connection, the exit code of a refusal, and waiting for a change to take effect.
//!
//! Owns: which daemon is asked, and what is printed when it refuses or does not answer.
//! Must not touch: what is asked; each command module decides that.
//! Invariant: a refusal has exit code 1; a token that cannot be parsed is bad input and has exit code 2.

mod connection;
pub(crate) mod port_conditions;
mod suggest;
pub(crate) mod wait;
pub(crate) mod wait_drained;
pub(crate) mod workload;

use anyhow::Context as _;
use longshore_api::{Changed, Client, ClientError, Envelope};
use serde::Serialize;

pub(crate) use self::connection::{ConnectionArgs, NamespaceArgs};
use crate::{
    exit::Exit,
    output::{self, print, style::escape_control},
};

/// Runs requests against the daemon, and prints a refusal or an unreachable daemon with a hint.
pub(crate) fn with_client(
    connection: &ConnectionArgs,
    requests: impl AsyncFnOnce(&Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("the async runtime did not start")?;
    let client = match connection.endpoint() {
        Ok(endpoint) => Client::new(endpoint),
        Err(error) => {
            print::stderr(&format!("error: {error}"));
            return Ok(Exit::BadInput);
        }
    };
    let answer = runtime.block_on(requests(&client));
    let Err(error) = answer else { return answer };
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused(envelope)) => {
            let suggestion = runtime.block_on(suggest::suggestion(&client, envelope));
            Ok(print_refusal(envelope, suggestion.as_deref().or(envelope.hint())))
        }
        Some(ClientError::Unreachable { .. }) => {
            print::stderr(&format!("error: {error:#}\n\nhint: {}", connection.unreachable_hint()));
            Ok(Exit::Error)
        }
        Some(ClientError::Broken { .. } | ClientError::Garbled { .. }) | None => Err(error),
    }
}

/// Prints the error of the daemon and a hint.
pub(crate) fn print_refusal(envelope: &Envelope, hint: Option<&str>) -> Exit {
    let lines: Vec<String> = envelope.to_string().lines().map(escape_control).collect();
    print::stderr(&format!("error: {}", lines.join("\n")));
    if let Some(hint) = hint {
        print::stderr(&format!("\nhint: {hint}"));
    }
    Exit::Error
}

/// Sends one request that changes something, and prints whether it did.
pub(crate) fn change(
    connection: &ConnectionArgs,
    request: impl AsyncFnOnce(&Client) -> Result<Changed, ClientError>,
) -> anyhow::Result<Exit> {
    query(connection, request, output::changed)
}

/// Sends one request and prints its answer; `table` renders it for people.
pub(crate) fn query<T: Serialize>(
    connection: &ConnectionArgs,
    request: impl AsyncFnOnce(&Client) -> Result<T, ClientError>,
    table: impl FnOnce(&T) -> String,
) -> anyhow::Result<Exit> {
    with_client(connection, async |client| connection.print(&request(client).await?, table))
}
