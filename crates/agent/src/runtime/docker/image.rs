//! Pulling an image from its registry.
//!
//! Owns: one try: credentials, progress summed over layers, and the time-out for a registry that stops sending.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bollard::{auth::DockerCredentials, models::CreateImageInfo, query_parameters::CreateImageOptionsBuilder};
use futures_util::{FutureExt, StreamExt};
use longshore_model::{container::registry_of, error_chain};

use super::connection::Connection;
use crate::{
    control_link::{ControlLink, LinkError, RegistryLogin},
    pulls::{ImageRequest, PullFn, PullProgress, PullStatus, PullStatusSender},
};

/// Longest time without progress; the engine itself has no limit.
const STALLED: Duration = Duration::from_mins(2);

pub(super) fn puller(connection: Arc<Connection>, link: Arc<dyn ControlLink>) -> PullFn {
    Arc::new(move |image, status| {
        let (connection, link) = (Arc::clone(&connection), Arc::clone(&link));
        async move { pull(&connection, &*link, &image, &status).await }.boxed()
    })
}

async fn pull(
    connection: &Connection,
    link: &dyn ControlLink,
    image: &ImageRequest,
    status: &PullStatusSender,
) -> Result<(), String> {
    let client = connection.client().await.map_err(|error| error.to_string())?;
    let login = login(link, &image.reference).await?;
    let options =
        CreateImageOptionsBuilder::new().from_image(&tagged(&image.reference)).platform(&image.platform).build();
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
