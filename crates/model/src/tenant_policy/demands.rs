//! What a manifest asks of the machines, rule by rule.
//!
//! Owns: which settings fall under which rule, and the key a refusal names.
//! Must not touch: whether it is allowed.
//! Invariant: a setting that reaches a driver and is not listed here gives no more rights than an unprivileged container
//! of the deployment's own has; a volume or network of the deployment's own is no demand, any other name is.

use std::collections::BTreeMap;

use super::{PolicyRule, ROOT, matching};
use crate::{
    DeploymentName, DeploymentSpec, Driver, GroupKey, NamespaceName, ServiceSpec, VolumeKey,
    container::{ContainerSpec, Hook, Switch},
    service::{MountSource, NetworkReach, NetworkSpec, Port, PortMode, VolumeSpec},
};

/// One thing a manifest asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The rule that decides about it.
    pub rule: PolicyRule,
    /// The key in the manifest, such as `services.web.privileged`.
    pub key: String,
    /// The asked value, in the form that a policy lists.
    pub value: String,
}

/// Everything a deployment asks.
pub fn of_deployment(namespace: &NamespaceName, deployment: &DeploymentName, spec: &DeploymentSpec) -> Vec<Demand> {
    let mut demands = Vec::new();
    for (service, service_spec) in &spec.services {
        let group = GroupKey { namespace: namespace.clone(), deployment: deployment.clone(), service: service.clone() };
        let found = of_service(&group, service_spec, &spec.networks, &spec.volumes);
        demands.extend(found.into_iter().filter(|demand| !demands.contains(demand)).collect::<Vec<_>>());
    }
    demands
}

/// Everything a service asks, with the networks and volumes of its deployment.
pub fn of_service(
    group: &GroupKey,
    spec: &ServiceSpec,
    networks: &BTreeMap<String, NetworkSpec>,
    volumes: &BTreeMap<String, VolumeSpec>,
) -> Vec<Demand> {
    let mut list = Demands { prefix: format!("services.{}", group.service), found: Vec::new() };
    match spec.driver {
        Driver::Exec => exec_users(&mut list, &spec.container),
        Driver::Docker | Driver::Microvm => list.add(PolicyRule::Images, "image", &spec.container.image),
    }
    container(&mut list, &spec.container);
    namespaces(&mut list, &spec.container);
    devices(&mut list, &spec.container);
    for port in &spec.ports {
        host_port(&mut list, port);
    }
    mounts(&mut list, group, spec, volumes);
    let attached = spec.networks.iter().filter(|_| spec.container.namespaces.network.is_none());
    for (key, attachment) in attached {
        if !attachment.options.is_empty() {
            list.add(PolicyRule::NetworkDrivers, &format!("networks.{key}.driver_opts"), "bridge:options");
        }
        if let Some(network) = networks.get(key) {
            self::network(&mut list, group, key, network);
        }
    }
    if let Some(network) = networks.get("default").filter(|_| spec.networks.is_empty()) {
        self::network(&mut list, group, "default", network);
    }
    list.found
}

struct Demands {
    prefix: String,
    found: Vec<Demand>,
}

impl Demands {
    fn add(&mut self, rule: PolicyRule, key: &str, value: &str) {
        let key = format!("{}.{key}", self.prefix);
        self.found.push(Demand { rule, key, value: value.to_owned() });
    }

    /// A demand of the deployment rather than of the service.
    fn add_shared(&mut self, rule: PolicyRule, key: String, value: &str) {
        self.found.push(Demand { rule, key, value: value.to_owned() });
    }
}

/// The user of a plain process, and of its hooks. Without one it has the daemon's rights.
fn exec_users(list: &mut Demands, container: &ContainerSpec) {
    list.add(PolicyRule::ExecUsers, "user", &exec_user(container.user.as_deref()));
    for (key, hook) in hooks(container) {
        if let Some(user) = &hook.user {
            list.add(PolicyRule::ExecUsers, &format!("{key}.user"), &exec_user(Some(user)));
        }
    }
}

