//! One service as a Compose mapping.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    ServiceKind, ServiceSpec, Strategy, VolumeKey,
    container::{ContainerSpec, FileKind, FileMount, Healthcheck, Hook, Limits, PullPolicy, Switch},
    service::{
        Access, AfterExhaustion, Attachment, Dependency, DependencyCondition, EndpointMode, FailureAction, Mount,
        MountSource, Port, PortMode, Resources, RestartCondition, RestartPolicy, UpdateOrder, UpdatePolicy,
    },
};
use serde_json::{Value, json};

use super::Section;
use crate::{load::Loaded, units::print_duration};

mod longshore;

/// Keys of volumes, secrets and configs by their name in the cluster, for references in the manifest's terms.
pub(crate) struct Names {
    files: BTreeMap<(FileKind, String), String>,
    volumes: BTreeMap<String, String>,
}

impl Names {
    pub(crate) fn of(loaded: &Loaded) -> Self {
        let keyed = loaded.secrets.iter().chain(&loaded.configs);
        let volumes = loaded.volumes.iter().map(|(key, volume)| (volume.key.name.to_string(), key.clone())).collect();
        Self { files: keyed.map(|(key, file)| ((file.kind, file.name.to_string()), key.clone())).collect(), volumes }
    }

    fn volume<'n>(&'n self, key: &'n VolumeKey) -> &'n str {
        self.volumes.get(key.name.as_str()).map_or(key.name.as_str(), String::as_str)
    }

    fn key<'n>(&'n self, mount: &'n FileMount) -> &'n str {
        self.files.get(&(mount.kind, mount.name.to_string())).map_or(mount.name.as_str(), String::as_str)
    }
}

pub(crate) fn render(spec: &ServiceSpec, names: &Names) -> Value {
    let mut out = Section::default();
    container(&spec.container, &mut out);
    namespaces(&spec.container, &mut out);
    limits(&spec.container.limits, &mut out);
    files(&spec.container, names, &mut out);
    out.put("ports", spec.ports.iter().map(port).collect::<Vec<_>>());
    out.put("volumes", spec.mounts.iter().map(|mounted| mount(mounted, names)).collect::<Vec<_>>());
    let platform = spec.placement.platforms.first().map(|platform| match platform.arch.as_str() {
        "" => platform.os.clone(),
        arch => format!("{}/{arch}", platform.os),
    });
    out.put("platform", platform);
    let networks: BTreeMap<&str, Value> =
        spec.networks.iter().map(|(key, attachment)| (key.as_str(), network(attachment))).collect();
    out.put("networks", networks);
    let depends_on: BTreeMap<&str, Value> =
        spec.depends_on.iter().map(|(name, dependency)| (name.as_str(), depends(*dependency))).collect();
    out.put("depends_on", depends_on);
    out.put("deploy", deploy(spec));
    out.put("restart", returns(&spec.restart).then_some("always"));
    out.put("x-longshore", longshore::render(spec));
    out.put("spec_hash", &*spec.spec_hash.0);
    out.done()
}

fn container(spec: &ContainerSpec, out: &mut Section) {
    out.put("image", &spec.image);
    for (key, command) in [("command", &spec.command), ("entrypoint", &spec.entrypoint)] {
        if let Some(command) = command {
            out.keep(key, command);
        }
    }
    out.put("environment", &spec.environment).put("labels", &spec.labels).put("annotations", &spec.annotations);
    out.put("healthcheck", spec.healthcheck.as_ref().map(health));
    out.put("stop_signal", &spec.stop_signal);
    out.put("stop_grace_period", spec.stop_grace_period.map(print_duration));
    let mut logging = Section::default();
    logging.put("driver", &spec.log_driver).put("options", &spec.log_options);
    out.put("logging", logging.done());
    out.put("user", &spec.user).put("group_add", &spec.groups).put("working_dir", &spec.working_dir);
    out.put("hostname", &spec.hostname).put("domainname", &spec.domainname).put("runtime", &spec.runtime);
    out.put("pull_policy", spec.pull_policy.map(pull_policy));
    out.put("post_start", spec.post_start.iter().map(hook).collect::<Vec<_>>());
    out.put("pre_stop", spec.pre_stop.iter().map(hook).collect::<Vec<_>>());
    for switch in &spec.switches {
        out.put(switch_key(*switch), true);
    }
    out.put("cap_add", &spec.security.cap_add).put("cap_drop", &spec.security.cap_drop);
    out.put("security_opt", &spec.security.options).put("device_cgroup_rules", &spec.security.device_cgroup_rules);
    out.put("devices", &spec.devices);
}

