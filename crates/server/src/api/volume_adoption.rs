//! Volumes that Compose made, met by a deployment of the same name.
//!
//! Owns: when such a volume is asked about, and what adopting it means: its engine name, and its node as the home.
//! Must not touch: the data. Invariant: a volume of Compose on an engine that answers is never silently replaced by an
//! empty one; one that is silent is not waited for, and named. Once a volume is recorded, its record says what it is called.

use axum::http::StatusCode;
use longshore_api::ComposeVolumes;
use longshore_model::{
    ApiErrorCode, DeploymentSpec, NodeName, VolumeKey, VolumeName,
    service::{ServiceSpec, VolumeSpec},
};
use longshore_store::State;

use crate::{
    api::{ApiError, image_resolution::Target},
    node_rpc::engine_query::EngineAnswers,
};

/// A volume that Compose made for this deployment's name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    /// The key in the manifest.
    key: String,
    /// Its name in the engine.
    engine_name: String,
    node: NodeName,
    own: OwnVolume,
}

/// Whether the deployment has a volume of its own beside that of Compose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnVolume {
    Exists,
    Absent,
}

/// Gives the volumes of a manifest their engine names. Returns warnings, or the refusal if the user must choose.
pub(crate) fn settle(
    state: &State,
    target: Target<'_>,
    answers: &EngineAnswers,
    spec: &mut DeploymentSpec,
    choice: Option<ComposeVolumes>,
) -> Result<Vec<String>, ApiError> {
    let (mut undecided, mut warnings, mut unseen) = (Vec::new(), Vec::new(), false);
    let per_node = volumes_per_node(spec);
    for (name, volume) in spec.volumes.iter_mut().filter(|(_, volume)| !volume.external) {
        let key = VolumeKey { namespace: target.namespace.clone(), name: VolumeName::from(name.as_str()) };
        let found = find(target, &key, volume, answers);
        let named = volume.engine_name.clone();
        let recorded = take_recorded_name(state, target, &key, volume);
        warnings.extend(named.and_then(|named| keeps_its_name(&key, target, volume, &named)));
        let Some(found) = found else {
            unseen |= recorded == Recorded::No && volume.engine_name.is_none();
            continue;
        };
        // A volume of the deployment's own on the engine is as good as a record: it may hold newer data.
        let is_decided = recorded == Recorded::Yes || found.own == OwnVolume::Exists;
        match (choice, is_decided) {
            (Some(ComposeVolumes::Adopt), true) if volume.engine_name.as_ref() != Some(&found.engine_name) => {
                warnings.push(not_adopted(&found, target));
            }
            (_, true) | (Some(ComposeVolumes::Fresh), false) => {}
            (Some(ComposeVolumes::Adopt), false) => {
                volume.adopted_on = Some(found.node).filter(|_| !per_node.contains(&key));
                volume.engine_name = Some(found.engine_name);
            }
            (None, false) => undecided.push(found),
        }
    }
    if unseen && choice.is_none() {
        warnings.extend(not_looked_at(&answers.silent));
    }
    if undecided.is_empty() { Ok(warnings) } else { Err(ask(&undecided, target)) }
}

/// Whether a volume's name was decided before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    Yes,
    No,
}

/// Takes the engine name of the volume's record, else of the revision in force.
fn take_recorded_name(state: &State, target: Target<'_>, key: &VolumeKey, volume: &mut VolumeSpec) -> Recorded {
    let known = state.deployment(target.namespace, target.deployment);
    let before = known.and_then(|known| known.current().spec.volumes.get(key.name.as_str()));
    volume.adopted_on = before.and_then(|before| before.adopted_on.clone());
    match (state.volume(key), before) {
        (Some(record), _) => volume.engine_name.clone_from(&record.engine_name),
        (None, Some(before)) => volume.engine_name.clone_from(&before.engine_name),
        (None, None) => return Recorded::No,
    }
    Recorded::Yes
}

/// A recorded volume is not renamed: its data would be left behind.
fn keeps_its_name(key: &VolumeKey, target: Target<'_>, volume: &VolumeSpec, named: &str) -> Option<String> {
    let is_prefixed = key.name.as_str().strip_prefix(target.deployment.as_str()).is_some_and(|it| it.starts_with('_'));
    let kept = match (&volume.engine_name, is_prefixed) {
        (Some(kept), _) => kept.clone(),
        (None, true) => key.generated_engine_name(),
        (None, false) => key.name.to_string(),
    };
    (kept != named).then(|| {
        format!(
            "warning: volume `{named}` was created as `{kept}` and keeps that name; to use another volume, write \
             `external: true` beside its name and restart the service"
        )
    })
}

/// The volume of Compose for a volume that the manifest does not name itself.
fn find(target: Target<'_>, key: &VolumeKey, volume: &VolumeSpec, answers: &EngineAnswers) -> Option<Found> {
    if volume.engine_name.is_some() {
        return None;
    }
    let compose_key = key.name.as_str().strip_prefix(target.deployment.as_str())?.strip_prefix('_')?;
    answers.all().find_map(|(node, answer)| {
        let engine_name = answer.compose_volumes.get(compose_key)?.clone();
        let has_own = answer.volumes.contains(&key.generated_engine_name());
        let own = if has_own { OwnVolume::Exists } else { OwnVolume::Absent };
        Some(Found { key: compose_key.to_owned(), engine_name, node: node.clone(), own })
    })
}

/// Volumes that services with one replica per node mount: they have no one home.
fn volumes_per_node(spec: &DeploymentSpec) -> Vec<VolumeKey> {
    let per_node = spec.services.values().filter(|service| service.kind.is_per_node());
    per_node.flat_map(|service| ServiceSpec::volumes(service).map(|(key, _)| key.clone())).collect()
}

fn ask(found: &[Found], target: Target<'_>) -> ApiError {
    let each = found.iter().map(|found| {
        let Found { key, engine_name, node, .. } = found;
        format!("`{key}` (`{engine_name}` on node `{node}`)")
    });
    let list = each.collect::<Vec<_>>().join(", ");
    let (what, by) = if found.len() == 1 { ("a volume", "an empty one") } else { ("volumes", "empty ones") };
    let message =
        format!("{what} of the Compose project or stack `{}` would be replaced by {by}: {list}", target.deployment);
    let hint = "`--adopt-volumes` uses that data, `--fresh-volumes` starts empty and leaves it alone";
    let names: Vec<String> = found.iter().map(|found| found.engine_name.clone()).collect();
    ApiError::new(StatusCode::CONFLICT, ApiErrorCode::ComposeVolumeFound, message)
        .with("hint", hint)
        .with("volumes", names)
}

/// The warning that some engines could not say whether they have such a volume.
fn not_looked_at(silent: &[NodeName]) -> Option<String> {
    let names: Vec<String> = silent.iter().map(|node| format!("`{node}`")).collect();
    let (names, nodes) = (names.join(", "), if silent.len() == 1 { "node" } else { "nodes" });
    (!silent.is_empty()).then(|| {
        format!(
            "warning: {nodes} {names} did not answer, so volumes that Compose made there were not looked for; \
             `--fresh-volumes` says that there are none"
        )
    })
}

fn not_adopted(found: &Found, target: Target<'_>) -> String {
    let (Found { key, engine_name, node, .. }, deployment) = (found, target.deployment);
    format!(
        "warning: volume `{key}` of `{deployment}` has data of its own, so `{engine_name}` on node `{node}` was not adopted; \
         to use it, write `external: true` and `name: {engine_name}` at the volume and restart the service"
    )
}
