//! What operators say about changes: rollback, promote, pause, resume, restart.
//!
//! Owns: how these verbs are written. Whether there is anything to say it about shows when the scenario runs.

use longshore_compose::{Diagnostics, Place, reader::shorten, yaml::Node as Yaml};
use longshore_model::{Command, GroupKey, NamespaceName, RevisionNumber, Time, command::Steering};

use super::{Actions, ask};

/// `rollback: shop`, or `rollback: { shop: 3 }` for a revision that is kept.
pub(super) fn read_rollback(value: &Yaml, at: Time, problems: &mut Diagnostics) -> Actions {
    let back = |place: &Place, name: &str, to: Option<u64>| {
        let (namespace, deployment) = (NamespaceName::default_namespace(), name.into());
        ask(place, Command::Rollback { namespace, deployment, to: to.map(RevisionNumber), at })
    };
    let Some(mapping) = value.as_mapping() else {
        let name = problems.text(value, "`rollback`")?;
        return Some(vec![back(&value.place, name, None)]);
    };
    let mut actions = Vec::new();
    for (key, revision) in mapping.iter() {
        let revision = problems.unsigned(revision, "the revision")?;
        actions.push(back(&key.place, &key.name, Some(revision)));
    }
    Some(actions)
}

pub(super) fn read_steering(value: &Yaml, word: Steering, at: Time, problems: &mut Diagnostics) -> Actions {
    let name = problems.text(value, "the deployment")?;
    let (namespace, deployment) = (NamespaceName::default_namespace(), name.into());
    Some(vec![ask(&value.place, Command::Steer { namespace, deployment, word, at })])
}

pub(super) fn read_restart(value: &Yaml, at: Time, problems: &mut Diagnostics) -> Actions {
    let name = problems.text(value, "`restart`")?;
    let Some((deployment, service)) = name.split_once('/').filter(|(a, b)| !a.is_empty() && !b.is_empty()) else {
        problems
            .error(&value.place, format!("`{}` names no service", shorten(name)))
            .hint("write it like `restart: shop/web`");
        return None;
    };
    let namespace = NamespaceName::default_namespace();
    let group = GroupKey { namespace, deployment: deployment.into(), service: service.into() };
    Some(vec![ask(&value.place, Command::Restart { group, at })])
}
