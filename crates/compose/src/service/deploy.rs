//! `deploy`: replicas, placement, resources and update policy.

use longshore_model::{
    ServiceKind,
    constraint::Constraint,
    service::{EndpointMode, FailureAction, RestartCondition, UpdateOrder, UpdatePolicy},
};

use super::{ServiceRead, ServiceReader};
use crate::{
    constraint::{self, ConstraintError},
    diagnostic::Location,
    keys::{self, Rule},
    reader::Extensions,
    yaml::{Key, Node},
};

/// Most constraints, preferences or affinities in one list.
pub(super) const MAX_RULES: usize = 100;

const MODES: [(&str, ServiceKind); 4] = [
    ("replicated", ServiceKind::Service),
    ("global", ServiceKind::System),
    ("replicated-job", ServiceKind::Batch),
    ("global-job", ServiceKind::Sysbatch),
];
const ENDPOINT_MODES: [(&str, EndpointMode); 2] = [("vip", EndpointMode::Vip), ("dnsrr", EndpointMode::Dnsrr)];
const CONDITIONS: [(&str, RestartCondition); 3] =
    [("any", RestartCondition::Any), ("on-failure", RestartCondition::OnFailure), ("none", RestartCondition::None)];
const ORDERS: [(&str, UpdateOrder); 2] =
    [("start-first", UpdateOrder::StartFirst), ("stop-first", UpdateOrder::StopFirst)];
const ACTIONS: [(&str, FailureAction); 3] =
    [("rollback", FailureAction::Rollback), ("pause", FailureAction::Pause), ("continue", FailureAction::Continue)];

/// Keys of `deploy`.
pub(crate) static DEPLOY_KEYS: &[Rule<ServiceRead>] = &[
    Rule::honoured(
        "endpoint_mode",
        |r, k, n| r.endpoint_mode(k, n),
        "in the overlay its name leads to one address (`vip`) or to the running replicas (`dnsrr`)",
    ),
    Rule::honoured(
        "labels",
        |r, k, n| r.spec.labels = r.filled_pairs(k, n),
        "set on the service, not on its containers",
    ),
    Rule::honoured("mode", |r, k, n| r.mode(k, n), "`replicated`, `global`, `replicated-job`, `global-job`"),
    Rule::honoured("placement", |r, k, n| r.section(k, n, PLACEMENT_KEYS), "see below"),
    Rule::honoured("replicas", |r, k, n| r.raw.replicas = r.given_count(k, n), "1 unless said; refused with global"),
    Rule::honoured("resources", |r, k, n| r.section(k, n, RESOURCE_KEYS), "see below"),
    Rule::honoured(
        "restart_policy",
        |r, k, n| {
            r.raw.restart_policy = !n.is_null();
            r.section(k, n, RESTART_KEYS);
        },
        "refines when a replica that ended starts again",
    ),
    Rule::honoured("rollback_config", |r, k, n| r.rollback_config(k, n), "as `update_config`, for rolling back"),
    Rule::honoured("update_config", |r, k, n| r.update_config(k, n), "how every change rolls, not only images"),
];

/// Keys of `deploy.placement`.
pub(crate) static PLACEMENT_KEYS: &[Rule<ServiceRead>] = &[
    Rule::honoured("constraints", |r, k, n| r.constraints(k, n), "all must hold; Swarm's language and more operators"),
    Rule::honoured("max_replicas_per_node", |r, k, n| r.max_replicas_per_node(k, n), "0 is no limit"),
    Rule::honoured("preferences", |r, k, n| r.preferences(k, n), "`spread: node.labels.x`, outermost first"),
];

/// Keys of `deploy.resources`.
pub(crate) static RESOURCE_KEYS: &[Rule<ServiceRead>] = &[
    Rule::honoured("limits", |r, k, n| r.section(k, n, LIMIT_KEYS), "what the replica cannot exceed"),
    Rule::honoured("reservations", |r, k, n| r.section(k, n, RESERVATION_KEYS), "what a node must have left"),
];

/// Keys of `deploy.resources.limits`.
pub(crate) static LIMIT_KEYS: &[Rule<ServiceRead>] = &[
    Rule::honoured("cpus", |r, k, n| r.spec.resources.cpu_limit_millis = r.cpus(k, n), "cores"),
    Rule::honoured(
        "memory",
        |r, k, n| r.spec.resources.memory_limit_bytes = r.bytes(k, n),
        "counted in full on the node, never overcommitted",
    ),
    Rule::honoured("pids", |r, k, n| r.spec.container.limits.pids = r.signed(k, n), "processes"),
];

