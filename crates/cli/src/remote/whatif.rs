//! `longshore whatif`: the real scheduler, on a copy of what is.
//!
//! Owns: how suppositions are written on a command line.

use std::collections::BTreeMap;

use clap::Args;
use longshore_api::{NewCount, NewNode, WhatIfRequest};
use longshore_compose::units::{parse_bytes, parse_cpus};

use super::{Scoped, ask, commands::count_of, show, tables};
use crate::{apply, exit::Exit, manifest::Manifest};

pub(super) const EXAMPLES: &str = "\
Examples:
  longshore whatif --down n1                        where everything would go
  longshore whatif --drain n1 --add name=n9,cpu=4,memory=8GiB,zone=east
  longshore whatif --scale shop/web=10
  longshore whatif -f compose.yaml                  what applying it would move";

/// Say what would happen, without making it happen.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    scope: Scoped,
    #[command(flatten)]
    manifest: Manifest,
    /// A node is lost; may be given again.
    #[arg(long, value_name = "NODE")]
    down: Vec<String>,
    /// A node is emptied; may be given again.
    #[arg(long, value_name = "NODE")]
    drain: Vec<String>,
    /// A node joins: `name`, `cpu` and `memory`, and any other key is a label; may be given again.
    #[arg(long, value_name = "SPEC", value_parser = node_of)]
    add: Vec<NewNode>,
    /// A service gets another count; may be given again.
    #[arg(long, value_name = "DEPLOYMENT/SERVICE=COUNT", value_parser = scale_of)]
    scale: Vec<NewCount>,
    /// The manifest of this directory is applied; with `-f`, that one.
    #[arg(long)]
    apply: bool,
}

pub(super) fn run(options: Options) -> anyhow::Result<Exit> {
    let Options { scope, manifest, down, drain, add, scale, apply } = options;
    let mut request = WhatIfRequest { down, drain, add, scale, apply: None };
    request.scale.iter_mut().for_each(|count| scope.namespace().clone_into(&mut count.namespace));
    if apply || manifest.is_named() {
        let Some(judged) = apply::judge(manifest, scope.namespace())? else { return Ok(Exit::BadInput) };
        request.apply = Some(Box::new(judged.request));
    }
    ask(&scope.connection, async |client| show(&scope.connection, &client.what_if(&request).await?, tables::what_if))
}

/// How a node is written.
const LIKE: &str = "as in `name=n9,cpu=4,memory=8GiB`";

fn node_of(text: &str) -> Result<NewNode, String> {
    let mut parts = BTreeMap::new();
    for part in text.split(',') {
        let pair = part.split_once('=').ok_or_else(|| format!("`{part}` is not a name, `=` and a value, {LIKE}"));
        let (name, value) = pair?;
        parts.insert(name.trim().to_owned(), value.trim().to_owned());
    }
    let mut take = |name: &str| parts.remove(name).ok_or_else(|| format!("`{name}` is missing, {LIKE}"));
    let (name, cpu, memory) = (take("name")?, take("cpu")?, take("memory")?);
    let cpu_millis = parse_cpus(&cpu).map_err(|_| format!("`{cpu}` is no number of cores"))?;
    let memory_bytes = parse_bytes(&memory).map_err(|_| format!("`{memory}` is no amount of memory"))?;
    Ok(NewNode { name, cpu_millis, memory_bytes, labels: parts })
}

fn scale_of(text: &str) -> Result<NewCount, String> {
    let (path, replicas) = count_of(text)?;
    let (deployment, service) = path.split_once('/').ok_or("`DEPLOYMENT/SERVICE=COUNT`")?;
    let (deployment, service) = (deployment.to_owned(), service.to_owned());
    Ok(NewCount { namespace: String::new(), deployment, service, replicas })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_written_in_one_word() {
        let node = node_of("name=n9,cpu=1.5,memory=8GiB,zone=east").unwrap();
        assert_eq!((node.cpu_millis, node.memory_bytes), (1500, 8 << 30));
        assert_eq!(node.labels, BTreeMap::from([("zone".to_owned(), "east".to_owned())]));
        assert_eq!(node_of("name=n9,cpu=4").unwrap_err(), "`memory` is missing, as in `name=n9,cpu=4,memory=8GiB`");
        assert_eq!(node_of("name=n9,cpu=x,memory=1g").unwrap_err(), "`x` is no number of cores");
    }

    #[test]
    fn a_count_names_its_service() {
        assert_eq!(scale_of("shop/web=3").unwrap().replicas, 3);
        assert!(scale_of("web=3").is_err() && scale_of("shop/web=x").is_err());
    }
}
