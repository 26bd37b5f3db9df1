//! `longshore token`: who may ask the cluster for something.
//!
//! Owns: its options and its table. Must not touch: what a token opens.
//! Invariant: a token is printed when it is made, and never again.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use longshore_api::{TokenRequest, TokenRow};
use longshore_model::access::Power;

use crate::{
    calendar,
    exit::Exit,
    input,
    remote::{self, Connection},
    table,
};

/// What a token is good for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Role {
    View,
    Deploy,
    Admin,
}

impl From<Role> for Power {
    fn from(role: Role) -> Self {
        match role {
            Role::View => Self::View,
            Role::Deploy => Self::Deploy,
            Role::Admin => Self::Admin,
        }
    }
}

/// Tokens of operators.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a token. It is shown this once.
    #[command(after_help = "Examples:\n  longshore token create ci --role deploy --deployment shop --valid 30d")]
    Create {
        #[command(flatten)]
        connection: Connection,
        /// What to call it; the audit record does.
        name: String,
        /// What it is good for: to look, to change deployments, or everything.
        #[arg(long, value_enum)]
        role: Role,
        /// Only in this namespace.
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
        /// Only for this deployment.
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        /// How long it is good for; for ever unless given.
        #[arg(long, value_name = "TIME", value_parser = input::time)]
        valid: Option<Duration>,
    },
    /// List tokens.
    #[command(after_help = "Examples:\n  longshore token ls")]
    Ls {
        #[command(flatten)]
        connection: Connection,
    },
    /// Revoke a token: from now on it opens nothing.
    #[command(after_help = "Examples:\n  longshore token rm 1f6d0c2b9a4e7385")]
    Rm {
        #[command(flatten)]
        connection: Connection,
        /// Its id.
        id: String,
    },
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Create { connection, name, role, namespace, deployment, valid } => {
            let valid_secs = valid.map(|valid| valid.as_secs());
            let request = TokenRequest { name, role: role.into(), namespace, deployment, valid_secs };
            remote::ask(&connection, async |client| {
                let made = client.create_token(&request).await?;
                remote::show(&connection, &made, |made| format!("{}\n", made.token))
            })
        }
        Command::Ls { connection } => remote::ask(&connection, async |client| {
            let mut rows = client.tokens().await?;
            rows.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
            remote::show(&connection, &rows, |rows| draw(rows))
        }),
        Command::Rm { connection, id } => remote::change(&connection, async |client| client.revoke_token(&id).await),
    }
}

fn draw(tokens: &[TokenRow]) -> String {
    if tokens.is_empty() {
        return "there is no token yet\n".to_owned();
    }
    let rows = tokens.iter().map(|token| {
        let scope = match (&token.namespace, &token.deployment) {
            (None, None) => "everywhere".to_owned(),
            (namespace, deployment) => {
                let any = "*".to_owned();
                format!("{}/{}", namespace.as_ref().unwrap_or(&any), deployment.as_ref().unwrap_or(&any))
            }
        };
        let expires = token.expires_ms.map_or_else(|| "never".to_owned(), calendar::second);
        vec![token.id.clone(), token.name.clone(), token.role.clone(), scope, expires]
    });
    table::draw(&["ID", "NAME", "ROLE", "SCOPE", "EXPIRES"], &rows.collect::<Vec<_>>())
}
