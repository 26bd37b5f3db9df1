//! Cuts a failing scenario down to what matters.
//!
//! Owns: the order in which pieces are tried: large ones first, then halves of what is left, then single ones.
//! Invariant: what is returned fails in the same way as what was given, and no single piece of it can be left out.

use super::{Kind, Tree, verdict::judge};

/// Scenarios tried before what is left is taken as it is: a minute or so, which is what somebody waiting can bear.
const MOST_TRIALS: usize = 1500;

/// The part of a file nobody may take away: without it nothing demands what failed.
const KEPT: &[&str] = &["settle", "until"];

pub(super) fn minimise(scenario: &Tree, kind: &Kind) -> Tree {
    let mut search = Search { kind, trials: 0, best: scenario.clone() };
    loop {
        let before = search.best.clone();
        search.cut_below(&mut Vec::new());
        if search.best == before || search.is_tired() {
            return search.best;
        }
    }
}

struct Search<'k> {
    kind: &'k Kind,
    trials: usize,
    best: Tree,
}

impl Search<'_> {
    fn is_tired(&self) -> bool {
        self.trials >= MOST_TRIALS
    }

    /// Cuts the pieces of what a path leads to, then the pieces of those that are left.
    fn cut_below(&mut self, path: &mut Vec<usize>) {
        if !path.is_empty() {
            self.cut(path);
        }
        let mut at = 0;
        while at < self.size(path) && !self.is_tired() {
            path.push(at);
            self.cut_below(path);
            path.pop();
            at += 1;
        }
        if path.is_empty() {
            self.cut_keys();
        }
    }

    /// Takes away runs of pieces, half of them at first, then fewer and fewer, from the end: what comes late often
    /// depends on what comes early.
    fn cut(&mut self, path: &[usize]) {
        let mut width = self.size(path);
        while width > 0 && !self.is_tired() {
            let mut to = self.size(path);
            while to > 0 {
                let from = to.saturating_sub(width);
                let candidate = self.best.without(path, from, to);
                self.take_if_it_fails(candidate);
                to = from;
            }
            width /= 2;
        }
    }

    fn cut_keys(&mut self) {
        let Tree::Map(entries) = &self.best else { return };
        let keys: Vec<String> = entries.iter().map(|(key, _)| key.clone()).collect();
        for key in keys.iter().filter(|key| !KEPT.contains(&key.as_str())) {
            let mut candidate = self.best.clone();
            if let Tree::Map(entries) = &mut candidate {
                entries.retain(|(known, _)| known != key);
            }
            self.take_if_it_fails(candidate);
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

    fn take_if_it_fails(&mut self, candidate: Tree) {
        self.trials += 1;
        if judge(&candidate).failure.is_some_and(|failure| failure.kind == *self.kind) {
            self.best = candidate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::tree::{map, word};

    /// Never at rest: restarts without end were asked for, and the process ends after every good run.
    fn restless() -> Tree {
        let service = |image: &str| {
            let policy = map([("max_attempts", word(0))]);
            map([("image", word(image)), ("deploy", map([("replicas", word(2)), ("restart_policy", policy)]))])
        };
        let manifest = |image: &str| {
            let services = map([("web", service(image)), ("calm", service("calm:1"))]);
            Tree::Manifest(Box::new(map([("services", services)])))
        };
        let node = |name: &str| map([("name", word(name)), ("cpu", word(2)), ("memory", word("2GiB"))]);
        let entry = |at: &str, verb: &str| map([("at", word(at)), ("node", word("b")), ("do", word(verb))]);
        map([
            ("nodes", Tree::List(vec![node("a"), node("b"), node("c")])),
            ("images", map([("ends:1", map([("exits", word(1)), ("after", word("10s"))]))])),
            ("deployments", map([("blog", manifest("calm:2")), ("shop", manifest("ends:1"))])),
            ("timeline", Tree::List(vec![entry("5s", "fail"), entry("9s", "return"), entry("12s", "drain")])),
            ("until", word("20s")),
            ("settle", word("4m")),
        ])
    }

    #[test]
    fn only_what_matters_is_left_and_it_fails_in_the_same_way() {
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