const fn pull_policy(policy: PullPolicy) -> &'static str {
    match policy {
        PullPolicy::Always => "always",
        PullPolicy::Missing => "missing",
        PullPolicy::Never => "never",
        PullPolicy::Build => "build",
    }
}

const fn switch_key(switch: Switch) -> &'static str {
    match switch {
        Switch::Init => "init",
        Switch::ReadOnly => "read_only",
        Switch::Privileged => "privileged",
        Switch::Tty => "tty",
        Switch::StdinOpen => "stdin_open",
        Switch::OomKillDisable => "oom_kill_disable",
    }
}

fn health(check: &Healthcheck) -> Value {
    let mut out = Section::default();
    out.put("test", &check.test);
    out.put("interval", print_duration(check.interval)).put("timeout", print_duration(check.timeout));
    out.put("retries", check.retries).put("start_period", print_duration(check.start_period));
    out.put("start_interval", print_duration(check.start_interval));
    out.done()
}

fn hook(hook: &Hook) -> Value {
    let mut out = Section::default();
    out.put("command", &hook.command).put("user", &hook.user).put("working_dir", &hook.working_dir);
    out.put("environment", &hook.environment);
    if hook.privileged {
        out.put("privileged", true);
    }
    out.done()
}

fn namespaces(spec: &ContainerSpec, out: &mut Section) {
    let shared = &spec.namespaces;
    out.put("network_mode", &shared.network).put("ipc", &shared.ipc).put("pid", &shared.pid);
    out.put("uts", &shared.uts).put("userns_mode", &shared.user);
    out.put("cgroup", &shared.cgroup).put("cgroup_parent", &shared.cgroup_parent);
    let resolver = &spec.resolver;
    out.put("dns", &resolver.dns).put("dns_search", &resolver.dns_search).put("dns_opt", &resolver.dns_opt);
    let pairs = resolver.extra_hosts.iter();
    let hosts: Vec<String> =
        pairs.flat_map(|(name, addresses)| addresses.iter().map(move |address| format!("{name}={address}"))).collect();
    out.put("extra_hosts", hosts);
}

fn limits(limits: &Limits, out: &mut Section) {
    let text = |bytes: u64| bytes.to_string();
    out.put("shm_size", limits.shm_size_bytes.map(text));
    out.put("memswap_limit", limits.memory_swap_bytes.map(|bytes| bytes.to_string()));
    out.put("mem_swappiness", limits.memory_swappiness).put("cpu_shares", limits.cpu_shares);
    out.put("cpuset", &limits.cpuset).put("oom_score_adj", limits.oom_score_adj);
    out.put("sysctls", &limits.sysctls).put("storage_opt", &limits.storage_options);
    out.put("ulimits", &limits.ulimits);
}

fn files(spec: &ContainerSpec, names: &Names, out: &mut Section) {
    let of = |kind: FileKind| -> Vec<Value> {
        spec.files.iter().filter(|mount| mount.kind == kind).map(|mount| file(mount, names)).collect()
    };
    out.put("secrets", of(FileKind::Secret)).put("configs", of(FileKind::Config));
}

fn file(mount: &FileMount, names: &Names) -> Value {
    let mut out = Section::default();
    out.put("source", names.key(mount)).put("target", &mount.target).put("uid", &mount.uid).put("gid", &mount.gid);
    out.put("mode", mount.mode.map(|mode| format!("0{mode:o}")));
    out.done()
}

