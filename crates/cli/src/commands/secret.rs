//! `longshore secret`: stores, lists and removes secrets.
//!
//! Owns: its options and its table. Must not touch: the content of a secret.
//! Invariant: a secret is never taken from the command line, where other users could read it, and never printed.

use std::path::PathBuf;

use clap::Subcommand;
use longshore_api::{Client, SecretRequest, SecretRow};

use crate::{
    daemon_client::{ConnectionArgs, change, query},
    exit::Exit,
    input,
    output::table,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Store a secret or a new version of it, from a file or standard input.
    #[command(after_help = "Examples:\n  longshore secret put db-pass --file password.txt")]
    Put {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Name of the secret.
        name: String,
        /// File with the content; standard input unless given.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Namespace of the secret.
        #[arg(long, value_name = "NAME", default_value = "default")]
        namespace: String,
        /// The only deployment that may use it; every deployment of the namespace unless given.
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
    },
    /// List secrets and the services that use them, without their content.
    #[command(after_help = "Examples:\n  longshore secret ls")]
    Ls {
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Remove a secret that no service uses.
    #[command(after_help = "Examples:\n  longshore secret rm db-pass")]
    Rm {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Name of the secret.
        name: String,
        /// Namespace of the secret.
        #[arg(long, value_name = "NAME", default_value = "default")]
        namespace: String,
    },
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Put { connection, name, file, namespace, deployment } => {
            let contents = input::read_bytes("secret", file.as_deref())?;
            let request = SecretRequest::new(contents, deployment);
            let put = async |client: &Client| client.put_secret(&namespace, &name, &request).await;
            query(&connection, put, |stored| format!("{name} has version {}\n", stored.version))
        }
        Command::Ls { connection } => {
            query(&connection, async |client| client.secrets().await, |secrets| secrets_table(secrets))
        }
        Command::Rm { connection, name, namespace } => {
            change(&connection, async |client| client.remove_secret(&namespace, &name).await)
        }
    }
}

fn secrets_table(secrets: &[SecretRow]) -> String {
    if secrets.is_empty() {
        return "no secrets\n".to_owned();
    }
    let rows = secrets.iter().map(|secret| {
        let name = format!("{}/{}", secret.namespace, secret.name);
        let owner = secret.deployment.clone().unwrap_or_default();
        vec![name, secret.version.to_string(), owner, secret.used_by.join(", ")]
    });
    table::draw(&["SECRET", "VERSION", "DEPLOYMENT", "USED BY"], &rows.collect::<Vec<_>>())
}
