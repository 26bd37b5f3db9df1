//! `longshore cluster`: who belongs to it.
//!
//! Owns: its options and its table.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use longshore_api::{ClusterStatus, JoinTokenRequest, Token, TokenKind};
use longshore_server::{BegunAgain, JoinConfig, JoinError, Joined};
use serde::Serialize;

use crate::{
    exit::Exit,
    input,
    place::{self, Seat},
    print,
    remote::{self, Connection, Form},
    table,
};

/// Who makes up the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show who keeps the log, who votes and who leads.
    #[command(after_help = "Examples:\n  longshore cluster status")]
    Status {
        #[command(flatten)]
        connection: Connection,
    },
    /// Make a token that lets one node in, once.
    #[command(after_help = "Examples:\n  longshore cluster token --worker --valid 10m")]
    Token {
        #[command(flatten)]
        connection: Connection,
        /// The node shall run work and never vote.
        #[arg(long)]
        worker: bool,
        /// How long the token is good for: a number and s, m, h or d.
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = input::time)]
        valid: Duration,
    },
    /// Make a new cluster, with this machine as its first server. `longshore server` does the rest.
    #[command(after_help = "Examples:\n  longshore cluster init --advertise 10.0.0.1:7474")]
    Init {
        /// Where this node is reached by the others; nowhere unless given.
        #[arg(long, value_name = "ADDRESS")]
        advertise: Option<String>,
        #[command(flatten)]
        seat: Seat,
        #[command(flatten)]
        form: Form,
    },
    /// Have another key seal all secrets, and forget the one before. Do so after a server was removed.
    #[command(after_help = "Examples:\n  longshore cluster rotate-key")]
    RotateKey {
        #[command(flatten)]
        connection: Connection,
    },
    /// Show the cluster's settings, or change some: those that are not named stay.
    #[command(
        after_help = "Examples:\n  longshore cluster settings\n  longshore cluster settings drain_timeout=10m preemption=on"
    )]
    Settings {
        #[command(flatten)]
        connection: Connection,
        /// What to change.
        #[arg(value_name = "NAME=VALUE", value_parser = remote::pair)]
        changes: Vec<(String, String)>,
    },
    /// Join a cluster: the token becomes this node's place in it. `longshore server` does the rest.
    #[command(
        after_help = "Examples:\n  longshore cluster join 10.0.0.1:7474 --advertise 10.0.0.2:7474 --token-file token"
    )]
    Join(JoinOptions),
    /// Go on with this server alone, when too many others are gone for good for a majority to be left.
    ///
    /// The daemon must not run, and the other servers must never be started again. Nothing this server has is lost.
    #[command(after_help = "Examples:\n  longshore cluster recover")]
    Recover {
        /// Where the daemon keeps everything; as for `longshore server` unless given.
        #[arg(long, env = "LONGSHORE_DATA_DIR", value_name = "DIRECTORY")]
        data_dir: Option<PathBuf>,
        #[command(flatten)]
        form: Form,
    },
}

#[derive(Debug, Args)]
pub(crate) struct JoinOptions {
    /// A server of the cluster.
    #[arg(value_name = "ADDRESS")]
    server: String,
    /// Where this node is reached by the others.
    #[arg(long, value_name = "ADDRESS")]
    advertise: String,
    /// The file that holds the token; standard input unless given.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    seat: Seat,
    #[command(flatten)]
    form: Form,
}

/// A cluster that was made.
#[derive(Serialize)]
struct Made {
    cluster: String,
    node: String,
}

/// A cluster that was joined.
#[derive(Serialize)]
struct Entered {
    cluster: String,
    servers: Vec<String>,
}

