//! One service, from its mapping to a [`ServiceSpec`].
//!
//! Owns: the table of service keys, and resolving values that several keys set.
//! Must not touch: other services; [`crate::validate`] checks them together.
//! Invariant: the order of keys in the file never matters. Readers only record values; `resolve` decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use longshore_model::{
    ServiceName, ServiceSpec,
    container::{PullPolicy, Switch},
    service::Port,
};

use crate::{
    declarations::Declarations,
    diagnostic::{Diagnostics, Location},
    hash,
    keys::{self, Rule},
    yaml::{Key, Node},
};

pub(crate) mod build;
pub(crate) mod container;
mod dependencies;
pub(crate) mod deploy;
pub(crate) mod devices;
pub(crate) mod files;
pub(crate) mod health;
mod limits;
pub(crate) mod longshore;
pub(crate) mod mounts;
pub(crate) mod networks;
pub(crate) mod ports;
mod resolve;
mod restart;

pub use build::BuildSpec;

pub(crate) use devices::counted;
pub(crate) use resolve::{Located, RawKeys};
pub(crate) use restart::{EndNotes, run_awaited_once};

/// State while a service is read.
pub(crate) struct ServiceReader<'a> {
    /// The service's name.
    pub(crate) name: &'a str,
    /// The service, for messages.
    pub(crate) what: String,
    /// Location of its key.
    pub(crate) location: &'a Location,
    /// Declarations it can refer to.
    pub(crate) declarations: &'a Declarations,
    /// Problems so far.
    pub(crate) problems: &'a mut Diagnostics,
    /// The spec so far.
    pub(crate) spec: ServiceSpec,
    /// Values that depend on other keys.
    pub(crate) raw: RawKeys,
    /// References to other services, checked later.
    pub(crate) notes: Notes,
}

/// A function that reads one key of a service.
pub(crate) type ServiceRead = fn(&mut ServiceReader<'_>, &Key, &Node);

/// Settings of a service in the overlay; they win over the Compose file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Override {
    /// `replicas`.
    pub(crate) replicas: Option<Located<u32>>,
    /// `placement`.
    pub(crate) strategy: Option<Located<longshore_model::Strategy>>,
    /// `hosts`.
    pub(crate) hosts: Option<Located<BTreeSet<longshore_model::NodeName>>>,
    /// `networks`; replaces those of the Compose file.
    pub(crate) networks: Option<Vec<Located<String>>>,
}

/// What is checked later, together with the other services.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// References to other services.
    pub(crate) references: Vec<Reference>,
    /// Published ports with their locations.
    pub(crate) ports: Vec<(Port, Location)>,
    /// How its image is built.
    pub(crate) build: Option<BuildSpec>,
    /// What is said about its end.
    pub(crate) ends: EndNotes,
}

/// A reference from one service to another.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    /// The key that contains it.
    pub(crate) key: &'static str,
    /// The referenced service.
    pub(crate) service: ServiceName,
    /// Its location.
    pub(crate) location: Location,
}

/// Reads a service. The result is valid only if no error was added to `problems`.
pub(crate) fn read(
    key: &Key,
    node: &Node,
    declarations: &Declarations,
    over: Override,
    problems: &mut Diagnostics,
) -> (Arc<ServiceSpec>, Notes) {
    let what = format!("service `{}`", key.name);
    let mut reader = ServiceReader {
        name: &key.name,
        what,
        location: &key.location,
        declarations,
        problems,
        spec: ServiceSpec::default(),
        raw: RawKeys::default(),
        notes: Notes::default(),
    };
    match node.as_mapping() {
        Some(mapping) => {
            for (read, key, node) in keys::dispatch(SERVICE_KEYS, mapping, &reader.what, reader.problems) {
                read(&mut reader, key, node);
            }
        }
        // `resolve` reports the missing image.
        None if node.is_null() => {}
        None => {
            let _ = reader.problems.mapping(node, &reader.what);
            return (Arc::new(reader.spec), reader.notes);
        }
    }
    reader.resolve(over);
    let (mut spec, notes) = (reader.spec, reader.notes);
    spec.spec_hash = hash::spec_hash(&spec);
    (Arc::new(spec), notes)
}

