//! `restart`, and services that run once.
//!
//! Owns: what the words of Compose mean for the cluster's restart policy, the precedence of `deploy.restart_policy`, and
//! which services are jobs because another one waits for their end.

use std::{collections::BTreeSet, sync::Arc};

use longshore_model::{
    DeploymentSpec, ServiceKind, ServiceName,
    service::{AfterExhaustion, DependencyCondition, RestartCondition, RestartPolicy},
};

use super::ServiceReader;
use crate::{
    validate::NotesByService,
    yaml::{Key, Node},
};

/// What a file says about a service's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndNotes {
    /// Whether `restart` or `deploy.restart_policy` is given.
    pub(crate) restart: bool,
    /// Whether `deploy.mode` is given.
    pub(crate) mode: bool,
}

impl ServiceReader<'_> {
    pub(super) fn restart(&mut self, key: &Key, node: &Node) {
        if node.is_null() {
            return;
        }
        let what = self.of(key);
        // Unquoted, `no` is a boolean in older YAML.
        let text = if node.as_text() == Some("false") { Some("no") } else { self.problems.text(node, &what) };
        let Some(text) = text else { return };
        self.raw.restart = policy(text);
        if self.raw.restart.is_none() {
            let message = format!("{what} must be `no`, `always`, `unless-stopped` or `on-failure[:n]`, not `{text}`");
            self.problems.error(&node.location, message).hint("`on-failure:3` restarts up to three times");
        }
    }

    /// `deploy.restart_policy` wins as a whole. `condition: any` without a limit is `restart: always`.
    pub(super) fn resolve_restart(&mut self) {
        let asks_for_more = self.raw.restart_any && self.spec.restart.max_attempts.is_none();
        match self.raw.restart.take() {
            _ if self.raw.restart_policy && asks_for_more => {
                self.spec.restart.after_exhaustion = AfterExhaustion::Return;
            }
            Some(policy) if !self.raw.restart_policy => {
                self.spec.restart = policy;
                self.notes.ends.restart = true;
            }
            Some(_) | None => {}
        }
        self.notes.ends.restart |= self.raw.restart_policy;
        self.notes.ends.mode = self.raw.mode.is_some();
    }
}

/// The policy of one word of `restart`.
fn policy(word: &str) -> Option<RestartPolicy> {
    let silent = RestartPolicy::default();
    match word {
        "no" => Some(RestartPolicy { condition: RestartCondition::None, ..silent }),
        "always" | "unless-stopped" => Some(RestartPolicy { after_exhaustion: AfterExhaustion::Return, ..silent }),
        "on-failure" => Some(on_failure(0)),
        _ => word.strip_prefix("on-failure:")?.parse().ok().map(on_failure),
    }
}

/// The first failure comes before the first restart; 0 restarts are without limit, as in Docker.
fn on_failure(restarts: u32) -> RestartPolicy {
    let failures = if restarts == 0 { u32::MAX } else { restarts.saturating_add(1) };
    RestartPolicy { condition: RestartCondition::OnFailure, max_attempts: Some(failures), ..RestartPolicy::default() }
}

/// Makes services whose completion another one waits for run once, unless the file says otherwise: they are jobs.
pub(crate) fn run_awaited_once(spec: &mut DeploymentSpec, notes: &NotesByService) {
    let conditions = spec.services.values().flat_map(|service| &service.depends_on);
    let awaited: BTreeSet<ServiceName> = conditions
        .filter(|(_, dependency)| dependency.condition == DependencyCondition::ServiceCompletedSuccessfully)
        .map(|(name, _)| name.clone())
        .collect();
    for name in awaited {
        let (Some(service), Some((_, notes))) = (spec.services.get_mut(&name), notes.get(&name)) else { continue };
        let service = Arc::make_mut(service);
        if !notes.ends.restart && !service.kind.is_job() {
            service.restart.condition = RestartCondition::None;
        }
        if !notes.ends.mode && service.restart.may_complete() {
            service.kind = match service.kind {
                ServiceKind::Service | ServiceKind::Batch => ServiceKind::Batch,
                ServiceKind::System | ServiceKind::Sysbatch => ServiceKind::Sysbatch,
            };
        }
    }
}
