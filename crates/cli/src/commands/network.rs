//! `longshore network` and `longshore service`: which services share a network, and how a service is reached.
//!
//! Owns: their options and tables. Must not touch: addresses; the daemon computes them.

use clap::Subcommand;
use longshore_api::{NetworkRow, ServiceNetwork};

use crate::{
    daemon_client::{ConnectionArgs, query, with_client},
    exit::Exit,
    output::{print, style::escape_control, table},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the networks that services are on.
    #[command(after_help = "Examples:\n  longshore network ls")]
    Ls {
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Show one network.
    #[command(after_help = "Examples:\n  longshore network inspect default/shop/default")]
    Inspect {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Its name, as `network ls` prints it.
        network: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Show how a service is reached: its address, its replicas and its published ports.
    #[command(after_help = "Examples:\n  longshore service inspect shop/web")]
    Inspect {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Its namespace.
        #[arg(long, value_name = "NAMESPACE", default_value = "default")]
        namespace: String,
        /// The service.
        #[arg(value_name = "DEPLOYMENT/SERVICE")]
        service: String,
    },
}

pub(crate) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Ls { connection } => {
            query(connection, async |client| client.networks().await, |rows| networks_table(rows))
        }
        Command::Inspect { connection, network } => with_client(connection, async |client| {
            let rows = client.networks().await?;
            match rows.into_iter().find(|row| row.name == *network) {
                Some(row) => connection.print(&row, network_table),
                None => {
                    print::stderr(&format!(
                        "error: there is no network `{network}`\n\nhint: `longshore network ls` lists them"
                    ));
                    Ok(Exit::Error)
                }
            }
        }),
    }
}

pub(crate) fn run_service(command: &ServiceCommand) -> anyhow::Result<Exit> {
    let ServiceCommand::Inspect { connection, namespace, service } = command;
    let Some((deployment, service)) = service.split_once('/') else {
        print::stderr(&format!("error: `{service}` is not a service\n\nhint: write it like `shop/web`"));
        return Ok(Exit::BadInput);
    };
    query(connection, async |client| client.service_network(namespace, deployment, service).await, service_table)
}

fn networks_table(rows: &[NetworkRow]) -> String {
    if rows.is_empty() {
        return "no networks\n".to_owned();
    }
    let rows = rows.iter().map(|row| {
        let services = escape_control(&row.services.join(", "));
        vec![escape_control(&row.name), kind(row).to_owned(), row.replicas.to_string(), services]
    });
    table::draw(&["NETWORK", "KIND", "REPLICAS", "SERVICES"], &rows.collect::<Vec<_>>())
}

const fn kind(row: &NetworkRow) -> &'static str {
    match (row.internal, row.ipv6) {
        (true, true) => "internal, IPv6",
        (true, false) => "internal",
        (false, true) => "IPv6",
        (false, false) => "",
    }
}

fn network_table(row: &NetworkRow) -> String {
    let yes = |yes| if yes { "yes" } else { "no" }.to_owned();
    let rows = [
        ("internal", yes(row.internal)),
        ("IPv6 names", yes(row.ipv6)),
        ("replicas", row.replicas.to_string()),
        ("services", escape_control(&row.services.join(", "))),
    ];
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    table::draw(&["NETWORK", &escape_control(&row.name)], &rows)
}

fn service_table(service: &ServiceNetwork) -> String {
    let name = format!("{}/{}", service.deployment, service.service);
    let facts = [
        ("address", service.vips.join(", ")),
        ("name leads to", service.endpoint_mode.clone()),
        ("networks", escape_control(&service.networks.join(", "))),
        ("published ports", service.ports.join(", ")),
    ];
    let facts: Vec<Vec<String>> = facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let endpoints = service.endpoints.iter().map(|endpoint| {
        let serves = if endpoint.serves { "yes" } else { "no" }.to_owned();
        vec![endpoint.replica.clone(), endpoint.node.clone(), endpoint.addresses.join(", "), serves]
    });
    let endpoints = table::draw(&["REPLICA", "NODE", "ADDRESSES", "SERVES"], &endpoints.collect::<Vec<_>>());
    format!("{}\n{endpoints}", table::draw(&["SERVICE", &name], &facts))
}
