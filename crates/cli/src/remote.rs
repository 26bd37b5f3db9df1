//! Commands that ask a daemon.
//!
//! Owns: their options, where the daemon is looked for, and how its answers are shown.
//! Invariant: `-o json` says everything the daemon said; a refusal has exit code 1, bad input 2.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use longshore_api::{
    Changed, Client, ClientError, Deployment, DrainRequest, Endpoint, LabelRequest, Node, RemoveNode, Replica, Token,
    TokenError, TokenKind, Why,
};
use serde::Serialize;

use crate::{exit::Exit, print, server::DATA_DIR, table};

/// Where the daemon is, and how its answer is shown.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// The daemon's socket.
    #[arg(long, env = "LONGSHORE_SOCKET", value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// A server's address, instead of a socket of this machine.
    #[arg(long, env = "LONGSHORE_ADDRESS", value_name = "ADDRESS", global = true, requires = "token")]
    address: Option<String>,
    /// The token for that address.
    #[arg(long, env = "LONGSHORE_TOKEN", value_name = "TOKEN", global = true, hide_env_values = true)]
    token: Option<String>,
    /// How the answer is shown.
    #[arg(short, long, value_enum, default_value_t = Shown::Text, global = true)]
    output: Shown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shown {
    Text,
    Json,
}

/// What can be asked.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show deployments and their replicas.
    Status {
        #[command(flatten)]
        connection: Connection,
        /// Only this deployment.
        deployment: Option<String>,
    },
    /// Say why a replica is where it is, or why it has no node.
    Why {
        #[command(flatten)]
        connection: Connection,
        /// The replica, as `status` prints it.
        replica: String,
    },
    /// Set how many replicas a service has.
    Scale {
        #[command(flatten)]
        connection: Connection,
        /// The deployment.
        deployment: String,
        /// The service and its count.
        #[arg(value_name = "SERVICE=COUNT")]
        service: String,
    },
    /// Remove a deployment and stop what it runs.
    Rm {
        #[command(flatten)]
        connection: Connection,
        /// The deployment.
        deployment: String,
    },
    /// Show who did what.
    Audit {
        #[command(flatten)]
        connection: Connection,
        /// Only records after this number.
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// At most so many.
        #[arg(long, default_value_t = 100)]
        most: usize,
    },
    /// Show nodes, and say what is wanted of them.
    Node {
        #[command(flatten)]
        connection: Connection,
        #[command(subcommand)]
        command: NodeCommand,
    },
}

/// What can be said of nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Show all nodes.
    Ls,
    /// Move everything away and place nothing new.
    Drain {
        /// The node.
        node: String,
        /// Seconds jobs may take to finish.
        #[arg(long, value_name = "SECONDS")]
        deadline: Option<u64>,
    },
    /// Use it.
    Activate {
        /// The node.
        node: String,
    },
    /// Place nothing new; what runs stays.
    Pause {
        /// The node.
        node: String,
    },
    /// Give a node that is away up for lost.
    Lost {
        /// The node.
        node: String,
    },
    /// Set labels; an empty value takes the label away.
    Label {
        /// The node.
        node: String,
        /// The labels.
        #[arg(required = true, value_name = "KEY=VALUE")]
        labels: Vec<String>,
    },
    /// Empty a node and take it out of the cluster.
    Rm {
        /// The node.
        node: String,
        /// Without emptying it first.
        #[arg(long)]
        force: bool,
    },
}

