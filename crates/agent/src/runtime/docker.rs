//! Containers on a Docker Engine, 20.10 or newer.
//!
//! Owns: the connection, the time every call may take, and what the engine's answers mean.
//! Must not touch: containers, networks and volumes that do not carry this cluster's label, whatever they are called.
//! Invariant: no call waits for ever, and a call that timed out is treated as one whose outcome is unknown.

mod attach;
mod create;
mod events;
mod facts;
mod image;
mod labels;
mod look;
mod mounts;
mod networks;
mod stats;

pub(crate) use facts::EngineFacts;

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bollard::{
    Docker as Client,
    errors::Error,
    models::ContainerSummary,
    query_parameters::{
        ListContainersOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions, StopContainerOptionsBuilder,
    },
};
use longshore_model::{
    Driver, NodeName, Work, WorkKey,
    container::{Hook, PullPolicy},
    work::container_name,
};

use tokio::task::AbortHandle;

use super::{Ending, Found, Handle, PlacedFile, Pokes, RuntimeError, Seen, Spent};
use crate::{
    backoff::Backoff,
    config::{AgentConfig, DockerConfig},
    link::ControlLink,
    marks::Marks,
    pulls::{ImageWanted, Pulls, Ticket},
};

/// Time a call may take that only reads or writes the engine's books.
const SHORT: Duration = Duration::from_secs(20);
/// Time a call may take that makes or starts something; a busy disk takes long, and giving up early leaves half a thing.
const LONG: Duration = Duration::from_mins(2);
/// What the client library itself may wait. Ours are the time-outs that count; this one only must not be shorter.
const CLIENT_SECS: u64 = 24 * 3600;

/// The engine of this machine.
pub(crate) struct Docker {
    client: Arc<OnceLock<Client>>,
    config: DockerConfig,
    node: NodeName,
    cluster_id: String,
    pulls: Pulls,
    marks: Marks,
    making_networks: tokio::sync::Mutex<()>,
    listener: Option<AbortHandle>,
}

impl Drop for Docker {
    fn drop(&mut self) {
        self.listener.iter().for_each(AbortHandle::abort);
    }
}

impl std::fmt::Debug for Docker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Docker({})", self.config.socket.display())
    }
}

impl Docker {
    pub(crate) fn new(
        agent: &AgentConfig,
        config: DockerConfig,
        link: Arc<dyn ControlLink>,
        pokes: Arc<Pokes>,
        marks: Marks,
    ) -> Self {
        let client = Arc::new(OnceLock::new());
        let mut docker = Self {
            pulls: Pulls::new(
                agent.parallel_pulls,
                Backoff::for_pulls(),
                image::fetcher(config.clone(), Arc::clone(&client), link),
            ),
            client,
            config,
            marks,
            making_networks: tokio::sync::Mutex::default(),
            listener: None,
            node: agent.node.clone(),
            cluster_id: agent.cluster_id.clone(),
        };
        let filters = docker.own();
        let listening = events::follow(docker.config.clone(), Arc::clone(&docker.client), filters, pokes);
        docker.listener = Some(tokio::spawn(listening).abort_handle());
        docker
    }

    pub(crate) async fn answers(&self) -> bool {
        let Ok(client) = self.client().await else { return false };
        tokio::time::timeout(Duration::from_secs(2), client.ping()).await.is_ok_and(|pong| pong.is_ok())
    }

    pub(crate) async fn list(&self) -> Result<Vec<Found>, RuntimeError> {
        self.found(self.own()).await
    }

    pub(crate) async fn attempts(&self, key: &WorkKey) -> Result<Vec<Found>, RuntimeError> {
        let mut filters = self.own();
        filters.entry("label".to_owned()).or_default().extend(labels::of_key(key));
        self.found(filters).await
    }

    /// The image, on its way; `None` where it is here already or must not be fetched.
    pub(crate) async fn fetch(&self, work: &Work) -> Result<Option<Ticket>, RuntimeError> {
        let container = &work.spec.container;
        let wanted = ImageWanted { reference: container.image.clone(), platform: create::platform(&work.spec) };
        let is_here = match self.call(SHORT, async |client| client.inspect_image(&wanted.reference).await).await {
            Ok(_) => true,
            Err(RuntimeError::Gone) => false,
            Err(error) => return Err(error),
        };
        match (container.pull_policy.unwrap_or(PullPolicy::Missing), is_here) {
            (PullPolicy::Always, _) | (PullPolicy::Missing, false) => Ok(Some(self.pulls.join(&wanted))),
            (PullPolicy::Missing | PullPolicy::Never, true) => Ok(None),
            (PullPolicy::Never, false) => Err(RuntimeError::Refused(format!(
                "image `{}` is not on this node and its pull_policy is never",
                wanted.reference
            ))),
        }
    }

    pub(crate) async fn make(&self, work: &Work, files: &[PlacedFile]) -> Result<Handle, RuntimeError> {
        let volumes = self.volumes(work).await?;
        let networks = self.networks(work).await?;
        self.create(work, files, &volumes, &networks).await
    }

    pub(crate) async fn start(&self, handle: &Handle) -> Result<(), RuntimeError> {
        self.call(LONG, async |client| client.start_container(&handle.0, None::<StartContainerOptions>).await).await
    }