impl ServiceReader<'_> {
    /// Records a reference to another service.
    fn refer(&mut self, key: &'static str, service: &str, location: &Location) {
        self.notes.references.push(Reference { key, service: service.into(), location: location.clone() });
    }

    /// The key, for messages.
    pub(crate) fn of(&self, key: &Key) -> String {
        format!("`{}` of {}", key.name, self.what)
    }

    fn text(&mut self, key: &Key, node: &Node) -> Option<String> {
        if node.is_null() {
            return None;
        }
        let what = self.of(key);
        self.problems.text(node, what).map(str::to_owned)
    }

    fn texts(&mut self, key: &Key, node: &Node) -> Vec<String> {
        if node.is_null() {
            return Vec::new();
        }
        let what = self.of(key);
        self.problems.text_or_texts(node, what)
    }

    fn text_set(&mut self, key: &Key, node: &Node) -> BTreeSet<String> {
        self.texts(key, node).into_iter().collect()
    }

    fn filled_pairs(&mut self, key: &Key, node: &Node) -> BTreeMap<String, String> {
        let what = self.of(key);
        let pairs = self.problems.pairs(node, what);
        pairs.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect()
    }

    fn duration(&mut self, key: &Key, node: &Node) -> Option<Duration> {
        let what = self.of(key);
        self.problems.duration(node, what)
    }

    fn switch(&mut self, key: &Key, node: &Node, switch: Switch) {
        let what = self.of(key);
        if self.problems.boolean(node, what) == Some(true) {
            self.spec.container.switches.insert(switch);
        }
    }
}