const NAMESPACE: &str = "default";

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Status { connection, deployment } => ask(&connection, async |client| {
            let mut deployments = client.deployments().await?;
            let mut replicas = client.replicas().await?;
            if let Some(name) = &deployment {
                deployments = vec![client.deployment(NAMESPACE, name).await?];
                replicas.retain(|replica| replica.deployment == *name);
            }
            let status = Status { deployments, replicas };
            show(&connection, &status, draw_status)
        }),
        Command::Why { connection, replica } => {
            ask(&connection, async |client| show(&connection, &client.why(&replica).await?, draw_why))
        }
        Command::Scale { connection, deployment, service } => {
            let Some((service, count)) = pair(&service).and_then(|(name, to)| Some((name, to.parse().ok()?))) else {
                print::note("error: `SERVICE=COUNT` is a name, `=` and a number");
                return Ok(Exit::BadInput);
            };
            change(&connection, async |client| client.scale(NAMESPACE, &deployment, &service, count).await)
        }
        Command::Rm { connection, deployment } => {
            change(&connection, async |client| client.remove(NAMESPACE, &deployment).await)
        }
        Command::Audit { connection, after, most } => ask(&connection, async |client| {
            show(&connection, &client.audit(after, most).await?, |entries| {
                let rows = entries.iter().map(|entry| {
                    let outcome = entry.code.as_ref().map_or(entry.outcome.clone(), |code| format!("refused: {code}"));
                    let (number, at) = (entry.number.to_string(), entry.at_ms.to_string());
                    vec![number, at, entry.actor.clone(), entry.action.clone(), entry.subject.clone(), outcome]
                });
                table::draw(&["#", "AT_MS", "WHO", "WHAT", "TO", "OUTCOME"], &rows.collect::<Vec<_>>())
            })
        }),
        Command::Node { connection, command } => node(&connection, command),
    }
}

fn node(connection: &Connection, command: NodeCommand) -> anyhow::Result<Exit> {
    match command {
        NodeCommand::Ls => {
            ask(connection, async |client| show(connection, &client.nodes().await?, |nodes| draw_nodes(nodes)))
        }
        NodeCommand::Drain { node, deadline } => {
            let request = DrainRequest { deadline_secs: deadline };
            change(connection, async |client| client.drain(&node, request).await)
        }
        NodeCommand::Activate { node } => change(connection, async |client| client.tell_node(&node, "activate").await),
        NodeCommand::Pause { node } => change(connection, async |client| client.tell_node(&node, "pause").await),
        NodeCommand::Lost { node } => change(connection, async |client| client.tell_node(&node, "lost").await),
        NodeCommand::Label { node, labels } => {
            let pairs: Option<BTreeMap<String, String>> = labels.iter().map(|label| pair(label)).collect();
            let Some(labels) = pairs else {
                print::note("error: a label is a name, `=` and a value");
                return Ok(Exit::BadInput);
            };
            change(connection, async |client| client.label(&node, &LabelRequest { labels: labels.clone() }).await)
        }
        NodeCommand::Rm { node, force } => {
            let how = if force { RemoveNode::AtOnce } else { RemoveNode::Drained };
            change(connection, async |client| client.remove_node(&node, how).await)
        }
    }
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

/// Asks, and tells apart who is away and who says no.
pub(crate) fn ask(
    connection: &Connection,
    question: impl AsyncFnOnce(&Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let client = match connection.endpoint() {
        Ok(endpoint) => Client::new(endpoint),
        Err(error) => {
            print::note(&format!("error: {error}"));
            return Ok(Exit::BadInput);
        }
    };
    let answer = runtime.context("the runtime did not start")?.block_on(question(&client));
    let Err(error) = answer else { return answer };
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused(envelope)) => {
            print::note(&format!("error: {envelope}"));
            if let Some(hint) = envelope.hint() {
                print::note(&format!("\nhint: {hint}"));
            }
            Ok(Exit::Trouble)
        }
        Some(ClientError::Unreachable { .. }) => {
            print::note(&format!("error: {error:#}"));
            print::note("\nhint: start it with `longshore server`, or name its socket with `--socket`");
            Ok(Exit::Trouble)
        }
        Some(ClientError::Broken { .. } | ClientError::Garbled { .. }) | None => Err(error),
    }
}

pub(crate) fn change(
    connection: &Connection,
    asked: impl AsyncFnOnce(&Client) -> Result<Changed, ClientError>,
) -> anyhow::Result<Exit> {
    ask(connection, async |client| {
        show(connection, &asked(client).await?, |changed| match changed {
            Changed::Yes => "done\n".to_owned(),
            Changed::No => "unchanged\n".to_owned(),
        })
    })
}

