//! Policies of namespaces: what their manifests may ask of the machines.
//!
//! Owns: showing, setting and testing a policy, and the refusal `policy_denied`.
//! Must not touch: what a manifest asks and how it is compared, which is in `model::tenant_policy`.
//! Invariant: a manifest is checked before and after engines were asked about its names; a namespace without a policy
//! keeps everything but what belongs to somebody else, unless the caller owns the cluster anyway.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{Json, extract::State, http::StatusCode};
use longshore_api::{ApplyRequest, Changed, DeniedDemand, OtherRules, Policy, PolicyRequest, PolicyTest};
use longshore_compose::Loaded;
use longshore_model::{
    ApiErrorCode, Command, DeploymentName, DeploymentSpec, GroupKey, NamespaceName, NamespacePolicy, PolicyRule,
    RevisionNumber, ServiceSpec,
    access::AccessCommand,
    tenant_policy::{self, ANY, Demand},
};
use longshore_store::State as ClusterState;

use crate::{
    api::{
        ApiError, ApiResult, ApiState,
        deployments::resolve,
        extract::{JsonBody, PathParams, invalid},
        name_rules,
    },
    security::auth::Caller,
};

pub(crate) async fn get(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
) -> ApiResult<Policy> {
    let namespace = NamespaceName::from(name.as_str());
    caller.ensure_namespace_in_scope(&namespace)?;
    let state = api.store()?.read().await?.state;
    let policy = state.access().policy(&namespace);
    let shown = policy.clone().unwrap_or_else(|| Cow::Owned(NamespacePolicy::allow_all_but_exec_as_root()));
    Ok(Json(Policy { namespace: name, is_set: policy.is_some(), rules: print(&shown) }))
}

pub(crate) async fn set(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    JsonBody(request): JsonBody<PolicyRequest>,
) -> ApiResult<Changed> {
    let namespace = NamespaceName::from(name.as_str());
    let state = api.store()?.read().await?.state;
    ensure_usable_namespace(&state, &namespace)?;
    let mut policy = match request.others {
        OtherRules::Keep => {
            let everything = || Cow::Owned(NamespacePolicy::allow_all_but_exec_as_root());
            state.access().policy(&namespace).unwrap_or_else(everything).into_owned()
        }
        OtherRules::Allow => NamespacePolicy::allow_all_but_exec_as_root(),
        OtherRules::Deny => NamespacePolicy::default(),
    };
    for (rule, values) in request.rules {
        let known = PolicyRule::named(&rule).ok_or_else(|| unknown_rule(&rule))?;
        policy.set(known, parse_values(known, values)?);
    }
    let command = AccessCommand::SetPolicy { namespace, policy: Box::new(policy) };
    api.change(caller, Command::Access(Box::new(command))).await
}

/// Says what an apply would be refused for, by the policy in force for this caller.
pub(crate) async fn test(
    State(api): State<Arc<ApiState>>,
    caller: Caller,
    JsonBody(request): JsonBody<ApplyRequest>,
) -> ApiResult<PolicyTest> {
    let state = api.store()?.read().await?.state;
    let nodes = state.nodes().map(|node| node.name.clone()).collect();
    let loaded = tokio::task::block_in_place(|| resolve(request, nodes))?;
    caller.ensure_in_scope(&loaded.namespace, &loaded.deployment)?;
    let Loaded { namespace, deployment, spec, .. } = loaded;
    let denied = effective(&state, &caller, &namespace);
    let denied = denied.denied(tenant_policy::of_deployment(&namespace, &deployment, &spec));
    let denied = denied.iter().map(|demand| shown(&namespace, demand)).collect();
    Ok(Json(PolicyTest { namespace: namespace.to_string(), deployment: deployment.to_string(), denied }))
}

fn print(policy: &NamespacePolicy) -> BTreeMap<String, Vec<String>> {
    let rule = |rule: &PolicyRule| (rule.as_str().to_owned(), policy.values(*rule).map(str::to_owned).collect());
    PolicyRule::ALL.iter().map(rule).collect()
}

fn unknown_rule(name: &str) -> ApiError {
    let known: Vec<&str> = PolicyRule::ALL.iter().map(|rule| rule.as_str()).collect();
    invalid(format!("there is no rule `{name}`")).with("hint", format!("the rules are {}", known.join(", ")))
}

/// `yes` and `no` stand for everything and nothing, so that a rule reads as a sentence.
fn parse_values(rule: PolicyRule, values: Vec<String>) -> Result<BTreeSet<String>, ApiError> {
    let values: BTreeSet<String> = values.into_iter().map(|value| value.trim().to_owned()).collect();
    let is_word = |word: &str| values.len() == 1 && values.contains(word);
    if values.is_empty() || is_word("no") || is_word("") {
        return Ok(BTreeSet::new());
    }
    if is_word("yes") {
        return Ok(BTreeSet::from([ANY.to_owned()]));
    }
    let needs_path = matches!(rule, PolicyRule::BindMounts);
    match values.iter().find(|value| value.is_empty() || needs_path && *value != ANY && !value.starts_with('/')) {
        Some(wrong) => Err(invalid(format!("`{wrong}` is not a value of the rule `{}`", rule.as_str()))),
        None => Ok(values),
    }
}

