//! `longshore ps`, `images` and `port`: replicas, images and ports of a deployment, in the words of Compose.
//!
//! Owns: their options and tables. Must not touch: which replicas belong together; `daemon_client::workload` decides that.

use clap::Args;
use longshore_api::{Client, Port, PortMode, Replica, ReplicaState, Service, Status};
use serde::Serialize;

use crate::{
    daemon_client::{
        NamespaceArgs, with_client,
        workload::{self, Workload},
    },
    exit::Exit,
    manifest,
    output::{
        print,
        style::{Colour, Tone},
        table,
    },
};

/// List replicas with their image, state, node and ports: of this folder's deployment, else of all.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore ps\n  longshore ps web\n  longshore ps shop -q\n  longshore ps --all")]
pub(crate) struct PsArgs {
    #[command(flatten)]
    scope: NamespaceArgs,
    /// A deployment, service or replica.
    name: Option<String>,
    /// Every deployment of the namespace, whatever the folder.
    #[arg(short, long, conflicts_with = "name")]
    all: bool,
    /// Print the replica ids only.
    #[arg(short, long)]
    quiet: bool,
}

/// One row of `ps`.
#[derive(Debug, Serialize)]
struct PsRow {
    replica: String,
    deployment: String,
    service: String,
    image: String,
    state: ReplicaState,
    node: Option<String>,
    /// As `0.0.0.0:8080->80/tcp`.
    ports: Vec<String>,
}

pub(crate) fn ps(args: &PsArgs) -> anyhow::Result<Exit> {
    with_client(&args.scope.connection, async |client| {
        let extent = if args.all { Extent::Namespace } else { Extent::Folder };
        let (only, status) = selected(client, &args.scope, args.name.as_deref(), extent).await?;
        let shown = status.replicas.iter().filter(|it| only.as_ref().is_none_or(|only| only.contains(it)));
        let rows: Vec<PsRow> = shown.map(|replica| row(replica, &status)).collect();
        if args.quiet {
            print::stdout(&rows.iter().fold(String::new(), |out, row| out + &row.replica + "\n"))?;
            return Ok(Exit::Success);
        }
        args.scope.connection.print(&rows, |rows| ps_table(rows))
    })
}

/// What is shown without a name.
#[derive(Clone, Copy)]
enum Extent {
    /// The deployment of this folder, if it is deployed.
    Folder,
    /// Every deployment of the namespace.
    Namespace,
}

/// The workload to show and the status of the namespace. Without a name and without a deployment of this folder all are
/// shown.
async fn selected(
    client: &Client,
    scope: &NamespaceArgs,
    name: Option<&str>,
    extent: Extent,
) -> anyhow::Result<(Option<Workload>, Status)> {
    if name.is_some()
        && let Some((found, status)) = workload::find(client, scope, name).await?
    {
        return Ok((Some(found), status));
    }
    if let Some(name) = name {
        // Refused with a suggestion.
        client.deployment(scope.namespace(), name).await?;
    }
    let mut status = client.status(scope.namespace(), None).await?;
    status.deployments.retain(|it| it.namespace == scope.namespace());
    status.replicas.retain(|it| it.namespace == scope.namespace());
    let folder = match extent {
        Extent::Folder => manifest::folder_deployment(scope.namespace()),
        Extent::Namespace => None,
    };
    let own = status.deployments.iter().find(|it| Some(&it.name) == folder.as_ref());
    let only = own.map(|own| Workload { deployment: own.clone(), service: None, replica: None });
    Ok((only, status))
}

fn row(replica: &Replica, status: &Status) -> PsRow {
    let of_it = |name: &str| status.deployments.iter().find(|deployment| deployment.name == name);
    let service = of_it(&replica.deployment)
        .and_then(|deployment| deployment.services.iter().find(|service| service.name == replica.service));
    PsRow {
        replica: replica.id.clone(),
        deployment: replica.deployment.clone(),
        service: replica.service.clone(),
        image: service.map_or_else(String::new, |service| service.image.clone()),
        state: replica.state.clone(),
        node: replica.node.clone(),
        ports: service.map(|service| ports(service, Some(replica))).unwrap_or_default(),
    }
}

/// The ports of a service as `LISTENS->TARGET`, with what the engine bound for this replica where it reports that.
fn ports(service: &Service, replica: Option<&Replica>) -> Vec<String> {
    let bound = replica.map(Replica::bound_ports).unwrap_or_default();
    let shown = |port: &Port| {
        let target = format!("{}/{}", port.target, port.protocol);
        let mut engine = bound.iter().filter(|it| it.is_for(port.target, port.protocol.as_str()) && it.at.is_ipv4());
        let engine = engine.next().map(|it| it.at.to_string());
        let listens = |published: u16| format!("{}:{published}", port.host_ip.as_deref().unwrap_or("0.0.0.0"));
        let ingress = port.published.filter(|_| port.mode == PortMode::Ingress).map(listens);
        match ingress.or(engine).or_else(|| port.published.map(listens)) {
            Some(listens) => format!("{listens}->{target}"),
            None => target,
        }
    };
    service.ports.iter().map(shown).collect()
}