/// Keys of `deploy.resources.reservations`.
pub(crate) static RESERVATION_KEYS: &[Rule<ServiceRead>] = &[
    Rule::honoured("cpus", |r, k, n| r.spec.resources.cpu_reservation_millis = r.cpus(k, n), "cores; soft"),
    Rule::honoured(
        "devices",
        |r, k, n| r.reserved_devices(k, n),
        "counted by kind on the node and handed to the engine",
    ),
    Rule::honoured("generic_resources", |r, k, n| r.generic_resources(k, n), "counted by kind on the node"),
    Rule::honoured(
        "memory",
        |r, k, n| r.spec.resources.memory_reservation_bytes = r.bytes(k, n),
        "counted where there is no limit",
    ),
];

/// Keys of `deploy.restart_policy`.
pub(crate) static RESTART_KEYS: &[Rule<ServiceRead>] = &[
    Rule::honoured(
        "condition",
        |r, k, n| r.restart_condition(k, n),
        "`any` (without `max_attempts` as `restart: always`), `on-failure`, `none` (as `restart: no`)",
    ),
    Rule::honoured(
        "delay",
        |r, k, n| r.spec.restart.delay = r.duration(k, n),
        "replaces the back-off 0 s, 5 s, 10 s … 5 min",
    ),
    Rule::honoured(
        "max_attempts",
        |r, k, n| r.max_attempts(k, n),
        "restarts in a row before giving up; 2 unless said, 0 is without end",
    ),
    Rule::honoured("window", |r, k, n| r.spec.restart.window = r.duration(k, n), "running that long clears the count"),
];

