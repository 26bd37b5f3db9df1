//! `longshore node`: lists nodes and changes what operators want of them.
//!
//! Owns: its options and its tables. Must not touch: what follows from a change; the daemon decides that.

use clap::{Args, Subcommand};
use longshore_api::{Changed, Client, ClientError, DrainRequest, Driver, LabelRequest, Node, NodeNetwork, RemoveNode};
use longshore_model::units;

use crate::{
    attribute_args::AttributeArgs,
    daemon_client::{ConnectionArgs, change, query, wait::WaitArgs, wait_drained, with_client},
    exit::Exit,
    input::pair,
    output::{
        EffectWords,
        style::{Colour, Tone, escape_control},
        table,
    },
};

/// List nodes, and drain, pause, label or remove them.
#[derive(Debug, Args)]
pub(crate) struct NodeCommandArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List all nodes.
    #[command(after_help = "Examples:\n  longshore node ls")]
    Ls,
    /// Show one node in detail.
    #[command(after_help = "Examples:\n  longshore node inspect n1")]
    Inspect {
        /// The node.
        node: String,
    },
    /// Move all replicas to other nodes, and place no new ones here.
    #[command(after_help = "Examples:\n  longshore node drain n1 --wait\n  longshore node drain n1 --deadline 600")]
    Drain {
        #[command(flatten)]
        wait: WaitArgs,
        /// The node.
        node: String,
        /// Seconds that jobs may take to finish.
        #[arg(long, value_name = "SECONDS")]
        deadline: Option<u64>,
    },
    /// Use a drained or paused node again.
    #[command(alias = "undrain", after_help = "Examples:\n  longshore node activate n1")]
    Activate {
        /// The node.
        node: String,
    },
    /// Place no new replicas on a node; running ones stay.
    #[command(after_help = "Examples:\n  longshore node pause n1")]
    Pause {
        /// The node.
        node: String,
    },
    /// Declare an unreachable node lost, so that its replicas are replaced.
    #[command(after_help = "Examples:\n  longshore node lost n9")]
    Lost {
        /// The node.
        node: String,
    },
    /// Cut a node of `up --nodes` or `server --nodes` off from the cluster, to try out a network partition: its
    /// replicas keep running, and its heartbeats no longer arrive.
    #[command(hide = true, alias = "cut", after_help = "Examples:\n  longshore node isolate n1")]
    Isolate {
        /// The node.
        node: String,
    },
    /// Reconnect a node that was isolated.
    #[command(hide = true, alias = "mend", after_help = "Examples:\n  longshore node heal n1")]
    Heal {
        /// The node.
        node: String,
    },
    /// Set labels; an empty value removes the label.
    #[command(after_help = "Examples:\n  longshore node label n1 zone=east disk=")]
    Label {
        /// The node.
        node: String,
        /// The labels.
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = pair)]
        labels: Vec<(String, String)>,
    },
    /// Declare attributes of a node; those that are not named stay.
    ///
    /// The flags of `longshore server` declare the same. A daemon that starts with other flags than before puts those
    /// into force that changed.
    #[command(
        after_help = "Examples:\n  longshore node set n1 --pool batch --datacenter east\n  longshore node set n1 \
                            --reserve memory=1GiB,cpu=500m\n  longshore node set n1 --device \
                            gpu=2,vendor=nvidia,model=a100"
    )]
    Set {
        /// The node.
        node: String,
        #[command(flatten)]
        attributes: AttributeArgs,
    },
    /// Mark a node as unfit for new work; what runs there stays.
    #[command(after_help = "Examples:\n  longshore node degrade n1")]
    Degrade {
        /// The node.
        node: String,
    },
    /// End what `degrade` began.
    #[command(after_help = "Examples:\n  longshore node recover n1")]
    Recover {
        /// The node.
        node: String,
    },
    /// Let a node take new work while it is degraded.
    #[command(after_help = "Examples:\n  longshore node override n1\n  longshore node override n1 --off")]
    Override {
        /// The node.
        node: String,
        /// Withdraw it.
        #[arg(long)]
        off: bool,
    },
    /// Drain a node and remove it from the cluster.
    #[command(
        alias = "remove",
        after_help = "Examples:\n  longshore node rm n1 --wait\n  longshore node rm n1 --force"
    )]
    Rm {
        #[command(flatten)]
        wait: WaitArgs,
        /// The node.
        node: String,
        /// Remove it without draining it first.
        #[arg(long)]
        force: bool,
    },
}