fn exec_user(given: Option<&str>) -> String {
    let Some(given) = given else { return ROOT.to_owned() };
    let (user, group) = given.split_once(':').map_or((given, None), |(user, group)| (user, Some(group)));
    // Every spelling of the number counts: `0`, `00` and `+0` are one user.
    let is_root = |name: &str| name.is_empty() || name == ROOT || name.parse::<u32>() == Ok(0);
    match group {
        _ if is_root(user) => ROOT.to_owned(),
        // The user's own number or name as group is what it has anyway.
        Some(group) if group != user => given.to_owned(),
        Some(_) | None => user.to_owned(),
    }
}

fn hooks(container: &ContainerSpec) -> impl Iterator<Item = (&'static str, &Hook)> {
    let after = container.post_start.iter().map(|hook| ("post_start", hook));
    after.chain(container.pre_stop.iter().map(|hook| ("pre_stop", hook)))
}

/// Rights, profiles, kernel settings and drivers that are named in the container itself.
fn container(list: &mut Demands, container: &ContainerSpec) {
    if container.switches.contains(&Switch::Privileged) {
        list.add(PolicyRule::Privileged, "privileged", "yes");
    }
    for (key, hook) in hooks(container) {
        if hook.privileged {
            list.add(PolicyRule::Privileged, &format!("{key}.privileged"), "yes");
        }
        host_environment(list, &format!("{key}.environment"), &hook.environment);
    }
    host_environment(list, "environment", &container.environment);
    for name in &container.security.cap_add {
        list.add(PolicyRule::Capabilities, "cap_add", &matching::capability(name));
    }
    let harmless =
        |option: &str| matches!(option, "no-new-privileges" | "no-new-privileges:true" | "no-new-privileges=true");
    for option in container.security.options.iter().filter(|option| !harmless(option)) {
        list.add(PolicyRule::SecurityOptions, "security_opt", option);
    }
    for name in container.limits.sysctls.keys() {
        list.add(PolicyRule::Sysctls, "sysctls", name);
    }
    if container.switches.contains(&Switch::OomKillDisable) {
        list.add(PolicyRule::OomProtection, "oom_kill_disable", "yes");
    }
    if container.limits.oom_score_adj.is_some_and(|score| score < 0) {
        list.add(PolicyRule::OomProtection, "oom_score_adj", "yes");
    }
    if let Some(driver) = container.log_driver.as_deref()
        && !["json-file", "local", "none", ""].contains(&driver)
    {
        list.add(PolicyRule::LogDrivers, "logging.driver", driver);
    }
    if let Some(runtime) = &container.runtime {
        list.add(PolicyRule::Runtimes, "runtime", runtime);
    }
    for name in container.annotations.keys() {
        list.add(PolicyRule::Runtimes, "annotations", name);
    }
}

/// Variables without a value get the daemon's.
fn host_environment(list: &mut Demands, key: &str, environment: &BTreeMap<String, Option<String>>) {
    for (name, _) in environment.iter().filter(|(_, value)| value.is_none()) {
        list.add(PolicyRule::HostEnvironment, key, name);
    }
}

fn namespaces(list: &mut Demands, container: &ContainerSpec) {
    let modes = &container.namespaces;
    let is_own = |mode: &str| mode.is_empty() || mode.starts_with("service:");
    match modes.network.as_deref() {
        Some(mode) if mode == "host" || mode.starts_with("container:") => {
            list.add(PolicyRule::HostNamespaces, "network_mode", mode);
        }
        // Anything else is the name of a network in the engine, `bridge` included, which all containers share.
        Some(mode) if mode != "none" && !is_own(mode) => list.add(PolicyRule::EngineNames, "network_mode", mode),
        Some(_) | None => {}
    }
    let foreign = |mode: &Option<String>, own: &[&str]| {
        mode.clone().filter(|mode| !is_own(mode) && !own.contains(&mode.as_str()))
    };
    let asked = [
        ("ipc", foreign(&modes.ipc, &["none", "private", "shareable"])),
        ("pid", foreign(&modes.pid, &["private"])),
        ("uts", foreign(&modes.uts, &["private"])),
        ("userns_mode", foreign(&modes.user, &["private"])),
        ("cgroup", foreign(&modes.cgroup, &["private"])),
        ("cgroup_parent", modes.cgroup_parent.clone()),
    ];
    for (key, mode) in asked.into_iter().filter_map(|(key, mode)| Some((key, mode?))) {
        list.add(PolicyRule::HostNamespaces, key, &mode);
    }
}

