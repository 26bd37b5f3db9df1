//! Names that were replaced must not come back: module names, error codes, and phrases in docs and help texts.
//!
//! Owns: the banned words, each with the word to use instead. The decision behind them is recorded in `docs/adr/`.
//! Must not touch: records that keep their words, which are `docs/adr/` and serialised names.
//! Invariant: every rule is exact (a module path, a code, a phrase between word boundaries), so that words in their ordinary
//! meaning, such as room for more replicas, are never found.

use std::collections::BTreeSet;

use super::{Finding, backticked, codes, numbered};
use crate::tree::Tree;

/// A module name that was replaced.
struct Module {
    /// The crate whose sources it is banned in; `"*"` for all crates, their tests included.
    krate: &'static str,
    /// A name, or several joined by `/` where only the nested module is banned.
    name: &'static str,
    say: &'static str,
}

const fn module(krate: &'static str, name: &'static str, say: &'static str) -> Module {
    Module { krate, name, say }
}

/// The first entry that matches a module is the one reported.
const MODULES: &[Module] = &[
    module("*", "doors", "listeners"),
    module("*", "beside", "logs_exec"),
    module("*", "attach", "logs_exec"),
    module("*", "beginning_again", "disaster_recovery"),
    module("*", "reception", "node_rpc"),
    module("*", "expulsion", "node_removal"),
    module("*", "founding", "bootstrap"),
    module("*", "figures", "metrics"),
    module("*", "foresee", "dry_run"),
    module("*", "forecast", "plan_diff"),
    module("scheduler", "reconcile/foresight", "reconcile/fixpoint"),
    module("*", "foresight", "dry_run"),
    module("api", "plan", "dry_run"),
    module("server", "api/plan", "api/dry_run"),
    module("*", "hub", "node_context"),
    module("*", "loads", "node_load"),
    module("*", "keyed", "idempotency"),
    module("*", "framing", "request_smuggling"),
    module("*", "questions", "queries"),
    module("*", "rows", "views"),
    module("*", "vault", "keyring"),
    module("server", "place", "node_record"),
    module("server", "link", "control_link"),
    module("server", "keys", "key_rotation"),
    module("server", "voters", "membership"),
    module("server", "monitor", "failure_detector"),
    module("server", "names", "name_rules"),
    module("server", "caller", "auth"),
    module("server", "probes", "health"),
    module("server", "refusal", "error"),
    module("server", "logs/meant", "logs/selector"),
    module("server", "logs/progress", "logs/cursor"),
    module("*", "beat", "heartbeat"),
    module("*", "book", "desired_work"),
    module("agent", "ledger", "work_file"),
    module("sim", "ledger", "shadow_state"),
    module("*", "marks", "created_markers"),
    module("*", "sighting", "status_report"),
    module("*", "survey", "fingerprint"),
    module("*", "sweep", "orphan_gc"),
    module("agent", "replica/way", "replica/clear_previous"),
    module("agent", "replica/end", "replica/stop"),
    module("agent", "docker/look", "docker/inspect"),
    module("agent", "docker/facts", "docker/info"),
    module("agent", "exec/plain", "exec/spec"),
    module("agent", "exec/probe", "exec/healthcheck"),
    module("agent", "handle", "agent_handle"),
    module("agent", "shim/order", "shim/protocol"),
    module("*", "haunts", "companion_nodes"),
    module("scheduler", "peers", "companions"),
    module("scheduler", "cases", "proptest_config"),
    module("scheduler", "ranking", "binpack_score"),
    module("scheduler", "reconcile/steps", "reconcile/rollout_steps"),
    module("scheduler", "reconcile/abort", "reconcile/rollout_abort"),
    module("*", "lanes", "node_index"),
    module("*", "supposed", "speculation"),
    module("*", "promises", "outstanding"),
    module("*", "whereabouts", "locations"),
    module("*", "vacancy", "pending_slot"),
    module("*", "second_look", "revisit_unplaced"),
    module("*", "changeover", "mode_change"),
    module("*", "handover", "generation_cutover"),
    module("scheduler", "ask", "request"),
    module("scheduler", "view/ladder", "node_index"),
    module("scheduler", "reconcile/proof", "reconcile/readiness"),
    module("scheduler", "reconcile/absence", "reconcile/node_loss"),
    module("scheduler", "reconcile/attempt", "reconcile/place_batch"),
    module("*", "shelf", "cow_map"),
    module("*", "recheck", "plan_check"),
    module("*", "replay", "state_events"),
    module("store", "finished", "ended_replicas"),
    module("store", "terminal", "ended_replicas"),
    module("store", "commit", "plan_commit"),
    module("store", "wal/mark", "wal/synced_watermark"),
    module("*", "wish", "placement_spec"),
    module("*", "making", "restart_fingerprint"),
    module("model", "work", "agent_protocol"),
    module("model", "request", "api_error_code"),
    module("model", "reason_text", "refusal"),
    module("model", "config", "derived_settings"),
    module("compose", "whole", "validate"),
    module("compose", "command", "config_output"),
    module("compose", "service/settle", "service/resolve"),
    module("compose", "words", "shell_words"),
    module("compose", "page", "key_table_doc"),
    module("compose", "scope", "declarations"),
    module("*", "chronicle", "timeline_log"),
    module("*", "dice", "rng"),
    module("*", "oddities", "lint"),
    module("*", "rehearsal", "check_steps"),
    module("*", "tenure", "runs_on_lost_node"),
    module("*", "succession", "leader_change_diverges"),
    module("*", "reactions", "node_effects"),
    module("*", "returning", "node_return"),
    module("*", "beats", "heartbeats"),
    module("sim", "fuzz/draw", "fuzz/generate"),
    module("sim", "engine/rest", "engine/quiescence"),
    module("sim", "invariants/rest", "invariants/converged"),
    module("sim", "invariants/short", "invariants/rollout_availability"),
    module("sim", "invariants/stepped", "invariants/rollout_step_proven"),
    module("sim", "invariants/indices", "invariants/slot_index_unique"),
    module("sim", "machine", "virtual_node"),
    module("*", "emptying", "wait_drained"),
    module("*", "calendar", "a time crate"),
    module("cli", "live", "live_region"),
    module("cli", "session", "daemon_client"),
    module("cli", "place", "paths"),
    module("cli", "hello", "demo_server"),
    module("*", "strangers", "security"),
    module("*", "planted", "secret_leaks"),
    module("*", "described", "openapi_conformance"),
    module("*", "yesterday", "format_compat"),
    module("*", "sequel", "format_compat"),
    module("*", "fate", "commit_outcome"),
    module("*", "leaving", "membership_removal"),
    module("*", "front", "cli"),
];

