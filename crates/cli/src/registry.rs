//! `longshore registry`: how the cluster logs in where images come from.

use std::path::PathBuf;

use clap::Subcommand;
use longshore_api::{SecretRequest, SecretRow};
use longshore_model::container::login_name;

use crate::{
    exit::Exit,
    input, print,
    remote::{self, Connection},
    table,
};

/// What can be said of registries.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Have every node log in to a registry by this name, with the password from a file or standard input.
    ///
    /// Kept like a secret, and given only to nodes that run an image of that registry.
    #[command(after_help = "Examples:\n  longshore registry login ghcr.io --username ann --password-file token.txt")]
    Login {
        #[command(flatten)]
        connection: Connection,
        /// The registry: the part of an image's name before the first slash, `docker.io` where it has none.
        registry: String,
        /// Who logs in.
        #[arg(short, long)]
        username: String,
        /// The file that holds the password; standard input unless given.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// List registries that nodes log in to.
    #[command(after_help = "Examples:\n  longshore registry ls")]
    Ls {
        #[command(flatten)]
        connection: Connection,
    },
    /// Log in there no longer.
    #[command(after_help = "Examples:\n  longshore registry logout ghcr.io")]
    Logout {
        #[command(flatten)]
        connection: Connection,
        /// The registry.
        registry: String,
    },
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Login { connection, registry, username, password_file } => {
            let password = input::read("password", password_file.as_deref())?;
            if username.contains(':') {
                print::note("error: a name to log in by has no `:` in it");
                return Ok(Exit::BadInput);
            }
            let name = login_name(&registry).to_string();
            let contents = format!("{username}:{}", password.trim_end_matches(['\r', '\n']));
            // Owned by what no deployment can be called, so that no manifest can have it shown.
            let request = SecretRequest::new(contents.into_bytes(), Some(name.clone()));
            remote::ask(&connection, async |client| {
                let stored = client.put_secret("default", &name, &request).await?;
                remote::show(&connection, &stored, |_| "done\n".to_owned())
            })
        }
        Command::Ls { connection } => remote::ask(&connection, async |client| {
            let mut rows = client.secrets().await?;
            rows.retain(|row| registry_in(row).is_some());
            remote::show(&connection, &rows, |rows| {
                if rows.is_empty() {
                    return "nodes log in nowhere yet\n".to_owned();
                }
                let rows =
                    rows.iter().filter_map(|row| Some(vec![registry_in(row)?.to_owned(), row.version.to_string()]));
                table::draw(&["REGISTRY", "VERSION"], &rows.collect::<Vec<_>>())
            })
        }),
        Command::Logout { connection, registry } => {
            let name = login_name(&registry).to_string();
            remote::change(&connection, async |client| client.remove_secret("default", &name).await)
        }
    }
}

/// The registry that a secret is the login of, if it is one.
fn registry_in(row: &SecretRow) -> Option<&str> {
    let bare = login_name("").to_string();
    row.name.strip_prefix(&bare).filter(|_| row.deployment.as_ref() == Some(&row.name))
}