/// A cluster that goes on with one server.
#[derive(Serialize)]
struct GoesOn {
    cluster: String,
    node: String,
    index: u64,
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Status { connection } => {
            remote::ask(&connection, async |client| remote::show(&connection, &client.cluster().await?, draw_status))
        }
        Command::Token { connection, worker, valid } => remote::ask(&connection, async |client| {
            let request = JoinTokenRequest { worker, valid_secs: Some(valid.as_secs()) };
            let made = client.join_token(&request).await?;
            remote::show(&connection, &made, |made| format!("{}\n", made.token))
        }),
        Command::Init { advertise, seat, form } => {
            let (folder, node) = seat.taken()?;
            let cluster = longshore_server::init(&folder, &node, advertise)?;
            let made = Made { cluster, node: node.to_string() };
            form.show(&made, |Made { cluster, node }| {
                format!("made cluster {cluster} with {node} as its first server\n")
            })?;
            print::note(
                "hint: start `longshore server --listen ADDRESS`, then `longshore cluster token` lets others in",
            );
            Ok(Exit::Success)
        }
        Command::RotateKey { connection } => remote::ask(&connection, async |client| {
            let rotated = client.rotate_key().await?;
            remote::show(&connection, &rotated, |rotated| format!("key {} seals from now on\n", rotated.key))
        }),
        Command::Settings { connection, changes } => remote::ask(&connection, async |client| {
            if !changes.is_empty() {
                client.set(&changes.into_iter().collect()).await?;
            }
            remote::show(&connection, &client.settings().await?, draw_settings)
        }),
        Command::Join(options) => join(options),
        Command::Recover { data_dir, form } => {
            let folder = place::folder(data_dir)?;
            begun(runtime()?.block_on(longshore_server::recover(folder))?, form)
        }
    }
}

fn join(options: JoinOptions) -> anyhow::Result<Exit> {
    let text = input::read("token", options.token_file.as_deref())?;
    let token = match Token::of_kind(TokenKind::Join, &text) {
        Ok(token) => token,
        Err(error) => {
            print::note(&format!("error: {error}"));
            return Ok(Exit::BadInput);
        }
    };
    let (data_dir, node) = options.seat.taken()?;
    let config = JoinConfig { data_dir, node, address: options.advertise, server: options.server, token };
    let Joined { cluster, servers } = match runtime()?.block_on(longshore_server::join(config)) {
        Err(JoinError::Refused(envelope)) => return Ok(remote::refused(&envelope, envelope.hint())),
        joined => joined?,
    };
    let entered = Entered { cluster, servers };
    options.form.show(&entered, |Entered { cluster, servers }| {
        format!("joined cluster {cluster}; its servers: {}\n", servers.join(", "))
    })?;
    print::note("hint: start `longshore server --listen ADDRESS` on this node");
    Ok(Exit::Success)
}

pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the runtime did not start")
}

pub(crate) fn begun(begun: BegunAgain, form: Form) -> anyhow::Result<Exit> {
    let BegunAgain { cluster, node, index } = begun;
    let goes_on = GoesOn { cluster, node: node.to_string(), index };
    form.show(&goes_on, |GoesOn { cluster, node, index }| {
        format!("cluster {cluster} goes on with {node} as its only server, index {index}\n")
    })?;
    print::note("hint: start `longshore server`, then let others join; old servers must stay off");
    Ok(Exit::Success)
}

fn draw_status(status: &ClusterStatus) -> String {
    let yes = |yes: bool| if yes { "yes" } else { "" }.to_owned();
    let rows = status.members.iter().map(|member| {
        let (log, votes, leads) = (yes(member.keeps_log), yes(member.votes), yes(member.leads));
        vec![member.node.clone(), member.part.clone(), member.address.clone(), log, votes, leads]
    });
    let heading = ["NODE", "PART", "ADDRESS", "LOG", "VOTES", "LEADS"];
    let table = table::draw(&heading, &rows.collect::<Vec<_>>());
    format!("cluster {}, term {}, index {}\n\n{table}", status.cluster, status.term, status.index)
}

fn draw_settings(settings: &BTreeMap<String, String>) -> String {
    let rows = settings.iter().map(|(name, value)| vec![name.clone(), value.clone()]);
    table::draw(&["SETTING", "VALUE"], &rows.collect::<Vec<_>>())
}