pub(crate) fn run(args: NodeCommandArgs) -> anyhow::Result<Exit> {
    let connection = &args.connection;
    let act = |node: String, action: &'static str| {
        change(connection, async move |client| client.node_action(&node, action).await)
    };
    match args.command {
        Command::Ls => query(connection, async |client| client.nodes().await, |nodes| nodes_table(nodes)),
        Command::Inspect { node } => query(connection, async |client| client.node(&node).await, node_table),
        Command::Drain { wait, node, deadline } => {
            let request = DrainRequest { deadline_secs: deadline };
            let words = EffectWords {
                begun: format!("draining node {node}; `longshore node inspect {node}` shows what is left"),
                done: format!("node {node} is drained"),
            };
            drain(connection, wait, &node, &words, async |client| client.drain(&node, request).await)
        }
        Command::Activate { node } => act(node, "activate"),
        Command::Pause { node } => act(node, "pause"),
        Command::Lost { node } => act(node, "lost"),
        // Words of the API, which servers of every version understand.
        Command::Isolate { node } => act(node, "cut"),
        Command::Heal { node } => act(node, "mend"),
        Command::Label { node, labels } => {
            let request = LabelRequest { labels: labels.into_iter().collect() };
            change(connection, async |client| client.label(&node, &request).await)
        }
        Command::Set { node, attributes } => {
            let request = attributes.request();
            change(connection, async |client| client.set_node_attributes(&node, &request).await)
        }
        Command::Degrade { node } => act(node, "degrade"),
        Command::Recover { node } => act(node, "recover"),
        Command::Override { node, off } => act(node, if off { "withdraw-override" } else { "override" }),
        Command::Rm { wait, node, force } => {
            let removed = format!("node {node} is removed");
            let (how, begun) = if force {
                (RemoveNode::AtOnce, removed.clone())
            } else {
                let inspect = format!("`longshore node inspect {node}` shows what is left");
                (RemoveNode::Drained, format!("draining node {node}, which is then removed; {inspect}"))
            };
            let words = EffectWords { begun, done: removed };
            drain(connection, wait, &node, &words, async |client| client.remove_node(&node, how).await)
        }
    }
}

/// Sends a request that drains a node, and with `--wait` waits until it is drained.
fn drain(
    connection: &ConnectionArgs,
    wait: WaitArgs,
    node: &str,
    words: &EffectWords,
    request: impl AsyncFnOnce(&Client) -> Result<Changed, ClientError>,
) -> anyhow::Result<Exit> {
    with_client(connection, async |client| {
        let changed = request(client).await?;
        let waited = match wait.limit() {
            Some(limit) => {
                let hint = format!("`longshore node inspect {node}` shows which replicas are left, and why");
                Some(wait_drained::until_drained(client, node, limit).await?.report_as(node, &hint))
            }
            None => None,
        };
        words.print(connection.output(), changed, waited)
    })
}

fn nodes_table(nodes: &[Node]) -> String {
    let colour = Colour::of_stdout();
    let rows = nodes.iter().map(|node| {
        let memory = format!("{}/{} MiB", node.memory_used_bytes >> 20, node.memory_bytes >> 20);
        let health = colour.paint(Tone::of_health(&node.health), node.health.as_str());
        let (intent, replicas) = (node.intent.to_string(), node.replicas.to_string());
        vec![node.name.clone(), health, intent, replicas, memory, drivers(node, ",")]
    });
    table::draw(&["NODE", "HEALTH", "INTENT", "REPLICAS", "MEMORY", "DRIVERS"], &rows.collect::<Vec<_>>())
}

fn drivers(node: &Node, separator: &str) -> String {
    node.drivers.iter().map(Driver::as_str).collect::<Vec<_>>().join(separator)
}

/// What is reserved for the machine itself.
fn kept_for_machine(node: &Node) -> String {
    let cores = units::cores(node.reserved_cpu_millis);
    let disk = node.reserved_disk_bytes.map(|bytes| format!("{} disk", units::rounded_bytes(bytes)));
    let memory = format!("{} MiB", node.reserved_memory_bytes >> 20);
    [memory, cores].into_iter().chain(disk).collect::<Vec<_>>().join(", ")
}

