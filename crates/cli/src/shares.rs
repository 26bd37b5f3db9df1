//! `longshore namespace`, `quota`, `volume` and `rebalance`: who may have how much, where data lives, and spreading anew.
//!
//! Owns: their options and tables. Must not touch: what a daemon answers.

use clap::{Args, Subcommand};
use longshore_api::{EvenOutMove, NamespaceRow, Quota, VolumeRow};
use longshore_compose::units::{parse_bytes, parse_cpus};
use longshore_model::units;

use crate::{
    exit::Exit,
    print,
    remote::{self, Connection},
    table,
};

/// What can be asked about namespaces.
#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceCommand {
    /// Show namespaces: what is asked for in them, of how much.
    #[command(after_help = "Examples:\n  longshore namespace ls")]
    Ls {
        #[command(flatten)]
        connection: Connection,
    },
}

/// What can be said of ceilings.
#[derive(Debug, Subcommand)]
pub(crate) enum QuotaCommand {
    /// Set the ceilings of a namespace; what is not given is not limited.
    ///
    /// A manifest or a count that asks for more is refused. What runs already goes on, also where it is more.
    #[command(after_help = "Examples:\n  longshore quota set team --replicas 50 --cpu 16 --memory 64GiB")]
    Set {
        #[command(flatten)]
        connection: Connection,
        /// The namespace.
        namespace: String,
        /// Most replicas.
        #[arg(long, value_name = "COUNT")]
        replicas: Option<u64>,
        /// Most cores, requests added up.
        #[arg(long, value_name = "CORES", value_parser = parse_cpus)]
        cpu: Option<u64>,
        /// Most memory, limits and overhead added up.
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
        memory: Option<u64>,
    },
    /// Take the ceilings of a namespace away.
    #[command(after_help = "Examples:\n  longshore quota rm team")]
    Rm {
        #[command(flatten)]
        connection: Connection,
        /// The namespace.
        namespace: String,
    },
}

/// What can be asked about volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Show volumes, the node each one's data is on, and who mounts it.
    #[command(after_help = "Examples:\n  longshore volume ls")]
    Ls {
        #[command(flatten)]
        connection: Connection,
    },
}

/// Say which replicas would move to spread services more evenly, or have them moved.
///
/// Replicas with volumes, global ones and those of services with `rebalance: off` stay. Moves are made one after the
/// other, the new replica before the old one stops.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore rebalance --plan\n  longshore rebalance --apply")]
pub(crate) struct Rebalance {
    #[command(flatten)]
    connection: Connection,
    /// Only say what would move; so it is unless `--apply` is given.
    #[arg(long, conflicts_with = "apply")]
    plan: bool,
    /// Have it done.
    #[arg(long)]
    apply: bool,
}

pub(crate) fn namespace(command: &NamespaceCommand) -> anyhow::Result<Exit> {
    let NamespaceCommand::Ls { connection } = command;
    remote::ask(connection, async |client| {
        remote::show(connection, &client.namespaces().await?, |rows| draw_namespaces(rows))
    })
}

pub(crate) fn quota(command: QuotaCommand) -> anyhow::Result<Exit> {
    let (connection, namespace, quota) = match command {
        QuotaCommand::Set { connection, namespace, replicas, cpu, memory } => {
            if (replicas, cpu, memory) == (None, None, None) {
                print::note(
                    "error: no ceiling is given\n\nhint: `--replicas`, `--cpu` or `--memory`; `quota rm` removes all",
                );
                return Ok(Exit::BadInput);
            }
            (connection, namespace, Quota { replicas, cpu_millis: cpu, memory_bytes: memory })
        }
        QuotaCommand::Rm { connection, namespace } => (connection, namespace, Quota::default()),
    };
    remote::change(&connection, async |client| client.set_quota(&namespace, &quota).await)
}

pub(crate) fn volume(command: &VolumeCommand) -> anyhow::Result<Exit> {
    let VolumeCommand::Ls { connection } = command;
    remote::ask(connection, async |client| {
        remote::show(connection, &client.volumes().await?, |rows| draw_volumes(rows))
    })
}

pub(crate) fn rebalance(options: &Rebalance) -> anyhow::Result<Exit> {
    let connection = &options.connection;
    if options.apply {
        return remote::change(connection, async |client| client.even_out().await);
    }
    remote::ask(connection, async |client| {
        remote::show(connection, &client.even_out_plan().await?, |moves| draw_moves(moves))
    })
}

fn draw_namespaces(rows: &[NamespaceRow]) -> String {
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

fn draw_volumes(rows: &[VolumeRow]) -> String {
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

fn draw_moves(moves: &[EvenOutMove]) -> String {
    if moves.is_empty() {
        return "nothing would move\n".to_owned();
    }
    let rows = moves.iter().map(|it| vec![it.replica.clone(), it.from.clone(), it.to.clone()]);
    table::draw(&["REPLICA", "FROM", "TO"], &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_written_without_idle_digits() {
        assert_eq!([0, 1000, 250, 16_500, 1].map(cores), ["0", "1", "0.25", "16.5", "0.001"]);
    }
}
