//! Host devices and accelerators: `devices`, `gpus` and device reservations of `deploy`.

use longshore_model::container::EngineDeviceRequest;

use super::ServiceReader;
use crate::{
    keys::{self, Rule},
    yaml::{Key, Mapping, Node},
};

type DeviceRead = fn(&mut EngineDeviceRequest, &mut ServiceReader<'_>, &Key, &Node);

/// Keys of a reserved device.
pub(crate) static DEVICE_KEYS: &[Rule<DeviceRead>] = &[
    Rule::honoured(
        "capabilities",
        |d, s, k, n| d.capabilities = s.text_set(k, n),
        "the first but `compute`, `utility` and the like is the kind counted on nodes",
    ),
    Rule::honoured(
        "count",
        |d, s, k, n| d.count = s.device_count(k, n),
        "how many; `all` counts as one when nodes are compared",
    ),
    Rule::honoured("device_ids", |d, s, k, n| d.ids = s.texts(k, n), "those wanted, by name"),
    Rule::honoured("driver", |d, s, k, n| d.driver = s.text(k, n), "driver of the device"),
    Rule::honoured("options", |d, s, k, n| d.options = s.options(k, n), "passed to the driver"),
];

impl ServiceReader<'_> {
    /// `host[:container[:permissions]]`, or the same as a mapping.
    pub(super) fn devices(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(items) = self.problems.sequence(node, &what) else { return };
        for item in items {
            let device = match item.as_text() {
                Some(text) => {
                    let mut parts = text.split(':');
                    let host = parts.next().unwrap_or_default();
                    let inside = parts.next().unwrap_or(host);
                    Some(format!("{host}:{inside}:{}", parts.next().unwrap_or("rwm")))
                }
                None => self.long_device(item, &what),
            };
            self.spec.container.devices.extend(device);
        }
        self.spec.container.devices.sort();
    }

    fn long_device(&mut self, item: &Node, what: &str) -> Option<String> {
        let mapping = self.problems.mapping(item, format_args!("an entry of {what}"))?;
        self.problems.known_keys(mapping, what, &["source", "target", "permissions"], crate::Extensions::Allowed);
        let source = self.problems.required(item, "source", format_args!("an entry of {what}"))?;
        let source = self.problems.text(source, what)?;
        let mut text = |key: &str, default: &str| match mapping.get(key) {
            Some(node) => self.problems.text(node, what).unwrap_or(default).to_owned(),
            None => default.to_owned(),
        };
        let (target, permissions) = (text("target", source), text("permissions", "rwm"));
        Some(format!("{source}:{target}:{permissions}"))
    }

    pub(super) fn gpus(&mut self, key: &Key, node: &Node) {
        if node.as_text() == Some("all") {
            let mut request = EngineDeviceRequest::default();
            request.capabilities.insert("gpu".to_owned());
            self.reserve(request);
            return;
        }
        let what = self.of(key);
        let Some(items) = self.problems.sequence(node, &what) else { return };
        for item in items {
            let Some(mapping) = self.problems.mapping(item, format_args!("an entry of {what}")) else { continue };
            let mut request = self.device_request(mapping, &what);
            request.capabilities.insert("gpu".to_owned());
            self.reserve(request);
        }
    }

    /// `deploy.resources.reservations.devices`.
    pub(super) fn reserved_devices(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(items) = self.problems.sequence(node, &what) else { return };
        for item in items {
            let Some(mapping) = self.problems.mapping(item, format_args!("an entry of {what}")) else { continue };
            let request = self.device_request(mapping, &what);
            if request.capabilities.is_empty() {
                self.problems
                    .error(&item.location, format!("an entry of {what} needs the key `capabilities`"))
                    .hint("say what it must be able to do, for instance `capabilities: [gpu]`");
                continue;
            }
            self.reserve(request);
        }
    }

    /// `deploy.resources.reservations.generic_resources`.
    pub(super) fn generic_resources(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(items) = self.problems.sequence(node, &what) else { return };
        for item in items {
            let what = format!("an entry of {what}");
            let Some(spec) = self.problems.required(item, "discrete_resource_spec", &what) else { continue };
            let kind = self.problems.required(spec, "kind", &what);
            let kind = kind.and_then(|node| self.problems.text(node, format_args!("`kind` of {what}")));
            let value = self.problems.required(spec, "value", &what);
            let value = value.and_then(|node| self.problems.unsigned(node, format_args!("`value` of {what}")));
            if let (Some(kind), Some(value)) = (kind, value) {
                let total = self.spec.resources.devices.entry(kind.to_owned()).or_default();
                *total = total.saturating_add(value);
            }
        }
    }

    fn device_request(&mut self, mapping: &Mapping, what: &str) -> EngineDeviceRequest {
        let mut request = EngineDeviceRequest::default();
        for (read, key, node) in keys::dispatch(DEVICE_KEYS, mapping, format_args!("an entry of {what}"), self.problems)
        {
            read(&mut request, self, key, node);
        }
        if let (Some(_), Some((key, node))) = (mapping.get("count"), mapping.entry("device_ids"))
            && node.as_sequence().is_some_and(|ids| !ids.is_empty())
        {
            let message = format!("{} asks for devices by `count` and by `device_ids`", self.what);
            self.problems.error(&key.location, message).hint("keep one of them");
        }
        request
    }

    fn device_count(&mut self, key: &Key, node: &Node) -> Option<u64> {
        if node.as_text() == Some("all") {
            return None;
        }
        let what = self.of(key);
        self.problems.unsigned(node, what)
    }

    /// Adds the request to the reserved devices and to the engine's requests.
    fn reserve(&mut self, request: EngineDeviceRequest) {
        let (kind, count) = counted(&request);
        let total = self.spec.resources.devices.entry(kind).or_default();
        *total = total.saturating_add(count);
        self.spec.container.device_requests.push(request);
    }
}

/// Kind and number that a request counts against a node.
pub(crate) fn counted(request: &EngineDeviceRequest) -> (String, u64) {
    let generic = ["compute", "utility", "video", "graphics", "display", "compat32", "ngx"];
    let kind = request.capabilities.iter().find(|word| !generic.contains(&word.as_str()));
    let kind = kind.or_else(|| request.capabilities.first()).cloned().unwrap_or_else(|| "gpu".to_owned());
    let listed = u64::try_from(request.ids.len()).unwrap_or(u64::MAX);
    // `all` cannot be counted; the service needs at least one.
    (kind, request.count.unwrap_or(listed.max(1)))
}