fn devices(list: &mut Demands, container: &ContainerSpec) {
    for device in &container.devices {
        list.add(PolicyRule::Devices, "devices", device.split(':').next().unwrap_or_default());
    }
    for rule in &container.security.device_cgroup_rules {
        list.add(PolicyRule::Devices, "device_cgroup_rules", rule);
    }
    for request in &container.device_requests {
        let kind = request.driver.as_ref().or_else(|| request.capabilities.first());
        list.add(PolicyRule::Devices, "gpus", kind.map_or("gpu", String::as_str));
    }
}

fn host_port(list: &mut Demands, port: &Port) {
    match (port.published, port.mode) {
        (Some(number), PortMode::Host | PortMode::Ingress) => {
            list.add(PolicyRule::HostPorts, "ports", &number.to_string());
        }
        (None, PortMode::Host) => list.add(PolicyRule::HostPorts, "ports", "any"),
        (None, PortMode::Ingress) => {}
    }
}

fn mounts(list: &mut Demands, group: &GroupKey, spec: &ServiceSpec, volumes: &BTreeMap<String, VolumeSpec>) {
    for mount in &spec.mounts {
        match &mount.source {
            MountSource::Bind(path) => list.add(PolicyRule::BindMounts, "volumes", path),
            MountSource::Volume { key, driver, .. } => {
                let default = VolumeSpec { driver: driver.clone(), ..VolumeSpec::default() };
                volume(list, group, key, volumes.get(key.name.as_str()).unwrap_or(&default));
            }
            MountSource::Tmpfs | MountSource::Anonymous => {}
        }
    }
}

fn volume(list: &mut Demands, group: &GroupKey, key: &VolumeKey, spec: &VolumeSpec) {
    let at = format!("volumes.{}", key.name);
    let name = key.engine_name(&group.deployment, spec);
    if name != key.generated_engine_name() || !is_prefixed(key.name.as_str(), &group.deployment) {
        list.add_shared(PolicyRule::EngineNames, format!("{at}.name"), &name);
    }
    let driver = spec.driver.as_deref().unwrap_or("local");
    if driver != "local" {
        list.add_shared(PolicyRule::VolumeDrivers, format!("{at}.driver"), driver);
    }
    if !spec.options.is_empty() {
        list.add_shared(PolicyRule::VolumeDrivers, format!("{at}.driver_opts"), &format!("{driver}:options"));
    }
}

fn network(list: &mut Demands, group: &GroupKey, key: &str, spec: &NetworkSpec) {
    let at = format!("networks.{key}");
    if spec.reach == NetworkReach::External || !is_prefixed(&spec.name, &group.deployment) {
        list.add_shared(PolicyRule::EngineNames, format!("{at}.name"), &spec.name);
    }
    let driver = spec.driver.as_deref().unwrap_or("bridge");
    if !["bridge", "overlay"].contains(&driver) {
        list.add_shared(PolicyRule::NetworkDrivers, format!("{at}.driver"), driver);
    }
    if !spec.options.is_empty() {
        list.add_shared(PolicyRule::NetworkDrivers, format!("{at}.driver_opts"), &format!("{driver}:options"));
    }
}

/// Whether a name is `<deployment>_…`, which drivers put under the deployment's namespace.
fn is_prefixed(name: &str, deployment: &DeploymentName) -> bool {
    name.strip_prefix(deployment.as_str()).is_some_and(|rest| rest.starts_with('_'))
}
