//! Applies every step to a fresh state machine before the run.
//!
//! Owns: the diagnostics of refused commands, each with its place in the file.
//! Invariant: a command that the state machine refuses whatever the run does is refused before 0 s.

use longshore_compose::{Diagnostics, suggest};
use longshore_model::{Command, Node, NodeName};
use longshore_store::{CommandError, State};

use super::{Action, Scenario, Step};

/// Applies every step in order of time. Machine failures are not simulated: they do not change which commands are accepted.
pub(super) fn check_steps(scenario: &Scenario) -> Result<(), Diagnostics> {
    let mut problems = Diagnostics::new();
    let mut state = State::default();
    for node in &scenario.nodes {
        // Duplicate names were refused when the list was read.
        let _ = state.apply(Command::Join(Box::new(Node::clone(node))));
    }
    for step in &scenario.steps {
        let outcome = match &step.action {
            // Whether the node is still alive depends on the run.
            Action::Command(command) => match &**command {
                Command::ConfirmLost { node, .. } => known(&state, node),
                command => state.apply(command.clone()).map(drop),
            },
            // Which replicas exist is not known before the run; a leader can always change.
            Action::InjectFault(..) | Action::NewLeader | Action::Preview => Ok(()),
            Action::Fail(node)
            | Action::Return(node)
            | Action::Isolate(node)
            | Action::Heal(node)
            | Action::Degrade(node)
            | Action::SetLoad(node, _) => known(&state, node),
        };
        if let Err(refused) = outcome {
            explain(&refused, step, &state, &mut problems);
        }
        if problems.is_full() {
            break;
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn known(state: &State, node: &NodeName) -> Result<(), CommandError> {
    state.node(node).map(drop).ok_or_else(|| CommandError::UnknownNode(node.clone()))
}

fn explain(refused: &CommandError, step: &Step, state: &State, problems: &mut Diagnostics) {
    let problem = problems.error(&step.location, refused.to_string());
    let near = match refused {
        CommandError::UnknownNode(node) => {
            suggest::nearest(node.as_str(), state.nodes().map(|known| known.name.as_str()))
        }
        CommandError::UnknownDeployment(name) => {
            suggest::nearest(name.as_str(), state.deployments().map(|(_, known, _)| known.as_str()))
        }
        CommandError::UnknownService { deployment, service } => {
            let of_it = state.groups().filter(|(key, _)| key.deployment == *deployment);
            suggest::nearest(service.as_str(), of_it.map(|(key, _)| key.service.as_str()))
        }
        CommandError::NodeStillAlive(_)
        | CommandError::SettingsConflict
        | CommandError::UnknownRevision { .. }
        | CommandError::NoPreviousRevision(_)
        | CommandError::NoRollout(_)
        | CommandError::DuplicateNode(_)
        | CommandError::CannotScaleGlobal(_)
        | CommandError::TooManyReplicas(_)
        | CommandError::TooManyForCluster { .. }
        | CommandError::SecretOwned { .. }
        | CommandError::LastServer(_)
        | CommandError::VolumeNeedsOneReplica { .. }
        | CommandError::IngressPortTaken { .. }
        | CommandError::ReplicaIdConflict { .. }
        | CommandError::SecretVersionRegression { .. }
        | CommandError::UnknownSecret(_)
        | CommandError::UnknownVolume(_)
        | CommandError::VolumeHeld { .. }
        | CommandError::SecretInUse { .. }
        | CommandError::SecretOutOfScope { .. }
        | CommandError::KeyOutdated(_)
        | CommandError::JoinTokenInvalid
        | CommandError::JoinTokenExpired
        | CommandError::AlreadyBootstrapped
        | CommandError::UnknownToken(_)
        | CommandError::DuplicateToken(_)
        | CommandError::QuotaExceeded { .. } => None,
    };
    match near {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem.hint(refused.hint()),
    }
}
