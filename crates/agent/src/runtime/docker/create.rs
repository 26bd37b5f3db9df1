//! Translates a work's spec into the engine's request to create a container.
//!
//! Owns: every container setting that a manifest can contain.
//! Invariant: a foreign container that already has the name is left alone; ours then gets a longer name.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::Ipv4Addr,
};

use bollard::{
    models::{
        ContainerCreateBody, DeviceMapping, DeviceRequest, EndpointSettings, HealthConfig, HostConfig,
        HostConfigCgroupnsModeEnum, HostConfigLogConfig, NetworkConnectRequest, NetworkingConfig, PortBinding,
        ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
    },
    query_parameters::CreateContainerOptionsBuilder,
};
use longshore_model::{
    GroupKey, ServiceSpec, Work,
    container::{Healthcheck, Switch},
    service::{Port, PortMode},
};

use super::{
    Docker, LONG, image, labels, mounts::EngineVolumes, networks::EngineNetwork, overlay_network::OverlayEndpoint,
};
use crate::runtime::{
    ExistingReplica, Handle, Phase, PreparedFile, Runtime as _, RuntimeError, StopSpec, identity_env,
};

/// What a container is attached to.
#[derive(Clone, Copy)]
pub(super) struct Attached<'a> {
    pub(super) networks: &'a [EngineNetwork],
    pub(super) overlay: Option<&'a OverlayEndpoint>,
}

impl Docker {
    pub(super) async fn create_container(
        &self,
        work: &Work,
        files: &[PreparedFile],
        volumes: &EngineVolumes,
        attached: Attached<'_>,
    ) -> Result<Handle, RuntimeError> {
        let Attached { networks, overlay } = attached;
        let mut body = Box::new(self.body(work, files, volumes).await?);
        if let Some(endpoint) = overlay {
            use_overlay(&mut body, work, endpoint);
        }
        let (first, others) = match networks.split_first() {
            Some((first, others)) => (Some(first), others),
            None => (None, networks),
        };
        if let Some(first) = first {
            let endpoints = HashMap::from([(first.name.clone(), endpoint(work, first))]);
            body.networking_config = Some(NetworkingConfig { endpoints_config: Some(endpoints) });
            host_config(&mut body).network_mode = Some(first.name.clone());
        }
        let handle = self.create_named(work, body).await?;
        // Engines before 25 accept one network when a container is created; the others are connected before it starts.
        for network in others {
            let request =
                NetworkConnectRequest { container: handle.0.clone(), endpoint_config: Some(endpoint(work, network)) };
            self.call(LONG, async |client| client.connect_network(&network.name, request).await).await?;
        }
        Ok(handle)
    }

    /// Creates it under its name, or under the cluster-scoped name if a foreign container has the first.
    async fn create_named(&self, work: &Work, body: Box<ContainerCreateBody>) -> Result<Handle, RuntimeError> {
        let name = work.container_name();
        match self.create_as(&name, work, body.clone()).await {
            Err(RuntimeError::Refused(reason)) if reason.contains("is already in use by container") => {
                // A container of ours would have been found by its labels before.
                tracing::warn!(
                    container = name,
                    "the name belongs to a foreign container; using the cluster-scoped name"
                );
                self.create_as(&self.cluster_scoped_name(&name), work, body).await
            }
            outcome => outcome,
        }
    }

    async fn create_as(&self, name: &str, work: &Work, body: Box<ContainerCreateBody>) -> Result<Handle, RuntimeError> {
        let options = CreateContainerOptionsBuilder::new().name(name).platform(&platform(&work.spec)).build();
        let created = self.call(LONG, async |client| client.create_container(Some(options), *body).await).await;
        match created {
            Ok(created) => Ok(Handle(created.id)),
            // The image was present a moment ago. `NotFound` would claim that the container was removed.
            Err(RuntimeError::NotFound) => {
                Err(RuntimeError::Refused(format!("image `{}` is no longer on this node", work.spec.container.image)))
            }
            Err(error) => Err(error),
        }
    }