/// Keys of a service.
pub(crate) static SERVICE_KEYS: &[Rule<ServiceRead>] = &[
    Rule::honoured(
        "annotations",
        |r, k, n| r.spec.container.annotations = r.filled_pairs(k, n),
        "set on the container",
    ),
    Rule::warned("attach", "it concerns the terminal of `docker compose up`; see `longshore logs`"),
    Rule::refused("blkio_config", "limit disk use on the node, or remove the key"),
    Rule::honoured(
        "build",
        |r, k, n| r.build(k, n),
        "the image is `image`, else `<deployment>-<service>`; `longshore up` builds it where it is missing, `up --build` always, `apply` never: for several nodes build and push it first",
    ),
    Rule::honoured("cap_add", |r, k, n| r.spec.container.security.cap_add = r.text_set(k, n), "added to the container"),
    Rule::honoured(
        "cap_drop",
        |r, k, n| r.spec.container.security.cap_drop = r.text_set(k, n),
        "dropped from the container",
    ),
    Rule::honoured("cgroup", |r, k, n| r.spec.container.namespaces.cgroup = r.text(k, n), "`host` or `private`"),
    Rule::honoured(
        "cgroup_parent",
        |r, k, n| r.spec.container.namespaces.cgroup_parent = r.text(k, n),
        "passed to the engine",
    ),
    Rule::honoured("command", |r, k, n| r.spec.container.command = r.command(k, n), "replaces the image's"),
    Rule::honoured("configs", |r, k, n| r.configs(k, n), "mounted as files; short and long syntax"),
    Rule::warned("container_name", "containers are named after their replica, since there can be several"),
    Rule::refused("cpu_count", "write `cpus` or `deploy.resources.limits.cpus`"),
    Rule::refused("cpu_percent", "write `cpus` or `deploy.resources.limits.cpus`"),
    Rule::refused("cpu_period", "write `cpus`: quota divided by period, so 50000 of 100000 is `0.5`"),
    Rule::refused("cpu_quota", "write `cpus`: quota divided by period, so 50000 of 100000 is `0.5`"),
    Rule::refused("cpu_rt_period", "real-time scheduling is not offered; remove the key"),
    Rule::refused("cpu_rt_runtime", "real-time scheduling is not offered; remove the key"),
    Rule::honoured(
        "cpu_shares",
        |r, k, n| r.spec.container.limits.cpu_shares = r.unsigned(k, n),
        "weight among containers of a node",
    ),
    Rule::honoured("cpus", |r, k, n| r.raw.cpus = r.cpus(k, n), "as `deploy.resources.limits.cpus`, which wins"),
    Rule::honoured("cpuset", |r, k, n| r.spec.container.limits.cpuset = r.text(k, n), "passed to the engine"),
    Rule::refused("credential_spec", "credentials of Windows accounts are not supported; remove the key"),
    Rule::honoured(
        "depends_on",
        |r, k, n| r.depends_on(k, n),
        "list and mapping; a first start waits with `dependency_not_ready`; `restart` is acted on when the other is updated or restarted",
    ),
    Rule::honoured("deploy", |r, k, n| r.deploy(k, n), "see the tables below"),
    Rule::warned("develop", "it concerns development on one machine"),
    Rule::honoured(
        "device_cgroup_rules",
        |r, k, n| r.spec.container.security.device_cgroup_rules = r.texts(k, n),
        "passed to the engine",
    ),
    Rule::honoured("devices", |r, k, n| r.devices(k, n), "devices of the node; short and long syntax"),
    Rule::honoured(
        "dns",
        |r, k, n| r.spec.container.resolver.dns = r.texts(k, n),
        "servers raw after the cluster's own",
    ),
    Rule::honoured("dns_opt", |r, k, n| r.spec.container.resolver.dns_opt = r.texts(k, n), "passed to the engine"),
    Rule::honoured(
        "dns_search",
        |r, k, n| r.spec.container.resolver.dns_search = r.texts(k, n),
        "passed to the engine",
    ),
    Rule::refused("dockerfile", "write `build: {dockerfile: …}`"),
    Rule::honoured("domainname", |r, k, n| r.spec.container.domainname = r.text(k, n), "set inside"),
    Rule::honoured("entrypoint", |r, k, n| r.spec.container.entrypoint = r.command(k, n), "replaces the image's"),
    Rule::accepted("env_file", "merged into `environment` when the file is read, with `required` and `format`"),
    Rule::honoured(
        "environment",
        |r, k, n| r.environment(k, n),
        "mapping or list; a key without a value takes the caller's",
    ),
    Rule::accepted("expose", "replicas of a deployment reach each other on every port"),
    Rule::honoured(
        "extends",
        |r, k, _| r.raw.unresolved = Some(k.location.clone()),
        "resolved when the file is read: same file, other file, chains",
    ),
    Rule::refused("external_links", "put both deployments on one `external` network"),
    Rule::honoured("extra_hosts", |r, k, n| r.extra_hosts(k, n), "mapping, `name:address` or `name=address`"),
    Rule::honoured("gpus", |r, k, n| r.gpus(k, n), "`all` or a list, as `deploy.resources.reservations.devices`"),
    Rule::honoured("group_add", |r, k, n| r.spec.container.groups = r.text_set(k, n), "added to the user's groups"),
    Rule::honoured(
        "healthcheck",
        |r, k, n| r.healthcheck(k, n),
        "decides `running`, `degraded` and every rollout step",
    ),
    Rule::honoured("hostname", |r, k, n| r.spec.container.hostname = r.text(k, n), "set inside"),
    Rule::honoured("image", |r, k, n| r.raw.image = r.text(k, n), "what to run"),
    Rule::honoured("init", |r, k, n| r.switch(k, n, Switch::Init), "an init process runs in the container"),
    Rule::honoured(
        "ipc",
        |r, k, n| r.spec.container.namespaces.ipc = r.shared(k, n),
        "`private`, `shareable`, `host` or `service:x`",
    ),
    Rule::refused("isolation", "isolation of Windows containers is not supported; remove the key"),
    Rule::accepted("label_file", "merged into `labels` when the file is read"),
    Rule::honoured(
        "labels",
        |r, k, n| r.spec.container.labels = r.filled_pairs(k, n),
        "set on the container; mapping or list",
    ),
    Rule::honoured(
        "links",
        |r, k, n| r.links(k, n),
        "services already reach each other by name; a link with another alias is refused",
    ),
    Rule::refused("log_driver", "write `logging: {driver: …}`"),
    Rule::refused("log_opt", "write `logging: {options: …}`"),
    Rule::honoured("logging", |r, k, n| r.logging(k, n), "driver and options; nodes without the plugin are not used"),
    Rule::refused("mac_address", "addresses are the cluster's; remove the key"),
    Rule::honoured(
        "mem_limit",
        |r, k, n| r.raw.memory_limit = r.bytes(k, n),
        "as `deploy.resources.limits.memory`, which wins",
    ),
    Rule::honoured(
        "mem_reservation",
        |r, k, n| r.raw.memory_reservation = r.bytes(k, n),
        "as `deploy.resources.reservations.memory`, which wins",
    ),
    Rule::honoured(
        "mem_swappiness",
        |r, k, n| r.spec.container.limits.memory_swappiness = r.unsigned(k, n),
        "passed to the engine",
    ),
    Rule::honoured("memswap_limit", |r, k, n| r.memswap_limit(k, n), "memory and swap together; `-1` is unlimited"),
    Rule::refused("models", "run the model as a service of its own"),
    Rule::refused("net", "write `network_mode`"),
    Rule::honoured(
        "network_mode",
        |r, k, n| r.network_mode(k, n),
        "`none`, `host` or `service:x`, which puts both on one node",
    ),
    Rule::honoured("networks", |r, k, n| r.networks(k, n), "list or mapping with `aliases`, `priority`, `driver_opts`"),
    Rule::honoured("oom_kill_disable", |r, k, n| r.switch(k, n, Switch::OomKillDisable), "passed to the engine"),
    Rule::honoured(
        "oom_score_adj",
        |r, k, n| r.spec.container.limits.oom_score_adj = r.signed(k, n),
        "passed to the engine",
    ),
    Rule::honoured("pid", |r, k, n| r.spec.container.namespaces.pid = r.shared(k, n), "`host` or `service:x`"),
    Rule::honoured(
        "pids_limit",
        |r, k, n| r.raw.pids = r.signed(k, n),
        "as `deploy.resources.limits.pids`, which wins",
    ),
    Rule::honoured("platform", |r, k, n| r.platform(k, n), "`os[/arch[/variant]]`: only such nodes are used"),
    Rule::honoured(
        "ports",
        |r, k, n| r.ports(k, n),
        "short syntax and `mode: ingress` listen on every node, at the host address where one is named; `mode: host` listens on the replica's node",
    ),
    Rule::honoured("post_start", |r, k, n| r.spec.container.post_start = r.hooks(k, n), "run inside after each start"),
    Rule::honoured("pre_stop", |r, k, n| r.spec.container.pre_stop = r.hooks(k, n), "run inside before each stop"),
    Rule::honoured("privileged", |r, k, n| r.switch(k, n, Switch::Privileged), "passed to the engine"),
    Rule::accepted("profiles", "a service with profiles takes part only when one of them is raw for"),
    Rule::refused("placement", "write `deploy: {placement: …}`"),
    Rule::refused("provider", "what a provider would make must exist before; remove the service"),
    Rule::honoured(
        "pull_policy",
        |r, k, n| r.pull_policy(k, n),
        "which image the reference means is settled at every apply: `always` asks the registry, `missing` (`if_not_present`) and `build` use what a node has and else ask, `never` does not; unset, `up` is `missing`, and `apply` asks the registry for images that come from one",
    ),
    Rule::refused("pull_refresh_after", "the cluster does not pull on a schedule; name a new tag or digest to roll"),
    Rule::honoured("read_only", |r, k, n| r.switch(k, n, Switch::ReadOnly), "the root file system cannot be written"),
    Rule::refused("replicas", "write `deploy: {replicas: …}`"),
    Rule::refused("resources", "write `deploy: {resources: …}`"),
    Rule::honoured(
        "restart",
        |r, k, n| r.restart(k, n),
        "`always` and `unless-stopped` start again after exhausted restarts, in 30 s to 5 min; `no` runs once; `on-failure[:n]`; `deploy.restart_policy` wins",
    ),
    Rule::honoured("runtime", |r, k, n| r.spec.container.runtime = r.text(k, n), "runtime of the engine"),
    Rule::honoured(
        "scale",
        |r, k, n| r.raw.scale = r.given_count(k, n),
        "as `deploy.replicas`, which it must not contradict",
    ),
    Rule::honoured(
        "secrets",
        |r, k, n| r.secrets(k, n),
        "mounted as files under `/run/secrets`; short and long syntax",
    ),
    Rule::honoured(
        "security_opt",
        |r, k, n| r.spec.container.security.options = r.text_set(k, n),
        "passed to the engine",
    ),
    Rule::honoured(
        "shm_size",
        |r, k, n| r.spec.container.limits.shm_size_bytes = r.bytes(k, n),
        "size of shared memory",
    ),
    Rule::accepted("spec_hash", "printed by `longshore config`; always computed again"),
    Rule::honoured("stdin_open", |r, k, n| r.switch(k, n, Switch::StdinOpen), "standard input stays open"),
    Rule::honoured(
        "stop_grace_period",
        |r, k, n| r.spec.container.stop_grace_period = r.duration(k, n),
        "time before the kill; 10 s by default",
    ),
    Rule::honoured("stop_signal", |r, k, n| r.spec.container.stop_signal = r.text(k, n), "signal that asks it to stop"),
    Rule::honoured(
        "storage_opt",
        |r, k, n| r.spec.container.limits.storage_options = r.filled_pairs(k, n),
        "passed to the engine",
    ),
    Rule::honoured("sysctls", |r, k, n| r.spec.container.limits.sysctls = r.filled_pairs(k, n), "mapping or list"),
    Rule::honoured("tmpfs", |r, k, n| r.tmpfs(k, n), "one path or a list, each with options after a colon"),
    Rule::honoured("tty", |r, k, n| r.switch(k, n, Switch::Tty), "a terminal is allocated"),
    Rule::honoured("ulimits", |r, k, n| r.ulimits(k, n), "a number, or `soft` and `hard`"),
    Rule::refused("use_api_socket", "mount what the service needs as a secret"),
    Rule::honoured("user", |r, k, n| r.spec.container.user = r.text(k, n), "user, and after a colon group"),
    Rule::honoured("userns_mode", |r, k, n| r.spec.container.namespaces.user = r.text(k, n), "passed to the engine"),
    Rule::honoured("uts", |r, k, n| r.spec.container.namespaces.uts = r.text(k, n), "`host`"),
    Rule::refused("volume_driver", "write `driver` in the top-level `volumes`"),
    Rule::honoured(
        "volumes",
        |r, k, n| r.volumes(k, n),
        "named volumes bind the service to their home node; short and long syntax",
    ),
    Rule::refused("volumes_from", "mount the same named volume in both services"),
    Rule::honoured("working_dir", |r, k, n| r.spec.container.working_dir = r.text(k, n), "directory it starts in"),
    Rule::honoured(
        "x-longshore",
        |r, k, n| r.longshore(k, n),
        "settings that Compose has no key for; see the table below",
    ),
];

/// The values of `pull_policy`.
pub(crate) const PULL_POLICIES: [(&str, PullPolicy); 5] = [
    ("always", PullPolicy::Always),
    ("missing", PullPolicy::Missing),
    ("if_not_present", PullPolicy::Missing),
    ("build", PullPolicy::Build),
    ("never", PullPolicy::Never),
];
