//! `ports` of a service, in short and long syntax.
//!
//! Invariant: both syntaxes give the same list, one entry per port, ranges expanded.

use std::net::IpAddr;

use longshore_model::service::{Port, PortMode, Protocol};

use super::ServiceReader;
use crate::{
    diagnostic::Location,
    keys::{self, Rule},
    reader::shorten,
    yaml::{Key, Node},
};

/// Most ports of one service. A range of thousands is a typing error, and each listener has a cost on every node.
const MAX_PORTS: usize = 1000;

const PROTOCOLS: [(&str, Protocol); 3] = [("tcp", Protocol::Tcp), ("udp", Protocol::Udp), ("sctp", Protocol::Sctp)];
const MODES: [(&str, PortMode); 2] = [("ingress", PortMode::Ingress), ("host", PortMode::Host)];

/// One entry before ranges are expanded.
#[derive(Default)]
pub(crate) struct Entry {
    target: Option<String>,
    published: Option<String>,
    host_ip: Option<String>,
    protocol: Protocol,
    mode: PortMode,
}

type PortRead = fn(&mut Entry, &mut ServiceReader<'_>, &Key, &Node);

/// Keys of a port in long syntax.
pub(crate) static PORT_KEYS: &[Rule<PortRead>] = &[
    Rule::accepted("app_protocol", "said for other tools"),
    Rule::honoured("host_ip", |e, s, k, n| e.host_ip = s.text(k, n), "address the listener binds"),
    Rule::honoured(
        "mode",
        |e, s, k, n| e.mode = s.port_word(k, n, &MODES),
        "`ingress`: every node listens on the published port; `host`: the replica's node only",
    ),
    Rule::accepted("name", "said for people"),
    Rule::honoured("protocol", |e, s, k, n| e.protocol = s.port_word(k, n, &PROTOCOLS), "`tcp`, `udp` or `sctp`"),
    Rule::honoured(
        "published",
        |e, s, k, n| e.published = s.text(k, n),
        "port outside; without it nothing listens outside",
    ),
    Rule::honoured("target", |e, s, k, n| e.target = s.text(k, n), "port inside"),
];

impl ServiceReader<'_> {
    pub(super) fn ports(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        if node.is_null() {
            return;
        }
        let Some(items) = self.problems.sequence(node, &what) else { return };
        for item in items {
            let entry = match item.as_text() {
                Some(text) => short(text),
                None => self.long(item, &what),
            };
            let ports = entry.and_then(|entry| expand(&entry));
            match ports {
                Ok(ports) => self.add_ports(ports, &item.location),
                Err(reason) => self.bad_port(item, &what, &reason),
            }
        }
        self.spec.ports.sort();
        self.spec.ports.dedup();
    }

    fn long(&mut self, item: &Node, what: &str) -> Result<Entry, String> {
        let mut entry = Entry::default();
        let mapping = item.as_mapping().ok_or_else(|| format!("must be a text or a mapping, not {}", item.shape()))?;
        for (read, key, node) in keys::dispatch(PORT_KEYS, mapping, format_args!("an entry of {what}"), self.problems) {
            read(&mut entry, self, key, node);
        }
        Ok(entry)
    }

    fn port_word<T: Copy + Default>(&mut self, key: &Key, node: &Node, words: &[(&str, T)]) -> T {
        let what = format!("`{}` of a port of {}", key.name, self.what);
        self.problems.choice(node, what, words).unwrap_or_default()
    }

    fn add_ports(&mut self, ports: Vec<Port>, location: &Location) {
        if self.spec.ports.len() + ports.len() > MAX_PORTS {
            self.problems.error(location, format!("{} publishes more than {MAX_PORTS} ports", self.what));
            return;
        }
        self.notes.ports.extend(ports.iter().map(|port| (port.clone(), location.clone())));
        self.spec.ports.extend(ports);
    }

    fn bad_port(&mut self, item: &Node, what: &str, reason: &str) {
        let message = match item.as_text() {
            Some(text) => format!("`{}` in {what}: {reason}", shorten(text)),
            None => format!("an entry of {what}: {reason}"),
        };
        self.problems
            .error(&item.location, message)
            .hint("write `published:target`, for instance `8080:80` or `53:53/udp`");
    }
}

/// `[[address:]published:]target[/protocol]`.
fn short(text: &str) -> Result<Entry, String> {
    let (text, protocol) = match text.split_once('/') {
        Some((text, word)) => (text, protocol(word)?),
        None => (text, Protocol::Tcp),
    };
    let (outside, target) = match text.rsplit_once(':') {
        Some((outside, target)) => (Some(outside), target),
        None => (None, text),
    };
    let (host_ip, published) = match outside.map(|outside| outside.rsplit_once(':').unwrap_or(("", outside))) {
        Some((address, published)) => (Some(address).filter(|text| !text.is_empty()), Some(published)),
        None => (None, None),
    };
    Ok(Entry {
        target: Some(target.to_owned()),
        published: published.filter(|text| !text.is_empty()).map(str::to_owned),
        host_ip: host_ip.map(str::to_owned),
        protocol,
        mode: PortMode::Ingress,
    })
}

fn protocol(word: &str) -> Result<Protocol, String> {
    PROTOCOLS
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, protocol)| *protocol)
        .ok_or_else(|| format!("`{word}` is not a protocol; known are `tcp`, `udp` and `sctp`"))
}

fn expand(entry: &Entry) -> Result<Vec<Port>, String> {
    let targets = range(entry.target.as_deref().ok_or("`target` is missing")?)?;
    let host_ip = entry.host_ip.as_deref().map(address).transpose()?;
    let published: Vec<Option<u16>> = match entry.published.as_deref() {
        Some(text) => range(text)?.into_iter().map(Some).collect(),
        None => vec![None; targets.len()],
    };
    if published.len() > 1 && targets.len() == 1 {
        return Err("a range outside for one port inside leaves open which it is; name one".to_owned());
    }
    if published.len() != targets.len() {
        return Err("the ranges inside and outside have different lengths".to_owned());
    }
    let port = |(target, published)| Port { target, published, protocol: entry.protocol, mode: entry.mode, host_ip };
    Ok(targets.into_iter().zip(published).map(port).collect())
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| format!("`{text}` is not an IP address"))
}

fn range(text: &str) -> Result<Vec<u16>, String> {
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(port),
        Ok(_) | Err(_) => Err(format!("`{}` is not a port from 1 to 65535", shorten(text))),
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    if last < first {
        return Err(format!("the range `{text}` runs backwards"));
    }
    if usize::from(last - first) >= MAX_PORTS {
        return Err(format!("the range `{text}` has more than {MAX_PORTS} ports"));
    }
    Ok((first..=last).collect())
}
