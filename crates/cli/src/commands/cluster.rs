//! `longshore cluster`: members, settings, joining and recovery.
//!
//! Owns: its options and its tables. Must not touch: membership; the daemon and `longshore_server` change it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use ipnet::Ipv4Net;
use longshore_api::{ClusterStatus, JoinTokenRequest, Token, TokenKind};
use longshore_model::{
    ClusterConfig,
    settings::{Setting, SettingError},
};
use longshore_server::{JoinConfig, JoinError, Joined, RecoveredCluster, StartError};
use serde::Serialize;

use crate::{
    daemon_client::{ConnectionArgs, print_refusal, query, with_client},
    exit::Exit,
    input,
    output::{OutputArgs, print, table},
    paths::{self, LocalNode, NodeArgs},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the members of the control plane, its voters and its leader.
    #[command(after_help = "Examples:\n  longshore cluster status")]
    Status {
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Create a join token for one node.
    #[command(after_help = "Examples:\n  longshore cluster token --worker --valid 10m")]
    Token {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// The node runs replicas and never votes.
        #[arg(long)]
        worker: bool,
        /// How long the token is valid: a number and s, m, h or d.
        #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = input::duration)]
        valid: Duration,
    },
    /// Create a new cluster with this machine as its first server. Then start `longshore server`.
    #[command(after_help = "Examples:\n  longshore cluster init --advertise 10.0.0.1:7474")]
    Init {
        /// Address at which other nodes reach this one; none unless given.
        #[arg(long, value_name = "ADDRESS")]
        advertise: Option<String>,
        /// Where the IPv4 addresses of replicas come from, as 10.128.0.0/10; one that is free on this machine unless given.
        #[arg(long, value_name = "NETWORK", value_parser = ipv4_pool)]
        ipv4_pool: Option<Ipv4Net>,
        #[command(flatten)]
        node: NodeArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Encrypt all secrets with a new key and delete the old one. Do this after a server was removed.
    #[command(after_help = "Examples:\n  longshore cluster rotate-key")]
    RotateKey {
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Show the settings of the cluster, or change the named ones.
    #[command(
        after_help = "Examples:\n  longshore cluster settings\n  longshore cluster settings drain_timeout=10m preemption=on"
    )]
    Settings {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Settings to change.
        #[arg(value_name = "NAME=VALUE", value_parser = input::pair)]
        changes: Vec<(String, String)>,
    },
    /// Join a cluster with a join token. Then start `longshore server`.
    #[command(
        after_help = "Examples:\n  longshore cluster join 10.0.0.1:7474 --advertise 10.0.0.2:7474 --token-file token"
    )]
    Join(JoinArgs),
    /// Recover from the permanent loss of a majority: make this server the only voter.
    ///
    /// The daemon must not run, and the other servers must never be started again. This server keeps its whole state.
    #[command(after_help = "Examples:\n  longshore cluster recover")]
    Recover {
        /// Data directory of the daemon; the same default as `longshore server`.
        #[arg(long, env = "LONGSHORE_DATA_DIR", value_name = "DIRECTORY")]
        data_dir: Option<PathBuf>,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// Address of a server of the cluster.
    #[arg(value_name = "ADDRESS")]
    server: String,
    /// Address at which other nodes reach this one.
    #[arg(long, value_name = "ADDRESS")]
    advertise: String,
    /// File with the join token; standard input unless given.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The answer of `cluster init`.
#[derive(Serialize)]
struct CreatedCluster {
    cluster: String,
    node: String,
}

/// The answer of `cluster join`.
#[derive(Serialize)]
struct JoinedCluster {
    cluster: String,
    servers: Vec<String>,
}

/// The answer of `cluster recover` and `restore`.
#[derive(Serialize)]
struct RecoveryAnswer {
    cluster: String,
    node: String,
    index: u64,
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Status { connection } => query(&connection, async |client| client.cluster().await, members_table),
        Command::Token { connection, worker, valid } => {
            let request = JoinTokenRequest { worker, valid_secs: Some(valid.as_secs()) };
            query(&connection, async |client| client.join_token(&request).await, |made| format!("{}\n", made.token))
        }
        Command::Init { advertise, ipv4_pool, node, output } => {
            let LocalNode { name, data_dir } = node.resolve()?;
            let cluster = match longshore_server::init(&data_dir, &name, advertise, ipv4_pool) {
                Err(error @ StartError::Taken { .. }) => return Ok(folder_taken(&error.into(), &data_dir)),
                created => created?,
            };
            let created = CreatedCluster { cluster, node: name.to_string() };
            output.print(&created, |CreatedCluster { cluster, node }| {
                format!("created cluster {cluster} with {node} as its first server\n")
            })?;
            print::stderr(
                "hint: start `longshore server --listen ADDRESS`, then create join tokens with `longshore cluster token`",
            );
            Ok(Exit::Success)
        }
        Command::RotateKey { connection } => query(
            &connection,
            async |client| client.rotate_key().await,
            |rotated| format!("secrets are encrypted with key {} from now on\n", rotated.key),
        ),
        Command::Settings { connection, changes } => with_client(&connection, async |client| {
            if !changes.is_empty() {
                client.set(&changes.into_iter().collect()).await?;
            }
            connection.print(&client.settings().await?, settings_table)
        }),
        Command::Join(args) => join(args),
        Command::Recover { data_dir, output } => {
            let recovered = longshore_server::recover(paths::data_dir(data_dir)?);
            print_recovered(runtime()?.block_on(recovered)?, output)
        }
    }
}

