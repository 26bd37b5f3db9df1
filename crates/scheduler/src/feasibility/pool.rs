//! Nodes of a pool serve only the work that asks for that pool; `all` takes any node.

use longshore_model::{Reason, Refusal, service::PoolWanted};

use super::{Filter, Nature, Scope, Site};
use crate::ask::Ask;

pub(super) const FILTER: Filter =
    Filter { reason: Reason::PoolUnavailable, nature: Nature::Attribute, scope, check, explain };

/// The pool of nodes that were put in none.
const DEFAULT_POOL: &str = "default";

fn scope(ask: &Ask) -> Scope {
    match ask.spec.placement.pool {
        PoolWanted::All => Scope::Idle,
        PoolWanted::Default | PoolWanted::Named(_) => Scope::Class,
    }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    match &ask.spec.placement.pool {
        PoolWanted::All => true,
        PoolWanted::Default => site.node.pool.as_str() == DEFAULT_POOL,
        PoolWanted::Named(pool) => site.node.pool == *pool,
    }
}

fn explain(_: &Ask, site: &Site<'_>) -> Refusal {
    Refusal::Pool { pool: site.node.pool.to_string() }
}
