//! Secrets, and the secrets and configs that a manifest declares with contents.
//!
//! Owns: sealing the contents, and choosing the version. Must not touch: what a secret holds.
//! Invariant: the contents leave the daemon only towards a node that runs a replica that needs them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{Json, extract::State, http::StatusCode};
use longshore_api::{ApplyRequest, Changed, SecretRequest, SecretRow, SecretStored, base64};
use longshore_compose::{
    Loaded,
    declarations::{Content, FileDeclaration},
};
use longshore_model::{ApiErrorCode, Command, DeploymentName, NamespaceName, SecretName, access::AccessCommand};
use longshore_store::{State as ClusterState, replicated::Dedup};

use crate::{
    api::{
        ApiError, ApiResult, ApiState, CommandResult,
        access::plain,
        deployments::NamespaceQuery,
        extract::{PathParams, QueryParams, SecretJsonBody, invalid},
    },
    node_rpc::service::{NodeRequestError, secret_purpose},
    security::auth::Caller,
};

/// Largest secret in bytes: every server keeps each version in memory.
const MAX_SECRET: usize = 512 * 1024;
/// Attempts to store a secret that others store at the same time, or whose key was just rotated.
const MAX_ATTEMPTS: usize = 10;

/// Files that were sent with a manifest, by path.
pub(crate) struct SentFiles(BTreeMap<String, Vec<u8>>);

impl SentFiles {
    pub(crate) fn of(request: &ApplyRequest) -> Result<Self, ApiError> {
        let texts = request.texts.iter().map(|(path, text)| Ok((path.clone(), text.clone().into_bytes())));
        let others = request.bytes_base64.iter().map(|(path, text)| {
            let bytes = base64::decode(text).map_err(|error| invalid(format!("`{path}`: {error}")))?;
            Ok((path.clone(), bytes))
        });
        texts.chain(others).collect::<Result<_, ApiError>>().map(Self)
    }
}

/// A secret to store.
struct Contents<'a> {
    namespace: NamespaceName,
    name: SecretName,
    /// The only deployment that may use it; `None` for the whole namespace.
    deployment: Option<DeploymentName>,
    /// Whether an operator says whom it is for.
    by_operator: bool,
    bytes: &'a [u8],
}

pub(crate) async fn list(State(api): State<Arc<ApiState>>) -> ApiResult<Vec<SecretRow>> {
    let state = api.store()?.read().await?.state;
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

pub(crate) async fn put(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
    SecretJsonBody(request): SecretJsonBody<SecretRequest>,
) -> ApiResult<SecretStored> {
    let (namespace, name) = (scope.name(), SecretName::from(name.as_str()));
    plain(namespace.as_str()).and_then(|()| plain(name.as_str()))?;
    let deployment = request.deployment.as_deref().map(DeploymentName::from);
    let bytes = request.bytes().map_err(|error| invalid(error.to_string()))?;
    let contents = Contents { namespace, name, deployment, by_operator: true, bytes: &bytes };
    let version = store(&api, &caller, &contents).await?;
    Ok(Json(SecretStored { version }))
}

pub(crate) async fn remove(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
) -> ApiResult<Changed> {
    let command = AccessCommand::RemoveSecret { namespace: scope.name(), name: name.as_str().into() };
    api.change(caller, Command::Access(Box::new(command))).await
}

/// Stores a version and returns its number.
async fn store(api: &ApiState, caller: &Caller, contents: &Contents<'_>) -> Result<u64, ApiError> {
    if contents.bytes.len() > MAX_SECRET {
        let message = format!("a secret is at most {MAX_SECRET} bytes");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, ApiErrorCode::RequestTooLarge, message));
    }
    let Contents { namespace, name, deployment, by_operator, bytes } = contents;
    for attempt in 0..MAX_ATTEMPTS {
        let keyring = api.ctx.keyring().ok_or(NodeRequestError::NotBootstrapped)?;
        let state = api.store()?.read().await?.state;
        let version = state.secret_version(namespace, name).unwrap_or(0) + 1;
        let purpose = secret_purpose(namespace.as_str(), name.as_str(), version);
        let sealed = keyring.seal(state.access().sealing_key(), &purpose, bytes);
        let command = AccessCommand::StoreSecret {
            namespace: namespace.clone(),
            name: name.clone(),
            version,
            contents: sealed.map_err(NodeRequestError::from)?,
            deployment: deployment.clone(),
            by_operator: *by_operator,
        };
        // Each attempt has its own key: under the same key a refusal would be repeated.
        let caller = caller.sub_request(&format!("{name} {attempt}"));
        match api.execute(caller, Command::Access(Box::new(command))).await {
            Ok(CommandResult { changed: Changed::Yes, dedup: Dedup::New, .. }) => return Ok(version),
            Ok(done @ CommandResult { changed: Changed::Yes, dedup: Dedup::Repeated, .. }) => {
                let state = api.read_after(&done).await?;
                return Ok(state.secret_version(namespace, name).unwrap_or(version));
            }
            // Another request took the version, or the key was rotated.
            Ok(CommandResult { changed: Changed::No, .. }) => {}
            Err(refused) if ["secret_version_regression", "key_outdated"].contains(&refused.code()) => {}
            Err(refused) => return Err(refused),
        }
    }
    let message = "other requests store this secret at the same time";
    Err(ApiError::new(StatusCode::CONFLICT, ApiErrorCode::NotReady, message))
}

