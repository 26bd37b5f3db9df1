//! The words for nodes.
//!
//! Owns: options, and which question of the client each word is.

use clap::Subcommand;
use longshore_api::{Changed, Client, ClientError, DrainRequest, LabelRequest, RemoveNode};

use super::{Connection, ask, change, commands::pair, show, tables};
use crate::{
    emptying,
    exit::Exit,
    live::{Live, Side},
    wait::Patience,
};

/// What can be said of nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show all nodes.
    #[command(after_help = "Examples:\n  longshore node ls")]
    Ls,
    /// Show all that is known of one node.
    #[command(after_help = "Examples:\n  longshore node inspect n1")]
    Inspect {
        /// The node.
        node: String,
    },
    /// Move everything away and place nothing new.
    #[command(after_help = "Examples:\n  longshore node drain n1 --wait\n  longshore node drain n1 --deadline 600")]
    Drain {
        #[command(flatten)]
        patience: Patience,
        /// The node.
        node: String,
        /// Seconds jobs may take to finish.
        #[arg(long, value_name = "SECONDS")]
        deadline: Option<u64>,
    },
    /// Use a node again that was drained or paused.
    #[command(alias = "undrain", after_help = "Examples:\n  longshore node activate n1")]
    Activate {
        /// The node.
        node: String,
    },
    /// Place nothing new; what runs stays.
    #[command(after_help = "Examples:\n  longshore node pause n1")]
    Pause {
        /// The node.
        node: String,
    },
    /// Give a node that is away up for lost.
    #[command(after_help = "Examples:\n  longshore node lost n9")]
    Lost {
        /// The node.
        node: String,
    },
    /// Cut a node of `longshore up --nodes` off, as a torn cable would: it runs on, and nobody hears of it.
    #[command(after_help = "Examples:\n  longshore node cut n1")]
    Cut {
        /// The node.
        node: String,
    },
    /// Mend what was cut.
    #[command(after_help = "Examples:\n  longshore node mend n1")]
    Mend {
        /// The node.
        node: String,
    },
    /// Set labels; an empty value takes the label away.
    #[command(after_help = "Examples:\n  longshore node label n1 zone=east disk=")]
    Label {
        /// The node.
        node: String,
        /// The labels.
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = pair)]
        labels: Vec<(String, String)>,
    },
    /// Empty a node and take it out of the cluster.
    #[command(
        alias = "remove",
        after_help = "Examples:\n  longshore node rm n1 --wait\n  longshore node rm n1 --force"
    )]
    Rm {
        #[command(flatten)]
        patience: Patience,
        /// The node.
        node: String,
        /// Without emptying it first.
        #[arg(long)]
        force: bool,
    },
}

pub(crate) fn run(connection: &Connection, command: Command) -> anyhow::Result<Exit> {
    let tell =
        |node: String, word: &'static str| change(connection, async move |client| client.tell_node(&node, word).await);
    match command {
        Command::Ls => {
            ask(connection, async |client| show(connection, &client.nodes().await?, |nodes| tables::nodes(nodes)))
        }
        Command::Inspect { node } => {
            ask(connection, async |client| show(connection, &client.node(&node).await?, tables::node))
        }
        Command::Drain { patience, node, deadline } => {
            let request = DrainRequest { deadline_secs: deadline };
            emptied(connection, patience, &node, async |client| client.drain(&node, request).await)
        }
        Command::Activate { node } => tell(node, "activate"),
        Command::Pause { node } => tell(node, "pause"),
        Command::Lost { node } => tell(node, "lost"),
        Command::Cut { node } => tell(node, "cut"),
        Command::Mend { node } => tell(node, "mend"),
        Command::Label { node, labels } => {
            let request = LabelRequest { labels: labels.into_iter().collect() };
            change(connection, async |client| client.label(&node, &request).await)
        }
        Command::Rm { patience, node, force } => {
            let how = if force { RemoveNode::AtOnce } else { RemoveNode::Drained };
            emptied(connection, patience, &node, async |client| client.remove_node(&node, how).await)
        }
    }
}

/// Has a node emptied, and waits until it is where that was asked for.
fn emptied(
    connection: &Connection,
    patience: Patience,
    node: &str,
    word: impl AsyncFnOnce(&Client) -> Result<Changed, ClientError>,
) -> anyhow::Result<Exit> {
    ask(connection, async |client| {
        let changed = word(client).await?;
        let exit = match patience.limit() {
            Some(limit) => {
                let ended = emptying::wait(client, node, limit, &mut Live::new(Side::Err)).await?;
                ended.told_of(node, &format!("`longshore node inspect {node}` shows what is left there, and why"))
            }
            None => Exit::Success,
        };
        show(connection, &changed, tables::changed)?;
        Ok(exit)
    })
}
