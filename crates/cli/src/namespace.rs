//! `longshore namespace`: who has how much, of how much.
//!
//! Owns: its options and its table. Must not touch: what a daemon answers.

use clap::Subcommand;
use longshore_api::NamespaceRow;
use longshore_model::units;

use crate::{
    exit::Exit,
    remote::{self, Connection},
    table,
};

/// What can be asked about namespaces.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show namespaces: what is asked for in them, of how much.
    #[command(after_help = "Examples:\n  longshore namespace ls")]
    Ls {
        #[command(flatten)]
        connection: Connection,
    },
}

pub(crate) fn run(command: &Command) -> anyhow::Result<Exit> {
    let Command::Ls { connection } = command;
    remote::ask(connection, async |client| remote::show(connection, &client.namespaces().await?, |rows| draw(rows)))
}

fn draw(rows: &[NamespaceRow]) -> String {
    if rows.is_empty() {
        return "there is no namespace yet\n".to_owned();
    }
    let of = |used: String, most: Option<String>| most.map_or(used.clone(), |most| format!("{used}/{most}"));
    let rows = rows.iter().map(|NamespaceRow { name, deployments, desired, quota }| {
        vec![
            name.clone(),
            deployments.to_string(),
            of(desired.replicas.to_string(), quota.replicas.map(|most| most.to_string())),
            of(cores(desired.cpu_millis), quota.cpu_millis.map(cores)),
            of(units::bytes(desired.memory_bytes), quota.memory_bytes.map(units::bytes)),
        ]
    });
    table::draw(&["NAMESPACE", "DEPLOYMENTS", "REPLICAS", "CPU", "MEMORY"], &rows.collect::<Vec<_>>())
}

fn cores(millis: u64) -> String {
    match millis % 1000 {
        0 => (millis / 1000).to_string(),
        part => format!("{}.{}", millis / 1000, format!("{part:03}").trim_end_matches('0')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_written_without_idle_digits() {
        assert_eq!([0, 1000, 250, 16_500, 1].map(cores), ["0", "1", "0.25", "16.5", "0.001"]);
    }
}
