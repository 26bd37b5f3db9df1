//! The contents of the nftables table, as sets, maps and chains.
//!
//! A replica's *class* is the set of scopes it is in. Its address leads, by a verdict map, to the chain of its class, and
//! that chain accepts the members of those scopes.
//!
//! Owns: which addresses are in which set, and the chains of classes and VIPs.
//! Must not touch: the text of the chains that do not depend on the state, see `nft_text`.
//! Invariant: names of sets and chains depend on what they stand for alone, so that two rulesets can be compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use longshore_model::AddressPlan;

use super::{Bridge, DeviceNames, Machine, device_names::short_hash, nft_text};
use crate::{EndpointMode, NetworkService, NetworkSettings, NetworkState, ScopeName};

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// The table's name.
    pub table: String,
    /// Chains that depend on devices and pools only.
    pub(super) base: String,
    /// Sets and maps, by name.
    pub(super) sets: BTreeMap<String, ElementSet>,
    /// Chains of classes and VIPs, each with its rules.
    pub(super) chains: BTreeMap<String, Vec<String>>,
    /// Services with a VIP, by their number.
    pub vips: BTreeMap<u32, Vip>,
}

/// A set or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ElementSet {
    /// `set` or `map`.
    pub(super) keyword: &'static str,
    pub(super) element_type: &'static str,
    pub(super) elements: BTreeSet<String>,
}

/// The VIP of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vip {
    /// Its IPv4 address, if the pool has one.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub ipv6: Ipv6Addr,
    /// The replicas that take connections.
    pub serving: BTreeSet<Ipv6Addr>,
    /// Their IPv4 addresses.
    pub serving_ipv4: BTreeSet<Ipv4Addr>,
}

impl Vip {
    /// Its addresses, each with the replicas of its family.
    pub fn families(&self) -> Vec<(IpAddr, BTreeSet<IpAddr>)> {
        let ipv4 = self.ipv4.map(|vip| (vip.into(), self.serving_ipv4.iter().map(|ip| (*ip).into()).collect()));
        let ipv6 = (self.ipv6.into(), self.serving.iter().map(|ip| (*ip).into()).collect());
        ipv4.into_iter().chain([ipv6]).collect()
    }
}

/// The scopes of a service that this machine knows of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// The scopes.
    pub scopes: BTreeSet<ScopeName>,
}

impl Class {
    fn chain(&self) -> String {
        let names: Vec<&str> = self.scopes.iter().map(|scope| scope.0.as_str()).collect();
        format!("class_{}", short_hash(&names.join("\n")))
    }
}

pub(super) fn ruleset(
    state: &NetworkState,
    settings: &NetworkSettings,
    machine: &Machine,
    names: &DeviceNames,
    bridges: &[Bridge],
) -> Ruleset {
    let mut ruleset = Ruleset {
        table: names.table.clone(),
        base: nft_text::base(settings, names),
        sets: fixed_sets(state, settings, machine, names, bridges),
        chains: BTreeMap::new(),
        vips: BTreeMap::new(),
    };
    let scopes = local_scopes(state, bridges);
    for service in state.services() {
        ruleset.add_service(service, &scopes, &settings.addresses, bridges);
    }
    ruleset
}

/// The scopes that have a member on this machine.
fn local_scopes(state: &NetworkState, bridges: &[Bridge]) -> BTreeSet<ScopeName> {
    let is_here = |service: &&NetworkService| service.replicas.iter().any(|replica| is_local(replica.address, bridges));
    state.services().filter(is_here).flat_map(|service| service.scopes.iter().map(|scope| scope.name.clone())).collect()
}

fn is_local(address: Ipv6Addr, bridges: &[Bridge]) -> bool {
    bridges.iter().any(|bridge| bridge.ipv6_block.contains(&address))
}

/// The sets that exist in every table.
fn fixed_sets(
    state: &NetworkState,
    settings: &NetworkSettings,
    machine: &Machine,
    names: &DeviceNames,
    bridges: &[Bridge],
) -> BTreeMap<String, ElementSet> {
    let plan = &settings.addresses;
    let quoted = |name: &String| format!("\"{name}\"");
    let devices: BTreeSet<String> = bridges.iter().map(|bridge| quoted(&bridge.name)).collect();
    let inside: BTreeSet<String> = devices.iter().cloned().chain([quoted(&names.mesh)]).collect();
    let others = state.nodes().filter(|node| !machine.local_nodes.contains(&node.name) && node.mesh.is_some());
    let others: Vec<u32> = others.filter_map(|node| node.block).collect();
    let nodes4 = others.iter().filter_map(|block| plan.ipv4_gateway(*block)).map(|ip| ip.to_string()).collect();
    let nodes6 = others.iter().flat_map(|block| [plan.ipv6_gateway(*block), plan.node_ipv6(*block)]);
    let nodes6 = nodes6.map(|ip| ip.to_string()).collect();
    let bindings = || bridges.iter().flat_map(|bridge| &bridge.replicas);
    let bound4 = bindings().map(|bound| format!("{} . {}", nft_text::mac(bound.mac), bound.ipv4)).collect();
    let bound6 = bindings().map(|bound| format!("{} . {}", nft_text::mac(bound.mac), bound.ipv6)).collect();
    let sets = [
        ("bridges", "set", "ifname", devices),
        ("inside", "set", "ifname", inside),
        ("nodes4", "set", "ipv4_addr", nodes4),
        ("nodes6", "set", "ipv6_addr", nodes6),
        ("bound4", "set", "ether_addr . ipv4_addr", bound4),
        ("bound6", "set", "ether_addr . ipv6_addr", bound6),
        ("outside4", "set", "ipv4_addr", BTreeSet::new()),
        ("outside6", "set", "ipv6_addr", BTreeSet::new()),
        ("internal4", "set", "ipv4_addr", BTreeSet::new()),
        ("internal6", "set", "ipv6_addr", BTreeSet::new()),
        ("class4", "map", "ipv4_addr : verdict", BTreeSet::new()),
        ("class6", "map", "ipv6_addr : verdict", BTreeSet::new()),
        ("vip4", "map", "ipv4_addr : verdict", BTreeSet::new()),
        ("vip6", "map", "ipv6_addr : verdict", BTreeSet::new()),
        ("hairpin4", "set", "ipv4_addr . ipv4_addr", BTreeSet::new()),
        ("hairpin6", "set", "ipv6_addr . ipv6_addr", BTreeSet::new()),
    ];
    let element_set = |(name, keyword, element_type, elements): (&str, _, _, _)| {
        (name.to_owned(), ElementSet { keyword, element_type, elements })
    };
    sets.into_iter().map(element_set).collect()
}

