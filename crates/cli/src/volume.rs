//! `longshore volume`: where data lives.
//!
//! Owns: its options and its table. Must not touch: what a daemon answers.

use clap::Subcommand;
use longshore_api::VolumeRow;

use crate::{
    exit::Exit,
    remote::{self, Connection},
    table,
};

/// What can be asked about volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show volumes, the node each one's data is on, and who mounts it.
    #[command(after_help = "Examples:\n  longshore volume ls")]
    Ls {
        #[command(flatten)]
        connection: Connection,
    },
}

pub(crate) fn run(command: &Command) -> anyhow::Result<Exit> {
    let Command::Ls { connection } = command;
    remote::ask(connection, async |client| remote::show(connection, &client.volumes().await?, |rows| draw(rows)))
}

fn draw(rows: &[VolumeRow]) -> String {
    if rows.is_empty() {
        return "there is no volume yet\n".to_owned();
    }
    let rows = rows.iter().map(|row| {
        vec![
            format!("{}/{}", row.namespace, row.name),
            row.node.clone(),
            row.deployment.clone(),
            row.used_by.join(", "),
        ]
    });
    table::draw(&["VOLUME", "NODE", "DEPLOYMENT", "USED BY"], &rows.collect::<Vec<_>>())
}
