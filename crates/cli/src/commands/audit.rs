//! `longshore audit`: the audit log.
//!
//! Owns: its options and its table.

use clap::Args;
use longshore_api::{AuditEntry, Client, ClientError};
use longshore_model::AuditAction;

use crate::{
    daemon_client::{NamespaceArgs, with_client},
    exit::Exit,
    output::{style::escape_control, table, timestamp},
};

/// Show the audit log: who changed what, and with which outcome.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore audit --limit 20\n  longshore audit --type node_intent_set -f")]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    scope: NamespaceArgs,
    /// Show entries after this number; the newest ones unless given.
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// Show at most this many entries.
    #[arg(long, alias = "most", value_name = "COUNT", default_value_t = 100)]
    limit: usize,
    /// Show only entries with one of these actions, separated by commas.
    #[arg(long = "type", value_name = "ACTION", value_delimiter = ',', value_parser = known_action)]
    actions: Vec<AuditAction>,
    /// Keep printing new entries until Ctrl-C.
    #[arg(short, long)]
    follow: bool,
}

pub(crate) fn run(args: AuditArgs) -> anyhow::Result<Exit> {
    let AuditArgs { scope, after, limit, actions, follow } = args;
    let mut query = AuditQuery { after, limit, actions };
    with_client(&scope.connection, async |client| {
        loop {
            let page = query.fetch(client).await?;
            if !page.entries.is_empty() || !follow {
                scope.connection.print(&page.entries, |entries| entries_table(entries))?;
            }
            query.after = page.last;
            if !follow || super::next_poll().await.is_break() {
                return Ok(Exit::Success);
            }
        }
    })
}

/// An action by its name. A name that no entry can have is refused with the list of those there are.
fn known_action(name: &str) -> Result<AuditAction, String> {
    serde_json::from_value(serde_json::Value::String(name.to_owned())).map_err(|error| error.to_string())
}

/// Which entries are shown.
struct AuditQuery {
    after: Option<u64>,
    limit: usize,
    /// Empty for all.
    actions: Vec<AuditAction>,
}

/// Entries, and the number after which the next page begins.
struct AuditPage {
    entries: Vec<AuditEntry>,
    last: Option<u64>,
}

impl AuditQuery {
    async fn fetch(&self, client: &Client) -> Result<AuditPage, ClientError> {
        // The daemon does not filter by action, so a filtered page asks for as many entries as it answers at once.
        let limit = if self.actions.is_empty() { self.limit } else { usize::MAX };
        let mut entries = client.audit(self.after, limit).await?;
        let mut last = entries.last().map(|last| last.number).or(self.after);
        let is_shown = |entry: &AuditEntry| self.actions.iter().any(|action| entry.action == action.as_str());
        entries.retain(|entry| self.actions.is_empty() || is_shown(entry));
        let surplus = entries.len().saturating_sub(self.limit);
        if self.after.is_none() {
            entries.drain(..surplus);
        } else if surplus > 0 {
            entries.truncate(self.limit);
            last = entries.last().map(|last| last.number).or(self.after);
        }
        Ok(AuditPage { entries, last })
    }
}

fn entries_table(entries: &[AuditEntry]) -> String {
    let rows = entries.iter().map(|entry| {
        let outcome =
            entry.code.as_ref().map_or_else(|| entry.outcome.to_string(), |code| format!("{}: {code}", entry.outcome));
        let (number, at) = (entry.number.to_string(), timestamp::second(entry.at_ms));
        vec![number, at, escape_control(&entry.actor), entry.action.clone(), escape_control(&entry.subject), outcome]
    });
    table::draw(&["#", "TIME", "ACTOR", "ACTION", "SUBJECT", "OUTCOME"], &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_action_is_refused_with_the_list() {
        assert_eq!(known_action("rollout_aborted"), Ok(AuditAction::RolloutAborted));
        let refused = known_action("rollout_abort").unwrap_err();
        assert!(
            refused.contains("unknown variant `rollout_abort`") && refused.contains("`rollout_aborted`"),
            "{refused}"
        );
    }
}
