//! Resolves values that several keys set, once all keys of a service are read.
//!
//! Owns: precedence (overlay over `x-longshore` over `deploy`), defaults that depend on other keys, and errors that
//! concern a service as a whole.

use std::collections::BTreeSet;

use longshore_model::{
    Driver, NodeName, ServiceKind, ServiceName, Strategy,
    service::{Attachment, Companion, MountSource, Strength},
};

use super::{Override, ServiceReader, dependencies::SHARED};
use crate::diagnostic::Location;

/// A value with its location.
#[derive(Clone, Debug)]
pub(crate) struct Located<T> {
    /// The value.
    pub(crate) value: T,
    /// Its location.
    pub(crate) location: Location,
}

/// Values of keys that are resolved together with others.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawKeys {
    /// `image`.
    pub(crate) image: Option<String>,
    /// Location of an `extends` that could not be resolved.
    pub(crate) unresolved: Option<Location>,
    /// Location of `build`.
    pub(crate) build: Option<Location>,
    /// `deploy.mode`.
    pub(crate) mode: Option<ServiceKind>,
    /// `deploy.replicas`.
    pub(crate) replicas: Option<Located<u32>>,
    /// `scale`.
    pub(crate) scale: Option<Located<u32>>,
    /// `x-longshore.placement`.
    pub(crate) strategy: Option<Located<Strategy>>,
    /// Location of the first `x-longshore.spread` with target shares.
    pub(crate) shares: Option<Location>,
    /// `x-longshore.hosts`.
    pub(crate) hosts: Option<Located<BTreeSet<NodeName>>>,
    /// `cpus`.
    pub(crate) cpus: Option<u64>,
    /// `mem_limit`.
    pub(crate) memory_limit: Option<u64>,
    /// `mem_reservation`.
    pub(crate) memory_reservation: Option<u64>,
    /// `pids_limit`.
    pub(crate) pids: Option<i64>,
    /// `network_mode`.
    pub(crate) network_mode: Option<Located<String>>,
    /// Location of `networks`.
    pub(crate) networks: Option<Location>,
    /// Mount targets in use.
    pub(crate) targets: BTreeSet<String>,
    /// `restart`.
    pub(crate) restart: Option<longshore_model::service::RestartPolicy>,
    /// Whether `deploy.restart_policy` is given.
    pub(crate) restart_policy: bool,
    /// Whether its `condition` is `any`.
    pub(crate) restart_any: bool,
    /// Location of `max_concurrent`.
    pub(crate) max_concurrent: Option<Location>,
    /// Location of an HTTP or TCP health check.
    pub(crate) prober: Option<Location>,
}

