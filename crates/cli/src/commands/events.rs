//! `longshore events`: what happens in the cluster, as it happens.
//!
//! Owns: its options and the line of an event. Must not touch: the audit log, which says who asked for what.

use clap::Args;
use longshore_api::{Change, Event};

use crate::{
    daemon_client::{ConnectionArgs, with_client},
    exit::Exit,
    output::{
        OutputFormat,
        print::{self, Pipe},
    },
};

/// Print changes of the cluster until Ctrl-C: replicas placed, started, stopped, nodes, rollouts.
///
/// `longshore audit -f` shows who asked for what.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore events\n  longshore events --deployment shop -o json")]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Only events of deployments of this name, in any namespace; events of nodes are left out.
    #[arg(long, value_name = "NAME")]
    deployment: Option<String>,
    /// Also print the changes after this index, as far as the server keeps them.
    #[arg(long, value_name = "INDEX")]
    after: Option<u64>,
}

pub(crate) fn run(args: &EventsArgs) -> anyhow::Result<Exit> {
    with_client(&args.connection, async |client| {
        let mut changes = client.events(args.after).await?;
        loop {
            let change = tokio::select! {
                change = changes.next() => change?,
                _ = tokio::signal::ctrl_c() => None,
                () = print::stdout_closed() => None,
            };
            let Some(change) = change else { return Ok(Exit::Success) };
            for event in change.events.iter().filter(|event| is_asked(args, event)) {
                if print_event(args.connection.format(), &change, event)? == Pipe::Closed {
                    return Ok(Exit::Success);
                }
            }
        }
    })
}

fn is_asked(args: &EventsArgs, event: &Event) -> bool {
    args.deployment.is_none() || event.deployment == args.deployment
}

fn print_event(format: OutputFormat, change: &Change, event: &Event) -> anyhow::Result<Pipe> {
    let text = match format {
        OutputFormat::Json => serde_json::to_string(event)? + "\n",
        OutputFormat::Yaml => format!("---\n{}", longshore_compose::yaml::emit::emit(&serde_json::to_value(event)?)),
        OutputFormat::Text => line(change.index, event),
    };
    print::stream(text.as_bytes())
}

/// `812  observed  shop-web-0  n1  running`
fn line(index: u64, event: &Event) -> String {
    let words = [&event.replica, &event.deployment, &event.node, &event.state, &event.code];
    let about = if event.replica.is_some() { &words[..1] } else { &words[1..2] };
    let words = about.iter().chain(&words[2..]).filter_map(|word| word.as_deref());
    format!("{index:>6}  {:<18}  {}", event.kind, words.collect::<Vec<_>>().join("  ")).trim_end().to_owned() + "\n"
}
