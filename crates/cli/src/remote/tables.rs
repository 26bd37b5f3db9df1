//! The daemon's answers for people.
//!
//! Owns: the words and the layout. Invariant: nothing here is needed by a program; `-o json` says everything.

use std::{collections::BTreeMap, fmt::Write as _};

use longshore_api::{
    AuditEntry, Candidate, Changed, Headroom, ManifestPlan, Move, Node, Pending, Rest, ServiceChange, ServicePlan,
    Status, WhatIf, Why,
};

use crate::{
    calendar,
    style::{Colour, Tone, plain},
    table,
};

pub(super) fn status(status: &Status) -> String {
    if status.deployments.is_empty() {
        return "nothing is deployed\n".to_owned();
    }
    let colour = Colour::of_stdout();
    let deployments = status.deployments.iter().map(|it| {
        let (running, wanted) =
            it.services.iter().fold((0, 0), |sum, service| (sum.0 + service.running, sum.1 + service.wanted));
        let (revision, runs) = (it.revision.to_string(), format!("{running}/{wanted}"));
        let word = colour.paint(tone(&it.status), &it.status);
        vec![printed(&it.namespace, &it.name), word, revision, runs, it.reasons.join(", ")]
    });
    let heading = ["DEPLOYMENT", "STATUS", "REVISION", "RUNNING", "REASONS"];
    let mut out = table::draw(&heading, &deployments.collect::<Vec<_>>());
    let replicas = status.replicas.iter().map(|it| {
        let (node, code) = (it.node.clone().unwrap_or_default(), it.code.clone().unwrap_or_default());
        vec![it.id.clone(), colour.paint(tone(&it.state), &it.state), node, it.restarts.to_string(), code]
    });
    let replicas: Vec<Vec<String>> = replicas.collect();
    if !replicas.is_empty() {
        out.push('\n');
        out.push_str(&table::draw(&["REPLICA", "STATE", "NODE", "RESTARTS", "CODE"], &replicas));
    }
    out
}

