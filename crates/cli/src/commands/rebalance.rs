//! `longshore rebalance`: spreads services evenly over the nodes again.
//!
//! Owns: its options and its table. Must not touch: which replicas move; the scheduler decides that.

use clap::Args;
use longshore_api::EvenOutMove;

use crate::{
    daemon_client::{ConnectionArgs, query, with_client},
    exit::Exit,
    output::{EffectWords, table},
};

/// Show which replicas would move to spread services more evenly, or move them.
///
/// Replicas with volumes, of global services and of services with `rebalance: off` stay. Replicas move one at a time;
/// the new one starts before the old one stops.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore rebalance --plan\n  longshore rebalance --apply")]
pub(crate) struct RebalanceArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Only show the moves; the default without `--apply`.
    #[arg(long, conflicts_with = "apply")]
    plan: bool,
    /// Move the replicas.
    #[arg(long)]
    apply: bool,
}

pub(crate) fn run(args: &RebalanceArgs) -> anyhow::Result<Exit> {
    let connection = &args.connection;
    if args.apply {
        return with_client(connection, async |client| {
            let moves = client.even_out_plan().await?.len();
            let changed = client.even_out().await?;
            let words = EffectWords { begun: begun(moves), done: String::new() };
            words.print(connection.output(), changed, None)
        });
    }
    query(connection, async |client| client.even_out_plan().await, |moves| moves_table(moves))
}

/// Replicas move one after another, which takes a while.
fn begun(moves: usize) -> String {
    match moves {
        0 => "nothing would move".to_owned(),
        1 => "moving 1 replica; `longshore rebalance --plan` shows what is left".to_owned(),
        _ => format!("moving {moves} replicas, one after another; `longshore rebalance --plan` shows what is left"),
    }
}

fn moves_table(moves: &[EvenOutMove]) -> String {
    if moves.is_empty() {
        return "nothing would move\n".to_owned();
    }
    let rows = moves.iter().map(|it| vec![it.replica.clone(), it.from.clone(), it.to.clone()]);
    table::draw(&["REPLICA", "FROM", "TO"], &rows.collect::<Vec<_>>())
}