fn ps_table(rows: &[PsRow]) -> String {
    if rows.is_empty() {
        return "no replicas\n".to_owned();
    }
    let colour = Colour::of_stdout();
    let rows = rows.iter().map(|row| {
        let state = colour.paint(Tone::of_replica(&row.state), row.state.as_str());
        let node = row.node.clone().unwrap_or_default();
        vec![row.replica.clone(), row.image.clone(), row.service.clone(), state, node, row.ports.join(", ")]
    });
    table::draw(&["REPLICA", "IMAGE", "SERVICE", "STATE", "NODE", "PORTS"], &rows.collect::<Vec<_>>())
}

/// List the images of services and the nodes that run them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore images\n  longshore images shop -o json")]
pub(crate) struct ImagesArgs {
    #[command(flatten)]
    scope: NamespaceArgs,
    /// A deployment or service.
    name: Option<String>,
}

/// One row of `images`.
#[derive(Debug, Serialize)]
struct ImageRow {
    deployment: String,
    service: String,
    image: String,
    /// Nodes with a replica of it.
    nodes: Vec<String>,
}

pub(crate) fn images(args: &ImagesArgs) -> anyhow::Result<Exit> {
    with_client(&args.scope.connection, async |client| {
        let (only, status) = selected(client, &args.scope, args.name.as_deref(), Extent::Folder).await?;
        let mut rows = Vec::new();
        for deployment in &status.deployments {
            for service in &deployment.services {
                let own =
                    Workload { deployment: deployment.clone(), service: Some(service.name.clone()), replica: None };
                let asked = only.as_ref().is_none_or(|only| {
                    only.deployment.name == deployment.name && only.services().contains(&service.name)
                });
                let replicas = status.replicas.iter().filter(|replica| own.contains(replica));
                let mut nodes: Vec<String> = replicas.filter_map(|replica| replica.node.clone()).collect();
                nodes.sort();
                nodes.dedup();
                let (deployment, name) = (deployment.name.clone(), service.name.clone());
                if asked {
                    rows.push(ImageRow { deployment, service: name, image: service.image.clone(), nodes });
                }
            }
        }
        args.scope.connection.print(&rows, |rows| images_table(rows))
    })
}

fn images_table(rows: &[ImageRow]) -> String {
    if rows.is_empty() {
        return "nothing is deployed\n".to_owned();
    }
    let rows = rows
        .iter()
        .map(|row| vec![row.image.clone(), format!("{}/{}", row.deployment, row.service), row.nodes.join(", ")]);
    table::draw(&["IMAGE", "SERVICE", "NODES"], &rows.collect::<Vec<_>>())
}

/// Print where a port of a service listens.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  longshore port front\n  longshore port front 80\n  longshore port shop/front 80/tcp"
)]
pub(crate) struct PortArgs {
    #[command(flatten)]
    scope: NamespaceArgs,
    /// A service or replica.
    service: String,
    /// The port inside the replica; every port unless given.
    #[arg(value_name = "PORT[/PROTOCOL]")]
    port: Option<String>,
}

pub(crate) fn port(args: &PortArgs) -> anyhow::Result<Exit> {
    with_client(&args.scope.connection, async |client| {
        let Some((found, status)) = workload::find(client, &args.scope, Some(&args.service)).await? else {
            client.deployment(args.scope.namespace(), &args.service).await?;
            return Ok(Exit::Error);
        };
        let mut listens = Vec::new();
        for service in found.deployment.services.iter().filter(|it| found.services().contains(&it.name)) {
            let replica = status.replicas.iter().filter(|it| found.contains(it) && it.service == service.name);
            let running = replica.into_iter().find(|it| it.state == ReplicaState::Running);
            listens.extend(ports(service, running));
        }
        if let Some(asked) = &args.port {
            let asked = if asked.contains('/') { asked.clone() } else { format!("{asked}/tcp") };
            listens.retain(|port| port.rsplit("->").next() == Some(asked.as_str()));
            if listens.is_empty() {
                anyhow::bail!(
                    "`{}` publishes no port {asked}\n\nhint: `longshore port {}` lists its ports",
                    found.name(),
                    args.service
                );
            }
        }
        let text = |listens: &Vec<String>| match (listens.as_slice(), &args.port) {
            ([], _) => "no published ports\n".to_owned(),
            // A single port prints its address alone, as scripts expect it.
            ([one], Some(_)) => one.split("->").next().unwrap_or_default().to_owned() + "\n",
            (several, _) => several.join("\n") + "\n",
        };
        args.scope.connection.print(&listens, text)
    })
}
