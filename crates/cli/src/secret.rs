//! `longshore secret`: what services need and nobody else may read.
//!
//! Owns: its options. Must not touch: what a secret holds.
//! Invariant: a secret is never taken from the command line, where others could read it, and never printed.

use std::path::PathBuf;

use clap::Subcommand;
use longshore_api::{SecretRequest, SecretRow};

use crate::{
    exit::Exit,
    input,
    remote::{self, Connection},
    table,
};

/// Secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Store a secret, or another version of it, from a file or standard input.
    #[command(after_help = "Examples:\n  longshore secret put db-pass --file password.txt")]
    Put {
        #[command(flatten)]
        connection: Connection,
        /// Its name.
        name: String,
        /// The file that holds it; standard input unless given.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Its namespace.
        #[arg(long, value_name = "NAME", default_value = "default")]
        namespace: String,
        /// The only deployment that may use it; every one of the namespace unless given.
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
    },
    /// List secrets, and who needs them; never what is in them.
    #[command(after_help = "Examples:\n  longshore secret ls")]
    Ls {
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove a secret that nothing needs.
    #[command(after_help = "Examples:\n  longshore secret rm db-pass")]
    Rm {
        #[command(flatten)]
        connection: Connection,
        /// Its name.
        name: String,
        /// Its namespace.
        #[arg(long, value_name = "NAME", default_value = "default")]
        namespace: String,
    },
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Put { connection, name, file, namespace, deployment } => {
            let contents = input::read_bytes("secret", file.as_deref())?;
            let request = SecretRequest::new(contents, deployment);
            remote::ask(&connection, async |client| {
                let stored = client.put_secret(&namespace, &name, &request).await?;
                remote::show(&connection, &stored, |stored| format!("{name} has version {}\n", stored.version))
            })
        }
        Command::Ls { connection } => remote::ask(&connection, async |client| {
            remote::show(&connection, &client.secrets().await?, |rows| draw(rows))
        }),
        Command::Rm { connection, name, namespace } => {
            remote::change(&connection, async |client| client.remove_secret(&namespace, &name).await)
        }
    }
}

fn draw(secrets: &[SecretRow]) -> String {
    if secrets.is_empty() {
        return "there is no secret yet\n".to_owned();
    }
    let rows = secrets.iter().map(|secret| {
        let name = format!("{}/{}", secret.namespace, secret.name);
        let owner = secret.deployment.clone().unwrap_or_default();
        vec![name, secret.version.to_string(), owner, secret.used_by.join(", ")]
    });
    table::draw(&["SECRET", "VERSION", "ONLY FOR", "NEEDED BY"], &rows.collect::<Vec<_>>())
}
