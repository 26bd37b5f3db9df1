//! Commands that ask a daemon.
//!
//! Owns: their options, where the daemon is looked for, and how its answers are shown.
//! Invariant: `-o json` says everything the daemon said; a refusal has exit code 1, bad input 2.

mod beside;
mod commands;
mod nodes;
mod tables;
mod whatif;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use longshore_api::{Changed, Client, ClientError, Endpoint, Envelope, Token, TokenError, TokenKind};
use serde::Serialize;

pub(crate) use self::commands::{Command, pair, run};
use crate::{exit::Exit, place, print, style::plain, suggest};

/// Where the daemon is, and how its answer is shown.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// The daemon's socket.
    #[arg(long, env = "LONGSHORE_SOCKET", value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// A server's address, instead of a socket of this machine.
    #[arg(long, env = "LONGSHORE_ADDRESS", value_name = "ADDRESS", global = true, requires = "token")]
    address: Option<String>,
    /// The token for that address.
    #[arg(long, env = "LONGSHORE_TOKEN", value_name = "TOKEN", global = true, hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// How an answer is shown.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Form {
    /// How the answer is shown.
    #[arg(short, long, value_enum, default_value_t = Shown::Text, global = true)]
    output: Shown,
}

/// The same, and the namespace that names are looked for in.
#[derive(Debug, Args)]
pub(crate) struct Scoped {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// The namespace that is meant; `default` unless given.
    #[arg(short, long, env = "LONGSHORE_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,
}

/// The namespace that needs not be named.
const DEFAULT: &str = "default";

impl Scoped {
    /// The namespace that names are looked for in.
    pub(crate) fn namespace(&self) -> &str {
        self.named().unwrap_or(DEFAULT)
    }

    /// The namespace, where one was named.
    pub(crate) fn named(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// A replica as `status` prints it: outside `default` with its namespace in front, whether that was typed or not.
    pub(crate) fn printed(&self, replica: &str) -> String {
        match self.namespace() {
            DEFAULT => replica.to_owned(),
            namespace if replica.starts_with(&format!("{namespace}.")) => replica.to_owned(),
            namespace => format!("{namespace}.{replica}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shown {
    /// For people.
    Text,
    /// Everything, for programs.
    Json,
    /// The same, easier to read.
    Yaml,
}

/// Asks, and tells apart who is away and who says no.
pub(crate) fn ask(
    connection: &Connection,
    question: impl AsyncFnOnce(&Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("the runtime did not start")?;
    let client = match connection.endpoint() {
        Ok(endpoint) => Client::new(endpoint),
        Err(error) => {
            print::note(&format!("error: {error}"));
            return Ok(Exit::BadInput);
        }
    };
    let answer = runtime.block_on(question(&client));
    let Err(error) = answer else { return answer };
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused(envelope)) => {
            let nearest = runtime.block_on(suggest::nearest(&client, envelope));
            Ok(refused(envelope, nearest.as_deref().or(envelope.hint())))
        }
        Some(ClientError::Unreachable { .. }) => {
            print::note(&format!("error: {error:#}\n\nhint: {}", connection.where_else()));
            Ok(Exit::Trouble)
        }
        Some(ClientError::Broken { .. } | ClientError::Garbled { .. }) | None => Err(error),
    }
}

/// Tells that somebody said no, and what to do about it where that is known.
pub(crate) fn refused(envelope: &Envelope, hint: Option<&str>) -> Exit {
    let lines: Vec<String> = envelope.to_string().lines().map(plain).collect();
    print::note(&format!("error: {}", lines.join("\n")));
    if let Some(hint) = hint {
        print::note(&format!("\nhint: {hint}"));
    }
    Exit::Trouble
}

pub(crate) fn change(
    connection: &Connection,
    asked: impl AsyncFnOnce(&Client) -> Result<Changed, ClientError>,
) -> anyhow::Result<Exit> {
    ask(connection, async |client| show(connection, &asked(client).await?, tables::changed))
}

/// Prints an answer as it was asked for.
pub(crate) fn show<T: Serialize>(
    connection: &Connection,
    answer: &T,
    draw: impl FnOnce(&T) -> String,
) -> anyhow::Result<Exit> {
    connection.form.show(answer, draw)
}

/// An answer as text.
pub(crate) fn shown<T: Serialize>(how: Shown, answer: &T, draw: impl FnOnce(&T) -> String) -> anyhow::Result<String> {
    Ok(match how {
        Shown::Text => draw(answer),
        Shown::Json => serde_json::to_string_pretty(answer)? + "\n",
        Shown::Yaml => longshore_compose::yaml::emit::emit(&serde_json::to_value(answer)?),
    })
}

impl Form {
    pub(crate) const fn output(self) -> Shown {
        self.output
    }

    /// Prints an answer.
    pub(crate) fn show<T: Serialize>(self, answer: &T, draw: impl FnOnce(&T) -> String) -> anyhow::Result<Exit> {
        print::print(&shown(self.output, answer, draw)?)?;
        Ok(Exit::Success)
    }
}

impl Connection {
    pub(crate) const fn output(&self) -> Shown {
        self.form.output
    }

    /// What to try where nobody answers.
    const fn where_else(&self) -> &'static str {
        match self.address {
            Some(_) => "check the address; a daemon is heard there if it was started with `--listen`",
            None => "start it with `longshore server` or `longshore up`, or name its socket with `--socket`",
        }
    }

    fn endpoint(&self) -> Result<Endpoint, TokenError> {
        if let (Some(address), Some(token)) = (&self.address, &self.token) {
            let token = Token::of_kind(TokenKind::Operator, token)?;
            return Ok(Endpoint::Tls { address: address.clone(), token });
        }
        Ok(Endpoint::Unix(self.socket.clone().unwrap_or_else(place::socket)))
    }
}
