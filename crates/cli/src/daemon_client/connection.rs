//! Options that say which daemon is asked, and in which namespace.
//!
//! Owns: `--socket`, `--address`, `--token` and `--namespace`.

use std::{io, path::PathBuf};

use clap::Args;
use longshore_api::{Endpoint, Token, TokenError, TokenKind};
use serde::Serialize;

use crate::{
    exit::Exit,
    output::{OutputArgs, OutputFormat},
    paths,
};

/// The namespace used when none is given.
const DEFAULT_NAMESPACE: &str = "default";

/// What a user may do who may not open the socket of root's daemon.
const PERMISSION_HINT: &str = "the socket belongs to root's daemon: use `sudo`, or let the group `longshore` use it, once: `sudo \
                               groupadd --system longshore`, `sudo usermod -aG longshore $USER`, `sudo systemctl restart \
                               longshore`, and log in again. Who is in that group is root on this machine";

/// Where the daemon is, and the output format.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArgs {
    /// Unix socket of the daemon.
    #[arg(long, env = "LONGSHORE_SOCKET", value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Address of a server, instead of a local socket; needs a token.
    #[arg(long, env = "LONGSHORE_ADDRESS", value_name = "ADDRESS", global = true, requires = "token")]
    address: Option<String>,
    /// API token for that address.
    #[arg(long, env = "LONGSHORE_TOKEN", value_name = "TOKEN", global = true, hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The same, with the namespace of the names that follow.
#[derive(Debug, Args)]
pub(crate) struct NamespaceArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Namespace; `default` unless given.
    #[arg(short, long, env = "LONGSHORE_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,
}

impl ConnectionArgs {
    pub(crate) const fn format(&self) -> OutputFormat {
        self.output.format()
    }

    pub(crate) const fn output(&self) -> OutputArgs {
        self.output
    }

    /// Prints an answer in the chosen format; `table` renders it for people.
    pub(crate) fn print<T: Serialize>(&self, answer: &T, table: impl FnOnce(&T) -> String) -> anyhow::Result<Exit> {
        self.output.print(answer, table)
    }

    pub(super) fn endpoint(&self) -> Result<Endpoint, TokenError> {
        if let (Some(address), Some(token)) = (&self.address, &self.token) {
            let token = Token::of_kind(TokenKind::Operator, token)?;
            return Ok(Endpoint::Tls { address: address.clone(), token });
        }
        Ok(Endpoint::Unix(self.socket.clone().unwrap_or_else(paths::default_socket)))
    }

    /// What to do about a daemon that cannot be reached.
    pub(super) fn unreachable_hint(&self, cause: &io::Error) -> &'static str {
        match self.address {
            Some(_) => "check the address; a daemon listens there if it was started with `--listen`",
            None if cause.kind() == io::ErrorKind::PermissionDenied => PERMISSION_HINT,
            None => "start it with `longshore server` or `longshore up`, or name its socket with `--socket`",
        }
    }
}

impl NamespaceArgs {
    /// The namespace, `default` if none was given.
    pub(crate) fn namespace(&self) -> &str {
        self.given().unwrap_or(DEFAULT_NAMESPACE)
    }

    /// The namespace, if one was given.
    pub(crate) fn given(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// A replica id as `status` prints it: outside `default` with the namespace in front, which may be typed or not.
    pub(crate) fn replica_id(&self, replica: &str) -> String {
        match self.namespace() {
            DEFAULT_NAMESPACE => replica.to_owned(),
            namespace if replica.starts_with(&format!("{namespace}.")) => replica.to_owned(),
            namespace => format!("{namespace}.{replica}"),
        }
    }
}
