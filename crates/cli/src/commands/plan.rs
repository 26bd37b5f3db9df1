//! `longshore plan`, a dry run: what applying a manifest would change.
//!
//! Owns: its options and its tables. Must not touch: the state; the daemon runs the scheduler on a copy.

use std::fmt::Write as _;

use clap::Args;
use longshore_api::{Changed, ManifestPlan, Move, Pending, ServiceChange, ServicePlan};

use crate::{
    daemon_client::{NamespaceArgs, with_client},
    exit::Exit,
    manifest::{self, ManifestArgs},
    output::{
        moves::{convergence, moves, waiting},
        print,
        style::{Colour, Tone},
        table,
    },
};

/// Show what applying a manifest would change, where new replicas would run, and which would have no node.
///
/// The scheduler runs on a copy of the state, as if every replica it starts came up. Nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore plan -f compose.yaml\n  longshore plan -f compose.yaml -o json")]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    #[command(flatten)]
    scope: NamespaceArgs,
}

pub(crate) fn run(args: PlanArgs) -> anyhow::Result<Exit> {
    let PlanArgs { manifest, scope } = args;
    let Some(parsed) = manifest::parse(manifest, scope.namespace())? else { return Ok(Exit::BadInput) };
    with_client(&scope.connection, async |client| {
        let plan = client.plan(&parsed.request).await?;
        plan.warnings.iter().for_each(|warning| print::stderr(warning));
        scope.connection.print(&plan, tables)
    })
}

fn tables(plan: &ManifestPlan) -> String {
    let mut out = match plan.changed {
        Changed::Yes => format!("{} would be at revision {}\n", plan.deployment, plan.revision),
        Changed::No => format!("{} would not change, revision {}\n", plan.deployment, plan.revision),
    };
    let rows = plan.services.iter().map(service_row);
    out.push('\n');
    out.push_str(&table::draw(&["", "SERVICE", "CHANGE", "REPLICAS", "FIELDS"], &rows.collect::<Vec<_>>()));
    if !plan.shared.is_empty() {
        let _ = writeln!(out, "\noutside services: {}", plan.shared.join(", "));
    }
    let own: Vec<&Move> = plan.services.iter().flat_map(|service| &service.replicas).collect();
    out.push_str(&moves("", &own));
    let elsewhere: Vec<&Move> = plan.elsewhere.iter().collect();
    out.push_str(&moves("other deployments:\n", &elsewhere));
    let pending: Vec<&Pending> = plan.services.iter().flat_map(|service| &service.pending).collect();
    out.push_str(&waiting(&pending));
    out.push_str(convergence(plan.convergence));
    out
}

fn service_row(service: &ServicePlan) -> Vec<String> {
    let (mark, tone) = match service.change {
        ServiceChange::Unchanged => (" ", Tone::Quiet),
        ServiceChange::Added => ("+", Tone::Good),
        ServiceChange::Removed => ("-", Tone::Bad),
        ServiceChange::InPlace => ("~", Tone::Busy),
        ServiceChange::Destructive => ("!", Tone::Bad),
    };
    let (mark, change) = (Colour::of_stdout().paint(tone, mark), service.change.as_str().to_owned());
    vec![mark, service.name.clone(), change, replica_counts(service), changed_fields(service)]
}

/// The fields that differ, each marked `!` if it replaces replicas and `~` if not.
fn changed_fields(service: &ServicePlan) -> String {
    let mark = |field: &String| if service.recreated_by.contains(field) { '!' } else { '~' };
    let marked: Vec<String> = service.fields.iter().map(|field| format!("{}{field}", mark(field))).collect();
    marked.join(", ")
}

/// `1 new, 2 replaced`.
fn replica_counts(service: &ServicePlan) -> String {
    let count = |counted: fn(&Move) -> bool| service.replicas.iter().filter(|it| counted(it)).count();
    let parts = [
        (count(|it| it.from.is_none()), "new"),
        (count(|it| it.from.is_some() && it.to.is_some()), "replaced"),
        (count(|it| it.to.is_none()), "removed"),
        (service.pending.iter().map(|pending| pending.count as usize).sum(), "waiting"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}"));
    parts.collect::<Vec<String>>().join(", ")
}
