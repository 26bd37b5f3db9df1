//! The environment of a story: a folder, a cluster id, and an agent with a fake control plane.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv6Addr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use longshore_agent::{Agent, AgentConfig, AgentHandle, DockerConfig, ExecConfig};
use longshore_model::{
    Assignment, Attempt, Desired, Driver, Generation, GroupKey, ReplicaKey, RevisionNumber, ServiceSpec, SlotIndex,
    SlotKey, Time, Work, container::Healthcheck, replica::Reservation, service::SpecHash,
};
use tempfile::TempDir;

use crate::{
    docker_engine::{Engine, IMAGE},
    fake_control_plane::{ControlHandle, FakeControlPlane},
};

#[derive(Clone)]
pub(crate) struct TestEnv {
    folder: Arc<TempDir>,
    engine: Option<Arc<Engine>>,
    /// Also the name of the deployment, so that stories on the same engine use different objects.
    pub(crate) cluster_id: String,
}

impl TestEnv {
    pub(crate) fn new(story: &str, engine: Option<&Arc<Engine>>) -> Self {
        let mut hasher = DefaultHasher::new();
        (story, std::process::id()).hash(&mut hasher);
        Self {
            folder: Arc::new(TempDir::with_prefix("longshore-node-").unwrap()),
            engine: engine.cloned(),
            cluster_id: format!("c{:012x}", hasher.finish() & 0xffff_ffff_ffff),
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_deref().expect("the runner gives an engine to stories that need one")
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Settings of a node with all available drivers.
    pub(crate) fn config(&self) -> AgentConfig {
        let mut config = AgentConfig::new("n1".into(), &*self.cluster_id, self.folder.path().join("agent"));
        config.docker = self.engine.as_ref().map(|engine| DockerConfig {
            ingress_bind: IpAddr::V4(engine.inside),
            ..DockerConfig::at(engine.socket())
        });
        let shim = std::env::current_exe().unwrap().to_string_lossy().into_owned();
        config.exec = Some(ExecConfig { shim: vec![shim, "shim".to_owned()] });
        config.heartbeat_interval = Duration::from_millis(200);
        config.status_interval = Duration::from_secs(1);
        // Most stories send no requests to their replicas.
        config.deregistration_delay = Duration::ZERO;
        config
    }

    pub(crate) fn node(&self) -> Node {
        Node::start(self.config(), FakeControlPlane::default())
    }

    /// Work of a service that runs a shell script. `change` edits the spec before it is hashed.
    pub(crate) fn work(
        &self,
        driver: Driver,
        service: &str,
        script: &str,
        change: impl FnOnce(&mut ServiceSpec),
    ) -> Work {
        let mut spec = ServiceSpec { driver, ..ServiceSpec::default() };
        IMAGE.clone_into(&mut spec.container.image);
        spec.container.command = Some(["sh", "-c", script].map(str::to_owned).to_vec());
        spec.container.stop_grace_period = Some(Duration::from_secs(3));
        change(&mut spec);
        let deployment = self.cluster_id.as_str().into();
        let group = GroupKey { namespace: "default".into(), deployment, service: service.into() };
        let key = ReplicaKey { group, slot: SlotKey::Index(SlotIndex(0)), generation: Generation(1) };
        with_spec(key, spec)
    }

    /// Ids of this story's containers, running or not.
    pub(crate) fn containers(&self) -> Vec<String> {
        let filter = format!("label=longshore.cluster={}", self.cluster_id);
        self.engine().docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]).lines().map(str::to_owned).collect()
    }

    /// Id and start time of a replica's container or process, which change with every restart.
    pub(crate) fn identity(&self, work: &Work) -> String {
        match work.spec.driver {
            Driver::Exec => {
                let status = self.folder().join("agent/exec").join(work.container_name()).join("status.json");
                std::fs::read_to_string(status).unwrap()
            }
            Driver::Docker | Driver::Microvm => {
                self.engine().inspect(&work.container_name(), "{{.Id}} {{.State.StartedAt}} {{.State.Pid}}")
            }
        }
    }

    /// Removes everything a story has left behind: with an empty snapshot all its replicas are orphans.
    pub(crate) async fn clear(&self) {
        let node = Node::start(self.config(), FakeControlPlane::restored());
        node.control.wait_settled().await;
        let _ = rustix::mount::unmount(self.folder().join("agent/secrets"), rustix::mount::UnmountFlags::DETACH);
        node.agent.unwrap().shut_down();
    }
}

pub(crate) fn with_spec(key: ReplicaKey, spec: ServiceSpec) -> Work {
    let mut hasher = DefaultHasher::new();
    format!("{spec:?}").hash(&mut hasher);
    let reservation =
        Reservation { spec_hash: SpecHash(format!("{:016x}", hasher.finish()).into()), ..Reservation::default() };
    Work {
        granted: None,
        key,
        attempt: Attempt(0),
        revision: RevisionNumber(1),
        spec: Arc::new(spec),
        assignment: Assignment {
            node: "n1".into(),
            address: Ipv6Addr::LOCALHOST,
            placed_at: Time(0),
            reservation: Arc::new(reservation),
            devices: BTreeMap::new(),
        },
        desired: Desired::Run,
        networks: BTreeMap::new(),
        volumes: BTreeMap::new(),
    }
}

/// The same slot's next generation, with a changed spec.
pub(crate) fn next_generation(work: &Work, change: impl FnOnce(&mut ServiceSpec)) -> Work {
    let mut spec = (*work.spec).clone();
    change(&mut spec);
    let generation = Generation(work.key.generation.0 + 1);
    with_spec(ReplicaKey { generation, ..work.key.clone() }, spec)
}

/// The same work in another slot.
pub(crate) fn in_slot(work: &Work, index: u32) -> Work {
    let mut other = work.clone();
    other.key.slot = SlotKey::Index(SlotIndex(index));
    other
}

pub(crate) fn check(script: &str, retries: u32) -> Healthcheck {
    Healthcheck {
        test: vec!["CMD-SHELL".to_owned(), script.to_owned()],
        interval: Duration::from_millis(300),
        timeout: Duration::from_secs(5),
        retries,
        start_period: Duration::ZERO,
        start_interval: Duration::from_millis(300),
    }
}

/// An agent and its control plane.
pub(crate) struct Node {
    pub(crate) control: Arc<FakeControlPlane>,
    pub(crate) agent: Option<AgentHandle>,
    pub(crate) config: AgentConfig,
}

impl Node {
    pub(crate) fn start(config: AgentConfig, control: FakeControlPlane) -> Self {
        let control = Arc::new(control);
        let agent = Agent::start(&config, Arc::new(ControlHandle(Arc::clone(&control)))).unwrap();
        Self { control, agent: Some(agent), config }
    }

    pub(crate) fn agent(&self) -> &AgentHandle {
        self.agent.as_ref().unwrap()
    }

    /// Ends the agent without touching what it runs.
    pub(crate) fn stop_agent(&mut self) {
        self.agent.take().unwrap().shut_down();
    }

    pub(crate) fn start_agent(&mut self) {
        self.agent = Some(Agent::start(&self.config, Arc::new(ControlHandle(Arc::clone(&self.control)))).unwrap());
    }
}
