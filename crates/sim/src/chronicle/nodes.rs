//! Entries about nodes: how they do, what operators want of them, how a drain stands.
//!
//! Owns: what a change of a node reads like. Must not touch: what the change leads to.

use std::sync::Arc;

use longshore_model::{
    Drain, DrainOutcome, Evacuation, Health, Intent, Node, NodeName, RuntimeCode, Time,
    drain::{Hindrance, Remainder},
    replica::Detail,
};

use super::{Chronicle, Kind};

impl Chronicle {
    pub(crate) fn leader_changed(&mut self, now: Time) {
        self.push(now, Kind::LeaderChanged);
    }

    pub(super) fn node_gone(&mut self, now: Time, node: &NodeName) {
        self.nodes.remove(node);
        self.push(now, Kind::NodeRemoved).node = Some(node.clone());
    }

    pub(super) fn evacuation_changed(&mut self, now: Time, evacuation: &Evacuation) {
        match evacuation {
            Evacuation::Free => {
                self.push(now, Kind::EvacuationResumed);
            }
            Evacuation::Paused { gone, nodes, .. } => {
                let names = gone.iter().map(NodeName::to_string).collect();
                let details = [("gone", Detail::List(names)), ("nodes", Detail::Number(u64::from(*nodes)))];
                self.push(now, Kind::EvacuationPaused).details =
                    details.map(|(name, detail)| (name.to_owned(), detail)).into();
            }
        }
    }

    pub(super) fn node_changed(&mut self, now: Time, node: &Arc<Node>) {
        let before = self.nodes.insert(node.name.clone(), Arc::clone(node));
        let before = before.as_deref();
        if before.map(|before| before.health) != Some(node.health) {
            let kind = match node.health {
                Health::Ready => Kind::NodeReady,
                Health::Suspect => Kind::NodeSuspect,
                Health::Down => Kind::NodeDown,
                Health::Degraded => Kind::NodeDegraded,
            };
            self.push(now, kind).node = Some(node.name.clone());
        }
        let Some(before) = before else { return };
        if before.confirmed_lost.is_none() && node.confirmed_lost.is_some() {
            self.push(now, Kind::NodeLost).node = Some(node.name.clone());
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
            self.push(now, Kind::DrainCancelled).node = Some(node.name.clone());
        }
        let kind = match node.intent {
            Intent::Active => Kind::NodeReady,
            Intent::Paused => Kind::NodePaused,
            // Told by the drain itself, and by the node's leaving.
            Intent::Draining | Intent::Removed => return,
        };
        self.push(now, kind).node = Some(node.name.clone());
    }

    fn drain_changed(&mut self, now: Time, before: Option<&Drain>, node: &Node) {
        let Some(drain) = &node.drain else { return };
        let news = match before.filter(|before| before.since == drain.since) {
            None => Some(Kind::DrainStarted),
            Some(before) if before.outcome != drain.outcome => match drain.outcome {
                DrainOutcome::UnderWay => None,
                DrainOutcome::TimedOut => Some(Kind::DrainTimeout),
                DrainOutcome::Done => Some(Kind::DrainCompleted),
            },
            Some(before) if before.left != drain.left && !drain.left.is_empty() => Some(Kind::DrainBlocked),
            Some(_) => None,
        };
        let Some(kind) = news else { return };
        let details = drain.left.iter().map(hindered).collect();
        let entry = self.push(now, kind);
        entry.node = Some(node.name.clone());
        entry.details = details;
        entry.code = match kind {
            Kind::DrainTimeout => Some(RuntimeCode::DrainTimeout.code()),
            Kind::DrainBlocked => Some(RuntimeCode::DrainBlockedStateful.code()),
            _ => None,
        };
    }
}

/// A replica and what keeps it.
fn hindered(left: &Remainder) -> (String, Detail) {
    let why = match &left.why {
        Hindrance::Stateful { volumes } if !volumes.is_empty() => {
            let names = volumes.iter().map(ToString::to_string);
            Detail::List(std::iter::once(left.why.code().to_owned()).chain(names).collect())
        }
        other => Detail::Text(other.code().to_owned()),
    };
    (left.slot.printed(&left.group), why)
}
