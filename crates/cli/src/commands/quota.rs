//! `longshore quota`: limits of namespaces.
//!
//! Owns: its options. Must not touch: whether a request exceeds a quota; the daemon decides that.

use clap::Subcommand;
use longshore_api::Quota;
use longshore_model::units::{parse_bytes, parse_cpus};

use crate::{
    daemon_client::{ConnectionArgs, change},
    exit::Exit,
    output::print,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set the quota of a namespace; a resource that is not given is unlimited.
    ///
    /// A manifest or a scale that exceeds the quota is refused. Running replicas stay, even above the quota.
    #[command(after_help = "Examples:\n  longshore quota set team --replicas 50 --cpu 16 --memory 64GiB")]
    Set {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// The namespace.
        namespace: String,
        /// Maximum number of replicas.
        #[arg(long, value_name = "COUNT")]
        replicas: Option<u64>,
        /// Maximum sum of CPU reservations.
        #[arg(long, value_name = "CORES", value_parser = parse_cpus)]
        cpu: Option<u64>,
        /// Maximum sum of memory limits and overhead.
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
        memory: Option<u64>,
    },
    /// Remove the quota of a namespace.
    #[command(after_help = "Examples:\n  longshore quota rm team")]
    Rm {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// The namespace.
        namespace: String,
    },
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    let (connection, namespace, quota) = match command {
        Command::Set { connection, namespace, replicas, cpu, memory } => {
            if (replicas, cpu, memory) == (None, None, None) {
                print::stderr(
                    "error: no limit is given\n\nhint: give `--replicas`, `--cpu` or `--memory`; `quota rm` removes all limits",
                );
                return Ok(Exit::BadInput);
            }
            (connection, namespace, Quota { replicas, cpu_millis: cpu, memory_bytes: memory })
        }
        Command::Rm { connection, namespace } => (connection, namespace, Quota::default()),
    };
    change(&connection, async |client| client.set_quota(&namespace, &quota).await)
}
