//! `longshore registry`: logins to image registries.
//!
//! Owns: its options and its table. Invariant: a password is never taken from the command line, and never printed.

use std::path::PathBuf;

use clap::Subcommand;
use longshore_api::{Client, SecretRequest, SecretRow};
use longshore_model::container::registry_login_secret;

use crate::{
    daemon_client::{ConnectionArgs, change, query, with_client},
    exit::Exit,
    input,
    output::{print, table},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Store a login for a registry, with the password from a file or standard input.
    ///
    /// Stored as a secret, and sent only to nodes that run an image of that registry.
    #[command(after_help = "Examples:\n  longshore registry login ghcr.io --username ann --password-file token.txt")]
    Login {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// The registry: the part of an image name before the first slash, or `docker.io`.
        registry: String,
        /// User name.
        #[arg(short, long)]
        username: String,
        /// File with the password; standard input unless given.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// List registries with a login.
    #[command(after_help = "Examples:\n  longshore registry ls")]
    Ls {
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Remove the login for a registry.
    #[command(after_help = "Examples:\n  longshore registry logout ghcr.io")]
    Logout {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// The registry.
        registry: String,
    },
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Login { connection, registry, username, password_file } => {
            let password = input::read("password", password_file.as_deref())?;
            if username.contains(':') {
                print::stderr("error: a user name must not contain `:`");
                return Ok(Exit::BadInput);
            }
            let name = registry_login_secret(&registry).to_string();
            let contents = format!("{username}:{}", password.trim_end_matches(['\r', '\n']));
            // Scoped to a deployment name that is invalid, so that no manifest can mount it.
            let request = SecretRequest::new(contents.into_bytes(), Some(name.clone()));
            let put = async |client: &Client| client.put_secret("default", &name, &request).await;
            query(&connection, put, |_| "done\n".to_owned())
        }
        Command::Ls { connection } => with_client(&connection, async |client| {
            let mut rows = client.secrets().await?;
            rows.retain(|row| registry_of(row).is_some());
            connection.print(&rows, |rows| logins_table(rows))
        }),
        Command::Logout { connection, registry } => {
            let name = registry_login_secret(&registry).to_string();
            change(&connection, async |client| client.remove_secret("default", &name).await)
        }
    }
}

fn logins_table(logins: &[SecretRow]) -> String {
    if logins.is_empty() {
        return "no registry logins\n".to_owned();
    }
    let rows = logins.iter().filter_map(|row| Some(vec![registry_of(row)?.to_owned(), row.version.to_string()]));
    table::draw(&["REGISTRY", "VERSION"], &rows.collect::<Vec<_>>())
}

/// The registry whose login this secret is; `None` for any other secret.
fn registry_of(row: &SecretRow) -> Option<&str> {
    let bare = registry_login_secret("").to_string();
    row.name.strip_prefix(&bare).filter(|_| row.deployment.as_ref() == Some(&row.name))
}
