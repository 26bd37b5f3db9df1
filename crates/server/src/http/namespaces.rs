//! Namespaces and their ceilings, over HTTP.
//!
//! Owns: the rows of these answers. Must not touch: whether a command fits a ceiling, which the store says.

use std::sync::Arc;

use axum::{Json, extract::State};
use longshore_api::{Amounts, Changed, NamespaceRow, Quota};
use longshore_model::{Command, NamespaceName, command};

use super::{
    Answer, Desk,
    access::plain,
    caller::Caller,
    extract::{Body, Named},
};

pub(super) async fn list(State(desk): State<Arc<Desk>>) -> Answer<Vec<NamespaceRow>> {
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