/// Error codes that were replaced. Codes of the specification are never in this list.
const CODES: &[(&str, &str)] = &[
    ("node_is_heard_of", "node_still_alive"),
    ("secret_steps_back", "secret_version_regression"),
    ("printed_id_taken", "replica_id_conflict"),
    ("already_founded", "already_bootstrapped"),
    ("secret_not_yours", "secret_out_of_scope"),
    ("certificate_void", "certificate_revoked"),
    ("scale_of_global", "cannot_scale_global"),
    ("closing", "shutting_down"),
];

/// Phrases of docs and help texts, in lower case. `room` alone is not one: it also means free capacity.
const PHRASES: &[(&str, &str)] = &[
    ("rooms", "crates"),
    ("a crate is a room", "crate"),
    ("room of the house", "crate"),
    ("only room that", "only crate that"),
    ("house rules", "lints"),
    ("rules of the house", "lints"),
    ("heir", "new leader"),
    ("heirs", "new leaders"),
    ("stranger", "unauthenticated peer"),
    ("strangers", "unauthenticated peers"),
    ("newcomer", "joining node"),
    ("newcomers", "joining nodes"),
    ("former life", "previous incarnation"),
    ("former lives", "previous incarnations"),
    ("at the door", "at admission"),
    ("farewell", "deregistration"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = modules(tree);
    findings.extend(returned_codes(tree));
    for (path, text) in tree.markdown().filter(|(path, _)| is_doc(path)) {
        findings.extend(numbered(text).flat_map(|(line, text)| doc_line(path, line, text)));
    }
    for (path, text) in tree.rust().filter(|(path, _)| path.starts_with("crates/cli/src/")) {
        let help = numbered(text).filter(|(_, line)| is_help(line));
        findings.extend(help.flat_map(|(line, text)| phrases(path, line, text)));
    }
    findings
}

fn finding(path: &str, line: usize, banned: &str, say: &str) -> Finding {
    Finding::new(path, line, format!("`{banned}` → say `{say}`"))
}

/// One finding per banned module, at its first file.
fn modules(tree: &Tree) -> Vec<Finding> {
    let mut found = BTreeSet::new();
    let mut findings = Vec::new();
    for (path, _) in tree.rust() {
        let Some(ModulePath { krate, root, segments }) = module_path(path) else { continue };
        let applies = |banned: &&Module| banned.krate == "*" || (banned.krate == krate && root == "src");
        for banned in MODULES.iter().filter(applies) {
            let name: Vec<&str> = banned.name.split('/').collect();
            let at = segments.windows(name.len()).position(|window| window == name);
            if at.is_some_and(|at| found.insert((krate, segments[..at + name.len()].join("/")))) {
                findings.push(finding(path, 1, banned.name, banned.say));
            }
        }
    }
    findings
}

/// A source or test file, as the module it is.
struct ModulePath<'a> {
    krate: &'a str,
    /// `src` or `tests`.
    root: &'a str,
    /// The path below the root.
    segments: Vec<&'a str>,
}

