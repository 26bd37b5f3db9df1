//! Names and addresses of the network state, indexed for questions.
//!
//! Owns: which service or replica a name means to which asker.
//! Must not touch: DNS messages and sockets. Invariant: a change of one service changes its own entries only, and no
//! question looks at a service that it does not name.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use longshore_model::{AddressPlan, GroupKey};

use crate::{NetworkReplica, NetworkService, NetworkState, ScopeName, network_state::TouchedServices};

/// The index of a network state.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    plan: Option<AddressPlan>,
    services: HashMap<GroupKey, Arc<NetworkService>>,
    /// Names that hold inside a scope: services, aliases, host names.
    scoped: HashMap<ScopeName, HashMap<String, BTreeSet<Named>>>,
    /// Ids of replicas, and `<service or replica>.<deployment>.<namespace>`.
    global: HashMap<String, BTreeSet<Named>>,
    addresses: HashMap<IpAddr, Named>,
}

/// What a name or an address belongs to. Services come before what is less specific to them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    Service(GroupKey),
    /// The only replica of a service, by its host name.
    OnlyReplica(GroupKey),
    Replica(GroupKey, String),
}

impl Named {
    pub(super) fn group(&self) -> &GroupKey {
        match self {
            Self::Service(group) | Self::OnlyReplica(group) | Self::Replica(group, _) => group,
        }
    }
}

impl NameIndex {
    /// Follows the state where it was touched.
    pub(super) fn update(&mut self, state: &NetworkState, touched: &TouchedServices) {
        let plan = state.settings().map(|settings| settings.addresses);
        match touched {
            TouchedServices::These(groups) if plan == self.plan => {
                for group in groups {
                    self.replace(group, state.service(group));
                }
            }
            TouchedServices::These(_) | TouchedServices::All => {
                *self = Self { plan, ..Self::default() };
                for service in state.services() {
                    self.replace(&service.group, Some(service));
                }
            }
        }
    }

    fn replace(&mut self, group: &GroupKey, service: Option<&NetworkService>) {
        if let Some(before) = self.services.remove(group) {
            self.remove_names(&before);
        }
        if let Some(service) = service {
            let service = Arc::new(service.clone());
            self.add_names(&service);
            self.services.insert(group.clone(), service);
        }
    }

    fn add_names(&mut self, service: &NetworkService) {
        for (scope, name, named) in scoped_names(service) {
            self.scoped.entry(scope).or_default().entry(name).or_default().insert(named);
        }
        for (name, named) in global_names(service) {
            self.global.entry(name).or_default().insert(named);
        }
        for (address, named) in self.addresses_of(service) {
            self.addresses.insert(address, named);
        }
    }

    fn remove_names(&mut self, service: &NetworkService) {
        for (scope, name, named) in scoped_names(service) {
            let Some(names) = self.scoped.get_mut(&scope) else { continue };
            remove(names, &name, &named);
            if names.is_empty() {
                self.scoped.remove(&scope);
            }
        }
        for (name, named) in global_names(service) {
            remove(&mut self.global, &name, &named);
        }
        for (address, named) in self.addresses_of(service) {
            if self.addresses.get(&address) == Some(&named) {
                self.addresses.remove(&address);
            }
        }
    }

    fn addresses_of(&self, service: &NetworkService) -> Vec<(IpAddr, Named)> {
        let Some(plan) = self.plan else { return Vec::new() };
        let group = &service.group;
        let replicas = service.replicas.iter().flat_map(|replica| {
            let named = Named::Replica(group.clone(), replica.id.clone());
            both_addresses(plan, replica).map(move |address| (address, named.clone()))
        });
        let vip = service.vip.into_iter().flat_map(|number| vip_addresses(plan, number));
        replicas.chain(vip.map(|address| (address, Named::Service(group.clone())))).collect()
    }

    /// The service whose replica has this address.
    pub(super) fn asker(&self, source: IpAddr) -> Option<&NetworkService> {
        match self.addresses.get(&source)? {
            Named::Replica(group, _) => self.service(group),
            Named::Service(_) | Named::OnlyReplica(_) => None,
        }
    }

    /// What has this address, if it shares a scope with the asker.
    pub(super) fn owner_of(&self, asker: &NetworkService, address: IpAddr) -> Option<&Named> {
        self.addresses.get(&address).filter(|named| self.is_visible(asker, named))
    }

    /// What a name means to an asker inside its own scopes: `web`, an alias, a link, a host name, the id of a replica.
    pub(super) fn find_short(&self, asker: &NetworkService, name: &str) -> Vec<&Named> {
        if let Some(linked) = asker.links.iter().find(|(link, _)| link.eq_ignore_ascii_case(name)) {
            let group = GroupKey { service: linked.1.as_str().into(), ..asker.group.clone() };
            let key = long_name(&group, &group.service.to_string());
            return self.visible(asker, self.global.get(&key));
        }
        let by_scope = asker.scopes.iter().filter_map(|scope| self.scoped.get(&scope.name)?.get(name));
        let mut found: Vec<&Named> = by_scope.flatten().collect();
        found.sort_unstable();
        found.dedup();
        if found.is_empty() {
            return self.visible(asker, self.global.get(name));
        }
        preferred(asker, found)
    }

