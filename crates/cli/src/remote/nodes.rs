//! The words for nodes.

use clap::Subcommand;
use longshore_api::{DrainRequest, LabelRequest, RemoveNode};

use super::{Connection, ask, change, commands::pair, show, tables};
use crate::exit::Exit;

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
    #[command(after_help = "Examples:\n  longshore node drain n1")]
    Drain {
        /// The node.
        node: String,
        /// Seconds jobs may take to finish.
        #[arg(long, value_name = "SECONDS")]
        deadline: Option<u64>,
    },
    /// Use it.
    #[command(after_help = "Examples:\n  longshore node activate n1")]
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
    #[command(after_help = "Examples:\n  longshore node rm n1")]
    Rm {
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
        Command::Drain { node, deadline } => {
            let request = DrainRequest { deadline_secs: deadline };
            change(connection, async |client| client.drain(&node, request).await)
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
        Command::Rm { node, force } => {
            let how = if force { RemoveNode::AtOnce } else { RemoveNode::Drained };
            change(connection, async |client| client.remove_node(&node, how).await)
        }
    }
}