/// Outside `default` a name says its namespace, as replicas do.
fn printed(namespace: &str, name: &str) -> String {
    if namespace == "default" { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn tone(state: &str) -> Tone {
    match state {
        "active" | "running" | "completed" | "ready" => Tone::Good,
        "failed" | "degraded" | "lost" | "down" => Tone::Bad,
        "stopped" | "draining" => Tone::Quiet,
        _ => Tone::Busy,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "every answer is drawn from a reference")]
pub(super) fn changed(changed: &Changed) -> String {
    match changed {
        Changed::Yes => "done\n".to_owned(),
        Changed::No => "unchanged\n".to_owned(),
    }
}

pub(super) fn nodes(nodes: &[Node]) -> String {
    let colour = Colour::of_stdout();
    let rows = nodes.iter().map(|node| {
        let memory = format!("{}/{} MiB", node.memory_used_bytes >> 20, node.memory_bytes >> 20);
        let (replicas, drivers) = (node.replicas.to_string(), node.drivers.join(","));
        let health = colour.paint(tone(&node.health), &node.health);
        vec![node.name.clone(), health, node.intent.clone(), replicas, memory, drivers]
    });
    table::draw(&["NODE", "HEALTH", "INTENT", "REPLICAS", "MEMORY", "DRIVERS"], &rows.collect::<Vec<_>>())
}

pub(super) fn node(node: &Node) -> String {
    let labels: Vec<String> = node.labels.iter().map(|(name, value)| plain(&format!("{name}={value}"))).collect();
    let mut rows = vec![
        ("health", node.health.clone()),
        ("intent", node.intent.clone()),
        ("role", node.role.clone()),
        ("platform", format!("{}/{}", node.os, node.arch)),
        ("drivers", node.drivers.join(", ")),
        ("labels", labels.join(", ")),
        ("cores", format!("{}.{:03}", node.cpu_millis / 1000, node.cpu_millis % 1000)),
        ("memory", format!("{} of {} MiB given out", node.memory_used_bytes >> 20, node.memory_bytes >> 20)),
        ("replicas", node.replicas.to_string()),
    ];
    if let Some(load) = &node.load {
        let percent = |millionths: u32| format!("{} %", (millionths + 5_000) / 10_000);
        let (cpu, memory) = (percent(load.cpu_millionths), percent(load.memory_millionths));
        rows.push(("measured", format!("{cpu} of its cores and {memory} of its memory in use")));
    }
    if let Some(drain) = &node.drain {
        let left: Vec<String> = drain.left.iter().map(|left| format!("{} ({})", left.replica, left.why)).collect();
        rows.push(("drain", drain.outcome.clone()));
        rows.push(("left", left.join(", ")));
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    table::draw(&["NODE", &node.name], &rows)
}

pub(super) fn why(why: &Why) -> String {
    match why {
        Why::Waits { replica, pending } => format!("{replica} waits: {}\n{}\n", pending.reason, pending.explain),
        Why::Service { service, wanted, placed, pending } if pending.is_empty() => {
            format!("{service}: {placed} of {wanted} have a node, and nothing waits\n")
        }
        Why::Service { service, wanted, placed, pending } => {
            let mut out = format!("{service}: {placed} of {wanted} have a node\n");
            out.extend(pending.iter().map(|pending| waits(pending, "")));
            out
        }
        Why::Placed { replica, node, strategy, nodes, candidates, refused, best, placed_at_ms, index, .. } => {
            let mut out = format!("{replica} is on {node}: {strategy}, {candidates} of {nodes} nodes fit\n");
            out.push_str(&trouble(why));
            let _ = writeln!(out, "placed {}, compared in state {index}", calendar::second(*placed_at_ms));
            if !refused.is_empty() {
                let _ = writeln!(out, "refused: {}", counts(refused));
            }
            out.push('\n');
            out.push_str(&compared(node, best, strategy));
            out
        }
    }
}

/// How a placed replica does, where it does not simply run.
fn trouble(why: &Why) -> String {
    let Why::Placed { state, code, details, attempt, restarts, .. } = why else { return String::new() };
    let Some(code) = code else { return String::new() };
    let mut out = format!("it is {state}: {code}");
    for (name, value) in details.iter().filter(|(name, _)| *name != "address" && *name != "ports") {
        match value.as_str() {
            Some(text) => _ = write!(out, ", {name} `{}`", plain(text.lines().next().unwrap_or_default())),
            None => _ = write!(out, ", {name} {value}"),
        }
    }
    let times = if *restarts == 1 { "once".to_owned() } else { format!("{restarts} times") };
    if *restarts > 0 {
        let _ = write!(out, "; restarted {times}, this is attempt {attempt}");
    }
    out + "\n"
}

fn counts(refused: &BTreeMap<String, u32>) -> String {
    let counts: Vec<String> = refused.iter().map(|(code, nodes)| format!("{code} {nodes}")).collect();
    counts.join(", ")
}

/// The best candidates and what was compared, the chosen one marked.
fn compared(chosen: &str, best: &[Candidate], strategy: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in best.iter().flat_map(|candidate| &candidate.keys) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let word = |value: i64| if strategy == "binpack" { millionths(value) } else { value.to_string() };
    let rows = best.iter().map(|candidate| {
        let mark = if candidate.node == chosen { ">" } else { "" };
        let value = |name: &&str| {
            let found = candidate.keys.iter().find(|(key, _)| key == name);
            found.map_or_else(String::new, |(_, value)| word(*value))
        };
        [mark.to_owned(), candidate.node.clone()].into_iter().chain(names.iter().map(value)).collect()
    });
    let heading: Vec<String> = names.iter().map(|name| name.to_uppercase()).collect();
    let heading: Vec<&str> = ["", "NODE"].into_iter().chain(heading.iter().map(String::as_str)).collect();
    table::draw(&heading, &rows.collect::<Vec<_>>())
}

/// Billionths as a decimal fraction, as far as anybody compares by eye.
fn millionths(billionths: i64) -> String {
    let sign = if billionths < 0 { "-" } else { "" };
    let millionths = billionths.unsigned_abs() / 1000;
    format!("{sign}{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

pub(super) fn audit(entries: &[AuditEntry]) -> String {
    let rows = entries.iter().map(|entry| {
        let outcome = entry.code.as_ref().map_or(entry.outcome.clone(), |code| format!("refused: {code}"));
        let (number, at) = (entry.number.to_string(), calendar::second(entry.at_ms));
        vec![number, at, plain(&entry.actor), entry.action.clone(), plain(&entry.subject), outcome]
    });
    table::draw(&["#", "AT", "WHO", "WHAT", "TO", "OUTCOME"], &rows.collect::<Vec<_>>())
}

pub(super) fn plan(plan: &ManifestPlan) -> String {
    let mut out = match plan.changed {
        Changed::Yes => format!("{} would be at revision {}\n", plan.deployment, plan.revision),
        Changed::No => format!("{} would stay as it is, at revision {}\n", plan.deployment, plan.revision),
    };
    let rows = plan.services.iter().map(|service| {
        let colour = Colour::of_stdout();
        let (mark, tone) = match service.change {
            ServiceChange::Unchanged => (" ", Tone::Quiet),
            ServiceChange::Added => ("+", Tone::Good),
            ServiceChange::Removed => ("-", Tone::Bad),
            ServiceChange::InPlace => ("~", Tone::Busy),
            ServiceChange::Destructive => ("!", Tone::Bad),
        };
        let (mark, change) = (colour.paint(tone, mark), service.change.as_str().to_owned());
        vec![mark, service.name.clone(), change, in_short(service), what_differs(service)]
    });
    out.push('\n');
    out.push_str(&table::draw(&["", "SERVICE", "CHANGE", "REPLICAS", "FIELDS"], &rows.collect::<Vec<_>>()));
    out.push_str(&beside_services(&plan.shared));
    let moves: Vec<&Move> = plan.services.iter().flat_map(|service| &service.replicas).collect();
    out.push_str(&moved("", &moves));
    let elsewhere: Vec<&Move> = plan.elsewhere.iter().collect();
    out.push_str(&moved("other deployments:\n", &elsewhere));
    let pending: Vec<&Pending> = plan.services.iter().flat_map(|service| &service.pending).collect();
    out.push_str(&waiting(&pending));
    out.push_str(rest(plan.rest));
    out
}

fn beside_services(fields: &[String]) -> String {
    if fields.is_empty() { String::new() } else { format!("\nbeside the services: {}\n", fields.join(", ")) }
}

/// The fields that differ, each with the mark of what it costs.
fn what_differs(service: &ServicePlan) -> String {
    let mark = |field: &String| if service.recreated_by.contains(field) { '!' } else { '~' };
    let marked: Vec<String> = service.fields.iter().map(|field| format!("{}{field}", mark(field))).collect();
    marked.join(", ")
}

fn in_short(service: &ServicePlan) -> String {
    let count = |wanted: fn(&Move) -> bool| service.replicas.iter().filter(|it| wanted(it)).count();
    let parts = [
        (count(|it| it.from.is_none()), "new"),
        (count(|it| it.from.is_some() && it.to.is_some()), "replaced"),
        (count(|it| it.to.is_none()), "gone"),
        (service.pending.iter().map(|pending| pending.count as usize).sum(), "waiting"),
    ];
    let said: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    said.join(", ")
}

fn moved(title: &str, moves: &[&Move]) -> String {
    if moves.is_empty() {
        return String::new();
    }
    let node = |node: &Option<String>| node.clone().unwrap_or_else(|| "-".to_owned());
    let rows = moves.iter().map(|it| vec![it.replica.clone(), node(&it.from), node(&it.to)]);
    format!("\n{title}{}", table::draw(&["REPLICA", "FROM", "TO"], &rows.collect::<Vec<_>>()))
}

fn waiting(pending: &[&Pending]) -> String {
    if pending.is_empty() {
        return String::new();
    }
    pending.iter().fold("\n".to_owned(), |out, pending| {
        let service = format!(" of {}/{}", printed(&pending.namespace, &pending.deployment), pending.service);
        out + &waits(pending, &service)
    })
}

fn waits(pending: &Pending, of: &str) -> String {
    let verb = if pending.count == 1 { "waits" } else { "wait" };
    format!("{}{of} {verb}: {}\n  {}\n", pending.count, pending.reason, pending.explain)
}

const fn rest(rest: Rest) -> &'static str {
    match rest {
        Rest::Reached => "",
        Rest::Held => "\nA change would wait for `promote` or `resume`.\n",
        Rest::TooFar => "\nIt would go on for longer than is looked ahead.\n",
    }
}

pub(super) fn what_if(answer: &WhatIf) -> String {
    let mut out = String::new();
    if answer.evacuation_paused {
        out.push_str("More than half of the nodes would be gone: nothing is replaced until an operator confirms.\n");
    }
    if answer.moves.is_empty() {
        out.push_str("nothing would move\n");
    }
    let moves: Vec<&Move> = answer.moves.iter().collect();
    out.push_str(moved("", &moves).trim_start_matches('\n'));
    let pending: Vec<&Pending> = answer.pending.iter().collect();
    out.push_str(&waiting(&pending));
    let rows = answer.nodes.iter().map(headroom);
    out.push('\n');
    out.push_str(&table::draw(&["NODE", "USABLE", "REPLICAS", "MEMORY USED", "FREE"], &rows.collect::<Vec<_>>()));
    out.push_str(rest(answer.rest));
    out
}

fn headroom(node: &Headroom) -> Vec<String> {
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
