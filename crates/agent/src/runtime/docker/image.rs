//! Fetching an image from its registry.
//!
//! Owns: one try: credentials, progress summed over layers, and how long a silent registry is waited for.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bollard::{
    Docker as Client, auth::DockerCredentials, models::CreateImageInfo, query_parameters::CreateImageOptionsBuilder,
};
use futures_util::{FutureExt, StreamExt};
use longshore_model::container::registry_of;

use super::{chain, connect};
use crate::{
    config::DockerConfig,
    link::{ControlLink, LinkError, RegistryLogin},
    pulls::{Amount, Fetch, ImageWanted, Progress, PullNews},
};

/// A registry that says nothing for so long has lost us: the engine itself would wait for ever.
const SILENCE: Duration = Duration::from_mins(2);

pub(super) fn fetcher(config: DockerConfig, client: Arc<OnceLock<Client>>, link: Arc<dyn ControlLink>) -> Fetch {
    Arc::new(move |wanted, progress| {
        let (config, client, link) = (config.clone(), Arc::clone(&client), Arc::clone(&link));
        async move { fetch(&config, &client, &*link, &wanted, &progress).await }.boxed()
    })
}

async fn fetch(
    config: &DockerConfig,
    client: &OnceLock<Client>,
    link: &dyn ControlLink,
    wanted: &ImageWanted,
    progress: &Progress,
) -> Result<(), String> {
    let client = connect(config, client).await.map_err(|error| error.to_string())?;
    let login = login(link, &wanted.reference).await?;
    let options =
        CreateImageOptionsBuilder::new().from_image(&tagged(&wanted.reference)).platform(&wanted.platform).build();
    let mut steps = std::pin::pin!(client.create_image(Some(options), None, login));
    let mut layers: HashMap<String, Amount> = HashMap::new();
    loop {
        let step = tokio::time::timeout(SILENCE, steps.next()).await;
        match step.map_err(|_| format!("the registry has said nothing for {} s", SILENCE.as_secs()))? {
            None => return Ok(()),
            Some(Err(error)) => return Err(said(&error)),
            Some(Ok(step)) => note(&mut layers, step, progress),
        }
    }
}

/// What the registry or the engine said, without the library's words around it.
fn said(error: &bollard::errors::Error) -> String {
    match error {
        bollard::errors::Error::DockerStreamError { error } => error.clone(),
        bollard::errors::Error::DockerResponseServerError { message, .. } => message.clone(),
        other => chain(other),
    }
}

fn note(layers: &mut HashMap<String, Amount>, step: CreateImageInfo, progress: &Progress) {
    let (Some(id), Some(detail)) = (step.id, step.progress_detail) else { return };
    // Unpacking reports the same layer once more; only the way over the network is worth a figure.
    if step.status.as_deref() != Some("Downloading") {
        return;
    }
    let bytes = |amount: Option<i64>| amount.and_then(|amount| u64::try_from(amount).ok()).unwrap_or_default();
    layers.insert(id, Amount { done_bytes: bytes(detail.current), total_bytes: bytes(detail.total) });
    let sum = layers.values().fold(Amount::default(), |sum, layer| Amount {
        done_bytes: sum.done_bytes + layer.done_bytes,
        total_bytes: sum.total_bytes + layer.total_bytes,
    });
    progress.send_replace(PullNews::Fetching(sum));
}

/// How to log in, where the cluster knows. A control plane that is away must not keep a public image from being had.
async fn login(link: &dyn ControlLink, reference: &str) -> Result<Option<DockerCredentials>, String> {
    let registry = registry_of(reference).to_owned();
    match link.registry_login(registry.clone()).await {
        Ok(None) | Err(LinkError::Away(_)) => Ok(None),
        Ok(Some(RegistryLogin { username, password })) => Ok(Some(DockerCredentials {
            username: Some(username),
            password: Some(password),
            serveraddress: Some(registry),
            ..DockerCredentials::default()
        })),
        Err(error @ LinkError::Refused(_)) => Err(error.to_string()),
    }
}

/// Without a tag the engine would fetch every tag there is.
fn tagged(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if last.contains([':', '@']) { reference.to_owned() } else { format!("{reference}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tag_is_fetched_and_not_all() {
        assert_eq!(tagged("host:5000/web"), "host:5000/web:latest");
        assert_eq!(tagged("host:5000/web:1"), "host:5000/web:1");
        assert_eq!(tagged("web@sha256:00"), "web@sha256:00");
    }
}
