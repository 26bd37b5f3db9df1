//! Keys that are passed to the container unchanged: commands, environment, logging and others.

use std::collections::BTreeMap;

use longshore_model::{Platform, container::Hook};

use super::{PULL_POLICIES, ServiceReader, resolve::Located};
use crate::{
    diagnostic::Location,
    reader::{Extensions, shorten},
    shell_words,
    yaml::{Key, Node, Value},
};

impl ServiceReader<'_> {
    /// A text is split like a shell command; a null keeps the image's.
    pub(super) fn command(&mut self, key: &Key, node: &Node) -> Option<Vec<String>> {
        if node.is_null() {
            return None;
        }
        let what = self.of(key);
        let Some(text) = node.as_text() else { return Some(self.problems.texts(node, what)) };
        match shell_words::split(text) {
            Ok(words) => Some(words),
            Err(error) => {
                self.problems.error(&node.location, format!("{what}: {error}"));
                None
            }
        }
    }

    pub(super) fn environment(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let mut pairs = self.problems.pairs(node, &what);
        for (name, value) in &mut pairs {
            if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '\0') {
                let message = format!("`{}` in {what} cannot be the name of a variable", shorten(name));
                self.problems
                    .error(place_of_pair(node, name), message)
                    .hint("write `NAME=value`, without spaces around the `=`");
            }
            if value.is_none() {
                *value = self.declarations.environment.get(name).cloned();
            }
        }
        self.spec.container.environment = pairs;
    }

    pub(super) fn extra_hosts(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        match &node.value {
            Value::Mapping(mapping) => {
                for (name, value) in mapping.iter() {
                    let addresses = self.problems.text_or_texts(value, format_args!("`{}` in {what}", name.name));
                    let known = self.spec.container.resolver.extra_hosts.entry(name.name.to_string()).or_default();
                    known.extend(addresses);
                }
            }
            Value::Sequence(items) => {
                for item in items {
                    self.extra_host(item, &what);
                }
            }
            Value::Scalar(scalar) if scalar.is_null() => {}
            Value::Scalar(_) => self.problems.wrong_shape(node, what, "a mapping or a list"),
        }
    }

    fn extra_host(&mut self, item: &Node, what: &str) {
        let Some(text) = self.problems.text(item, format_args!("an entry of {what}")) else { return };
        let Some((name, address)) = text.split_once('=').or_else(|| text.split_once(':')) else {
            self.problems.error(&item.location, format!("`{text}` in {what} must be `name=address`"));
            return;
        };
        let address = address.trim_start_matches('[').trim_end_matches(']').to_owned();
        self.spec.container.resolver.extra_hosts.entry(name.to_owned()).or_default().insert(address);
    }

    pub(super) fn links(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(items) = self.problems.sequence(node, &what) else { return };
        for item in items {
            let Some(text) = self.problems.text(item, format_args!("an entry of {what}")) else { continue };
            let service = text.split_once(':').map_or(text, |(service, _)| service);
            self.depends_on_link(service, item);
        }
    }

    pub(super) fn logging(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(mapping) = self.problems.mapping(node, &what) else { return };
        self.problems.known_keys(mapping, &what, &["driver", "options"], Extensions::Allowed);
        for (key, node) in mapping.iter() {
            match &*key.name {
                "driver" => self.spec.container.log_driver = self.text(key, node),
                "options" => self.spec.container.log_options = self.filled_pairs(key, node),
                _ => {}
            }
        }
    }

    pub(super) fn platform(&mut self, key: &Key, node: &Node) {
        let Some(text) = self.text(key, node) else { return };
        let mut parts = text.split('/');
        let (os, arch) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        // A single word is an architecture if it is a known one, as in the engine.
        let platform = match (os, arch) {
            ("amd64" | "x86_64" | "arm64" | "aarch64" | "arm" | "386" | "ppc64le" | "s390x" | "riscv64", "") => {
                Platform::new("linux", os)
            }
            (os, arch) => Platform::new(os, arch),
        };
        self.spec.placement.platforms = vec![platform];
    }

    pub(super) fn pull_policy(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let often = node.as_text().is_some_and(|text| matches!(text, "daily" | "weekly") || text.starts_with("every_"));
        if often {
            self.problems
                .error(&node.location, format!("{what}: the cluster does not pull on a schedule"))
                .hint("write `always`, and name a new tag or digest to roll");
            return;
        }
        self.spec.container.pull_policy = self.problems.choice(node, what, &PULL_POLICIES);
    }

    pub(super) fn network_mode(&mut self, key: &Key, node: &Node) {
        let Some(text) = self.text(key, node) else { return };
        let named = text.strip_prefix("service:").is_some_and(|service| !service.is_empty());
        if text != "none" && text != "host" && !named {
            let message = format!("{} must be `none`, `host` or `service:<name>`, not `{text}`", self.of(key));
            self.problems
                .error(&node.location, message)
                .hint("remove it, and the service is on the network `default`; or name others under `networks`");
            return;
        }
        self.raw.network_mode = Some(Located { value: text, location: key.location.clone() });
    }

    /// `ipc` and `pid`: shared with the host or a service, never with a named container.
    pub(super) fn shared(&mut self, key: &Key, node: &Node) -> Option<String> {
        let text = self.text(key, node)?;
        if text.starts_with("container:") {
            let message = format!("{} cannot name a container", self.of(key));
            self.problems.error(&node.location, message).hint("containers come and go; write `service:<name>`");
            return None;
        }
        if let Some(other) = text.strip_prefix("service:") {
            self.refer(if &*key.name == "pid" { "pid" } else { "ipc" }, other, &node.location);
        }
        Some(text)
    }

    pub(super) fn hooks(&mut self, key: &Key, node: &Node) -> Vec<Hook> {
        let what = self.of(key);
        let Some(items) = self.problems.sequence(node, &what) else { return Vec::new() };
        items.iter().map(|item| self.hook(item, &what)).collect()
    }

    fn hook(&mut self, item: &Node, what: &str) -> Hook {
        let mut hook = Hook::default();
        let Some(mapping) = self.problems.mapping(item, format_args!("an entry of {what}")) else { return hook };
        let keys = ["command", "user", "privileged", "working_dir", "environment"];
        self.problems.known_keys(mapping, what, &keys, Extensions::Allowed);
        self.problems.required(item, "command", format_args!("an entry of {what}"));
        for (key, node) in mapping.iter() {
            match &*key.name {
                "command" => hook.command = self.command(key, node).unwrap_or_default(),
                "user" => hook.user = self.text(key, node),
                "working_dir" => hook.working_dir = self.text(key, node),
                "privileged" => hook.privileged = self.problems.boolean(node, what) == Some(true),
                "environment" => hook.environment = self.problems.pairs(node, what),
                _ => {}
            }
        }
        hook
    }

    pub(super) fn unsigned(&mut self, key: &Key, node: &Node) -> Option<u64> {
        let what = self.of(key);
        self.problems.unsigned(node, what)
    }

    pub(super) fn signed(&mut self, key: &Key, node: &Node) -> Option<i64> {
        let what = self.of(key);
        self.problems.signed(node, what)
    }

    pub(super) fn cpus(&mut self, key: &Key, node: &Node) -> Option<u64> {
        let what = self.of(key);
        self.problems.cpus(node, what)
    }

    pub(super) fn bytes(&mut self, key: &Key, node: &Node) -> Option<u64> {
        let what = self.of(key);
        self.problems.bytes(node, what)
    }

    pub(super) fn given_count(&mut self, key: &Key, node: &Node) -> Option<Located<u32>> {
        let what = self.of(key);
        let value = self.problems.replicas(node, what)?;
        Some(Located { value, location: node.location.clone() })
    }

    /// Options as texts, including booleans and numbers.
    pub(super) fn options(&mut self, key: &Key, node: &Node) -> BTreeMap<String, String> {
        self.filled_pairs(key, node)
    }
}

/// The location of a key in a mapping or in a list of `key=value`.
fn place_of_pair<'n>(node: &'n Node, name: &str) -> &'n Location {
    let named = |item: &&Node| item.as_text().is_some_and(|text| text.split('=').next() == Some(name));
    match &node.value {
        Value::Mapping(mapping) => mapping.entry(name).map_or(&node.location, |(key, _)| &key.location),
        Value::Sequence(items) => items.iter().find(named).map_or(&node.location, |item| &item.location),
        Value::Scalar(_) => &node.location,
    }
}
