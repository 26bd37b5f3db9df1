//! What several keys say together, decided once all of them are read.
//!
//! Owns: precedence (overlay over `x-longshore` over `deploy`), defaults that depend on other keys, and the refusals
//! that concern one service as a whole.

use std::collections::BTreeSet;

use longshore_model::{
    Driver, NodeName, ServiceKind, ServiceName, Strategy,
    service::{Attachment, Companion, MountSource, Strength},
};

use super::{Override, ServiceReader, dependencies::SHARED};
use crate::diagnostic::Place;

/// A value and where it was given.
#[derive(Clone, Debug)]
pub(crate) struct Given<T> {
    /// What.
    pub(crate) value: T,
    /// Where.
    pub(crate) place: Place,
}

/// What is asked by more than one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// `image`.
    pub(crate) image: Option<String>,
    /// Where an `extends` is left, which happens when it could not be resolved.
    pub(crate) unresolved: Option<Place>,
    /// Whether there is a `build`.
    pub(crate) build: Option<Place>,
    /// `deploy.mode`.
    pub(crate) mode: Option<ServiceKind>,
    /// `deploy.replicas`.
    pub(crate) replicas: Option<Given<u32>>,
    /// `scale`.
    pub(crate) scale: Option<Given<u32>>,
    /// `x-longshore.placement`.
    pub(crate) strategy: Option<Given<Strategy>>,
    /// The first `x-longshore.spread` with shares.
    pub(crate) shares: Option<Place>,
    /// `x-longshore.hosts`.
    pub(crate) hosts: Option<Given<BTreeSet<NodeName>>>,
    /// `cpus`.
    pub(crate) cpus: Option<u64>,
    /// `mem_limit`.
    pub(crate) memory_limit: Option<u64>,
    /// `mem_reservation`.
    pub(crate) memory_reservation: Option<u64>,
    /// `pids_limit`.
    pub(crate) pids: Option<i64>,
    /// `network_mode`.
    pub(crate) network_mode: Option<Given<String>>,
    /// Where `networks` are given.
    pub(crate) networks: Option<Place>,
    /// Where something is mounted already.
    pub(crate) targets: BTreeSet<String>,
    /// Where `max_concurrent` is given.
    pub(crate) max_concurrent: Option<Place>,
    /// Where a health check asks over the network.
    pub(crate) prober: Option<Place>,
}