    async fn body(
        &self,
        work: &Work,
        files: &[PreparedFile],
        volumes: &EngineVolumes,
    ) -> Result<ContainerCreateBody, RuntimeError> {
        let container = &work.spec.container;
        let on = |switch: Switch| Some(container.switches.contains(&switch));
        let stop = StopSpec::of(container, None);
        Ok(ContainerCreateBody {
            hostname: container.hostname.clone(),
            domainname: container.domainname.clone(),
            user: container.user.clone(),
            tty: on(Switch::Tty),
            open_stdin: on(Switch::StdinOpen),
            // The input of a one-off job ends with the session of whoever started it.
            stdin_once: Some(work.spec.one_off.is_some()),
            env: Some(environment(work)),
            cmd: container.command.clone(),
            entrypoint: container.entrypoint.clone(),
            healthcheck: container.healthcheck.as_ref().map(healthcheck),
            image: Some(image::to_run(work).to_owned()),
            volumes: Some(volumes.anonymous.clone()),
            working_dir: container.working_dir.clone(),
            labels: Some(labels::of_work(work, &self.cluster_id, self.node.as_str())),
            stop_signal: Some(stop.signal),
            stop_timeout: i64::try_from(stop.grace.as_millis().div_ceil(1000)).ok(),
            exposed_ports: Some(work.spec.ports.iter().map(target).collect()),
            host_config: Some(self.host_config(work, files, volumes).await?),
            ..ContainerCreateBody::default()
        })
    }

    async fn host_config(
        &self,
        work: &Work,
        files: &[PreparedFile],
        volumes: &EngineVolumes,
    ) -> Result<HostConfig, RuntimeError> {
        let container = &work.spec.container;
        let mut config = HostConfig {
            binds: Some(volumes.binds.clone()),
            mounts: Some(volumes.mounts.iter().cloned().chain(files.iter().map(super::mounts::file_mount)).collect()),
            tmpfs: Some(volumes.tmpfs.clone()),
            port_bindings: Some(self.bindings(&work.spec.ports)),
            // The control plane decides about restarts, never the engine.
            restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
            log_config: container.log_driver.as_ref().map(|driver| HostConfigLogConfig {
                typ: Some(driver.clone()),
                config: Some(hash_map(&container.log_options)),
            }),
            network_mode: self.namespace(work, container.namespaces.network.as_deref()).await?,
            ipc_mode: self.namespace(work, container.namespaces.ipc.as_deref()).await?,
            pid_mode: self.namespace(work, container.namespaces.pid.as_deref()).await?,
            devices: Some(container.devices.iter().map(|device| device_mapping(device)).collect()),
            ..HostConfig::default()
        };
        limits(&mut config, &work.spec);
        confinement(&mut config, &work.spec);
        Ok(config)
    }

    /// Resolves `service:x` to a running container of that service on this node; other modes are the engine's own.
    async fn namespace(&self, work: &Work, mode: Option<&str>) -> Result<Option<String>, RuntimeError> {
        let Some(service) = mode.and_then(|mode| mode.strip_prefix("service:")) else {
            return Ok(mode.map(str::to_owned));
        };
        let deployment = work.base_deployment().clone();
        let group = GroupKey { deployment, ..work.key.group.sibling(&service.into()) };
        let mut replicas: Vec<ExistingReplica> = self.list().await?;
        replicas.retain(|replica| replica.key.group == group);
        replicas.sort_by_key(|replica| std::cmp::Reverse((replica.key.generation, replica.attempt)));
        for replica in replicas {
            let inspected = self.inspect(&replica.handle).await;
            if inspected.is_ok_and(|inspection| matches!(inspection.phase, Phase::Running(_))) {
                return Ok(Some(format!("container:{}", replica.handle.0)));
            }
        }
        let reason = format!("no replica of `{service}` runs on this node yet to share its namespace");
        Err(RuntimeError::DependencyNotReady(reason))
    }

    /// Fails with `DependencyNotReady` until every service whose namespace the work shares has a running replica here.
    pub(super) async fn check_shared_namespaces(&self, work: &Work) -> Result<(), RuntimeError> {
        let namespaces = &work.spec.container.namespaces;
        for mode in [&namespaces.network, &namespaces.ipc, &namespaces.pid] {
            self.namespace(work, mode.as_deref()).await?;
        }
        Ok(())
    }

