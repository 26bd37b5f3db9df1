//! `networks` of a service: attachments and aliases.

use longshore_model::service::Attachment;

use super::ServiceReader;
use crate::{
    diagnostic::Location,
    keys::{self, Rule},
    suggest,
    yaml::{Key, Node, Value},
};

pub(crate) struct AttachmentReader<'r, 'a> {
    service: &'r mut ServiceReader<'a>,
    attachment: Attachment,
}

type AttachmentRead = fn(&mut AttachmentReader<'_, '_>, &Key, &Node);

/// Keys of a service's network.
pub(crate) static ATTACHMENT_KEYS: &[Rule<AttachmentRead>] = &[
    Rule::honoured(
        "aliases",
        |r, k, n| r.attachment.aliases = r.service.text_set(k, n),
        "further names it answers to there",
    ),
    Rule::honoured("driver_opts", |r, k, n| r.attachment.options = r.service.options(k, n), "passed to the driver"),
    Rule::warned("gw_priority", "the cluster decides the way out; remove the key"),
    Rule::warned("interface_name", "interfaces are named by the engine; remove the key"),
    Rule::refused("ipv4_address", "addresses are the cluster's; use the service's name"),
    Rule::refused("ipv6_address", "addresses are the cluster's; use the service's name"),
    Rule::warned("link_local_ips", "addresses are the cluster's; use the service's name"),
    Rule::refused("mac_address", "addresses are the cluster's; remove the key"),
    Rule::honoured(
        "priority",
        |r, k, n| r.attachment.priority = r.service.signed(k, n).unwrap_or(0),
        "higher is attached first",
    ),
];

impl ServiceReader<'_> {
    /// Other services may use the name of the container as a host name, which keeps working; `docker exec` does not.
    pub(super) fn container_name(&mut self, key: &Key, node: &Node) {
        let Some(name) = self.text(key, node) else { return };
        let message = format!(
            "`container_name` in {} names no container; use `longshore exec {1}` and `longshore logs {1}`",
            self.what, self.name
        );
        self.problems.warn(&key.location, message);
        self.raw.container_name = Some(name);
    }

    pub(super) fn networks(&mut self, key: &Key, node: &Node) {
        self.raw.networks = Some(key.location.clone());
        let what = self.of(key);
        match &node.value {
            Value::Sequence(items) => {
                for item in items {
                    if let Some(name) = self.problems.text(item, format_args!("an entry of {what}")) {
                        self.attach(name, Attachment::default(), &item.location);
                    }
                }
            }
            Value::Mapping(mapping) => {
                for (name, node) in mapping.iter() {
                    let attachment = self.attachment(node, &format!("network `{}` of {}", name.name, self.what));
                    self.attach(&name.name, attachment, &name.location);
                }
            }
            Value::Scalar(scalar) if scalar.is_null() => {}
            Value::Scalar(_) => self.problems.wrong_shape(node, what, "a list or a mapping of networks"),
        }
    }

    fn attachment(&mut self, node: &Node, what: &str) -> Attachment {
        if node.is_null() {
            return Attachment::default();
        }
        let Some(mapping) = self.problems.mapping(node, what) else { return Attachment::default() };
        let met = keys::dispatch(ATTACHMENT_KEYS, mapping, what, self.problems);
        let mut reader = AttachmentReader { service: self, attachment: Attachment::default() };
        for (read, key, node) in met {
            read(&mut reader, key, node);
        }
        reader.attachment
    }

    pub(super) fn attach(&mut self, name: &str, attachment: Attachment, location: &Location) {
        if !self.declarations.networks.contains_key(name) {
            let message = format!("{} names the network `{name}`, which is not declared", self.what);
            let problem = self.problems.error(location, message);
            match suggest::nearest(name, self.declarations.networks.keys().map(String::as_str)) {
                Some(near) => problem.hint(format!("did you mean `{near}`?")),
                None => problem
                    .hint(format!("add it to the top-level `networks`, for instance `networks: {{{name}: {{}}}}`")),
            }
        }
        self.spec.networks.insert(name.to_owned(), attachment);
    }
}
