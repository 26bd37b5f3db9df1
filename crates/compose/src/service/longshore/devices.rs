//! `x-longshore.devices`: devices by type, vendor, model and attributes.
//!
//! Owns: parsing of device requests. Must not touch: plain counts, which `gpus` and `deploy` set.
//! Invariant: the requests are sorted, so that their order in the file does not change the service.

use longshore_model::service::{DeviceAffinity, DeviceConstraint, DeviceRequest};

use super::{Extensions, Key, Node, ServiceReader, constraint};

/// Most device requests of a service: the scheduler assigns each request to a device group on every node.
const MAX_REQUESTS: usize = 8;

impl ServiceReader<'_> {
    pub(super) fn device_requests_key(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(items) = self.problems.sequence(node, &what) else { return };
        if items.len() > MAX_REQUESTS {
            self.problems
                .error(&key.location, format!("{what} has more than {MAX_REQUESTS} entries"))
                .hint("ask for several equal devices with one `count`");
            return;
        }
        let what = format!("an entry of {what}");
        let requests: Vec<DeviceRequest> =
            items.iter().filter_map(|item| self.node_device_request(item, &what)).collect();
        self.spec.resources.device_requests.extend(requests);
        self.spec.resources.device_requests.sort();
    }

    fn node_device_request(&mut self, item: &Node, what: &str) -> Option<DeviceRequest> {
        let mapping = self.problems.mapping(item, what)?;
        self.problems.known_keys(mapping, what, &["device", "count", "constraints", "affinities"], Extensions::Refused);
        let device = self.problems.required(item, "device", what)?;
        let named = self.device_named(device, what);
        let count = match mapping.entry("count") {
            Some((key, node)) => self.positive(key, node),
            None => Some(1),
        };
        let constraints =
            mapping.get("constraints").map(|node| self.device_constraints(node, what)).unwrap_or_default();
        let affinities = mapping.get("affinities").map(|node| self.device_affinities(node, what)).unwrap_or_default();
        let request = named?;
        Some(DeviceRequest { count: u64::from(count?), constraints, affinities, ..request })
    }

    /// `type`, `vendor/type` or `vendor/type/name`.
    fn device_named(&mut self, node: &Node, what: &str) -> Option<DeviceRequest> {
        let text = self.problems.text(node, format_args!("`device` of {what}"))?;
        let parts: Vec<&str> = text.split('/').map(str::trim).collect();
        let owned = |part: &str| Some(part.to_owned());
        let (vendor, kind, name) = match parts.as_slice() {
            [kind] => (None, *kind, None),
            [vendor, kind] => (owned(vendor), *kind, None),
            [vendor, kind, name] => (owned(vendor), *kind, owned(name)),
            _ => (None, "", None),
        };
        if kind.is_empty() || parts.iter().any(|part| part.is_empty()) {
            self.problems
                .error(&node.location, format!("`{}` names no device", crate::reader::shorten(text)))
                .hint("write `type`, `vendor/type` or `vendor/type/name`, for instance `nvidia/gpu/a100`");
            return None;
        }
        Some(DeviceRequest { vendor, kind: kind.to_owned(), name, ..DeviceRequest::default() })
    }

    fn device_constraints(&mut self, node: &Node, what: &str) -> Vec<DeviceConstraint> {
        let what = format!("`constraints` of {what}");
        let mut constraints = Vec::new();
        for item in self.problems.sequence(node, &what).unwrap_or_default() {
            let Some(text) = self.problems.text(item, &what) else { continue };
            match constraint::parse_device(text) {
                Ok(constraint) => constraints.push(constraint),
                Err(error) => self.refuse(&error, &item.location),
            }
        }
        constraints.sort();
        constraints.dedup();
        constraints
    }

    fn device_affinities(&mut self, node: &Node, what: &str) -> Vec<DeviceAffinity> {
        let what = format!("an entry of `affinities` of {what}");
        let mut affinities = Vec::new();
        for item in self.problems.sequence(node, &what).unwrap_or_default() {
            let Some(mapping) = self.problems.mapping(item, &what) else { continue };
            self.problems.known_keys(mapping, &what, &["match", "weight"], Extensions::Refused);
            let Some(matches) = self.problems.required(item, "match", &what) else { continue };
            let Some(text) = self.problems.text(matches, &what) else { continue };
            match (constraint::parse_device(text), self.weight(mapping)) {
                (Ok(matches), Some(weight)) => affinities.push(DeviceAffinity { matches, weight }),
                (Ok(_), None) => {}
                (Err(error), _) => self.refuse(&error, &matches.location),
            }
        }
        affinities.sort();
        affinities.dedup();
        affinities
    }
}