    /// What `<service or replica>.<deployment>[.<namespace>]` means to an asker.
    pub(super) fn find_long(&self, asker: &NetworkService, name: &str) -> Vec<&Named> {
        let in_own_namespace = format!("{name}.{}", asker.group.namespace).to_lowercase();
        let known = self.global.get(&in_own_namespace).or_else(|| self.global.get(name));
        self.visible(asker, known)
    }

    fn visible<'a>(&'a self, asker: &NetworkService, known: Option<&'a BTreeSet<Named>>) -> Vec<&'a Named> {
        let visible = known.into_iter().flatten().filter(|named| self.is_visible(asker, named));
        preferred(asker, visible.collect())
    }

    fn is_visible(&self, asker: &NetworkService, named: &Named) -> bool {
        self.service(named.group()).is_some_and(|service| shared_scopes(asker, service).next().is_some())
    }

    pub(super) fn service(&self, group: &GroupKey) -> Option<&NetworkService> {
        self.services.get(group).map(Arc::as_ref)
    }

    pub(super) fn plan(&self) -> Option<AddressPlan> {
        self.plan
    }
}

/// Names of the asker's own deployment hide equal names of others, and services hide replicas.
fn preferred<'a>(asker: &NetworkService, mut found: Vec<&'a Named>) -> Vec<&'a Named> {
    let is_own = |named: &&Named| {
        let (own, other) = (&asker.group, named.group());
        (&own.namespace, &own.deployment) == (&other.namespace, &other.deployment)
    };
    if found.iter().any(is_own) {
        found.retain(is_own);
    }
    if found.iter().any(|named| matches!(named, Named::Service(_))) {
        found.retain(|named| matches!(named, Named::Service(_)));
    }
    found
}

/// Whether names of `service` resolve to IPv6 addresses for the asker, for each scope that both are in.
pub(super) fn shared_scopes<'a>(
    asker: &'a NetworkService,
    service: &'a NetworkService,
) -> impl Iterator<Item = bool> + 'a {
    let theirs = service.scopes.iter();
    theirs.filter(|scope| asker.scopes.iter().any(|own| own.name == scope.name)).map(|scope| scope.ipv6)
}

pub(super) fn both_addresses(plan: AddressPlan, replica: &NetworkReplica) -> impl Iterator<Item = IpAddr> {
    let v4 = plan.ipv4_of(replica.address).map(IpAddr::V4);
    v4.into_iter().chain([IpAddr::V6(replica.address)])
}

pub(super) fn vip_addresses(plan: AddressPlan, number: u32) -> impl Iterator<Item = IpAddr> {
    let v4 = plan.vip_ipv4(number).map(IpAddr::V4);
    v4.into_iter().chain([IpAddr::V6(plan.vip_ipv6(number))])
}

/// `<name>.<deployment>.<namespace>`, in lower case.
pub(super) fn long_name(group: &GroupKey, name: &str) -> String {
    format!("{name}.{}.{}", group.deployment, group.namespace).to_lowercase()
}

fn scoped_names(service: &NetworkService) -> Vec<(ScopeName, String, Named)> {
    let mut names = Vec::new();
    let is_only = service.replicas.windows(2).all(|pair| pair[0].id == pair[1].id);
    let hostname = service.hostname.iter().filter(|_| is_only && !service.replicas.is_empty());
    for scope in &service.scopes {
        let own = [service.group.service.to_string()];
        for name in own.iter().chain(&scope.aliases) {
            names.push((scope.name.clone(), name.to_lowercase(), Named::Service(service.group.clone())));
        }
        for name in hostname.clone() {
            names.push((scope.name.clone(), name.to_lowercase(), Named::OnlyReplica(service.group.clone())));
        }
    }
    names
}

fn global_names(service: &NetworkService) -> Vec<(String, Named)> {
    let group = &service.group;
    let mut names = vec![(long_name(group, &group.service.to_string()), Named::Service(group.clone()))];
    for replica in &service.replicas {
        let owner = Named::Replica(group.clone(), replica.id.clone());
        names.push((long_name(group, &replica.id), owner.clone()));
        names.push((replica.id.to_lowercase(), owner));
    }
    names
}

fn remove(names: &mut HashMap<String, BTreeSet<Named>>, name: &str, owner: &Named) {
    if let Some(known) = names.get_mut(name) {
        known.remove(owner);
        if known.is_empty() {
            names.remove(name);
        }
    }
}