impl ServiceReader<'_> {
    pub(super) fn settle(&mut self, over: Override) {
        self.spec.container.device_requests.sort();
        // Engines mount parents before children, whatever the order in the file.
        self.spec.mounts.sort_by(|a, b| a.target.cmp(&b.target));
        self.settle_image();
        self.settle_resources();
        self.settle_count(&over);
        self.settle_networks(over.networks);
        self.settle_plugins();
        self.check_volumes();
        self.check_jobs();
        self.check_shares();
        self.check_prober();
    }

    /// An engine runs a check in the container; only our own prober asks from outside.
    fn check_prober(&mut self) {
        if let Some(place) = self.asked.prober.take()
            && self.spec.driver != Driver::Exec
        {
            let message =
                format!("the health check of {} asks over the network, which only plain processes have", self.what);
            self.problems
                .error(&place, message)
                .hint("run a command in the container, for instance `[CMD, wget, ...]`");
        }
    }

    /// Shares are a matter of scores, and only one strategy has scores.
    fn check_shares(&mut self) {
        if let Some(place) = self.asked.shares.take()
            && self.spec.placement.strategy != Strategy::Binpack
        {
            let message = format!("`targets` of {} have no effect without `placement: binpack`", self.what);
            self.problems.warn(&place, message).hint("say `placement: binpack`, or leave the shares out");
        }
    }

    fn settle_image(&mut self) {
        self.spec.container.image = match (self.asked.image.take(), &self.asked.build) {
            (Some(image), _) => image,
            (None, Some(_)) => format!("{}-{}", self.scope.deployment, self.name),
            // The `extends` has been complained about; what it would have brought is not known.
            (None, None) if self.asked.unresolved.is_some() => String::new(),
            (None, None) => {
                self.problems
                    .error(self.place, format!("{} has neither `image` nor `build`", self.what))
                    .hint("say what to run, for instance `image: nginx:1.27`");
                String::new()
            }
        };
    }

    /// The older keys count where `deploy` is silent.
    fn settle_resources(&mut self) {
        let resources = &mut self.spec.resources;
        resources.cpu_limit_millis = resources.cpu_limit_millis.or(self.asked.cpus);
        resources.memory_limit_bytes = resources.memory_limit_bytes.or(self.asked.memory_limit);
        resources.memory_reservation_bytes = resources.memory_reservation_bytes.or(self.asked.memory_reservation);
        let limits = &mut self.spec.container.limits;
        limits.pids = limits.pids.or(self.asked.pids);
        let (limit, reserved) = (resources.memory_limit_bytes, resources.memory_reservation_bytes);
        if let (Some(limit), Some(reserved)) = (limit, reserved)
            && reserved > limit
        {
            let message = format!("{} reserves more memory than its limit allows", self.what);
            self.problems.error(self.place, message).hint("raise `limits.memory` or lower `reservations.memory`");
        }
    }

    fn settle_count(&mut self, over: &Override) {
        let mode = self.asked.mode.unwrap_or_default();
        let strategy = over.strategy.clone().or_else(|| self.asked.strategy.clone());
        let ends = matches!(mode, ServiceKind::Batch | ServiceKind::Sysbatch);
        let per_node = strategy.as_ref().map_or(mode.is_per_node(), |given| given.value == Strategy::Global);
        self.spec.kind = match (per_node, ends) {
            (true, false) => ServiceKind::System,
            (true, true) => ServiceKind::Sysbatch,
            (false, false) => ServiceKind::Service,
            (false, true) => ServiceKind::Batch,
        };
        self.spec.placement.strategy = match strategy {
            Some(given) => given.value,
            None if per_node => Strategy::Global,
            None => Strategy::default(),
        };
        self.settle_replicas(over);
        self.settle_hosts(over);
    }

    fn settle_replicas(&mut self, over: &Override) {
        if let (Some(deploy), Some(scale)) = (&self.asked.replicas, &self.asked.scale)
            && deploy.value != scale.value
        {
            let message = format!("`scale` of {} contradicts `deploy.replicas`", self.what);
            self.problems.error(&scale.place, message).hint("keep `deploy.replicas` and remove `scale`");
        }
        let given = over.replicas.as_ref().or(self.asked.replicas.as_ref()).or(self.asked.scale.as_ref());
        let Some(given) = given else { return };
        if self.spec.kind.is_per_node() {
            self.problems.error(&given.place, global_takes_no_replicas(self.name));
        }
        self.spec.replicas = given.value;
    }

    fn settle_hosts(&mut self, over: &Override) {
        let hosts = over.hosts.clone().or_else(|| self.asked.hosts.take());
        let pinned = self.spec.placement.strategy == Strategy::Hosts;
        match hosts {
            Some(given) if pinned && given.value.is_empty() => self.hosts_missing(&given.place.clone()),
            Some(given) if pinned => {
                self.check_host_count(&given, over);
                self.check_hosts(&given);
                self.spec.placement.hosts = given.value;
            }
            Some(given) => {
                let message = format!("`hosts` of {} has no effect without `placement: hosts`", self.what);
                self.problems.warn(&given.place, message);
            }
            None if pinned => self.hosts_missing(&self.place.clone()),
            None => {}
        }
    }

    /// The overlay's closed schema refuses what can never be placed; in a Compose file it is a wish like any other, which
    /// waits with its reason until it is changed.
    fn check_host_count(&mut self, given: &Given<BTreeSet<NodeName>>, over: &Override) {
        let count = given.value.len();
        if usize::try_from(self.spec.replicas).is_ok_and(|replicas| replicas <= count) {
            return;
        }
        let message = format!("{} wants {} replicas on {count} pinned hosts, one each", self.what, self.spec.replicas);
        let problem = if over.hosts.is_some() || over.replicas.is_some() {
            self.problems.error(&given.place, message)
        } else {
            self.problems.warn(&given.place, message)
        };
        problem.hint("name more hosts or lower `replicas`");
    }

    fn check_hosts(&mut self, given: &Given<BTreeSet<NodeName>>) {
        let Some(nodes) = &self.scope.nodes else { return };
        for host in given.value.difference(nodes) {
            let message = format!("{} names the host `{host}`, which the cluster does not have", self.what);
            self.problems.warn(&given.place, message).hint("the service waits until it joins");
        }
    }

    fn hosts_missing(&mut self, place: &Place) {
        let message = format!("{} uses placement=hosts without naming any", self.what);
        self.problems.error(place, message).hint("add `hosts: [name, …]`");
    }

    fn settle_networks(&mut self, over: Option<Vec<super::Given<String>>>) {
        if let Some(names) = over {
            self.spec.networks.clear();
            for given in names {
                self.attach(&given.value, Attachment::default(), &given.place);
            }
        }
        if let Some(mode) = self.asked.network_mode.clone() {
            self.check_network_mode(&mode);
            self.spec.container.namespaces.network = Some(mode.value);
            return;
        }
        if self.spec.networks.is_empty() {
            self.spec.networks.insert("default".to_owned(), Attachment::default());
        }
    }

    fn check_network_mode(&mut self, mode: &Given<String>) {
        if let Some(place) = &self.asked.networks
            && !self.spec.networks.is_empty()
        {
            let message = format!("{} has both `network_mode` and `networks`", self.what);
            self.problems.error(place, message).hint("keep one of them");
        }
        if !self.spec.ports.is_empty() {
            let message = format!("{} publishes ports, which `network_mode: {}` rules out", self.what, mode.value);
            self.problems.error(&mode.place, message).hint("remove `ports` or `network_mode`");
        }
        if let Some(other) = mode.value.strip_prefix("service:") {
            self.refer("network_mode", other, &mode.place);
            let companion = Companion { service: other.into(), strength: Strength::Hard };
            if !self.spec.placement.near.contains(&companion) {
                self.spec.placement.near.push(companion);
            }
            // What is shared must be there first, and be taken anew when it was made anew.
            let other = ServiceName::from(other);
            self.spec.depends_on.entry(other).or_insert(SHARED);
        }
    }

    /// Drivers that not every node has are plugins to ask for.
    fn settle_plugins(&mut self) {
        let plugins = &mut self.spec.placement.plugins;
        for mount in &self.spec.mounts {
            if let MountSource::Volume { driver: Some(driver), .. } = &mount.source {
                plugins.insert(format!("volume/{driver}"));
            }
        }
        for network in self.spec.networks.keys() {
            let driver = self.scope.networks.get(network).and_then(|declared| declared.spec.driver.as_deref());
            if let Some(driver) =
                driver.filter(|driver| !matches!(*driver, "overlay" | "bridge" | "default" | "host" | "none"))
            {
                plugins.insert(format!("network/{driver}"));
            }
        }
        if let Some(driver) = &self.spec.container.log_driver
            && !BUILT_IN_LOG_DRIVERS.contains(&driver.as_str())
        {
            plugins.insert(format!("log/{driver}"));
        }
    }

    /// One writer per volume: refused here, at apply and at scale, never clamped.
    fn check_volumes(&mut self) {
        if self.spec.kind.is_per_node() || self.spec.replicas < 2 {
            return;
        }
        let Some((volume, _)) = self.spec.volumes().next() else { return };
        let message = format!(
            "{} mounts the named volume `{volume}` and asks for {} replicas; a service with a named volume has at most one",
            self.what, self.spec.replicas
        );
        let place = self.asked.replicas.as_ref().map_or(self.place, |given| &given.place).clone();
        self.problems.error(&place, message).hint("set `replicas: 1`, or keep the data outside the service");
    }

    fn check_jobs(&mut self) {
        let ends = matches!(self.spec.kind, ServiceKind::Batch | ServiceKind::Sysbatch);
        if let Some(place) = &self.asked.max_concurrent
            && !ends
        {
            let message = format!("`max_concurrent` of {} has no effect: it concerns jobs", self.what);
            self.problems.warn(place, message).hint("set `deploy.mode: replicated-job`, or remove it");
        }
    }
}

/// Drivers that need nothing beyond the engine and its host; every other one is asked for as a plugin, which nodes
/// report.
const BUILT_IN_LOG_DRIVERS: [&str; 5] = ["none", "local", "json-file", "syslog", "journald"];

/// The refusal used at apply and at scale.
pub(crate) fn global_takes_no_replicas(service: &str) -> String {
    format!("service \"{service}\" uses placement=global; remove replicas (global runs one replica per ready node)")
}