fn module_path(path: &str) -> Option<ModulePath<'_>> {
    let mut segments = path.strip_prefix("crates/")?.strip_suffix(".rs")?.split('/');
    let (krate, root) = (segments.next()?, segments.next()?);
    matches!(root, "src" | "tests").then(|| ModulePath { krate, root, segments: segments.collect() })
}

/// Banned codes that the model's lists contain, or that a function called `code` returns.
fn returned_codes(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust().filter(|(path, _)| module_path(path).is_some()) {
        let returned: BTreeSet<&str> = text.split("fn code(").skip(1).flat_map(codes::returned).collect();
        for (banned, say) in CODES.iter().filter(|(banned, _)| returned.contains(banned)) {
            let literal = format!("\"{banned}\"");
            let line = numbered(text).find(|(_, line)| line.contains(&literal)).map_or(1, |(line, _)| line);
            findings.push(finding(path, line, banned, say));
        }
    }
    for (banned, say) in CODES.iter().filter(|(banned, _)| tree.has(&format!("docs/errors/{banned}.md"))) {
        findings.push(finding(&format!("docs/errors/{banned}.md"), 1, banned, say));
    }
    findings
}

/// Pages for readers. ADRs are never edited, and keep the words of their time.
fn is_doc(path: &str) -> bool {
    path == "README.md" || path.starts_with("docs/") && !path.starts_with("docs/adr/")
}

fn doc_line<'a>(path: &'a str, line: usize, text: &'a str) -> impl Iterator<Item = Finding> + 'a {
    let banned = |word: &str| CODES.iter().find(|(code, _)| *code == word);
    let codes = backticked(text).filter_map(banned).map(move |(code, say)| finding(path, line, code, say));
    codes.chain(phrases(path, line, text))
}

/// Doc comments become help texts; `about` and `help` are the other places of clap's derive for them.
fn is_help(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || ["about = \"", "help = \"", "long_help = \""].iter().any(|key| line.contains(key))
}