/// Each group with its model, and kinds that are only counted.
fn devices(node: &Node) -> String {
    let group = |group: &longshore_api::DeviceGroup| {
        let attributes = group.attributes.iter().map(|(name, value)| format!(" {name}={value}"));
        let name = [&group.vendor, &group.model].map(String::as_str).join(" ");
        format!("{} {} {}{}", group.count, group.kind, name.trim(), attributes.collect::<String>())
    };
    let is_plain = |kind: &&String| !node.device_groups.iter().any(|group| group.kind == **kind);
    let plain = node.devices.keys().filter(is_plain).map(|kind| format!("{} {kind}", node.devices[kind]));
    let rows: Vec<String> = node.device_groups.iter().map(group).chain(plain).collect();
    escape_control(&rows.join(", "))
}

/// For example `WireGuard in user space at port 51820, MTU 1420`.
fn overlay(network: &NodeNetwork) -> String {
    let mesh = network.mesh.as_deref().unwrap_or("no mesh");
    let port = network.mesh_port.map(|port| format!(" at port {port}")).unwrap_or_default();
    let mtu = network.mtu.map(|mtu| format!(", MTU {mtu}")).unwrap_or_default();
    let addresses = if network.gives_addresses { "" } else { "; replicas have no overlay addresses" };
    let reach = if network.reaches_peers { "" } else { "; does not reach its peers" };
    format!("{mesh}{port}{mtu}{addresses}{reach}")
}

fn node_table(node: &Node) -> String {
    let label = |(name, value): (&String, &String)| escape_control(&format!("{name}={value}"));
    let labels: Vec<String> = node.labels.iter().map(label).collect();
    let mut rows = vec![
        ("health", node.health.to_string()),
        ("intent", node.intent.to_string()),
        ("role", node.role.to_string()),
        ("pool", escape_control(&node.pool)),
        ("data centre", escape_control(&node.datacenter)),
        ("platform", format!("{}/{}", node.os, node.arch)),
        ("drivers", drivers(node, ", ")),
        ("labels", labels.join(", ")),
        ("cores", format!("{}.{:03}", node.cpu_millis / 1000, node.cpu_millis % 1000)),
        ("memory", format!("{} of {} MiB reserved", node.memory_used_bytes >> 20, node.memory_bytes >> 20)),
        ("kept for the machine", kept_for_machine(node)),
        ("devices", devices(node)),
        ("replicas", node.replicas.to_string()),
    ];
    rows.push(("block", node.blocks.join(", ")));
    if let Some(network) = &node.network {
        rows.push(("overlay", overlay(network)));
    }
    if node.use_degraded {
        rows.push(("override", "takes new work while it is degraded".to_owned()));
    }
    if let Some(addresses) = node.addresses {
        rows.push(("addresses", format!("{addresses} at most")));
    }
    if let Some(disk) = node.disk_bytes {
        rows.push(("disk for replicas", units::rounded_bytes(disk)));
    }
    if let Some(disk) = node.load.as_ref().and_then(|load| load.disk) {
        let alarm =
            if disk.short { "; short: remove what is not needed, or the next image or log fills it" } else { "" };
        let (free, total) = (units::rounded_bytes(disk.free_bytes), units::rounded_bytes(disk.total_bytes));
        rows.push(("disk", format!("{free} of {total} free{alarm}")));
    }
    if let Some(load) = &node.load {
        let percent = |millionths: u32| format!("{} %", (millionths + 5_000) / 10_000);
        let (cpu, memory) = (percent(load.cpu_millionths), percent(load.memory_millionths));
        rows.push(("measured", format!("{cpu} of its cores and {memory} of its memory in use")));
    }
    if let Some(drain) = &node.drain {
        let left: Vec<String> = drain.left.iter().map(|left| format!("{} ({})", left.replica, left.why)).collect();
        rows.push(("drain", drain.outcome.to_string()));
        rows.push(("left", left.join(", ")));
    }
    rows.extend(
        node.conditions.iter().map(|it| ("condition", escape_control(&format!("{}: {}", it.code, it.message)))),
    );
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    table::draw(&["NODE", &node.name], &rows)
}
