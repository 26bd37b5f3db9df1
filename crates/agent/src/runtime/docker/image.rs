//! The image of a replica: looked up on the engine, else pulled from its registry.
//!
//! Owns: whether a start needs a pull, and one try of it: credentials, progress summed over layers, and the time-out for
//! a registry that stops sending.
//! Invariant: every try looks at the engine first, so an image that was built or loaded meanwhile ends the wait; a
//! replica whose image was resolved runs exactly that image.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bollard::{
    Docker as Client,
    auth::DockerCredentials,
    models::CreateImageInfo,
    query_parameters::{CreateImageOptionsBuilder, TagImageOptionsBuilder},
};
use futures_util::{FutureExt, StreamExt};
use longshore_model::{
    ResolvedImage, Work,
    container::{PullPolicy, registry_of},
    error_chain,
    image::repository_of,
};

use super::{Docker, SHORT, connection::Connection, create, within};
use crate::{
    control_link::{ControlLink, LinkError, RegistryLogin},
    pulls::{ImageRequest, IsPresentFn, PullFn, PullHandle, PullProgress, PullStatus, PullStatusSender, Refresh},
    runtime::RuntimeError,
};

/// Longest time without progress; the engine itself has no limit.
const STALLED: Duration = Duration::from_mins(2);

pub(super) fn puller(connection: Arc<Connection>, link: Arc<dyn ControlLink>) -> PullFn {
    Arc::new(move |image, status| {
        let (connection, link) = (Arc::clone(&connection), Arc::clone(&link));
        async move { pull(&connection, &*link, &image, &status).await }.boxed()
    })
}

/// Whether the engine has an image, as far as it answers.
pub(super) fn presence(connection: Arc<Connection>) -> IsPresentFn {
    Arc::new(move |image| {
        let connection = Arc::clone(&connection);
        async move {
            let Ok(client) = connection.client().await else { return false };
            is_present(&client, image.name()).await.unwrap_or(false)
        }
        .boxed()
    })
}

/// The image to create a replica's container from.
pub(super) fn to_run(work: &Work) -> &str {
    let resolved = work.assignment.reservation.resolved_image.as_ref();
    resolved.map_or(&*work.spec.container.image, |image| &*image.0)
}