/// The policy that applies to a request.
pub(crate) fn effective<'a>(
    state: &'a ClusterState,
    caller: &Caller,
    namespace: &NamespaceName,
) -> Cow<'a, NamespacePolicy> {
    state.access().policy(namespace).unwrap_or_else(|| {
        Cow::Owned(if caller.owns_the_cluster() {
            NamespacePolicy::allow_all()
        } else {
            NamespacePolicy::allow_all_but_exec_as_root()
        })
    })
}

/// Refuses a manifest that asks what its namespace may not. Returns what nodes check again.
pub(crate) fn ensure_allowed(
    state: &ClusterState,
    caller: &Caller,
    loaded: &Loaded,
) -> Result<Option<Arc<NamespacePolicy>>, ApiError> {
    let Loaded { namespace, deployment, spec, .. } = loaded;
    ensure_spec_allowed(state, caller, (namespace, deployment), spec)
}

/// The same for a spec that was resolved before.
pub(crate) fn ensure_spec_allowed(
    state: &ClusterState,
    caller: &Caller,
    (namespace, deployment): (&NamespaceName, &DeploymentName),
    spec: &DeploymentSpec,
) -> Result<Option<Arc<NamespacePolicy>>, ApiError> {
    ensure_usable_namespace(state, namespace)?;
    let policy = effective(state, caller, namespace);
    refuse(namespace, &policy.denied(tenant_policy::of_deployment(namespace, deployment, spec)))?;
    let is_everything = *policy == NamespacePolicy::allow_all();
    Ok((!is_everything).then(|| Arc::new(policy.into_owned())))
}

/// Refuses to bring back or multiply a stored revision that the namespace's policy no longer allows. What runs stays.
pub(crate) fn ensure_revision_allowed(
    state: &ClusterState,
    (namespace, deployment): (&NamespaceName, &DeploymentName),
    revision: Option<RevisionNumber>,
) -> Result<(), ApiError> {
    let (Some(policy), Some(known)) = (state.access().policy(namespace), state.deployment(namespace, deployment))
    else {
        return Ok(());
    };
    let number = revision.unwrap_or(known.in_force);
    let Some(revision) = known.revision(number) else { return Ok(()) };
    refuse(namespace, &policy.denied(tenant_policy::of_deployment(namespace, deployment, &revision.spec)))
}

/// Refuses a command in a replica that has more rights than the caller may ask for.
pub(crate) fn ensure_exec_allowed(
    state: &ClusterState,
    caller: &Caller,
    group: &GroupKey,
    user: Option<&str>,
) -> Result<(), ApiError> {
    let Some(known) = state.group(group) else { return Ok(()) };
    let deployment = state.deployment(&group.namespace, &group.deployment);
    let mut spec = ServiceSpec::clone(&known.spec);
    if spec.driver == longshore_model::Driver::Exec && user.is_some() {
        spec.container.user = user.map(str::to_owned);
    }
    let empty = DeploymentSpec::default();
    let around = deployment.map_or(&empty, |known| &known.current().spec);
    let demands = tenant_policy::of_service(group, &spec, &around.networks, &around.volumes);
    refuse(&group.namespace, &effective(state, caller, &group.namespace).denied(demands))
}

/// A namespace that does not exist yet needs a name that cannot be mistaken for a part of another name in the engine.
fn ensure_usable_namespace(state: &ClusterState, namespace: &NamespaceName) -> Result<(), ApiError> {
    let is_known =
        state.access().policy(namespace).is_none() || state.deployments().any(|(known, ..)| known == namespace);
    if is_known || name_rules::is_namespace(namespace.as_str()) {
        return Ok(());
    }
    let message = format!("`{namespace}` is not a name for a namespace");
    Err(invalid(message).with("hint", "use up to 63 small letters, digits and `-`, a letter or digit first"))
}

fn shown(namespace: &NamespaceName, demand: &Demand) -> DeniedDemand {
    let Demand { rule, key, value } = demand;
    let rule = rule.as_str();
    DeniedDemand {
        key: key.clone(),
        value: value.clone(),
        rule: rule.to_owned(),
        hint: format!("an admin may allow it: `longshore policy set {namespace} {rule}={value}`"),
    }
}

fn refuse(namespace: &NamespaceName, denied: &[Demand]) -> Result<(), ApiError> {
    let Some(first) = denied.first() else { return Ok(()) };
    let each = denied.iter().map(|Demand { key, value, .. }| format!("`{key}` ({value})"));
    let list = each.collect::<Vec<_>>().join(", ");
    let message = format!("the policy of namespace `{namespace}` does not allow {list}");
    let all: Vec<serde_json::Value> =
        denied.iter().map(|demand| serde_json::to_value(shown(namespace, demand)).unwrap_or_default()).collect();
    let remedy = if first.rule == PolicyRule::ExecUsers && first.value == tenant_policy::ROOT {
        format!(
            "write `user:` at the service, apply it with an admin token without a scope, or let an admin allow it: \
             `longshore policy set {namespace} exec_users=root`"
        )
    } else {
        format!(
            "leave the key out, or let an admin allow it: `longshore policy set {namespace} {}={}`",
            first.rule.as_str(),
            first.value
        )
    };
    let refusal = ApiError::new(StatusCode::FORBIDDEN, ApiErrorCode::PolicyDenied, message);
    Err(refusal
        .with("key", first.key.clone())
        .with("rule", first.rule.as_str())
        .with("denied", all)
        .with("hint", remedy))
}
