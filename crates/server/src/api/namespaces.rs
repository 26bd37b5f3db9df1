//! Namespaces and their quotas.
//!
//! Owns: the rows of these answers. Must not touch: whether a command fits a quota; the store decides that.

use std::sync::Arc;

use axum::{Json, extract::State};
use longshore_api::{Amounts, Changed, NamespaceRow, Quota};
use longshore_model::{Command, NamespaceName, command};

use crate::{
    api::{
        ApiResult, ApiState,
        access::plain,
        extract::{JsonBody, PathParams},
    },
    security::auth::Caller,
};

pub(crate) async fn list(State(api): State<Arc<ApiState>>) -> ApiResult<Vec<NamespaceRow>> {
    let state = api.store()?.read().await?.state;
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

pub(crate) async fn set_quota(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    JsonBody(request): JsonBody<Quota>,
) -> ApiResult<Changed> {
    plain(&name)?;
    let Quota { replicas, cpu_millis, memory_bytes } = request;
    let quota = command::Quota { replicas, memory_bytes, cpu_millis };
    api.change(caller, Command::SetQuota { namespace: NamespaceName::from(name.as_str()), quota }).await
}