/// Prints an answer as it was asked for.
pub(crate) fn show<T: Serialize>(
    connection: &Connection,
    answer: &T,
    draw: impl FnOnce(&T) -> String,
) -> anyhow::Result<Exit> {
    match connection.output {
        Shown::Text => print::print(&draw(answer))?,
        Shown::Json => print::print(&(serde_json::to_string_pretty(answer)? + "\n"))?,
    }
    Ok(Exit::Success)
}

impl Connection {
    fn endpoint(&self) -> Result<Endpoint, TokenError> {
        if let (Some(address), Some(token)) = (&self.address, &self.token) {
            let token = Token::of_kind(TokenKind::Operator, token)?;
            return Ok(Endpoint::Tls { address: address.clone(), token });
        }
        let default = || PathBuf::from(DATA_DIR).join("longshore.sock");
        Ok(Endpoint::Unix(self.socket.clone().unwrap_or_else(default)))
    }
}

#[derive(Serialize)]
struct Status {
    deployments: Vec<Deployment>,
    replicas: Vec<Replica>,
}

fn draw_status(status: &Status) -> String {
    if status.deployments.is_empty() {
        return "nothing is deployed\n".to_owned();
    }
    let deployments = status.deployments.iter().map(|it| {
        let (running, wanted) =
            it.services.iter().fold((0, 0), |sum, service| (sum.0 + service.running, sum.1 + service.wanted));
        let (revision, runs) = (it.revision.to_string(), format!("{running}/{wanted}"));
        vec![it.name.clone(), it.status.clone(), revision, runs, it.reasons.join(", ")]
    });
    let heading = ["DEPLOYMENT", "STATUS", "REVISION", "RUNNING", "REASONS"];
    let mut out = table::draw(&heading, &deployments.collect::<Vec<_>>());
    let replicas = status.replicas.iter().map(|it| {
        let (node, code) = (it.node.clone().unwrap_or_default(), it.code.clone().unwrap_or_default());
        vec![it.id.clone(), it.state.clone(), node, it.restarts.to_string(), code]
    });
    let replicas: Vec<Vec<String>> = replicas.collect();
    if !replicas.is_empty() {
        out.push('\n');
        out.push_str(&table::draw(&["REPLICA", "STATE", "NODE", "RESTARTS", "CODE"], &replicas));
    }
    out
}

fn draw_nodes(nodes: &[Node]) -> String {
    let rows = nodes.iter().map(|node| {
        let memory = format!("{}/{} MiB", node.memory_used_bytes >> 20, node.memory_bytes >> 20);
        let (replicas, drivers) = (node.replicas.to_string(), node.drivers.join(","));
        vec![node.name.clone(), node.health.clone(), node.intent.clone(), replicas, memory, drivers]
    });
    table::draw(&["NODE", "HEALTH", "INTENT", "REPLICAS", "MEMORY", "DRIVERS"], &rows.collect::<Vec<_>>())
}

fn draw_why(why: &Why) -> String {
    match why {
        Why::Waits { replica, pending } => format!("{replica} waits: {}\n{}\n", pending.reason, pending.explain),
        Why::Placed { replica, node, strategy, nodes, candidates, refused, best } => {
            let mut out = format!("{replica} is on {node}: {strategy}, {candidates} of {nodes} nodes fit\n");
            if !refused.is_empty() {
                let counts: Vec<String> = refused.iter().map(|(code, nodes)| format!("{code} {nodes}")).collect();
                let _ = writeln!(out, "refused: {}", counts.join(", "));
            }
            let rows = best.iter().map(|candidate| {
                let keys: Vec<String> = candidate.keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                vec![candidate.node.clone(), keys.join(" ")]
            });
            out.push('\n');
            out.push_str(&table::draw(&["NODE", "COMPARED"], &rows.collect::<Vec<_>>()));
            out
        }
    }
}