/// An IPv4 pool that a cluster can have.
fn ipv4_pool(text: &str) -> Result<Ipv4Net, SettingError> {
    let mut config = ClusterConfig::default();
    Setting::find("ipv4_pool")?.set(&mut config, text)?;
    Ok(config.ipv4_pool)
}

fn join(args: JoinArgs) -> anyhow::Result<Exit> {
    let text = input::read("token", args.token_file.as_deref())?;
    let token = match Token::of_kind(TokenKind::Join, &text) {
        Ok(token) => token,
        Err(error) => {
            print::stderr(&format!("error: {error}"));
            return Ok(Exit::BadInput);
        }
    };
    let LocalNode { name: node, data_dir } = args.node.resolve()?;
    let config = JoinConfig { data_dir: data_dir.clone(), node, address: args.advertise, server: args.server, token };
    let Joined { cluster, servers } = match runtime()?.block_on(longshore_server::join(config)) {
        Err(JoinError::Refused(envelope)) => return Ok(print_refusal(&envelope, envelope.hint())),
        Err(error @ JoinError::Taken { .. }) => return Ok(folder_taken(&error.into(), &data_dir)),
        joined => joined?,
    };
    let joined = JoinedCluster { cluster, servers };
    args.output.print(&joined, |JoinedCluster { cluster, servers }| {
        format!("joined cluster {cluster}; its servers: {}\n", servers.join(", "))
    })?;
    print::stderr("hint: start `longshore server --listen ADDRESS` on this node");
    Ok(Exit::Success)
}

/// A daemon that was started before, by its unit perhaps, has made a cluster of its own in the folder.
fn folder_taken(error: &anyhow::Error, data_dir: &Path) -> Exit {
    let folder = data_dir.display();
    print::stderr(&format!(
        "error: {error:#}\n\nhint: a daemon that was started here once made a cluster of its own. If nothing of it is needed, \
         stop the daemon (`systemctl stop longshore`), put the folder aside (`mv {folder} {folder}.old`), and try again; a join \
         token is not used up by this"
    ));
    Exit::Error
}

pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the async runtime did not start")
}

pub(super) fn print_recovered(recovered: RecoveredCluster, output: OutputArgs) -> anyhow::Result<Exit> {
    let RecoveredCluster { cluster, node, index } = recovered;
    let answer = RecoveryAnswer { cluster, node: node.to_string(), index };
    output.print(&answer, |RecoveryAnswer { cluster, node, index }| {
        format!("cluster {cluster} continues with {node} as its only server, index {index}\n")
    })?;
    print::stderr("hint: start `longshore server`, then let other nodes join; the old servers must stay off");
    Ok(Exit::Success)
}

