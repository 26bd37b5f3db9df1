//! Entries about nodes: health, intent, drains and evacuation.
//!
//! Owns: which change of a node makes which entry. Must not touch: the effects of the change.

use std::sync::Arc;

use longshore_model::{
    Drain, DrainOutcome, Evacuation, Health, Intent, Node, NodeName, RuntimeCode, Time,
    drain::{DrainBlocker, UndrainedReplica},
    replica::Detail,
};

use super::{EntryKind, TimelineLog};

impl TimelineLog {
    pub(crate) fn leader_changed(&mut self, now: Time) {
        self.push(now, EntryKind::LeaderChanged);
    }

    pub(super) fn node_gone(&mut self, now: Time, node: &NodeName) {
        self.nodes.remove(node);
        self.push(now, EntryKind::NodeRemoved).node = Some(node.clone());
    }

    pub(super) fn evacuation_changed(&mut self, now: Time, evacuation: &Evacuation) {
        match evacuation {
            Evacuation::Free => {
                self.push(now, EntryKind::EvacuationResumed);
            }
            Evacuation::Paused { gone, nodes, .. } => {
                let names = gone.iter().map(NodeName::to_string).collect();
                let details = [("gone", Detail::List(names)), ("nodes", Detail::Number(u64::from(*nodes)))];
                self.push(now, EntryKind::EvacuationPaused).details =
                    details.map(|(name, detail)| (name.to_owned(), detail)).into();
            }
        }
    }

    pub(super) fn node_changed(&mut self, now: Time, node: &Arc<Node>) {
        let before = self.nodes.insert(node.name.clone(), Arc::clone(node));
        let before = before.as_deref();
        if before.map(|before| before.health) != Some(node.health) {
            let kind = match node.health {
                Health::Ready => EntryKind::NodeReady,
                Health::Suspect => EntryKind::NodeSuspect,
                Health::Down => EntryKind::NodeDown,
                Health::Degraded => EntryKind::NodeDegraded,
            };
            self.push(now, kind).node = Some(node.name.clone());
        }
        let Some(before) = before else { return };
        if before.confirmed_lost.is_none() && node.confirmed_lost.is_some() {
            self.push(now, EntryKind::NodeLost).node = Some(node.name.clone());
        }
        self.intent_changed(now, before, node);
        self.drain_changed(now, before.drain.as_ref(), node);
    }

    fn intent_changed(&mut self, now: Time, before: &Node, node: &Node) {
        if before.intent == node.intent {
            return;
        }
        let unfinished = before.drain.as_ref().is_some_and(|drain| drain.outcome != DrainOutcome::Done);
        if unfinished {
            self.push(now, EntryKind::DrainCancelled).node = Some(node.name.clone());
        }
        let kind = match node.intent {
            Intent::Active => EntryKind::NodeReady,
            Intent::Paused => EntryKind::NodePaused,
            // The drain and the removal have entries of their own.
            Intent::Draining | Intent::Removed => return,
        };
        self.push(now, kind).node = Some(node.name.clone());
    }

    fn drain_changed(&mut self, now: Time, before: Option<&Drain>, node: &Node) {
        let Some(drain) = &node.drain else { return };
        let kind = match before.filter(|before| before.since == drain.since) {
            None => Some(EntryKind::DrainStarted),
            Some(before) if before.outcome != drain.outcome => match drain.outcome {
                DrainOutcome::UnderWay => None,
                DrainOutcome::TimedOut => Some(EntryKind::DrainTimeout),
                DrainOutcome::Done => Some(EntryKind::DrainCompleted),
            },
            Some(before) if before.left != drain.left && !drain.left.is_empty() => Some(EntryKind::DrainBlocked),
            Some(_) => None,
        };
        let Some(kind) = kind else { return };
        let details = drain.left.iter().map(blocker_detail).collect();
        let entry = self.push(now, kind);
        entry.node = Some(node.name.clone());
        entry.details = details;
        entry.code = match kind {
            EntryKind::DrainTimeout => Some(RuntimeCode::DrainTimeout.code()),
            EntryKind::DrainBlocked => Some(RuntimeCode::DrainBlockedStateful.code()),
            _ => None,
        };
    }
}

/// A replica that is left on a draining node, and what keeps it there.
fn blocker_detail(left: &UndrainedReplica) -> (String, Detail) {
    let why = match &left.why {
        DrainBlocker::Stateful { volumes } if !volumes.is_empty() => {
            let names = volumes.iter().map(ToString::to_string);
            Detail::List(std::iter::once(left.why.code().to_owned()).chain(names).collect())
        }
        other => Detail::Text(other.code().to_owned()),
    };
    (left.slot.replica_id(&left.group), why)
}