    fn bindings(&self, ports: &[Port]) -> HashMap<String, Option<Vec<PortBinding>>> {
        let mut bindings: HashMap<String, Option<Vec<PortBinding>>> = HashMap::new();
        for port in ports {
            let (ip, number) = match port.mode {
                PortMode::Host => (port.host_ip.map(|ip| ip.to_string()), port.published),
                // A port that shall be open on loopback only is not opened to other nodes through the engine's port.
                PortMode::Ingress if port.host_ip.is_some_and(|ip| ip.is_loopback()) => {
                    (Some(Ipv4Addr::LOCALHOST.to_string()), None)
                }
                PortMode::Ingress => (Some(self.config.ingress_bind.to_string()), None),
            };
            let binding = PortBinding {
                host_ip: ip.or_else(|| Some(String::new())),
                host_port: Some(number.map_or_else(String::new, |number| number.to_string())),
            };
            bindings.entry(target(port)).or_default().get_or_insert_default().push(binding);
        }
        bindings
    }

    /// The name with the cluster's id appended, for when the plain name is taken.
    pub(super) fn cluster_scoped_name(&self, name: &str) -> String {
        let short: String = self.cluster_id.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
        format!("{name}_{short}")
    }
}

/// Limits on processor, memory and other resources.
fn limits(config: &mut HostConfig, spec: &ServiceSpec) {
    let (limits, resources) = (&spec.container.limits, &spec.resources);
    let signed = |amount: Option<u64>| amount.and_then(|amount| i64::try_from(amount).ok());
    config.memory = signed(resources.memory_limit_bytes);
    config.memory_reservation = signed(resources.memory_reservation_bytes);
    config.memory_swap = limits.memory_swap_bytes;
    config.memory_swappiness = signed(limits.memory_swappiness);
    config.nano_cpus = signed(resources.cpu_limit_millis).map(|millis| millis.saturating_mul(1_000_000));
    config.cpu_shares = signed(limits.cpu_shares);
    config.cpuset_cpus.clone_from(&limits.cpuset);
    config.pids_limit = limits.pids;
    config.shm_size = signed(limits.shm_size_bytes);
    config.oom_score_adj = limits.oom_score_adj;
    config.oom_kill_disable = spec.container.switches.contains(&Switch::OomKillDisable).then_some(true);
    config.sysctls = Some(hash_map(&limits.sysctls));
    config.storage_opt = (!limits.storage_options.is_empty()).then(|| hash_map(&limits.storage_options));
    let ulimit = |(name, limit): (&String, &longshore_model::container::Ulimit)| ResourcesUlimits {
        name: Some(name.clone()),
        soft: Some(limit.soft),
        hard: Some(limit.hard),
    };
    config.ulimits = Some(limits.ulimits.iter().map(ulimit).collect());
}

/// Capabilities, namespaces, name resolution and devices.
fn confinement(config: &mut HostConfig, spec: &ServiceSpec) {
    let container = &spec.container;
    let on = |switch: Switch| container.switches.contains(&switch).then_some(true);
    let list = |set: &std::collections::BTreeSet<String>| Some(set.iter().cloned().collect());
    config.init = on(Switch::Init);
    config.readonly_rootfs = on(Switch::ReadOnly);
    config.privileged = on(Switch::Privileged);
    config.cap_add = list(&container.security.cap_add);
    config.cap_drop = list(&container.security.cap_drop);
    config.security_opt = list(&container.security.options);
    config.device_cgroup_rules = Some(container.security.device_cgroup_rules.clone());
    config.group_add = list(&container.groups);
    config.uts_mode.clone_from(&container.namespaces.uts);
    config.userns_mode.clone_from(&container.namespaces.user);
    config.cgroup_parent.clone_from(&container.namespaces.cgroup_parent);
    config.cgroupns_mode = match container.namespaces.cgroup.as_deref() {
        Some("host") => Some(HostConfigCgroupnsModeEnum::HOST),
        Some("private") => Some(HostConfigCgroupnsModeEnum::PRIVATE),
        Some(_) | None => None,
    };
    config.dns = Some(container.resolver.dns.clone());
    config.dns_search = Some(container.resolver.dns_search.clone());
    config.dns_options = Some(container.resolver.dns_opt.clone());
    let hosts = container.resolver.extra_hosts.iter();
    config.extra_hosts = Some(hosts.flat_map(|(name, ips)| ips.iter().map(move |ip| format!("{name}:{ip}"))).collect());
    config.runtime.clone_from(&container.runtime);
    config.annotations = (!container.annotations.is_empty()).then(|| hash_map(&container.annotations));
    config.device_requests = Some(container.device_requests.iter().map(device_request).collect());
}

