//! Kernel limits: `ulimits` and `memswap_limit`.

use longshore_model::container::Ulimit;

use super::ServiceReader;
use crate::{
    reader::Extensions,
    yaml::{Key, Node},
};

impl ServiceReader<'_> {
    pub(super) fn ulimits(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(mapping) = self.problems.mapping(node, &what) else { return };
        for (name, node) in mapping.iter() {
            let what = format!("`{}` in {what}", name.name);
            let limit = match node.as_mapping() {
                Some(_) => self.ulimit(node, &what),
                None => self.problems.signed(node, &what).map(|both| Ulimit { soft: both, hard: both }),
            };
            if let Some(limit) = limit {
                self.spec.container.limits.ulimits.insert(name.name.to_string(), limit);
            }
        }
    }

    fn ulimit(&mut self, node: &Node, what: &str) -> Option<Ulimit> {
        let mapping = node.as_mapping()?;
        self.problems.known_keys(mapping, what, &["soft", "hard"], Extensions::Allowed);
        let soft = self.problems.required(node, "soft", what).and_then(|node| self.problems.signed(node, what));
        let hard = self.problems.required(node, "hard", what).and_then(|node| self.problems.signed(node, what));
        let (soft, hard) = (soft?, hard?);
        if hard != -1 && soft > hard {
            self.problems.error(&node.location, format!("{what} has a soft limit above its hard one"));
        }
        Some(Ulimit { soft, hard })
    }

    pub(super) fn memswap_limit(&mut self, key: &Key, node: &Node) {
        let unlimited = node.as_text() == Some("-1");
        let bytes =
            if unlimited { Some(-1) } else { self.bytes(key, node).and_then(|bytes| i64::try_from(bytes).ok()) };
        self.spec.container.limits.memory_swap_bytes = bytes;
    }
}
