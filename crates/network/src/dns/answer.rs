//! The answer to a question, by who asks.
//!
//! Owns: what every kind of name resolves to, and which questions are passed on.
//! Must not touch: sockets, clock, randomness. Invariant: the same index, source, question and turn give the same
//! answer, and a name of one label never leaves this machine.

use std::net::IpAddr;

use hickory_proto::rr::{Name, RecordType};
use longshore_model::AddressPlan;

use super::name_index::{NameIndex, Named, both_addresses, long_name, shared_scopes, vip_addresses};
use crate::{EndpointMode, NetworkReplica, NetworkService};

/// The domain under which everything has a name.
const DOMAIN: &str = "longshore.internal";
/// Seconds for which a VIP may be remembered: it stays for the life of its service.
const VIP_TTL: u32 = 5;
/// Seconds for which addresses of replicas may be remembered.
const REPLICA_TTL: u32 = 1;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Addresses {
        ttl: u32,
        addresses: Vec<IpAddr>,
    },
    /// The name that an address has.
    Pointer(String),
    /// The name exists, without a record of the type.
    NoData,
    NameUnknown,
    /// It is not ours: these servers know, or the machine's own where there is none.
    Forward(Vec<IpAddr>),
    /// Whoever asks is not known, or not yet: it shall ask again.
    Failed,
}

/// Answers a question that came from `source`. Replicas take turns by `turn`.
pub(super) fn answer(index: &NameIndex, source: IpAddr, name: &Name, kind: RecordType, turn: usize) -> Answer {
    let (Some(plan), Some(asker)) = (index.plan(), index.asker(source)) else { return Answer::Failed };
    if let Some(address) = reverse(name) {
        return answer_reverse(index, plan, asker, address, kind);
    }
    let text = name.to_lowercase().to_ascii();
    let text = text.trim_end_matches('.');
    let forward = || Answer::Forward(asker.dns.clone());
    if text.is_empty() {
        return forward();
    }
    match find(index, asker, text) {
        Some((named, part)) => addresses(index, plan, asker, &named, part, kind, turn),
        None if text.contains('.') && !is_in_domain(text) => forward(),
        None => Answer::NameUnknown,
    }
}

fn is_in_domain(text: &str) -> bool {
    text == DOMAIN || text.strip_suffix(DOMAIN).is_some_and(|rest| rest.ends_with('.'))
}

/// Which addresses of a service are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    AsConfigured,
    Replicas,
}

fn find<'a>(index: &'a NameIndex, asker: &NetworkService, text: &str) -> Option<(Vec<&'a Named>, Part)> {
    let inner = text.strip_suffix(DOMAIN).and_then(|rest| rest.strip_suffix('.'));
    let lookup = |name: &str| {
        let short = if inner.is_none() { index.find_short(asker, name) } else { Vec::new() };
        if short.is_empty() && name.contains('.') { index.find_long(asker, name) } else { short }
    };
    let name = inner.unwrap_or(text);
    let whole = lookup(name);
    if !whole.is_empty() {
        return Some((whole, Part::AsConfigured));
    }
    let replicas = lookup(name.strip_prefix("tasks.")?);
    (!replicas.is_empty()).then_some((replicas, Part::Replicas))
}

fn addresses(
    index: &NameIndex,
    plan: AddressPlan,
    asker: &NetworkService,
    found: &[&Named],
    part: Part,
    kind: RecordType,
    turn: usize,
) -> Answer {
    let (mut addresses, mut ttl) = (Vec::new(), VIP_TTL);
    for named in found {
        let Some(service) = index.service(named.group()) else { continue };
        let has_ipv6 = shared_scopes(asker, service).any(|ipv6| ipv6);
        let (these, their_ttl) = addresses_of(plan, service, named, part);
        ttl = ttl.min(their_ttl);
        addresses.extend(these.into_iter().filter(|address| match kind {
            RecordType::A => address.is_ipv4(),
            RecordType::AAAA => address.is_ipv6() && has_ipv6,
            _ => false,
        }));
    }
    if addresses.is_empty() {
        return Answer::NoData;
    }
    let first = turn % addresses.len();
    addresses.rotate_left(first);
    Answer::Addresses { ttl, addresses }
}

fn addresses_of(plan: AddressPlan, service: &NetworkService, named: &Named, part: Part) -> (Vec<IpAddr>, u32) {
    let of_replicas = |replicas: Vec<&NetworkReplica>| {
        (replicas.into_iter().flat_map(|replica| both_addresses(plan, replica)).collect(), REPLICA_TTL)
    };
    match (named, part) {
        (Named::Service(_), Part::AsConfigured) => match (service.endpoint_mode, service.vip) {
            (EndpointMode::Vip, Some(number)) => (vip_addresses(plan, number).collect(), VIP_TTL),
            (EndpointMode::Vip, None) | (EndpointMode::Dnsrr, _) => of_replicas(service.serving().collect()),
        },
        (Named::Service(_), Part::Replicas) => of_replicas(service.serving().collect()),
        (Named::OnlyReplica(_), _) => of_replicas(newest(service.replicas.iter()).into_iter().collect()),
        (Named::Replica(_, id), _) => {
            let generations = service.replicas.iter().filter(|replica| replica.id == *id);
            of_replicas(newest(generations).into_iter().collect())
        }
    }
}

/// Of several generations the one that serves, otherwise the latest.
fn newest<'a>(generations: impl Iterator<Item = &'a NetworkReplica>) -> Option<&'a NetworkReplica> {
    generations.max_by_key(|replica| (replica.serves, replica.generation, replica.attempt))
}

/// The address that a name below `in-addr.arpa` or `ip6.arpa` asks for.
fn reverse(name: &Name) -> Option<IpAddr> {
    let net = name.parse_arpa_name().ok()?;
    let whole = if net.addr().is_ipv4() { 32 } else { 128 };
    (net.prefix_len() == whole).then(|| net.addr())
}

fn answer_reverse(
    index: &NameIndex,
    plan: AddressPlan,
    asker: &NetworkService,
    address: IpAddr,
    kind: RecordType,
) -> Answer {
    let is_ours = match address {
        IpAddr::V4(address) => plan.pool.contains(&address),
        IpAddr::V6(address) => plan.ipv6_network().contains(&address),
    };
    if !is_ours {
        return Answer::Forward(asker.dns.clone());
    }
    match index.owner_of(asker, address) {
        Some(_) if kind != RecordType::PTR => Answer::NoData,
        Some(Named::Replica(group, id)) => Answer::Pointer(format!("{}.{DOMAIN}.", long_name(group, id))),
        Some(Named::Service(group) | Named::OnlyReplica(group)) => {
            Answer::Pointer(format!("{}.{DOMAIN}.", long_name(group, &group.service.to_string())))
        }
        None => Answer::NameUnknown,
    }
}
