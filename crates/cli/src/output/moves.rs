//! Replicas that would move or wait, as `plan` and `whatif` show them.
//!
//! Owns: the wording and the layout of these parts.

use longshore_api::{Convergence, Move, Pending};

use crate::output::{qualified, table};

/// A table of moves under a title; empty if nothing moves.
pub(crate) fn moves(title: &str, moves: &[&Move]) -> String {
    if moves.is_empty() {
        return String::new();
    }
    let node = |node: &Option<String>| node.clone().unwrap_or_else(|| "-".to_owned());
    let rows = moves.iter().map(|it| vec![it.replica.clone(), node(&it.from), node(&it.to)]);
    format!("\n{title}{}", table::draw(&["REPLICA", "FROM", "TO"], &rows.collect::<Vec<_>>()))
}

/// Everything that would have no node, with its service; empty if nothing waits.
pub(crate) fn waiting(pending: &[&Pending]) -> String {
    if pending.is_empty() {
        return String::new();
    }
    pending.iter().fold("\n".to_owned(), |out, pending| {
        let service = format!(" of {}/{}", qualified(&pending.namespace, &pending.deployment), pending.service);
        out + &waiting_line(pending, &service)
    })
}

/// `2 of shop/web wait: CODE`, and the explanation below; `of` is the part after the count.
pub(crate) fn waiting_line(pending: &Pending, of: &str) -> String {
    let verb = if pending.count == 1 { "waits" } else { "wait" };
    format!("{}{of} {verb}: {}\n  {}\n", pending.count, pending.reason, pending.explain)
}

/// A last line if the dry run did not converge.
pub(crate) const fn convergence(convergence: Convergence) -> &'static str {
    match convergence {
        Convergence::Converged => "",
        Convergence::Waiting => "\nA rollout would wait for `promote` or `resume`.\n",
        Convergence::HorizonExceeded => "\nChanges would continue beyond the simulated time.\n",
    }
}
