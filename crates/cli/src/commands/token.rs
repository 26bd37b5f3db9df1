//! `longshore token`: API tokens of operators.
//!
//! Owns: its options and its table. Must not touch: what a token may do; the daemon decides that.
//! Invariant: a token is printed when it is created, and never again.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use longshore_api::{TokenRequest, TokenRow};
use longshore_model::access::TokenRole;

use crate::{
    daemon_client::{ConnectionArgs, change, query, with_client},
    exit::Exit,
    input,
    output::{table, timestamp},
};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Role {
    View,
    Deploy,
    Admin,
}

impl From<Role> for TokenRole {
    fn from(role: Role) -> Self {
        match role {
            Role::View => Self::View,
            Role::Deploy => Self::Deploy,
            Role::Admin => Self::Admin,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a token. It is printed only this once.
    #[command(after_help = "Examples:\n  longshore token create ci --role deploy --deployment shop --valid 30d")]
    Create {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Name of the token, as the audit log shows it.
        name: String,
        /// What the token may do: read, change deployments, or everything.
        #[arg(long, value_enum)]
        role: Role,
        /// Only in this namespace.
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
        /// Only for this deployment, of the namespace `default` unless `--namespace` names another.
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        /// How long the token is valid; forever unless given.
        #[arg(long, value_name = "DURATION", value_parser = input::duration)]
        valid: Option<Duration>,
    },
    /// List tokens.
    #[command(after_help = "Examples:\n  longshore token ls")]
    Ls {
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Revoke a token.
    #[command(after_help = "Examples:\n  longshore token rm 1f6d0c2b9a4e7385")]
    Rm {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Id of the token, as `token ls` prints it.
        id: String,
    },
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Create { connection, name, role, namespace, deployment, valid } => {
            let valid_secs = valid.map(|valid| valid.as_secs());
            let request = TokenRequest { name, role: role.into(), namespace, deployment, valid_secs };
            query(&connection, async |client| client.create_token(&request).await, |made| format!("{}\n", made.token))
        }
        Command::Ls { connection } => with_client(&connection, async |client| {
            let mut rows = client.tokens().await?;
            rows.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
            connection.print(&rows, |rows| tokens_table(rows))
        }),
        Command::Rm { connection, id } => change(&connection, async |client| client.revoke_token(&id).await),
    }
}

fn tokens_table(tokens: &[TokenRow]) -> String {
    if tokens.is_empty() {
        return "no tokens\n".to_owned();
    }
    let rows = tokens.iter().map(|token| {
        let scope = match (&token.namespace, &token.deployment) {
            (None, None) => "everywhere".to_owned(),
            (namespace, deployment) => {
                let any = "*".to_owned();
                format!("{}/{}", namespace.as_ref().unwrap_or(&any), deployment.as_ref().unwrap_or(&any))
            }
        };
        let expires = token.expires_ms.map_or_else(|| "never".to_owned(), timestamp::second);
        vec![token.id.clone(), token.name.clone(), token.role.to_string(), scope, expires]
    });
    table::draw(&["ID", "NAME", "ROLE", "SCOPE", "EXPIRES"], &rows.collect::<Vec<_>>())
}
