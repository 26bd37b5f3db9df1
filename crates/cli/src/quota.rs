//! `longshore quota`: the ceilings of namespaces.
//!
//! Owns: its options. Must not touch: whether something fits below a ceiling.

use clap::Subcommand;
use longshore_api::Quota;
use longshore_compose::units::{parse_bytes, parse_cpus};

use crate::{
    exit::Exit,
    print,
    remote::{self, Connection},
};

/// What can be said of ceilings.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    let (connection, namespace, quota) = match command {
        Command::Set { connection, namespace, replicas, cpu, memory } => {
            if (replicas, cpu, memory) == (None, None, None) {
                print::note(
                    "error: no ceiling is given\n\nhint: `--replicas`, `--cpu` or `--memory`; `quota rm` removes all",
                );
                return Ok(Exit::BadInput);
            }
            (connection, namespace, Quota { replicas, cpu_millis: cpu, memory_bytes: memory })
        }
        Command::Rm { connection, namespace } => (connection, namespace, Quota::default()),
    };
    remote::change(&connection, async |client| client.set_quota(&namespace, &quota).await)
}
