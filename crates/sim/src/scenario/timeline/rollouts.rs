//! The verbs of deployments and their rollouts: rollback, promote, pause, resume, restart, stop, start.
//!
//! Owns: their syntax. Whether there is a rollout to control shows when the scenario runs.

use longshore_compose::{Diagnostics, Location, reader::shorten, yaml::Node as Yaml};
use longshore_model::{Command, GroupKey, NamespaceName, RevisionNumber, Time, command::RolloutControl};

use super::{Actions, command_at};

/// `rollback: shop` for the previous revision, or `rollback: { shop: 3 }` for any kept one.
pub(super) fn read_rollback(value: &Yaml, at: Time, problems: &mut Diagnostics) -> Actions {
    let back = |location: &Location, name: &str, to: Option<u64>| {
        let (namespace, deployment) = (NamespaceName::default_namespace(), name.into());
        command_at(location, Command::Rollback { namespace, deployment, to: to.map(RevisionNumber), at })
    };
    let Some(mapping) = value.as_mapping() else {
        let name = problems.text(value, "`rollback`")?;
        return Some(vec![back(&value.location, name, None)]);
    };
    let mut actions = Vec::new();
    for (key, revision) in mapping.iter() {
        let revision = problems.unsigned(revision, "the revision")?;
        actions.push(back(&key.location, &key.name, Some(revision)));
    }
    Some(actions)
}

pub(super) fn read_rollout_control(
    value: &Yaml,
    word: RolloutControl,
    at: Time,
    problems: &mut Diagnostics,
) -> Actions {
    let name = problems.text(value, "the deployment")?;
    let (namespace, deployment) = (NamespaceName::default_namespace(), name.into());
    Some(vec![command_at(&value.location, Command::ControlRollout { namespace, deployment, control: word, at })])
}

/// `stop: shop`
pub(super) fn read_stop(value: &Yaml, at: Time, problems: &mut Diagnostics) -> Actions {
    let name = problems.text(value, "`stop`")?;
    let (namespace, deployment) = (NamespaceName::default_namespace(), name.into());
    Some(vec![command_at(&value.location, Command::Stop { namespace, deployment, at })])
}

/// `start: shop`
pub(super) fn read_start(value: &Yaml, at: Time, problems: &mut Diagnostics) -> Actions {
    let name = problems.text(value, "`start`")?;
    let (namespace, deployment) = (NamespaceName::default_namespace(), name.into());
    Some(vec![command_at(&value.location, Command::Start { namespace, deployment, at })])
}

pub(super) fn read_restart(value: &Yaml, at: Time, problems: &mut Diagnostics) -> Actions {
    let name = problems.text(value, "`restart`")?;
    let Some((deployment, service)) = name.split_once('/').filter(|(a, b)| !a.is_empty() && !b.is_empty()) else {
        problems
            .error(&value.location, format!("`{}` names no service", shorten(name)))
            .hint("write it like `restart: shop/web`");
        return None;
    };
    let namespace = NamespaceName::default_namespace();
    let group = GroupKey { namespace, deployment: deployment.into(), service: service.into() };
    Some(vec![command_at(&value.location, Command::Restart { group, at })])
}
