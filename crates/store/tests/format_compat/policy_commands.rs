//! The commands of the fixture `format-1-policy`: those of the earlier fixtures, then attributes of a node, a volume that is
//! removed, and policies of namespaces.
//!
//! Never changed: the fixture was written from these. A kind of command added later gets a file and a fixture of its own.

use longshore_model::{
    Actor, Command, NamespaceName, NamespacePolicy, NodeAttributes, Time, VolumeKey, access::AccessCommand,
};
use longshore_store::replicated::Proposal;

use crate::blocked_commands;

pub(crate) fn commands() -> Vec<Proposal> {
    let at = Time(1_700_000_500_000);
    let namespace = NamespaceName::default_namespace();
    let attributes = NodeAttributes {
        pool: Some("batch".into()),
        datacenter: Some("east".to_owned()),
        reserved_memory_bytes: Some(1 << 20),
        degraded: Some(true),
        ..NodeAttributes::default()
    };
    let set = AccessCommand::SetPolicy { namespace: namespace.clone(), policy: Box::new(NamespacePolicy::allow_all()) };
    let added = [
        Command::SetNodeAttributes { node: "a".into(), attributes: Box::new(attributes), at },
        Command::RemoveVolume { volume: VolumeKey { namespace, name: "shop_none".into() } },
        Command::Access(Box::new(set)),
        Command::Access(Box::new(AccessCommand::EnforcePolicies)),
    ];
    let by_ann = |command| Proposal { command, key: None, request: None, actor: Actor::Operator("ann".to_owned()), at };
    let mut all = blocked_commands::commands();
    all.extend(added.map(by_ann));
    all
}
