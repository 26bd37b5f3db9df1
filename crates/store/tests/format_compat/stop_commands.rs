//! The commands of the fixture `format-1-stop`: those of the earlier fixtures, then a deployment that is stopped, started and
//! stopped again.
//!
//! Never changed: the fixture was written from these. A kind of command added later gets a file and a fixture of its own.

use longshore_model::{Actor, Command, DeploymentName, NamespaceName, Time};
use longshore_store::replicated::Proposal;

use crate::settings_commands;

pub(crate) fn commands() -> Vec<Proposal> {
    let (namespace, deployment) = (NamespaceName::default_namespace(), DeploymentName::from("shop"));
    let at = Time(1_700_000_300_000);
    let stop = Command::Stop { namespace: namespace.clone(), deployment: deployment.clone(), at };
    let start = Command::Start { namespace, deployment, at };
    let by_ann = |command| Proposal { command, key: None, request: None, actor: Actor::Operator("ann".to_owned()), at };
    let mut all = settings_commands::commands();
    all.extend([stop.clone(), start, stop].map(by_ann));
    all
}
