//! Secrets over HTTP, and those that a manifest brings along.
//!
//! Owns: sealing what is sent, and which version it becomes. Must not touch: what is in a secret, beyond that.
//! Invariant: what is in a secret leaves the daemon only towards a node that runs a replica that needs it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{Json, extract::State, http::StatusCode};
use longshore_api::{ApplyRequest, Changed, SecretRequest, SecretRow, SecretStored, bytes};
use longshore_compose::{
    Loaded,
    scope::{Content, FileDeclaration},
};
use longshore_model::{Command, DeploymentName, NamespaceName, RequestCode, SecretName, access::AccessCommand};
use longshore_store::{State as Kept, replicated::Novelty};

use super::{
    Answer, CarriedOut, Desk, Refusal,
    access::plain,
    caller::Caller,
    deployments::Scope,
    extract::{Asked, Named, Quiet, invalid},
};
use crate::reception::{ReceptionError, secret_purpose};

/// Largest secret: each of its versions goes into every server's memory.
const LARGEST_SECRET: usize = 512 * 1024;
/// Tries to store a secret that others store at the same time, or that was sealed with a key that has just been replaced.
const TRIES: usize = 10;

/// Files that were sent along with a manifest.
pub(super) struct Sent(BTreeMap<String, Vec<u8>>);

impl Sent {
    pub(super) fn of(request: &ApplyRequest) -> Result<Self, Refusal> {
        let texts = request.texts.iter().map(|(path, text)| Ok((path.clone(), text.clone().into_bytes())));
        let others = request.bytes_base64.iter().map(|(path, text)| {
            let bytes = bytes::of_text(text).map_err(|error| invalid(format!("`{path}`: {error}")))?;
            Ok((path.clone(), bytes))
        });
        texts.chain(others).collect::<Result<_, Refusal>>().map(Self)
    }
}

/// What a secret shall hold, and for whom.
struct Contents<'a> {
    namespace: NamespaceName,
    name: SecretName,
    /// The only deployment that may use it; every one of the namespace where there is none.
    deployment: Option<DeploymentName>,
    bytes: &'a [u8],
}

pub(super) async fn list(State(desk): State<Arc<Desk>>) -> Answer<Vec<SecretRow>> {
    let state = desk.store()?.read().await?.state;
    let rows = state.secrets().map(|(namespace, name, version)| SecretRow {
        namespace: namespace.to_string(),
        name: name.to_string(),
        version,
        deployment: state.access().owner(namespace, name).map(ToString::to_string),
        used_by: state
            .users_of_secret(namespace, name)
            .map(|group| format!("{}/{}", group.deployment, group.service))
            .collect(),
    });
    Ok(Json(rows.collect()))
}

pub(super) async fn put(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(name): Named<String>,
    Asked(scope): Asked<Scope>,
    Quiet(request): Quiet<SecretRequest>,
) -> Answer<SecretStored> {
    let (namespace, name) = (scope.name(), SecretName::from(name.as_str()));
    plain(namespace.as_str()).and_then(|()| plain(name.as_str()))?;
    let deployment = request.deployment.as_deref().map(DeploymentName::from);
    let bytes = request.bytes().map_err(|error| invalid(error.to_string()))?;
    let contents = Contents { namespace, name, deployment, bytes: &bytes };
    let version = store(&desk, &caller, &contents).await?;
    Ok(Json(SecretStored { version }))
}

pub(super) async fn remove(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(name): Named<String>,
    Asked(scope): Asked<Scope>,
) -> Answer<Changed> {
    let command = AccessCommand::RemoveSecret { namespace: scope.name(), name: name.as_str().into() };
    desk.change(caller, Command::Access(Box::new(command))).await
}

/// Stores a version, and says which.
async fn store(desk: &Desk, caller: &Caller, contents: &Contents<'_>) -> Result<u64, Refusal> {
    if contents.bytes.len() > LARGEST_SECRET {
        let message = format!("a secret is at most {LARGEST_SECRET} bytes");
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, RequestCode::RequestTooLarge, message));
    }
    let Contents { namespace, name, deployment, bytes } = contents;
    for attempt in 0..TRIES {
        let vault = desk.hub.vault().ok_or(ReceptionError::NotFounded)?;
        let state = desk.store()?.read().await?.state;
        let version = state.secret_version(namespace, name).unwrap_or(0) + 1;
        let purpose = secret_purpose(namespace.as_str(), name.as_str(), version);
        let sealed = vault.seal(state.access().sealing_key(), &purpose, bytes);
        let command = AccessCommand::StoreSecret {
            namespace: namespace.clone(),
            name: name.clone(),
            version,
            contents: sealed.map_err(ReceptionError::from)?,
            deployment: deployment.clone(),
        };
        // Every try is a command of its own: one that was refused is refused again under its key.
        let caller = caller.part(&format!("{name} {attempt}"));
        match desk.carry_out(caller, Command::Access(Box::new(command))).await {
            Ok(CarriedOut { changed: Changed::Yes, novelty: Novelty::New, .. }) => return Ok(version),
            Ok(done @ CarriedOut { changed: Changed::Yes, novelty: Novelty::Repeated, .. }) => {
                let state = desk.read_after(&done).await?;
                return Ok(state.secret_version(namespace, name).unwrap_or(version));
            }
            // A version that somebody else has just given to something else, or a key that was just replaced.
            Ok(CarriedOut { changed: Changed::No, .. }) => {}
            Err(refused) if ["secret_steps_back", "key_outdated"].contains(&refused.code()) => {}
            Err(refused) => return Err(refused),
        }
    }
    let message = "others store this secret at the same time";
    Err(Refusal::new(StatusCode::CONFLICT, RequestCode::NotReady, message))
}

