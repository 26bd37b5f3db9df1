//! A node runs only services that select its pool; the selector `all` matches every node.

use longshore_model::{Reason, Refusal, service::PoolSelector};

use super::{CandidateNode, Filter, Nature, Scope};
use crate::request::PlacementRequest;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::PoolUnavailable, nature: Nature::Attribute, scope, check, explain };

/// The pool of nodes without an explicit pool.
const DEFAULT_POOL: &str = "default";

fn scope(request: &PlacementRequest) -> Scope {
    match request.spec.placement.pool {
        PoolSelector::All => Scope::Idle,
        PoolSelector::Default | PoolSelector::Named(_) => Scope::Class,
    }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    match &request.spec.placement.pool {
        PoolSelector::All => true,
        PoolSelector::Default => candidate.node.pool.as_str() == DEFAULT_POOL,
        PoolSelector::Named(pool) => candidate.node.pool == *pool,
    }
}

fn explain(_: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    Refusal::Pool { pool: candidate.node.pool.to_string() }
}
