//! Renders the report as a JSON object whose lists have one item per line.
//!
//! Owns: line breaks. The fields of an item are defined by its type.

use std::fmt::Display;

use serde::Serialize;

use super::Report;

/// Renders the whole object, with the given JSON for `stats`.
pub(super) fn render(report: &Report, stats: &str) -> String {
    let placements = report.placements.iter().map(|(replica, node)| format!("{}: {}", of(replica), of(node)));
    let parts = [
        format!("\"placements\": {{{}}}", rows(placements)),
        list("replicas", &report.replicas),
        list("pending", &report.pending),
        list("deployments", &report.deployments),
        list("timeline", &report.timeline),
        format!("\"stats\": {stats}"),
        list("violations", &report.violations),
    ];
    format!("{{\n  {}\n}}\n", parts.join(",\n  "))
}

fn list<T: Serialize>(name: &str, items: &[T]) -> String {
    format!("\"{name}\": [{}]", rows(items.iter().map(of)))
}

fn rows<T: Display>(items: impl Iterator<Item = T>) -> String {
    let lines: Vec<String> = items.map(|item| format!("\n    {item}")).collect();
    if lines.is_empty() { String::new() } else { lines.join(",") + "\n  " }
}

/// Renders one value on one line.
pub(super) fn of<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("a row has text keys and finite numbers only")
}