    pub(crate) async fn look(&self, handle: &Handle) -> Result<Seen, RuntimeError> {
        let found = self.call(SHORT, async |client| client.inspect_container(&handle.0, None).await).await?;
        Ok(look::seen(&found))
    }

    pub(crate) async fn end(&self, handle: &Handle, ending: &Ending) -> Result<(), RuntimeError> {
        // The signal is the container's own since it was made; what can differ is the time it is given.
        let secs = i32::try_from(ending.grace.as_millis().div_ceil(1000)).unwrap_or(i32::MAX);
        let options = StopContainerOptionsBuilder::new().t(secs).build();
        match self.call(ending.grace + LONG, async |client| client.stop_container(&handle.0, Some(options)).await).await
        {
            Ok(()) | Err(RuntimeError::Gone) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn remove(&self, handle: &Handle) -> Result<(), RuntimeError> {
        // `v` takes the volumes without a name along; those with one stay whatever happens.
        let options = RemoveContainerOptionsBuilder::new().v(true).force(true).build();
        match self.call(LONG, async |client| client.remove_container(&handle.0, Some(options)).await).await {
            Ok(()) | Err(RuntimeError::Gone) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn hook(&self, handle: &Handle, hook: &Hook) -> Result<i64, RuntimeError> {
        attach::hook(self, handle, hook).await
    }

    pub(crate) async fn spent(&self, handle: &Handle) -> Result<Spent, RuntimeError> {
        stats::spent(self, handle).await
    }

    /// What marks a container as this node's own.
    fn own(&self) -> HashMap<String, Vec<String>> {
        let own = [(labels::CLUSTER, self.cluster_id.as_str()), (labels::NODE, self.node.as_str())];
        HashMap::from([("label".to_owned(), own.map(|(name, value)| format!("{name}={value}")).to_vec())])
    }

    async fn found(&self, filters: HashMap<String, Vec<String>>) -> Result<Vec<Found>, RuntimeError> {
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let list = self.call(LONG, async |client| client.list_containers(Some(options)).await).await?;
        let ours = list.iter().filter_map(|container| Some((container, labels::found(container)?)));
        Ok(ours.filter(|(container, found)| self.was_made_here(container, found)).map(|(_, found)| found).collect())
    }

    /// Labels alone prove nothing: an image that somebody made of a container of ours hands them on to whatever is run from
    /// it. Ours has the name it was given, or is the very one that was noted when it was made, whatever it is called now.
    fn was_made_here(&self, container: &ContainerSummary, found: &Found) -> bool {
        let name = container_name(&found.key, found.attempt);
        let given = [self.own_name(&name), name.clone()];
        let called =
            |given: &String| container.names.iter().flatten().any(|name| name.trim_start_matches('/') == given);
        given.iter().any(called) || self.marks.is_of(&name, &found.handle)
    }

    async fn client(&self) -> Result<Client, RuntimeError> {
        connect(&self.config, &self.client).await
    }

    /// Makes one call within its time.
    async fn call<T>(
        &self,
        limit: Duration,
        ask: impl AsyncFnOnce(Client) -> Result<T, Error>,
    ) -> Result<T, RuntimeError> {
        let client = self.client().await?;
        within(limit, ask(client)).await
    }
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, Error>>) -> Result<T, RuntimeError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.or_else(|error| judged(error)),
        Err(_) => Err(away(&format!("no answer within {} s", limit.as_secs()))),
    }
}

/// Connects once, with the version both sides speak. Done when first needed: an agent starts without its engine.
async fn connect(config: &DockerConfig, client: &OnceLock<Client>) -> Result<Client, RuntimeError> {
    if let Some(client) = client.get() {
        return Ok(client.clone());
    }
    let socket = config.socket.to_string_lossy();
    let fresh = Client::connect_with_unix(&socket, CLIENT_SECS, bollard::API_DEFAULT_VERSION)
        .map_err(|error| away(&error.to_string()))?;
    let fresh = within(SHORT, fresh.negotiate_version()).await?;
    Ok(client.get_or_init(|| fresh).clone())
}

fn away(reason: &str) -> RuntimeError {
    RuntimeError::Away { driver: Driver::Docker, reason: reason.to_owned() }
}

/// What an error of the engine means for whoever asked.
fn judged<T>(error: Error) -> Result<T, RuntimeError> {
    // The engine has no code of its own for this, so that its words are all there is to go by.
    let lacks_company = |said: &str| said.contains("non running container") || said.contains("namespace of container");
    Err(match error {
        Error::DockerResponseServerError { message, .. } if lacks_company(&message) => RuntimeError::NotYet(message),
        Error::DockerResponseServerError { status_code: 404, message } if message.contains("o such container") => {
            RuntimeError::Gone
        }
        Error::DockerResponseServerError { status_code: 404, message } if message.contains("o such image") => {
            RuntimeError::Gone
        }
        Error::DockerResponseServerError { message, .. } => RuntimeError::Refused(message),
        other => away(&chain(&other)),
    })
}

/// An error with all its causes: the library's own words are only `error in the client`.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
