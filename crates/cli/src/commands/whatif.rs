//! `longshore whatif`, a dry run: what the scheduler would do after a hypothetical change.
//!
//! Owns: the syntax of its options, and its tables. Must not touch: the state; the daemon runs the scheduler on a copy.

use std::collections::BTreeMap;

use clap::Args;
use longshore_api::{Headroom, Move, NewCount, NewNode, Pending, WhatIf, WhatIfRequest};
use longshore_compose::units::{parse_bytes, parse_cpus};

use crate::{
    daemon_client::{NamespaceArgs, query},
    exit::Exit,
    input::service_count,
    manifest::{self, ManifestArgs},
    output::{
        moves::{convergence, moves, waiting},
        table,
    },
};

const EXAMPLES: &str = "\
Examples:
  longshore whatif --down n1                        where its replicas would move
  longshore whatif --drain n1 --add name=n9,cpu=4,memory=8GiB,zone=east
  longshore whatif --scale shop/web=10
  longshore whatif -f compose.yaml                  which replicas applying it would move";

/// Show what would happen after a change, without making it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WhatifArgs {
    #[command(flatten)]
    scope: NamespaceArgs,
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Suppose that this node is lost; repeatable.
    #[arg(long, value_name = "NODE")]
    down: Vec<String>,
    /// Suppose that this node is drained; repeatable.
    #[arg(long, value_name = "NODE")]
    drain: Vec<String>,
    /// Suppose that a node joins: `name`, `cpu`, `memory`, and every other key is a label; repeatable.
    #[arg(long, value_name = "SPEC", value_parser = parse_node)]
    add: Vec<NewNode>,
    /// Suppose that a service is scaled; repeatable.
    #[arg(long, value_name = "DEPLOYMENT/SERVICE=COUNT", value_parser = parse_scale)]
    scale: Vec<NewCount>,
    /// Suppose that the manifest of this directory is applied; with `-f`, that one.
    #[arg(long)]
    apply: bool,
}

pub(crate) fn run(args: WhatifArgs) -> anyhow::Result<Exit> {
    let WhatifArgs { scope, manifest, down, drain, add, scale, apply } = args;
    let mut request = WhatIfRequest { down, drain, add, scale, apply: None };
    request.scale.iter_mut().for_each(|count| scope.namespace().clone_into(&mut count.namespace));
    if apply || manifest.has_files() {
        let Some(parsed) = manifest::parse(manifest, scope.namespace())? else { return Ok(Exit::BadInput) };
        request.apply = Some(Box::new(parsed.request));
    }
    query(&scope.connection, async |client| client.what_if(&request).await, tables)
}

fn tables(answer: &WhatIf) -> String {
    let mut out = String::new();
    if answer.evacuation_paused {
        out.push_str("More than half of the nodes would be lost: no replica is replaced until an operator confirms.\n");
    }
    if answer.moves.is_empty() {
        out.push_str("nothing would move\n");
    }
    let moved: Vec<&Move> = answer.moves.iter().collect();
    out.push_str(moves("", &moved).trim_start_matches('\n'));
    let pending: Vec<&Pending> = answer.pending.iter().collect();
    out.push_str(&waiting(&pending));
    let rows = answer.nodes.iter().map(headroom_row);
    out.push('\n');
    out.push_str(&table::draw(&["NODE", "USABLE", "REPLICAS", "MEMORY USED", "FREE"], &rows.collect::<Vec<_>>()));
    out.push_str(convergence(answer.convergence));
    out
}

fn headroom_row(node: &Headroom) -> Vec<String> {
    let change = |before: u64, after: u64| {
        if before == after { after.to_string() } else { format!("{before} -> {after}") }
    };
    vec![
        node.node.clone(),
        if node.usable { "yes" } else { "no" }.to_owned(),
        change(node.replicas_before.into(), node.replicas.into()),
        format!("{} MiB", change(node.memory_used_before_bytes >> 20, node.memory_used_bytes >> 20)),
        format!("{} MiB", node.memory_bytes.saturating_sub(node.memory_used_bytes) >> 20),
    ]
}

const NODE_EXAMPLE: &str = "as in `name=n9,cpu=4,memory=8GiB`";

fn parse_node(text: &str) -> Result<NewNode, String> {
    let mut parts = BTreeMap::new();
    for part in text.split(',') {
        let pair =
            part.split_once('=').ok_or_else(|| format!("expected `NAME=VALUE` instead of `{part}`, {NODE_EXAMPLE}"));
        let (name, value) = pair?;
        parts.insert(name.trim().to_owned(), value.trim().to_owned());
    }
    let mut take = |name: &str| parts.remove(name).ok_or_else(|| format!("`{name}` is missing, {NODE_EXAMPLE}"));
    let (name, cpu, memory) = (take("name")?, take("cpu")?, take("memory")?);
    let cpu_millis = parse_cpus(&cpu).map_err(|_| format!("`{cpu}` is not a number of cores"))?;
    let memory_bytes = parse_bytes(&memory).map_err(|_| format!("`{memory}` is not an amount of memory"))?;
    Ok(NewNode { name, cpu_millis, memory_bytes, labels: parts })
}

fn parse_scale(text: &str) -> Result<NewCount, String> {
    let (path, replicas) = service_count(text)?;
    let (deployment, service) = path.split_once('/').ok_or("expected `DEPLOYMENT/SERVICE=COUNT`")?;
    let (deployment, service) = (deployment.to_owned(), service.to_owned());
    Ok(NewCount { namespace: String::new(), deployment, service, replicas })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_parsed_from_one_argument() {
        let node = parse_node("name=n9,cpu=1.5,memory=8GiB,zone=east").unwrap();
        assert_eq!((node.cpu_millis, node.memory_bytes), (1500, 8 << 30));
        assert_eq!(node.labels, BTreeMap::from([("zone".to_owned(), "east".to_owned())]));
        assert_eq!(parse_node("name=n9,cpu=4").unwrap_err(), "`memory` is missing, as in `name=n9,cpu=4,memory=8GiB`");
        assert_eq!(parse_node("name=n9,cpu=x,memory=1g").unwrap_err(), "`x` is not a number of cores");
    }

    #[test]
    fn a_scale_names_deployment_and_service() {
        assert_eq!(parse_scale("shop/web=3").unwrap().replicas, 3);
        assert!(parse_scale("web=3").is_err() && parse_scale("shop/web=x").is_err());
    }
}
