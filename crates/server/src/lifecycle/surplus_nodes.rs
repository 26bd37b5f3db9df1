//! Nodes of this process that are no longer asked for: `--nodes` was larger at an earlier start.
//!
//! Owns: draining and removing them, and deleting their folder afterwards.
//! Must not touch: a node that is the home of a volume. Its data would be lost with it, so it stays a node.
//! Invariant: a surplus node has an agent until it is removed, so that its replicas are managed while they move.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use longshore_model::{Actor, AfterDrain, Command, NodeName};
use longshore_store::State;

use crate::{clock, lifecycle::node_context::NodeContext, node_rpc::service};

/// Time between two looks at a node that drains.
const POLL: Duration = Duration::from_millis(300);

/// What became of a surplus node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retired {
    Removed,
    /// It is the home of a volume.
    Stays,
}

/// Drains and removes a node, unless it has to stay.
pub(super) async fn retire(ctx: &NodeContext, node: &NodeName) -> Retired {
    loop {
        if let Some(store) = ctx.store()
            && let Ok(read) = store.read().await
        {
            match step(&read.state, node) {
                Step::Removed => return Retired::Removed,
                Step::Stays(volumes) => {
                    tracing::warn!(%node, volumes, "the node stays although --nodes is smaller: it is a volume's home");
                    return Retired::Stays;
                }
                Step::Drain => {
                    tracing::info!(%node, "the node is removed because --nodes is smaller; its replicas move");
                    let command = Command::Drain {
                        node: node.clone(),
                        deadline: None,
                        then: AfterDrain::Remove,
                        at: clock::now(),
                    };
                    let _ = service::propose(&store, Actor::Node(ctx.node()), command).await;
                }
                Step::Wait => {}
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Drain,
    Wait,
    Removed,
    Stays(String),
}

fn step(state: &State, name: &NodeName) -> Step {
    let Some(node) = state.node(name) else { return Step::Removed };
    let homes = state.volumes().filter(|volume| volume.home == *name).map(|volume| volume.key.name.to_string());
    let homes: Vec<String> = homes.collect();
    match &node.drain {
        _ if !homes.is_empty() => Step::Stays(homes.join(", ")),
        Some(drain) if drain.then == AfterDrain::Remove => Step::Wait,
        Some(_) | None => Step::Drain,
    }
}

/// Deletes what a removed node has left behind.
pub(super) fn delete_folder(folder: &Path, ctx: &Arc<NodeContext>) {
    // An agent that has ended unmounts its secrets if none is left; a mount that stays would be deleted from.
    let secrets = folder.join("secrets");
    let _ = rustix::mount::unmount(&secrets, rustix::mount::UnmountFlags::DETACH);
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, node = %ctx.node(), folder = %folder.display(), "a removed node's folder stays");
        }
        Ok(()) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use longshore_model::Node;

    use super::*;

    #[test]
    fn a_surplus_node_is_drained_once_and_is_done_when_it_is_gone() {
        let mut state = State::default();
        let name = NodeName::from("n1-2");
        assert_eq!(step(&state, &name), Step::Removed);
        state.apply(Command::Join(Box::new(Node::new("n1-2")))).unwrap();
        assert_eq!(step(&state, &name), Step::Drain);
        let drain = Command::Drain {
            node: name.clone(),
            deadline: None,
            then: AfterDrain::Remove,
            at: longshore_model::Time(1),
        };
        state.apply(drain).unwrap();
        assert_ne!(step(&state, &name), Step::Drain);
    }
}
