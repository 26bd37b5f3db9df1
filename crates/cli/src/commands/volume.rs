//! `longshore volume`: volumes and the nodes their data is on.
//!
//! Owns: its options and its table.

use clap::Subcommand;
use longshore_api::VolumeRow;

use crate::{
    daemon_client::{ConnectionArgs, query},
    exit::Exit,
    output::table,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List volumes with the node their data is on and the services that mount them.
    #[command(after_help = "Examples:\n  longshore volume ls")]
    Ls {
        #[command(flatten)]
        connection: ConnectionArgs,
    },
}

pub(crate) fn run(command: &Command) -> anyhow::Result<Exit> {
    let Command::Ls { connection } = command;
    query(connection, async |client| client.volumes().await, |rows| volumes_table(rows))
}

fn volumes_table(rows: &[VolumeRow]) -> String {
    if rows.is_empty() {
        return "no volumes\n".to_owned();
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
