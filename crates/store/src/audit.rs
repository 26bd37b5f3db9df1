//! Which commands are worth a record, and what the record is about.
//!
//! Owns: the way from a command to its action and subject.
//! Must not touch: when and by whom; whoever proposes a command says so.
//! Invariant: what the scheduler and agents do all day leaves no record. The record is bounded, and they would push
//! what people did out of it within minutes.

use std::fmt;

use longshore_model::{AuditAction, Command, GroupKey, NamespaceName, access::AccessCommand};

/// What a command does, and to whom, if it is worth a record.
pub fn audited(command: &Command) -> Option<(AuditAction, String)> {
    let (action, subject) = match command {
        Command::Configure(_) => (AuditAction::ClusterConfigured, "cluster".to_owned()),
        Command::Join(node) => (AuditAction::NodeJoined, node.name.to_string()),
        Command::Label { node, .. } => (AuditAction::NodeLabelled, node.to_string()),
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
        Command::Steer { namespace, deployment, .. } => (AuditAction::RolloutSteered, scoped(namespace, deployment)),
        Command::Restart { group, .. } => (AuditAction::ServiceRestarted, service(group)),
        Command::PutSecret { namespace, name, .. } => (AuditAction::SecretPut, scoped(namespace, name)),
        Command::SetQuota { namespace, .. } => (AuditAction::QuotaSet, namespace.to_string()),
        Command::NoteExec { group, slot } => (AuditAction::ExecAsked, slot.printed(group)),
        Command::NoteBackup => (AuditAction::BackupTaken, "cluster".to_owned()),
        Command::EvenOut => (AuditAction::EvenOutAsked, "cluster".to_owned()),
        Command::Access(command) => return access(command),
        // A node that says what it has after a restart is no news to people.
        Command::Commit(_) | Command::Observe(_) | Command::Refresh { .. } => return None,
    };
    Some((action, subject))
}

fn access(command: &AccessCommand) -> Option<(AuditAction, String)> {
    let (action, subject) = match command {
        AccessCommand::Found { node, .. } => (AuditAction::ClusterFounded, node.to_string()),
        AccessCommand::BeginAgain { node, .. } => (AuditAction::ClusterBeganAgain, node.to_string()),
        AccessCommand::GrantJoin { id, .. } => (AuditAction::JoinGranted, id.to_string()),
        AccessCommand::Admit { node, .. } => (AuditAction::NodeAdmitted, node.to_string()),
        AccessCommand::Relocate { node, .. } => (AuditAction::NodeRelocated, node.to_string()),
        AccessCommand::IssueToken { id, token } => (AuditAction::TokenIssued, format!("{} ({id})", token.name)),
        AccessCommand::RevokeToken { id } => (AuditAction::TokenRevoked, id.to_string()),
        AccessCommand::StoreSecret { namespace, name, .. } => (AuditAction::SecretPut, scoped(namespace, name)),
        AccessCommand::RemoveSecret { namespace, name } => (AuditAction::SecretRemoved, scoped(namespace, name)),
        AccessCommand::UseKey { key } => (AuditAction::KeyRotated, key.to_string()),
        // What follows from another key was asked for with it.
        AccessCommand::Reseal { .. } => return None,
    };
    Some((action, subject))
}

fn scoped(namespace: &NamespaceName, name: &impl fmt::Display) -> String {
    format!("{namespace}/{name}")
}

fn service(group: &GroupKey) -> String {
    format!("{}/{}/{}", group.namespace, group.deployment, group.service)
}