fn phrases<'a>(path: &'a str, line: usize, text: &'a str) -> impl Iterator<Item = Finding> + 'a {
    let lower = text.to_lowercase();
    PHRASES
        .iter()
        .filter(move |(phrase, _)| stands_alone(&lower, phrase))
        .map(move |(phrase, say)| finding(path, line, phrase, say))
}

/// Whether the phrase occurs between word boundaries. A part of a path, a file name or an identifier is not the phrase.
fn stands_alone(text: &str, phrase: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/');
    text.match_indices(phrase).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + phrase.len()..].chars().next();
        !before.is_some_and(joins) && !after.is_some_and(joins)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::printed;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        printed(&check(&Tree::of(&[(path, text)])))
    }

    #[test]
    fn a_banned_module_is_found_once_with_its_replacement() {
        assert_eq!(
            complaints("crates/agent/src/ledger.rs", ""),
            ["crates/agent/src/ledger.rs:1: `ledger` → say `work_file`"]
        );
        let folder = [("crates/server/src/figures.rs", ""), ("crates/server/src/figures/told.rs", "")];
        assert_eq!(check(&Tree::of(&folder)).len(), 1);
        assert_eq!(complaints("crates/cli/tests/strangers/tokens.rs", "").len(), 1);
    }

    #[test]
    fn a_word_is_banned_as_a_whole_module_name_and_where_it_was_replaced() {
        assert!(complaints("crates/agent/src/ledger_format.rs", "").is_empty());
        assert!(complaints("crates/scheduler/src/request.rs", "").is_empty(), "`request` is banned in `model` only");
        assert_eq!(complaints("crates/model/src/request.rs", "").len(), 1);
        assert!(complaints("crates/model/tests/request.rs", "").is_empty(), "tests are not sources");
        assert!(
            complaints("crates/sim/src/report/rest.rs", "").is_empty(),
            "only `engine/rest` and `invariants/rest` are banned"
        );
        assert_eq!(complaints("crates/sim/src/engine/rest.rs", "").len(), 1);
    }

    #[test]
    fn a_banned_code_is_found_where_it_is_returned_and_documented() {
        let source = "//! E.\n    pub const fn code(&self) -> &'static str {\n        match self {\n            \
                      Self::A => \"closing\",\n        }\n    }\n";
        assert_eq!(
            complaints("crates/server/src/error.rs", source),
            ["crates/server/src/error.rs:4: `closing` → say `shutting_down`"]
        );
        assert_eq!(complaints("docs/errors/already_founded.md", "").len(), 1);
        assert_eq!(complaints("docs/operations.md", "The answer is `closing`.").len(), 1);
        assert!(complaints("docs/operations.md", "Before closing the file, closing-time.").is_empty());
        assert!(complaints("crates/store/src/old.rs", "#[serde(rename = \"closing\")]").is_empty());
    }

    #[test]
    fn a_banned_phrase_is_found_in_docs_and_help_texts() {
        assert_eq!(
            complaints("README.md", "ok\nRefused at the door.\n"),
            ["README.md:2: `at the door` → say `at admission`"]
        );
        assert_eq!(complaints("crates/cli/src/args.rs", "    /// Lets a Newcomer in.\n").len(), 1);
        assert!(complaints("crates/cli/src/args.rs", "    let newcomer = 1;\n").is_empty());
    }

    #[test]
    fn ordinary_words_identifiers_links_and_adrs_are_left_alone() {
        let text = "There is room for two. Their [ADR](adr/0014-nodes-and-strangers.md), `a_stranger_is_refused`.";
        assert!(complaints("docs/concepts.md", text).is_empty());
        assert!(complaints("docs/adr/0014-nodes-and-strangers.md", "A stranger at the door.").is_empty());
    }

    #[test]
    fn no_replacement_and_no_code_in_use_is_banned() {
        let banned = |word: &str| MODULES.iter().any(|module| module.krate == "*" && module.name == word);
        assert!(MODULES.iter().all(|module| !banned(module.say)));
        assert!(CODES.iter().all(|(_, say)| CODES.iter().all(|(code, _)| code != say)));
    }
}
