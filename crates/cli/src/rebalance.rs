//! `longshore rebalance`: spreading anew what came together.
//!
//! Owns: its options and its table. Must not touch: what moves; the daemon says.

use clap::Args;
use longshore_api::EvenOutMove;

use crate::{
    exit::Exit,
    remote::{self, Connection},
    table,
};

/// Say which replicas would move to spread services more evenly, or have them moved.
///
/// Replicas with volumes, global ones and those of services with `rebalance: off` stay. Moves are made one after the
/// other, the new replica before the old one stops.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore rebalance --plan\n  longshore rebalance --apply")]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
    /// Only say what would move; so it is unless `--apply` is given.
    #[arg(long, conflicts_with = "apply")]
    plan: bool,
    /// Have it done.
    #[arg(long)]
    apply: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let connection = &options.connection;
    if options.apply {
        return remote::change(connection, async |client| client.even_out().await);
    }
    remote::ask(connection, async |client| {
        remote::show(connection, &client.even_out_plan().await?, |moves| draw(moves))
    })
}

fn draw(moves: &[EvenOutMove]) -> String {
    if moves.is_empty() {
        return "nothing would move\n".to_owned();
    }
    let rows = moves.iter().map(|it| vec![it.replica.clone(), it.from.clone(), it.to.clone()]);
    table::draw(&["REPLICA", "FROM", "TO"], &rows.collect::<Vec<_>>())
}
