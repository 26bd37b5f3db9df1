//! `longshore volume`: volumes, the nodes their data is on, and deleting them.
//!
//! Owns: its options, its table, and the question before data is deleted.
//! Must not touch: whether a volume may be deleted; the daemon decides that.
//! Invariant: nothing is deleted without `--yes` or an answer on the terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anyhow::bail;
use clap::Subcommand;
use longshore_api::{Changed, Client, VolumeRow};

use crate::{
    daemon_client::{ConnectionArgs, NamespaceArgs, query, with_client},
    exit::Exit,
    output::{self, print, table},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List volumes with the node their data is on and the services that mount them.
    #[command(after_help = "Examples:\n  longshore volume ls")]
    Ls {
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Show one volume: its node, its name in the engine there, and the services that mount it.
    #[command(after_help = "Examples:\n  longshore volume inspect shop_data")]
    Inspect {
        #[command(flatten)]
        scope: NamespaceArgs,
        /// The volume, as `volume ls` prints it.
        name: String,
    },
    /// Delete volumes that nothing uses, with their data.
    ///
    /// A volume that a deployed service mounts is refused; so is one that Longshore did not create.
    #[command(after_help = "Examples:\n  longshore volume rm shop_data --yes")]
    Rm {
        #[command(flatten)]
        scope: NamespaceArgs,
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
        /// The volumes, as `volume ls` prints them.
        #[arg(required = true)]
        names: Vec<String>,
    },
}

pub(crate) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Ls { connection } => {
            query(connection, async |client| client.volumes().await, |rows| volumes_table(rows))
        }
        Command::Inspect { scope, name } => with_client(&scope.connection, async |client| {
            let row = find(client, scope, name).await?;
            scope.connection.print(&row, details)
        }),
        Command::Rm { scope, yes, names } => with_client(&scope.connection, async |client| {
            let mut rows = Vec::new();
            for name in names {
                rows.push(find(client, scope, name).await?);
            }
            if !*yes && !confirmed(&rows)? {
                return Ok(Exit::Error);
            }
            for row in &rows {
                client.remove_volume(&row.namespace, &row.name).await?;
            }
            scope.connection.print(&Changed::Yes, output::changed)
        }),
    }
}

/// The row of a volume, named with or without its namespace.
async fn find(client: &Client, scope: &NamespaceArgs, name: &str) -> anyhow::Result<VolumeRow> {
    let (namespace, name) = name.split_once('/').unwrap_or((scope.namespace(), name));
    let rows = client.volumes().await?;
    let row = rows.into_iter().find(|row| row.namespace == namespace && row.name == name);
    row.ok_or_else(|| {
        anyhow::anyhow!("there is no volume `{name}` (unknown_volume)\n\nhint: `longshore volume ls` lists them")
    })
}

/// Asks on the terminal whether the data of volumes shall be deleted. An error where there is none to ask on.
pub(crate) fn confirmed(rows: &[VolumeRow]) -> anyhow::Result<bool> {
    let names: Vec<String> = rows.iter().map(|row| format!("`{}` on {}", row.name, row.node)).collect();
    let names = names.join(", ");
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        bail!(
            "this deletes the data of {names}, and there is no terminal to ask on\n\nhint: `--yes` deletes it without asking"
        );
    }
    eprint!("Delete the data of {names}? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    let yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !yes {
        print::stderr("nothing was deleted");
    }
    Ok(yes)
}

fn details(row: &VolumeRow) -> String {
    let used_by = if row.used_by.is_empty() { "–".to_owned() } else { row.used_by.join(", ") };
    let lines = [
        ("volume", format!("{}/{}", row.namespace, row.name)),
        ("deployment", row.deployment.clone()),
        ("node", row.node.clone()),
        ("engine name", row.engine_name.clone()),
        ("used by", used_by),
    ];
    lines.map(|(name, value)| format!("{name:<12} {value}\n")).concat()
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