impl Docker {
    /// Begins or joins the pull of the work's image; `None` if the engine has it.
    pub(super) async fn join_pull(&self, work: &Work) -> Result<Option<PullHandle>, RuntimeError> {
        let container = &work.spec.container;
        let resolved = work.assignment.reservation.resolved_image.clone();
        let policy = container.pull_policy.unwrap_or(PullPolicy::Missing);
        // A resolved image was refreshed when it was resolved.
        let refresh = match (policy, &resolved) {
            (PullPolicy::Always, None) => Refresh::Always,
            _ => Refresh::IfAbsent,
        };
        let image = ImageRequest {
            reference: container.image.clone(),
            platform: create::platform(&work.spec),
            resolved,
            refresh,
        };
        if refresh == Refresh::IfAbsent {
            match self.call(SHORT, async |client| client.inspect_image(to_run(work)).await).await {
                Ok(_) => return Ok(None),
                Err(RuntimeError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        if policy == PullPolicy::Never {
            let reason = format!("image `{}` is not on this node and its pull_policy is never", image.reference);
            return Err(RuntimeError::Refused(reason));
        }
        Ok(Some(self.pulls.join(&image)))
    }
}

async fn is_present(client: &Client, image: &str) -> Result<bool, RuntimeError> {
    match within(SHORT, client.inspect_image(image)).await {
        Ok(_) => Ok(true),
        Err(RuntimeError::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// One try: the engine is looked at first, since the image may have been built or loaded meanwhile.
async fn pull(
    connection: &Connection,
    link: &dyn ControlLink,
    image: &ImageRequest,
    status: &PullStatusSender,
) -> Result<(), String> {
    let client = connection.client().await.map_err(|error| error.to_string())?;
    let present = is_present(&client, image.name()).await.map_err(|error| error.to_string())?;
    match (&image.resolved, image.refresh) {
        (_, Refresh::IfAbsent) if present => Ok(()),
        (Some(resolved), _) if !resolved.is_pullable() => Err(format!(
            "the image {} was built or loaded on a machine and comes from no registry; build or load it here, or push it \
             and apply again",
            short_id(&resolved.0)
        )),
        (Some(resolved), _) => {
            download(&client, link, &resolved.0, image, status).await?;
            tag(&client, resolved, &image.reference).await;
            Ok(())
        }
        (None, _) => match download(&client, link, &tagged(&image.reference), image, status).await {
            // Offline is no error where the image is there.
            Err(reason) if present => {
                tracing::warn!(image = image.reference, reason, "the image was not refreshed; the local one is used");
                Ok(())
            }
            downloaded => downloaded,
        },
    }
}

/// `sha256:` and the twelve digits that people know an image by.
fn short_id(id: &str) -> &str {
    id.get(..19).unwrap_or(id)
}

/// Names a pulled digest as the manifest does, so that the engine's own lists show it. The container does not need it.
async fn tag(client: &Client, image: &ResolvedImage, reference: &str) {
    let tagged = tagged(reference);
    let Some(tag) = tagged.strip_prefix(repository_of(reference)).and_then(|rest| rest.strip_prefix(':')) else {
        return;
    };
    if tag.contains('@') {
        return;
    }
    let options = TagImageOptionsBuilder::new().repo(repository_of(reference)).tag(tag).build();
    if let Err(error) = within(SHORT, client.tag_image(&image.0, Some(options))).await {
        tracing::debug!(reference, %error, "the pulled image was not tagged");
    }
}

async fn download(
    client: &Client,
    link: &dyn ControlLink,
    name: &str,
    image: &ImageRequest,
    status: &PullStatusSender,
) -> Result<(), String> {
    let login = login(link, &image.reference).await?;
    let options = CreateImageOptionsBuilder::new().from_image(name).platform(&image.platform).build();
    let mut steps = std::pin::pin!(client.create_image(Some(options), None, login));
    let mut layers: HashMap<String, PullProgress> = HashMap::new();
    loop {
        let step = tokio::time::timeout(STALLED, steps.next()).await;
        match step.map_err(|_| format!("the registry has sent nothing for {} s", STALLED.as_secs()))? {
            None => return Ok(()),
            Some(Err(error)) => return Err(message(&error)),
            Some(Ok(step)) => record(&mut layers, step, status),
        }
    }
}

/// The message of the registry or the engine, without the library's prefix.
fn message(error: &bollard::errors::Error) -> String {
    match error {
        bollard::errors::Error::DockerStreamError { error } => error.clone(),
        bollard::errors::Error::DockerResponseServerError { message, .. } => message.clone(),
        other => error_chain(other),
    }
}

fn record(layers: &mut HashMap<String, PullProgress>, step: CreateImageInfo, status: &PullStatusSender) {
    let (Some(id), Some(detail)) = (step.id, step.progress_detail) else { return };
    // Extracting reports the same layer again; only the download counts.
    if step.status.as_deref() != Some("Downloading") {
        return;
    }
    let bytes = |amount: Option<i64>| amount.and_then(|amount| u64::try_from(amount).ok()).unwrap_or_default();
    layers.insert(id, PullProgress { done_bytes: bytes(detail.current), total_bytes: bytes(detail.total) });
    let sum = layers.values().fold(PullProgress::default(), |sum, layer| PullProgress {
        done_bytes: sum.done_bytes + layer.done_bytes,
        total_bytes: sum.total_bytes + layer.total_bytes,
    });
    status.send_replace(PullStatus::Pulling(sum));
}

/// The cluster's credentials for the registry. `None` also if the control plane is unreachable, so that public images
/// can still be pulled.
async fn login(link: &dyn ControlLink, reference: &str) -> Result<Option<DockerCredentials>, String> {
    let registry = registry_of(reference).to_owned();
    match link.registry_login(registry.clone()).await {
        Ok(None) | Err(LinkError::Unreachable(_)) => Ok(None),
        Ok(Some(RegistryLogin { username, password })) => Ok(Some(DockerCredentials {
            username: Some(username),
            password: Some(password),
            serveraddress: Some(registry),
            ..DockerCredentials::default()
        })),
        Err(error @ LinkError::Refused(_)) => Err(error.to_string()),
    }
}

/// Adds `:latest` to a reference without tag and digest, for which the engine would pull every tag.
fn tagged(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if last.contains([':', '@']) { reference.to_owned() } else { format!("{reference}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_without_a_tag_means_latest() {
        assert_eq!(tagged("host:5000/web"), "host:5000/web:latest");
        assert_eq!(tagged("host:5000/web:1"), "host:5000/web:1");
        assert_eq!(tagged("web@sha256:00"), "web@sha256:00");
    }
}
