//! `longshore namespace`: namespaces, their usage and their quotas.
//!
//! Owns: its options and its table.

use clap::Subcommand;
use longshore_api::NamespaceRow;
use longshore_model::units;

use crate::{
    daemon_client::{ConnectionArgs, query},
    exit::Exit,
    output::table,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List namespaces with what their deployments request, and the quota.
    #[command(after_help = "Examples:\n  longshore namespace ls")]
    Ls {
        #[command(flatten)]
        connection: ConnectionArgs,
    },
}

pub(crate) fn run(command: &Command) -> anyhow::Result<Exit> {
    let Command::Ls { connection } = command;
    query(connection, async |client| client.namespaces().await, |rows| namespaces_table(rows))
}

fn namespaces_table(rows: &[NamespaceRow]) -> String {
    if rows.is_empty() {
        return "no namespaces\n".to_owned();
    }
    let of = |used: String, quota: Option<String>| quota.map_or(used.clone(), |quota| format!("{used}/{quota}"));
    let rows = rows.iter().map(|NamespaceRow { name, deployments, desired, quota }| {
        vec![
            name.clone(),
            deployments.to_string(),
            of(desired.replicas.to_string(), quota.replicas.map(|count| count.to_string())),
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
    fn cores_have_no_trailing_zeros() {
        assert_eq!([0, 1000, 250, 16_500, 1].map(cores), ["0", "1", "0.25", "16.5", "0.001"]);
    }
}