impl Ruleset {
    /// The part that depends on devices and pools only.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    fn add_service(
        &mut self,
        service: &NetworkService,
        known: &BTreeSet<ScopeName>,
        plan: &AddressPlan,
        bridges: &[Bridge],
    ) {
        let scopes = service.scopes.iter().map(|scope| scope.name.clone()).filter(|name| known.contains(name));
        let class = Class { scopes: scopes.collect() };
        let is_here = service.replicas.iter().any(|replica| is_local(replica.address, bridges));
        if class.scopes.is_empty() && !is_here {
            return;
        }
        let is_internal = !service.scopes.is_empty() && service.scopes.iter().all(|scope| scope.internal);
        self.add_class(&class);
        for replica in &service.replicas {
            let (ipv4, ipv6) = (plan.ipv4_of(replica.address), replica.address);
            self.add_member(&class, ipv4, ipv6);
            if is_local(ipv6, bridges) {
                self.add_pair(if is_internal { "internal" } else { "outside" }, ipv4, ipv6);
                let own_pair = |ip: String| format!("{ip} . {ip}");
                self.add("hairpin4", ipv4.map(|ip| own_pair(ip.to_string())));
                self.add("hairpin6", Some(own_pair(ipv6.to_string())));
            }
        }
        self.add_vip(service, plan);
    }

    fn add_class(&mut self, class: &Class) {
        let mut rules = Vec::new();
        for scope in &class.scopes {
            for (family, keyword, element_type) in [("4", "ip", "ipv4_addr"), ("6", "ip6", "ipv6_addr")] {
                let name = format!("scope{family}_{}", short_hash(&scope.0));
                rules.push(format!("{keyword} daddr @{name} accept"));
                let empty = || ElementSet { keyword: "set", element_type, elements: BTreeSet::new() };
                self.sets.entry(name).or_insert_with(empty);
            }
        }
        rules.push("drop".to_owned());
        self.chains.insert(class.chain(), rules);
    }

    fn add_member(&mut self, class: &Class, ipv4: Option<Ipv4Addr>, ipv6: Ipv6Addr) {
        for scope in &class.scopes {
            let id = short_hash(&scope.0);
            self.add(&format!("scope4_{id}"), ipv4.map(|ip| ip.to_string()));
            self.add(&format!("scope6_{id}"), Some(ipv6.to_string()));
        }
        let chain = class.chain();
        self.add("class4", ipv4.map(|ip| format!("{ip} : goto {chain}")));
        self.add("class6", Some(format!("{ipv6} : goto {chain}")));
    }

    fn add_vip(&mut self, service: &NetworkService, plan: &AddressPlan) {
        let Some(number) = service.vip.filter(|_| service.endpoint_mode == EndpointMode::Vip) else { return };
        let serving: BTreeSet<Ipv6Addr> = service.serving().map(|replica| replica.address).collect();
        let serving_ipv4: BTreeSet<Ipv4Addr> = serving.iter().filter_map(|ip| plan.ipv4_of(*ip)).collect();
        let vip = Vip { ipv4: plan.vip_ipv4(number), ipv6: plan.vip_ipv6(number), serving, serving_ipv4 };
        let chain = format!("vip_{number}");
        self.add("vip4", vip.ipv4.map(|ip| format!("{ip} : goto {chain}")));
        self.add("vip6", Some(format!("{} : goto {chain}", vip.ipv6)));
        let rule = |keyword, ips: Vec<String>| nft_text::spread(keyword, &ips);
        let ipv4 = rule("ip", vip.serving_ipv4.iter().map(ToString::to_string).collect());
        let ipv6 = rule("ip6", vip.serving.iter().map(ToString::to_string).collect());
        // Without a serving replica the chain is empty: the packet keeps its destination, and is rejected later.
        self.chains.insert(chain, ipv4.into_iter().chain(ipv6).collect());
        self.vips.insert(number, vip);
    }

    fn add_pair(&mut self, set: &str, ipv4: Option<Ipv4Addr>, ipv6: Ipv6Addr) {
        self.add(&format!("{set}4"), ipv4.map(|ip| ip.to_string()));
        self.add(&format!("{set}6"), Some(ipv6.to_string()));
    }

    fn add(&mut self, set: &str, element: Option<String>) {
        if let (Some(set), Some(element)) = (self.sets.get_mut(set), element) {
            set.elements.insert(element);
        }
    }
}
