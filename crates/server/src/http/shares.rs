//! Namespaces with their ceilings, volumes, and evening out, over HTTP.
//!
//! Owns: the rows of these answers. Must not touch: whether a command fits a ceiling, which the store says.
//! Invariant: asking changes nothing; what evening out would do is worked out on a view of its own.

use std::sync::Arc;

use axum::{Json, extract::State};
use longshore_api::{Amounts, Changed, EvenOutMove, NamespaceRow, Quota, VolumeRow};
use longshore_model::{Command, NamespaceName, command};

use super::{
    Answer, Desk,
    access::plain,
    caller::Caller,
    extract::{Body, Named},
};
use crate::{clock, leader::view_of};

pub(super) async fn namespaces(State(desk): State<Arc<Desk>>) -> Answer<Vec<NamespaceRow>> {
    let state = desk.store()?.read().await?.state;
    let rows = state.namespaces().into_iter().map(|(name, share)| {
        let command::Quota { replicas, memory_bytes, cpu_millis } = share.quota.unwrap_or_default();
        let desired = share.desired;
        NamespaceRow {
            name: name.to_string(),
            deployments: share.deployments as u64,
            desired: Amounts {
                replicas: desired.replicas,
                cpu_millis: desired.cpu_millis,
                memory_bytes: desired.memory_bytes,
            },
            quota: Quota { replicas, cpu_millis, memory_bytes },
        }
    });
    Ok(Json(rows.collect()))
}

pub(super) async fn set_quota(
    State(desk): State<Arc<Desk>>,
    caller: Caller,
    Named(name): Named<String>,
    Body(request): Body<Quota>,
) -> Answer<Changed> {
    plain(&name)?;
    let Quota { replicas, cpu_millis, memory_bytes } = request;
    let quota = command::Quota { replicas, memory_bytes, cpu_millis };
    desk.change(caller, Command::SetQuota { namespace: NamespaceName::from(name.as_str()), quota }).await
}

pub(super) async fn volumes(State(desk): State<Arc<Desk>>) -> Answer<Vec<VolumeRow>> {
    let state = desk.store()?.read().await?.state;
    let rows = state.volumes().map(|volume| {
        let users = state.groups().filter(|(_, group)| group.spec.volumes().any(|(key, _)| *key == volume.key));
        VolumeRow {
            namespace: volume.key.namespace.to_string(),
            name: volume.key.name.to_string(),
            deployment: volume.owner.to_string(),
            node: volume.home.to_string(),
            used_by: users.map(|(group, _)| format!("{}/{}", group.deployment, group.service)).collect(),
        }
    });
    Ok(Json(rows.collect()))
}

/// What evening out would move, by the pressures this server last heard of: those of the whole cluster where it leads.
pub(super) async fn preview(State(desk): State<Arc<Desk>>) -> Answer<Vec<EvenOutMove>> {
    let state = desk.store()?.read().await?.state;
    let now = clock::now();
    let rebalancer = desk.hub.pressures(now);
    let moves = tokio::task::block_in_place(|| rebalancer.preview(view_of(&state), now));
    let rows = moves.into_iter().map(|planned| EvenOutMove {
        namespace: planned.group.namespace.to_string(),
        replica: planned.slot.printed(&planned.group),
        from: planned.from.to_string(),
        to: planned.to.to_string(),
    });
    Ok(Json(rows.collect()))
}

pub(super) async fn even_out(State(desk): State<Arc<Desk>>, caller: Caller) -> Answer<Changed> {
    desk.change(caller, Command::EvenOut).await
}