fn device_request(request: &longshore_model::container::EngineDeviceRequest) -> DeviceRequest {
    let count = match (request.count, request.ids.is_empty()) {
        (Some(count), _) => i64::try_from(count).ok(),
        // The engine's value for all devices.
        (None, true) => Some(-1),
        (None, false) => None,
    };
    DeviceRequest {
        driver: request.driver.clone(),
        count,
        device_ids: (!request.ids.is_empty()).then(|| request.ids.clone()),
        capabilities: Some(vec![request.capabilities.iter().cloned().collect()]),
        options: Some(hash_map(&request.options)),
    }
}

/// Parses `host:container:permissions`, of which the last two are optional.
fn device_mapping(device: &str) -> DeviceMapping {
    let mut parts = device.splitn(3, ':');
    let host = parts.next().unwrap_or_default();
    let inside = parts.next().filter(|path| !path.is_empty()).unwrap_or(host);
    let permissions = parts.next().unwrap_or("rwm");
    DeviceMapping {
        path_on_host: Some(host.to_owned()),
        path_in_container: Some(inside.to_owned()),
        cgroup_permissions: Some(permissions.to_owned()),
    }
}

fn healthcheck(check: &Healthcheck) -> HealthConfig {
    let nanos = |time: std::time::Duration| i64::try_from(time.as_nanos()).ok();
    HealthConfig {
        test: Some(check.test.clone()),
        interval: nanos(check.interval),
        timeout: nanos(check.timeout),
        retries: Some(i64::from(check.retries)),
        start_period: nanos(check.start_period),
        start_interval: nanos(check.start_interval),
    }
}

/// Names are resolved by the node's own name server, and clients reach cluster-wide ports at the replica itself.
fn use_overlay(body: &mut ContainerCreateBody, work: &Work, endpoint: &OverlayEndpoint) {
    let config = host_config(body);
    config.dns = Some(vec![endpoint.overlay.ipv4_gateway.to_string()]);
    let host_ports = work.spec.ports.iter().filter(|port| port.mode == PortMode::Host);
    let host_ports: BTreeSet<String> = host_ports.map(target).collect();
    if let Some(bindings) = &mut config.port_bindings {
        bindings.retain(|target, _| host_ports.contains(target));
    }
}

fn endpoint(work: &Work, network: &EngineNetwork) -> EndpointSettings {
    if let Some(overlay) = &network.overlay {
        return overlay.settings();
    }
    let group = &work.key.group;
    let mut aliases = vec![group.service.to_string(), work.key.slot.replica_id(group)];
    aliases.extend(network.attachment.aliases.iter().cloned());
    EndpointSettings {
        aliases: Some(aliases),
        driver_opts: (!network.attachment.options.is_empty()).then(|| hash_map(&network.attachment.options)),
        ..EndpointSettings::default()
    }
}

/// `NAME=value` pairs. A manifest's name without a value takes the agent's own value, and is left out if that is unset.
fn environment(work: &Work) -> Vec<String> {
    let manifest = &work.spec.container.environment;
    let identity = identity_env::variables(work).into_iter().filter(|(name, _)| !manifest.contains_key(name));
    let from_manifest = manifest.iter().filter_map(|(name, given)| {
        let value = given.clone().or_else(|| std::env::var(name).ok())?;
        Some((name.clone(), value))
    });
    identity.chain(from_manifest).map(|(name, value)| format!("{name}={value}")).collect()
}

/// `os/arch` if the spec names exactly one platform, else empty: of several, the engine's own is one, or the node would
/// not have been chosen.
pub(super) fn platform(spec: &ServiceSpec) -> String {
    match &spec.placement.platforms[..] {
        [only] if !only.arch.is_empty() => {
            let os = if only.os.is_empty() { "linux" } else { &only.os };
            format!("{os}/{}", only.arch)
        }
        _ => String::new(),
    }
}

fn target(port: &Port) -> String {
    format!("{}/{}", port.target, port.protocol.as_str())
}

fn host_config(body: &mut ContainerCreateBody) -> &mut HostConfig {
    body.host_config.get_or_insert_default()
}

pub(super) fn hash_map(map: &BTreeMap<String, String>) -> HashMap<String, String> {
    map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}