fn port(port: &Port) -> Value {
    let mut out = Section::default();
    out.put(
        "mode",
        match port.mode {
            PortMode::Ingress => "ingress",
            PortMode::Host => "host",
        },
    );
    out.put("target", port.target).put("published", port.published.map(|port| port.to_string()));
    out.put("protocol", port.protocol.as_str()).put("host_ip", port.host_ip.map(|ip| ip.to_string()));
    out.done()
}

fn mount(mount: &Mount, names: &Names) -> Value {
    let mut out = Section::default();
    let kind = match &mount.source {
        MountSource::Volume { key, .. } => {
            out.put("source", names.volume(key));
            "volume"
        }
        MountSource::Bind(path) => {
            out.put("source", path);
            "bind"
        }
        MountSource::Tmpfs => "tmpfs",
        MountSource::Anonymous => "volume",
    };
    out.put("type", kind).put("target", &mount.target).put(kind, &mount.options);
    if mount.access == Access::ReadOnly {
        out.put("read_only", true);
    }
    out.done()
}

fn network(attachment: &Attachment) -> Value {
    let mut out = Section::default();
    out.put("aliases", &attachment.aliases).put("driver_opts", &attachment.options);
    if attachment.priority != 0 {
        out.put("priority", attachment.priority);
    }
    out.done()
}

fn depends(dependency: Dependency) -> Value {
    let condition = match dependency.condition {
        DependencyCondition::ServiceStarted => "service_started",
        DependencyCondition::ServiceHealthy => "service_healthy",
        DependencyCondition::ServiceCompletedSuccessfully => "service_completed_successfully",
    };
    let mut out = Section::default();
    out.put("condition", condition).put("required", dependency.required);
    if dependency.restart {
        out.put("restart", true);
    }
    out.done()
}

fn deploy(spec: &ServiceSpec) -> Value {
    let mut out = Section::default();
    out.put(
        "mode",
        match spec.kind {
            ServiceKind::Service => "replicated",
            ServiceKind::System => "global",
            ServiceKind::Batch => "replicated-job",
            ServiceKind::Sysbatch => "global-job",
        },
    );
    if !spec.kind.is_per_node() {
        out.put("replicas", spec.replicas);
    }
    if spec.endpoint_mode == EndpointMode::Dnsrr {
        out.put("endpoint_mode", "dnsrr");
    }
    out.put("labels", &spec.labels).put("placement", placement(spec)).put("resources", resources(spec));
    let UpdatePolicy { step_timeout, surge, .. } = spec.update;
    if spec.update != (UpdatePolicy { step_timeout, surge, ..UpdatePolicy::default() }) {
        out.put("update_config", update(&spec.update));
    }
    out.put("rollback_config", spec.rollback.as_ref().map(update));
    out.put("restart_policy", restart(&spec.restart));
    out.done()
}

fn placement(spec: &ServiceSpec) -> Value {
    let placement = &spec.placement;
    let mut out = Section::default();
    out.put("constraints", placement.constraints.iter().map(ToString::to_string).collect::<Vec<_>>());
    let spread = |attribute: &longshore_model::Attribute| json!({ "spread": attribute.to_string() });
    out.put("preferences", placement.preferences.iter().map(spread).collect::<Vec<_>>());
    out.put("max_replicas_per_node", placement.max_replicas_per_node);
    out.done()
}