fn members_table(status: &ClusterStatus) -> String {
    let yes = |yes: bool| if yes { "yes" } else { "" }.to_owned();
    let rows = status.members.iter().map(|member| {
        let (log, voter, leader) = (yes(member.keeps_log), yes(member.votes), yes(member.leads));
        let reachable = if member.reachable { "yes" } else { "NO" }.to_owned();
        let behind = member.lag.map_or_else(String::new, |lag| lag.to_string());
        let version = member.version.clone().unwrap_or_default();
        let (node, role, address) = (member.node.clone(), member.role.to_string(), member.address.clone());
        vec![node, role, address, log, voter, leader, reachable, behind, version]
    });
    let heading = ["NODE", "ROLE", "ADDRESS", "LOG", "VOTER", "LEADER", "REACHABLE", "BEHIND", "VERSION"];
    let table = table::draw(&heading, &rows.collect::<Vec<_>>());
    let ClusterStatus { cluster, term, index, .. } = status;
    let open = open_namespaces(&status.namespaces_without_policy);
    format!("cluster {cluster}, term {term}, index {index}\n{}\n\n{table}{open}", quorum(status))
}

/// Namespaces whose manifests may ask everything.
fn open_namespaces(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!("\nwithout a policy: {}; their manifests may ask everything (`longshore policy set`)\n", names.join(", "))
}

/// How many more voters may be lost.
fn quorum(status: &ClusterStatus) -> String {
    let ClusterStatus { voters, reachable_voters, survives_losses, has_quorum, .. } = status;
    let seen = match voters {
        1 => "the only voter is reachable".to_owned(),
        _ => format!("{reachable_voters} of {voters} voters are reachable"),
    };
    match (has_quorum, survives_losses) {
        (false, _) => format!(
            "NO QUORUM: {reachable_voters} of {voters} voters are reachable, {} are needed; nothing can be changed, what runs keeps \
             running",
            voters / 2 + 1
        ),
        (true, 0) if *voters == 1 => format!("{seen}; if it is lost, the cluster is"),
        (true, 0) => format!("{seen}; the loss of ONE MORE ends the quorum, bring the others back first"),
        (true, 1) => format!("{seen}; the quorum survives the loss of 1 more"),
        (true, losses) => format!("{seen}; the quorum survives the loss of {losses} more"),
    }
}

fn settings_table(settings: &BTreeMap<String, String>) -> String {
    let rows = settings.iter().map(|(name, value)| vec![name.clone(), value.clone()]);
    table::draw(&["SETTING", "VALUE"], &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(reachable: [bool; 3]) -> ClusterStatus {
        let row = |(at, reachable): (usize, bool)| {
            serde_json::json!({
                "node": format!("n{at}"), "member": at, "address": format!("10.0.0.{at}:7474"), "role": "server",
                "part": "server", "keeps_log": true, "votes": true, "leads": at == 0, "reachable": reachable,
                "lag": reachable.then_some(at * 3), "version": reachable.then_some("0.1.0"),
            })
        };
        let rows: Vec<serde_json::Value> = reachable.into_iter().enumerate().map(row).collect();
        let seen = u32::try_from(reachable.iter().filter(|it| **it).count()).unwrap();
        serde_json::from_value(serde_json::json!({
            "cluster": "c1", "this_node": "n0", "leading_here": true, "term": 4, "index": 17, "log_entry": 20,
            "members": rows, "has_quorum": seen >= 2, "voters": 3, "reachable_voters": seen,
            "survives_losses": seen.saturating_sub(2),
        }))
        .unwrap()
    }

    #[test]
    fn a_voter_that_was_cut_off_is_seen_and_so_is_what_its_loss_costs() {
        insta::assert_snapshot!(members_table(&members([true, true, false])), @r"
        cluster c1, term 4, index 17
        2 of 3 voters are reachable; the loss of ONE MORE ends the quorum, bring the others back first

        NODE  ROLE    ADDRESS        LOG  VOTER  LEADER  REACHABLE  BEHIND  VERSION
        n0    server  10.0.0.0:7474  yes  yes    yes     yes        0       0.1.0
        n1    server  10.0.0.1:7474  yes  yes            yes        3       0.1.0
        n2    server  10.0.0.2:7474  yes  yes            NO
        ");
    }

    #[test]
    fn the_quorum_is_told_in_a_sentence() {
        insta::assert_snapshot!(quorum(&members([true; 3])), @"3 of 3 voters are reachable; the quorum survives the loss of 1 more");
        insta::assert_snapshot!(quorum(&members([true, false, false])), @"NO QUORUM: 1 of 3 voters are reachable, 2 are needed; nothing can be changed, what runs keeps running");
    }
}