type UpdateRead = fn(&mut UpdatePolicy, &mut ServiceReader<'_>, &Key, &Node);

/// Keys of `deploy.update_config` and `deploy.rollback_config`.
pub(crate) static UPDATE_KEYS: &[Rule<UpdateRead>] = &[
    Rule::honoured("delay", |u, s, k, n| u.delay = s.duration(k, n).unwrap_or(u.delay), "pause between steps"),
    Rule::honoured(
        "failure_action",
        |u, s, k, n| u.failure_action = s.word(k, n, &ACTIONS).unwrap_or_default(),
        "`rollback` unless said, `pause`, `continue`",
    ),
    Rule::honoured(
        "max_failure_ratio",
        |e, s, k, n| ServiceReader::max_failure_ratio(e, s, k, n),
        "share of failed steps tolerated, 0 to 1",
    ),
    Rule::honoured(
        "monitor",
        |u, s, k, n| u.monitor = s.duration(k, n).unwrap_or(u.monitor),
        "time a step must run well; 5 s unless said",
    ),
    Rule::honoured(
        "order",
        |u, s, k, n| u.order = s.word(k, n, &ORDERS),
        "`start-first` where both can coexist, unless said",
    ),
    Rule::honoured(
        "parallelism",
        |e, s, k, n| ServiceReader::parallelism(e, s, k, n),
        "slots at once, 1 unless said; 0 is all; caps `x-longshore.surge`",
    ),
];

impl ServiceReader<'_> {
    pub(super) fn deploy(&mut self, key: &Key, node: &Node) {
        self.section(key, node, DEPLOY_KEYS);
    }

    /// Reads a mapping whose keys belong to the service.
    pub(super) fn section(&mut self, key: &Key, node: &Node, table: &'static [Rule<ServiceRead>]) {
        if node.is_null() {
            return;
        }
        let what = self.of(key);
        let Some(mapping) = self.problems.mapping(node, &what) else { return };
        for (read, key, node) in keys::dispatch(table, mapping, &what, self.problems) {
            read(self, key, node);
        }
    }

    pub(super) fn word<T: Copy>(&mut self, key: &Key, node: &Node, words: &[(&str, T)]) -> Option<T> {
        let what = self.of(key);
        self.problems.choice(node, what, words)
    }

    fn mode(&mut self, key: &Key, node: &Node) {
        self.raw.mode = self.word(key, node, &MODES);
    }

    fn endpoint_mode(&mut self, key: &Key, node: &Node) {
        self.spec.endpoint_mode = self.word(key, node, &ENDPOINT_MODES).unwrap_or_default();
    }

    fn constraints(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(items) = self.problems.short_sequence(node, &what, MAX_RULES) else { return };
        for item in items {
            if let Some(constraint) = self.constraint(item, &what) {
                self.spec.placement.constraints.push(constraint);
            }
        }
    }

    pub(super) fn constraint(&mut self, item: &Node, what: &str) -> Option<Constraint> {
        let text = self.problems.text(item, format_args!("an entry of {what}"))?;
        constraint::parse(text).map_err(|error| self.refuse(&error, &item.location)).ok()
    }

    pub(super) fn refuse(&mut self, error: &ConstraintError, location: &Location) {
        let problem = self.problems.error(location, format!("{}: {error}", self.what));
        if let Some(hint) = error.hint() {
            problem.hint(hint);
        }
    }

    fn preferences(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(items) = self.problems.short_sequence(node, &what, MAX_RULES) else { return };
        for item in items {
            let what = format!("an entry of {what}");
            let Some(mapping) = self.problems.mapping(item, &what) else { continue };
            self.problems.known_keys(mapping, &what, &["spread"], Extensions::Allowed);
            let Some(spread) = self.problems.required(item, "spread", &what) else { continue };
            let Some(text) = self.problems.text(spread, &what) else { continue };
            match constraint::parse_attribute(text.trim()) {
                Ok(attribute) => self.spec.placement.preferences.push(attribute),
                Err(error) => self.refuse(&error, &spread.location),
            }
        }
    }

    fn max_replicas_per_node(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        self.spec.placement.max_replicas_per_node = self.problems.count(node, what).filter(|most| *most > 0);
    }

    fn restart_condition(&mut self, key: &Key, node: &Node) {
        let condition = self.word(key, node, &CONDITIONS);
        self.raw.restart_any = condition == Some(RestartCondition::Any);
        self.spec.restart.condition = condition.unwrap_or_default();
    }

    fn max_attempts(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        // Compose counts restarts, the cluster failures: the first failure comes before the first restart. Swarm takes
        // 0 as "never give up".
        self.spec.restart.max_attempts = match self.problems.count(node, what) {
            Some(0) => Some(u32::MAX),
            Some(restarts) => Some(restarts.saturating_add(1)),
            None => None,
        };
    }

    fn update_config(&mut self, key: &Key, node: &Node) {
        let UpdatePolicy { step_timeout, surge, .. } = self.spec.update;
        self.spec.update = UpdatePolicy { step_timeout, surge, ..self.update_policy(key, node) };
    }

    fn rollback_config(&mut self, key: &Key, node: &Node) {
        let mut policy = self.update_policy(key, node);
        // A rollback of a rollback would never end.
        if policy.failure_action == FailureAction::Rollback {
            policy.failure_action = FailureAction::Pause;
            if let Some(given) = node.get("failure_action") {
                let message = format!("a rollback of {} cannot be rolled back", self.what);
                self.problems.error(&given.location, message).hint("write `pause` or `continue`");
            }
        }
        self.spec.rollback = Some(policy);
    }

    fn update_policy(&mut self, key: &Key, node: &Node) -> UpdatePolicy {
        let mut policy = UpdatePolicy::default();
        let what = self.of(key);
        if node.is_null() {
            return policy;
        }
        let Some(mapping) = self.problems.mapping(node, &what) else { return policy };
        for (read, key, node) in keys::dispatch(UPDATE_KEYS, mapping, &what, self.problems) {
            read(&mut policy, self, key, node);
        }
        policy
    }

    fn max_failure_ratio(policy: &mut UpdatePolicy, reader: &mut Self, key: &Key, node: &Node) {
        let what = reader.of(key);
        let Some(ratio) = reader.problems.millionths(node, &what) else { return };
        match u32::try_from(ratio) {
            Ok(ratio) if ratio <= 1_000_000 => policy.max_failure_ratio_millionths = ratio,
            Ok(_) | Err(_) => drop(reader.problems.error(&node.location, format!("{what} must be from 0 to 1"))),
        }
    }

    fn parallelism(policy: &mut UpdatePolicy, reader: &mut Self, key: &Key, node: &Node) {
        let what = reader.of(key);
        policy.parallelism = reader.problems.count(node, what);
    }
}