impl ServiceReader<'_> {
    pub(super) fn resolve(&mut self, over: Override) {
        self.spec.container.device_requests.sort();
        // Engines mount parents before children, whatever the order in the file.
        self.spec.mounts.sort_by(|a, b| a.target.cmp(&b.target));
        self.resolve_image();
        self.resolve_resources();
        self.resolve_restart();
        self.resolve_count(&over);
        self.resolve_networks(over.networks);
        self.resolve_plugins();
        self.check_volumes();
        self.check_jobs();
        self.check_shares();
        self.check_prober();
    }

    /// Container engines run health checks inside the container; only plain processes have HTTP and TCP checks.
    fn check_prober(&mut self) {
        if let Some(location) = self.raw.prober.take()
            && self.spec.driver != Driver::Exec
        {
            let message =
                format!("the health check of {} asks over the network, which only plain processes have", self.what);
            self.problems
                .error(&location, message)
                .hint("run a command in the container, for instance `[CMD, wget, ...]`");
        }
    }

    /// Target shares affect scores, which only `binpack` uses.
    fn check_shares(&mut self) {
        if let Some(location) = self.raw.shares.take()
            && !self.spec.placement.strategy.is_scored()
        {
            let message = format!("`targets` of {} have no effect without `placement: binpack`", self.what);
            self.problems.warn(&location, message).hint("say `placement: binpack`, or leave the shares out");
        }
    }

    fn resolve_image(&mut self) {
        self.spec.container.image = match (self.raw.image.take(), &self.raw.build) {
            (Some(image), _) => image,
            (None, Some(_)) => format!("{}-{}", self.declarations.deployment, self.name),
            // The `extends` that may set the image could not be resolved, which was reported.
            (None, None) if self.raw.unresolved.is_some() => String::new(),
            (None, None) => {
                self.problems
                    .error(self.location, format!("{} has neither `image` nor `build`", self.what))
                    .hint("say what to run, for instance `image: nginx:1.27`");
                String::new()
            }
        };
    }

    /// Older service-level keys apply where `deploy` sets nothing.
    fn resolve_resources(&mut self) {
        let resources = &mut self.spec.resources;
        resources.cpu_limit_millis = resources.cpu_limit_millis.or(self.raw.cpus);
        resources.memory_limit_bytes = resources.memory_limit_bytes.or(self.raw.memory_limit);
        resources.memory_reservation_bytes = resources.memory_reservation_bytes.or(self.raw.memory_reservation);
        let limits = &mut self.spec.container.limits;
        limits.pids = limits.pids.or(self.raw.pids);
        let (limit, reserved) = (resources.memory_limit_bytes, resources.memory_reservation_bytes);
        if let (Some(limit), Some(reserved)) = (limit, reserved)
            && reserved > limit
        {
            let message = format!("{} reserves more memory than its limit allows", self.what);
            self.problems.error(self.location, message).hint("raise `limits.memory` or lower `reservations.memory`");
        }
    }

    fn resolve_count(&mut self, over: &Override) {
        let mode = self.raw.mode.unwrap_or_default();
        let strategy = over.strategy.clone().or_else(|| self.raw.strategy.clone());
        let ends = mode.is_job();
        let per_node = strategy.as_ref().map_or(mode.is_per_node(), |given| given.value.is_per_node());
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
        self.resolve_replicas(over);
        self.resolve_hosts(over);
    }

    fn resolve_replicas(&mut self, over: &Override) {
        if let (Some(deploy), Some(scale)) = (&self.raw.replicas, &self.raw.scale)
            && deploy.value != scale.value
        {
            let message = format!("`scale` of {} contradicts `deploy.replicas`", self.what);
            self.problems.error(&scale.location, message).hint("keep `deploy.replicas` and remove `scale`");
        }
        let given = over.replicas.as_ref().or(self.raw.replicas.as_ref()).or(self.raw.scale.as_ref());
        let Some(given) = given else { return };
        if self.spec.kind.is_per_node() {
            self.problems.error(&given.location, global_takes_no_replicas(self.name));
        }
        self.spec.replicas = given.value;
    }

    fn resolve_hosts(&mut self, over: &Override) {
        let hosts = over.hosts.clone().or_else(|| self.raw.hosts.take());
        let pinned = self.spec.placement.strategy.is_pinned();
        match hosts {
            Some(given) if pinned && given.value.is_empty() => self.hosts_missing(&given.location.clone()),
            Some(given) if pinned => {
                self.check_host_count(&given, over);
                self.check_hosts(&given);
                self.spec.placement.hosts = given.value;
            }
            Some(given) => {
                let message = format!("`hosts` of {} has no effect without `placement: hosts`", self.what);
                self.problems.warn(&given.location, message);
            }
            None if pinned => self.hosts_missing(&self.location.clone()),
            None => {}
        }
    }

    /// More replicas than pinned hosts are an error in an overlay. In a Compose file they are a warning, and the replicas
    /// wait with a reason.
    fn check_host_count(&mut self, given: &Located<BTreeSet<NodeName>>, over: &Override) {
        let count = given.value.len();
        if usize::try_from(self.spec.replicas).is_ok_and(|replicas| replicas <= count) {
            return;
        }
        let message = format!("{} wants {} replicas on {count} pinned hosts, one each", self.what, self.spec.replicas);
        let problem = if over.hosts.is_some() || over.replicas.is_some() {
            self.problems.error(&given.location, message)
        } else {
            self.problems.warn(&given.location, message)
        };
        problem.hint("name more hosts or lower `replicas`");
    }

    fn check_hosts(&mut self, given: &Located<BTreeSet<NodeName>>) {
        let Some(nodes) = &self.declarations.nodes else { return };
        for host in given.value.difference(nodes) {
            let message = format!("{} names the host `{host}`, which the cluster does not have", self.what);
            self.problems.warn(&given.location, message).hint("the service waits until it joins");
        }
    }

    fn hosts_missing(&mut self, location: &Location) {
        let message = format!("{} uses placement=hosts without naming any", self.what);
        self.problems.error(location, message).hint("add `hosts: [name, …]`");
    }

    fn resolve_networks(&mut self, over: Option<Vec<super::Located<String>>>) {
        if let Some(names) = over {
            self.spec.networks.clear();
            for given in names {
                self.attach(&given.value, Attachment::default(), &given.location);
            }
        }
        if let Some(mode) = self.raw.network_mode.clone() {
            self.check_network_mode(&mode);
            self.spec.container.namespaces.network = Some(mode.value);
            return;
        }
        if self.spec.networks.is_empty() {
            self.spec.networks.insert("default".to_owned(), Attachment::default());
        }
    }

    fn check_network_mode(&mut self, mode: &Located<String>) {
        if let Some(location) = &self.raw.networks
            && !self.spec.networks.is_empty()
        {
            let message = format!("{} has both `network_mode` and `networks`", self.what);
            self.problems.error(location, message).hint("keep one of them");
        }
        if !self.spec.ports.is_empty() {
            let message = format!("{} publishes ports, which `network_mode: {}` rules out", self.what, mode.value);
            self.problems.error(&mode.location, message).hint("remove `ports` or `network_mode`");
        }
        if let Some(other) = mode.value.strip_prefix("service:") {
            self.refer("network_mode", other, &mode.location);
            let companion = Companion { service: other.into(), strength: Strength::Hard };
            if !self.spec.placement.near.contains(&companion) {
                self.spec.placement.near.push(companion);
            }
            // The other service must start first, and its recreation restarts this one.
            let other = ServiceName::from(other);
            self.spec.depends_on.entry(other).or_insert(SHARED);
        }
    }

    /// Drivers that are not built in are required as plugins of the node.
    fn resolve_plugins(&mut self) {
        let plugins = &mut self.spec.placement.plugins;
        for mount in &self.spec.mounts {
            if let MountSource::Volume { driver: Some(driver), .. } = &mount.source {
                plugins.insert(format!("volume/{driver}"));
            }
        }
        for network in self.spec.networks.keys() {
            let driver = self.declarations.networks.get(network).and_then(|declared| declared.spec.driver.as_deref());
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

    /// A service with a named volume has one replica: refused here, at apply and at scale, never clamped.
    fn check_volumes(&mut self) {
        if self.spec.kind.is_per_node() || self.spec.replicas < 2 {
            return;
        }
        let Some((volume, _)) = self.spec.volumes().next() else { return };
        let message = format!(
            "{} mounts the named volume `{volume}` and asks for {} replicas; a service with a named volume has at most one",
            self.what, self.spec.replicas
        );
        let location = self.raw.replicas.as_ref().map_or(self.location, |given| &given.location).clone();
        self.problems.error(&location, message).hint("set `replicas: 1`, or keep the data outside the service");
    }

    fn check_jobs(&mut self) {
        let ends = self.spec.kind.is_job();
        if let Some(location) = &self.raw.max_concurrent
            && !ends
        {
            let message = format!("`max_concurrent` of {} has no effect: it concerns jobs", self.what);
            self.problems.warn(location, message).hint("set `deploy.mode: replicated-job`, or remove it");
        }
    }
}

/// Log drivers of every engine; any other is required as a plugin, which nodes report.
const BUILT_IN_LOG_DRIVERS: [&str; 5] = ["none", "local", "json-file", "syslog", "journald"];

/// The error message, also used at apply and at scale.
pub(crate) fn global_takes_no_replicas(service: &str) -> String {
    format!("service \"{service}\" uses placement=global; remove replicas (global runs one replica per ready node)")
}
