//! The commands of the fixture `format-1-settings`: those of the earlier fixtures, then changes of the settings.
//!
//! Never changed: the fixture was written from these. A kind of command added later gets a file and a fixture of its own.

use longshore_model::{Actor, ClusterConfig, Command, Time};
use longshore_store::replicated::Proposal;

use crate::later_commands;

const MIB: u64 = 1024 * 1024;

pub(crate) fn commands() -> Vec<Proposal> {
    // As `first_commands` set them.
    let before = ClusterConfig { default_memory_bytes: 64 * MIB, ..ClusterConfig::default() };
    let after = ClusterConfig { suspect_after_missed: 5, ..before.clone() };
    let change = |expected: &ClusterConfig, config: &ClusterConfig| Proposal {
        command: Command::ChangeSettings { expected: Box::new(expected.clone()), config: Box::new(config.clone()) },
        key: None,
        request: None,
        actor: Actor::Operator("ann".to_owned()),
        at: Time(1_700_000_200_000),
    };
    let refused = change(&before, &ClusterConfig { down_after_missed: 20, ..before.clone() });
    let mut all = later_commands::commands();
    all.extend([change(&before, &after), refused]);
    all
}