fn resources(spec: &ServiceSpec) -> Value {
    // Requests by vendor, model and attributes are an extension and are rendered in `x-longshore`.
    let Resources {
        cpu_limit_millis,
        cpu_reservation_millis,
        memory_limit_bytes,
        memory_reservation_bytes,
        devices,
        device_requests: _,
    } = &spec.resources;
    let cores = |millis: u64| fraction(millis / 1000, &format!("{:03}", millis % 1000));
    let mut limits = Section::default();
    limits.put("cpus", cpu_limit_millis.map(cores)).put("memory", memory_limit_bytes.map(|bytes| bytes.to_string()));
    limits.put("pids", spec.container.limits.pids);
    let mut reserved = Section::default();
    reserved.put("cpus", cpu_reservation_millis.map(cores));
    reserved.put("memory", memory_reservation_bytes.map(|bytes| bytes.to_string()));
    let requests: Vec<Value> = spec.container.device_requests.iter().map(device).collect();
    reserved.put("devices", requests);
    // Devices counted by the requests above are left out: they would be counted twice when this is read again.
    let mut left = devices.clone();
    for request in &spec.container.device_requests {
        let (kind, count) = crate::service::counted(request);
        left.entry(kind).and_modify(|total| *total = total.saturating_sub(count));
    }
    let generic = left.iter().filter(|(_, count)| **count > 0);
    let generic: Vec<Value> =
        generic.map(|(kind, value)| json!({ "discrete_resource_spec": { "kind": kind, "value": value } })).collect();
    reserved.put("generic_resources", generic);
    let mut out = Section::default();
    out.put("limits", limits.done()).put("reservations", reserved.done());
    out.done()
}

fn device(request: &longshore_model::container::EngineDeviceRequest) -> Value {
    let mut out = Section::default();
    out.put("driver", &request.driver).put("device_ids", &request.ids).put("options", &request.options);
    out.put("capabilities", &request.capabilities);
    match request.count {
        Some(count) => out.put("count", count),
        None if request.ids.is_empty() => out.put("count", "all"),
        None => &mut out,
    };
    out.done()
}

fn update(policy: &UpdatePolicy) -> Value {
    let mut out = Section::default();
    out.put("parallelism", policy.parallelism).put("delay", print_duration(policy.delay));
    out.put("monitor", print_duration(policy.monitor));
    out.put(
        "failure_action",
        match policy.failure_action {
            FailureAction::Rollback => "rollback",
            FailureAction::Pause => "pause",
            FailureAction::Continue => "continue",
        },
    );
    let ratio = u64::from(policy.max_failure_ratio_millionths);
    out.put("max_failure_ratio", fraction(ratio / 1_000_000, &format!("{:06}", ratio % 1_000_000)));
    out.put(
        "order",
        policy.order.map(|order| match order {
            UpdateOrder::StartFirst => "start-first",
            UpdateOrder::StopFirst => "stop-first",
        }),
    );
    out.done()
}

/// Whether a policy is the one of `restart: always`, and nothing more.
fn returns(policy: &RestartPolicy) -> bool {
    *policy == RestartPolicy { after_exhaustion: AfterExhaustion::Return, ..RestartPolicy::default() }
}

fn restart(policy: &RestartPolicy) -> Value {
    let mut out = Section::default();
    match policy.condition {
        // Printed as `restart: always`, which another key here would override.
        RestartCondition::Any if returns(policy) => {}
        RestartCondition::Any => {
            out.put("condition", (policy.after_exhaustion == AfterExhaustion::Return).then_some("any"));
        }
        RestartCondition::OnFailure => {
            out.put("condition", "on-failure");
        }
        RestartCondition::None => {
            out.put("condition", "none");
        }
    }
    out.put("delay", policy.delay.map(print_duration)).put("window", policy.window.map(print_duration));
    let restarts = |failures: u32| if failures == u32::MAX { 0 } else { failures.saturating_sub(1) };
    out.put("max_attempts", policy.max_attempts.map(restarts));
    out.done()
}

/// The strategy, unless it follows from `deploy.mode`.
fn strategy(spec: &ServiceSpec) -> Option<&'static str> {
    match spec.placement.strategy {
        Strategy::Spread | Strategy::Global => None,
        other @ (Strategy::LeastLoaded | Strategy::Hosts | Strategy::Binpack | Strategy::Hash) => Some(other.as_str()),
    }
}

fn texts<T: ToString>(names: &BTreeSet<T>) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// A decimal without trailing zeros: `0.5`, or `2`.
fn fraction(whole: u64, digits: &str) -> String {
    format!("{whole}.{digits}").trim_end_matches('0').trim_end_matches('.').to_owned()
}