/// Secrets and configs whose contents come with the manifest.
pub(crate) fn secrets_in_manifest(loaded: &Loaded) -> BTreeSet<SecretName> {
    let declared = loaded.secrets.values().chain(loaded.configs.values());
    declared.filter(|declared| declared.content != Content::Cluster).map(|declared| declared.name.clone()).collect()
}

/// Refuses names with a colon: logins to registries are stored under such names, and no manifest may read or plant one.
pub(crate) fn ensure_no_reserved_names(loaded: &Loaded) -> Result<(), ApiError> {
    let declared = loaded.secrets.values().chain(loaded.configs.values()).map(|declared| &declared.name);
    let services = loaded.spec.services.values();
    let mounted = services.clone().flat_map(|service| service.container.files.iter().map(|file| &file.name));
    let required = services.flat_map(|service| &service.secrets_required);
    match declared.chain(mounted).chain(required).find(|name| name.as_str().contains(':')) {
        None => Ok(()),
        Some(name) => {
            let message = format!("`{name}` is not a name for a secret or config of a manifest");
            Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, ApiErrorCode::ManifestInvalid, message)
                .with("hint", "leave the colon out; logins to registries are made with `longshore registry login`"))
        }
    }
}

/// Makes the services that mount such a secret require it.
pub(crate) fn require_manifest_secrets(mut loaded: Loaded) -> Loaded {
    let names = secrets_in_manifest(&loaded);
    for service in loaded.spec.services.values_mut() {
        let shown = service.container.files.iter().map(|file| file.name.clone());
        let needed: Vec<SecretName> = shown.filter(|name| names.contains(name)).collect();
        if !needed.is_empty() {
            Arc::make_mut(service).secrets_required.extend(needed);
        }
    }
    loaded
}

/// The commands that storing the new ones would amount to, for a dry run.
pub(crate) fn simulated_commands(state: &ClusterState, loaded: &Loaded) -> Vec<Command> {
    let new =
        secrets_in_manifest(loaded).into_iter().filter(|name| state.secret_version(&loaded.namespace, name).is_none());
    new.map(|name| Command::PutSecret { namespace: loaded.namespace.clone(), name, version: 1 }).collect()
}

/// Stores the secrets of a manifest whose contents changed.
pub(crate) async fn store_manifest_secrets(
    api: &ApiState,
    caller: &Caller,
    loaded: &Loaded,
    files: &SentFiles,
) -> Result<(), ApiError> {
    let mut contents_by_name: BTreeMap<SecretName, Vec<u8>> = BTreeMap::new();
    for declared in loaded.secrets.values().chain(loaded.configs.values()) {
        let Some(bytes) = contents_of(declared, loaded, files)? else { continue };
        plain(declared.name.as_str())?;
        if contents_by_name.insert(declared.name.clone(), bytes).is_some() {
            return Err(invalid_declaration(declared, "two secrets or configs have this name"));
        }
    }
    for (name, bytes) in &contents_by_name {
        let (namespace, deployment) = (loaded.namespace.clone(), Some(loaded.deployment.clone()));
        let contents = Contents { namespace, name: name.clone(), deployment, by_operator: false, bytes };
        if !is_current(api, &contents).await? {
            store(api, &caller.sub_request("secrets_in_manifest along"), &contents).await?;
        }
    }
    Ok(())
}

fn contents_of(declared: &FileDeclaration, loaded: &Loaded, files: &SentFiles) -> Result<Option<Vec<u8>>, ApiError> {
    let bytes = match &declared.content {
        Content::Cluster => return Ok(None),
        Content::Inline(text) => Some(text.clone().into_bytes()),
        Content::File(path) => files.0.get(path).cloned(),
        Content::Environment(name) => loaded.environment.get(name).map(|value| value.clone().into_bytes()),
    };
    bytes.map(Some).ok_or_else(|| invalid_declaration(declared, "its contents were not sent"))
}

fn invalid_declaration(declared: &FileDeclaration, why: &str) -> ApiError {
    let message = format!("`{}`: {why}", declared.name);
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, ApiErrorCode::ManifestInvalid, message)
}

/// Whether the newest version has these contents and this owner.
async fn is_current(api: &ApiState, contents: &Contents<'_>) -> Result<bool, ApiError> {
    let Contents { namespace, name, deployment, bytes, by_operator: _ } = contents;
    let state = api.store()?.read().await?.state;
    let Some(version) = state.secret_version(namespace, name) else { return Ok(false) };
    if state.access().owner(namespace, name) != deployment.as_ref() {
        return Ok(false);
    }
    let Some(sealed) = state.access().contents(namespace, name, version) else { return Ok(false) };
    let keyring = api.ctx.keyring().ok_or(NodeRequestError::NotBootstrapped)?;
    let purpose = secret_purpose(namespace.as_str(), name.as_str(), version);
    Ok(keyring.open(&purpose, sealed).map_err(NodeRequestError::from)? == *bytes)
}