/// Secrets and configs whose contents come with the manifest.
pub(super) fn brought(loaded: &Loaded) -> BTreeSet<SecretName> {
    let declared = loaded.secrets.values().chain(loaded.configs.values());
    declared.filter(|declared| declared.content != Content::Cluster).map(|declared| declared.name.clone()).collect()
}

/// Has the services that show what the manifest brings along need it.
pub(super) fn require_brought(mut loaded: Loaded) -> Loaded {
    let brought = brought(&loaded);
    for service in loaded.spec.services.values_mut() {
        let shown = service.container.files.iter().map(|file| file.name.clone());
        let needed: Vec<SecretName> = shown.filter(|name| brought.contains(name)).collect();
        if !needed.is_empty() {
            Arc::make_mut(service).secrets_required.extend(needed);
        }
    }
    loaded
}

/// What storing them would come to, for those that are new.
pub(super) fn supposed(state: &Kept, loaded: &Loaded) -> Vec<Command> {
    let new = brought(loaded).into_iter().filter(|name| state.secret_version(&loaded.namespace, name).is_none());
    new.map(|name| Command::PutSecret { namespace: loaded.namespace.clone(), name, version: 1 }).collect()
}

/// Stores what a manifest brings along, where it is news.
pub(super) async fn bring_along(desk: &Desk, caller: &Caller, loaded: &Loaded, files: &Sent) -> Result<(), Refusal> {
    let mut brought: BTreeMap<SecretName, Vec<u8>> = BTreeMap::new();
    for declared in loaded.secrets.values().chain(loaded.configs.values()) {
        let Some(bytes) = contents_of(declared, loaded, files)? else { continue };
        plain(declared.name.as_str())?;
        if brought.insert(declared.name.clone(), bytes).is_some() {
            return Err(unclear(declared, "two secrets or configs have this name"));
        }
    }
    for (name, bytes) in &brought {
        let (namespace, deployment) = (loaded.namespace.clone(), Some(loaded.deployment.clone()));
        let contents = Contents { namespace, name: name.clone(), deployment, bytes };
        if !is_so(desk, &contents).await? {
            store(desk, &caller.part("brought along"), &contents).await?;
        }
    }
    Ok(())
}

fn contents_of(declared: &FileDeclaration, loaded: &Loaded, files: &Sent) -> Result<Option<Vec<u8>>, Refusal> {
    let bytes = match &declared.content {
        Content::Cluster => return Ok(None),
        Content::Inline(text) => Some(text.clone().into_bytes()),
        Content::File(path) => files.0.get(path).cloned(),
        Content::Environment(name) => loaded.environment.get(name).map(|value| value.clone().into_bytes()),
    };
    bytes.map(Some).ok_or_else(|| unclear(declared, "its contents were not sent along"))
}

fn unclear(declared: &FileDeclaration, why: &str) -> Refusal {
    let message = format!("`{}`: {why}", declared.name);
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, RequestCode::ManifestInvalid, message)
}

/// Whether the newest version holds just that, for just that deployment.
async fn is_so(desk: &Desk, contents: &Contents<'_>) -> Result<bool, Refusal> {
    let Contents { namespace, name, deployment, bytes } = contents;
    let state = desk.store()?.read().await?.state;
    let Some(version) = state.secret_version(namespace, name) else { return Ok(false) };
    if state.access().owner(namespace, name) != deployment.as_ref() {
        return Ok(false);
    }
    let Some(sealed) = state.access().contents(namespace, name, version) else { return Ok(false) };
    let vault = desk.hub.vault().ok_or(ReceptionError::NotFounded)?;
    let purpose = secret_purpose(namespace.as_str(), name.as_str(), version);
    Ok(vault.open(&purpose, sealed).map_err(ReceptionError::from)? == *bytes)
}
