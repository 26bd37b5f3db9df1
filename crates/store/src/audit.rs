//! Which commands are audited, and what the audit record says.
//!
//! Owns: the mapping from a command to its audit action and subject, and the events that are audited by themselves.
//! Must not touch: the time and the actor, which come with the proposal.
//! Invariant: routine commands of the scheduler and agents are not audited. The audit log is bounded, and they would
//! push operators' actions out of it within minutes.

use std::fmt;

use longshore_model::{AuditAction, Command, Event, GroupKey, NamespaceName, RolloutState, access::AccessCommand};

/// The audit action and subject of a command, or `None` if it is not audited.
pub fn audited(command: &Command) -> Option<(AuditAction, String)> {
    let (action, subject) = match command {
        Command::Configure(_) | Command::ChangeSettings { .. } => {
            (AuditAction::ClusterConfigured, "cluster".to_owned())
        }
        Command::Join(node) => (AuditAction::NodeJoined, node.name.to_string()),
        Command::Label { node, .. } => (AuditAction::NodeLabelled, node.to_string()),
        Command::SetNodeAttributes { node, .. } => (AuditAction::NodeAttributesSet, node.to_string()),
        Command::SetIntent { node, .. } => (AuditAction::NodeIntentSet, node.to_string()),
        Command::Drain { node, .. } => (AuditAction::NodeDrained, node.to_string()),
        Command::ConfirmLost { node, .. } => (AuditAction::NodeConfirmedLost, node.to_string()),
        Command::SetHealth { node, .. } => (AuditAction::NodeHealthSet, node.to_string()),
        Command::SetUseDegraded { node, .. } => (AuditAction::NodeOverrideSet, node.to_string()),
        Command::Apply { namespace, deployment, .. } => (AuditAction::DeploymentApplied, scoped(namespace, deployment)),
        Command::Scale { group, .. } => (AuditAction::ServiceScaled, service(group)),
        Command::Remove { namespace, deployment } => (AuditAction::DeploymentRemoved, scoped(namespace, deployment)),
        Command::Rollback { namespace, deployment, .. } => {
            (AuditAction::DeploymentRolledBack, scoped(namespace, deployment))
        }
        Command::ControlRollout { namespace, deployment, .. } => {
            (AuditAction::RolloutControlled, scoped(namespace, deployment))
        }
        Command::Stop { namespace, deployment, .. } => (AuditAction::DeploymentStopped, scoped(namespace, deployment)),
        Command::Start { namespace, deployment, .. } => (AuditAction::DeploymentStarted, scoped(namespace, deployment)),
        Command::RemoveVolume { volume } => (AuditAction::VolumeRemoved, scoped(&volume.namespace, &volume.name)),
        Command::Restart { group, .. } => (AuditAction::ServiceRestarted, service(group)),
        Command::PutSecret { namespace, name, .. } => (AuditAction::SecretPut, scoped(namespace, name)),
        Command::SetQuota { namespace, .. } => (AuditAction::QuotaSet, namespace.to_string()),
        Command::RecordExec { group, slot } => (AuditAction::ExecRequested, slot.replica_id(group)),
        Command::RecordBackup => (AuditAction::BackupTaken, "cluster".to_owned()),
        Command::EvenOut => (AuditAction::EvenOutRequested, "cluster".to_owned()),
        Command::Access(command) => return access(command),
        // Routine commands. A node sends `Refresh` whenever its agent restarts.
        Command::Commit(_) | Command::Observe(_) | Command::Refresh { .. } => return None,
    };
    Some((action, subject))
}

/// The audit record of an event that no command asked for: a rollout that failed, with the code of its failure.
pub fn audited_event(event: &Event) -> Option<(AuditAction, String, String)> {
    let Event::RolloutChanged { namespace, deployment, rollout } = event else { return None };
    let action = match rollout.state {
        RolloutState::Paused => AuditAction::RolloutPaused,
        RolloutState::Aborted => AuditAction::RolloutAborted,
        RolloutState::RolledBack => AuditAction::RolledBack,
        RolloutState::InProgress
        | RolloutState::AwaitingPromotion
        | RolloutState::Completed
        | RolloutState::Superseded => return None,
    };
    let code = rollout.failure.as_ref()?.code.code().to_owned();
    Some((action, scoped(namespace, deployment), code))
}

fn access(command: &AccessCommand) -> Option<(AuditAction, String)> {
    let (action, subject) = match command {
        AccessCommand::Bootstrap { node, .. } => (AuditAction::ClusterBootstrapped, node.to_string()),
        AccessCommand::Recover { node, .. } => (AuditAction::ClusterRecovered, node.to_string()),
        AccessCommand::GrantJoin { id, .. } => (AuditAction::JoinGranted, id.to_string()),
        AccessCommand::Admit { node, .. } => (AuditAction::NodeAdmitted, node.to_string()),
        AccessCommand::Relocate { node, .. } => (AuditAction::NodeRelocated, node.to_string()),
        AccessCommand::IssueToken { id, token } => (AuditAction::TokenIssued, format!("{} ({id})", token.name)),
        AccessCommand::RevokeToken { id } => (AuditAction::TokenRevoked, id.to_string()),
        AccessCommand::StoreSecret { namespace, name, .. } => (AuditAction::SecretPut, scoped(namespace, name)),
        AccessCommand::RemoveSecret { namespace, name } => (AuditAction::SecretRemoved, scoped(namespace, name)),
        AccessCommand::UseKey { key } => (AuditAction::KeyRotated, key.to_string()),
        AccessCommand::SetPolicy { namespace, .. } => (AuditAction::PolicySet, namespace.to_string()),
        // The first follows from `UseKey`, which is audited; the second from the version of the software.
        AccessCommand::Reseal { .. } | AccessCommand::EnforcePolicies => return None,
    };
    Some((action, subject))
}

fn scoped(namespace: &NamespaceName, name: &impl fmt::Display) -> String {
    format!("{namespace}/{name}")
}

fn service(group: &GroupKey) -> String {
    format!("{}/{}/{}", group.namespace, group.deployment, group.service)
}
