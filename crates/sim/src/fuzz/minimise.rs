//! Reduces a failing scenario to the parts that make it fail.
//!
//! Owns: the order in which parts are removed: large ones first, then halves of what is left, then single ones.
//! Invariant: the result fails in the same way as the input, and no single part of it can be removed.

use super::{FailureKind, Tree, verdict::judge};

/// Runs before the search gives up and returns its best result: about a minute, which a person can wait.
const MOST_TRIALS: usize = 1500;

/// Keys that are never removed: without them the run checks less.
const KEPT_KEYS: &[&str] = &["settle", "until"];

pub(super) fn minimise(scenario: &Tree, kind: &FailureKind) -> Tree {
    let mut search = Search { kind, trials: 0, best: scenario.clone() };
    loop {
        let before = search.best.clone();
        search.cut_below(&mut Vec::new());
        if search.best == before || search.is_exhausted() {
            return search.best;
        }
    }
}

struct Search<'k> {
    kind: &'k FailureKind,
    trials: usize,
    best: Tree,
}

impl Search<'_> {
    fn is_exhausted(&self) -> bool {
        self.trials >= MOST_TRIALS
    }

    /// Removes parts of the subtree at `path`, then parts of its remaining children.
    fn cut_below(&mut self, path: &mut Vec<usize>) {
        if !path.is_empty() {
            self.cut(path);
        }
        let mut at = 0;
        while at < self.size(path) && !self.is_exhausted() {
            path.push(at);
            self.cut_below(path);
            path.pop();
            at += 1;
        }
        if path.is_empty() {
            self.cut_keys();
        }
    }

    /// Removes ranges of children, all of them at first, then ever smaller ranges, from the end: later parts often depend on
    /// earlier ones.
    fn cut(&mut self, path: &[usize]) {
        let mut width = self.size(path);
        while width > 0 && !self.is_exhausted() {
            let mut to = self.size(path);
            while to > 0 {
                let from = to.saturating_sub(width);
                let candidate = self.best.without(path, from, to);
                self.keep_if_it_fails(candidate);
                to = from;
            }
            width /= 2;
        }
    }

    fn cut_keys(&mut self) {
        let Tree::Map(entries) = &self.best else { return };
        let keys: Vec<String> = entries.iter().map(|(key, _)| key.clone()).collect();
        for key in keys.iter().filter(|key| !KEPT_KEYS.contains(&key.as_str())) {
            let mut candidate = self.best.clone();
            if let Tree::Map(entries) = &mut candidate {
                entries.retain(|(known, _)| known != key);
            }
            self.keep_if_it_fails(candidate);
        }
    }

    fn size(&self, path: &[usize]) -> usize {
        let mut here = &self.best;
        for at in path {
            let Some(child) = here.child(*at) else { return 0 };
            here = child;
        }
        here.len()
    }

    fn keep_if_it_fails(&mut self, candidate: Tree) {
        self.trials += 1;
        if judge(&candidate).failure.is_some_and(|failure| failure.kind == *self.kind) {
            self.best = candidate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::tree::{map, scalar};

    /// Never at rest: the process exits after every successful run, and is moved to another node without end.
    fn restless() -> Tree {
        let service = |image: &str| {
            let reschedule = map([("unlimited", scalar("true")), ("delay", scalar("5s")), ("max_delay", scalar("5s"))]);
            let policy = map([("max_attempts", scalar(1))]);
            map([
                ("image", scalar(image)),
                ("x-longshore", map([("reschedule", reschedule)])),
                ("deploy", map([("replicas", scalar(2)), ("restart_policy", policy)])),
            ])
        };
        let manifest = |image: &str| {
            let services = map([("web", service(image)), ("calm", service("calm:1"))]);
            Tree::Manifest(Box::new(map([("services", services)])))
        };
        let node = |name: &str| map([("name", scalar(name)), ("cpu", scalar(2)), ("memory", scalar("2GiB"))]);
        let entry = |at: &str, verb: &str| map([("at", scalar(at)), ("node", scalar("b")), ("do", scalar(verb))]);
        map([
            ("nodes", Tree::List(vec![node("a"), node("b"), node("c")])),
            ("images", map([("ends:1", map([("exits", scalar(1)), ("after", scalar("10s"))]))])),
            ("deployments", map([("blog", manifest("calm:2")), ("shop", manifest("ends:1"))])),
            ("timeline", Tree::List(vec![entry("5s", "fail"), entry("9s", "return"), entry("12s", "drain")])),
            ("until", scalar("20s")),
            ("settle", scalar("4m")),
        ])
    }

    #[test]
    fn the_result_is_minimal_and_fails_in_the_same_way() {
        let failure = judge(&restless()).failure.expect("it never comes to rest");
        assert_eq!(failure.kind.name(), "quiet");
        let left = minimise(&restless(), &failure.kind);
        assert_eq!(judge(&left).failure.map(|failure| failure.kind), Some(failure.kind));
        insta::assert_snapshot!(left.print(), @r#"
        nodes:
          - { name: b, cpu: 2, memory: 2GiB }
        images: { "ends:1": { exits: 1, after: 10s } }
        deployments:
          shop: |
            services: { web: { image: "ends:1" } }
        until: 20s
        settle: 4m
        "#);
    }
}
