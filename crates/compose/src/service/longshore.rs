//! `x-longshore` on a service: settings that Compose has no key for.

mod devices;

use std::{collections::BTreeMap, fmt::Display};

use longshore_model::{
    Driver, NodeName, PoolName, SecretName, ServiceName, Strategy,
    service::{
        Affinity, Batching, Canary, Companion, DelayFunction, Disconnect, DistinctProperty, PoolSelector, Promotion,
        Rebalance, Reconcile, Replace, Reschedule, SpreadTarget, Strength,
    },
};

use super::{ServiceRead, ServiceReader, deploy::MAX_RULES, resolve::Located};
use crate::{
    constraint,
    diagnostic::Diagnostics,
    keys::{self, Rule},
    reader::Extensions,
    yaml::{Key, Mapping, Node, Value},
};

/// The values of `placement`.
const STRATEGIES: [(&str, Strategy); 6] = [
    ("spread", Strategy::Spread),
    ("least_loaded", Strategy::LeastLoaded),
    ("hosts", Strategy::Hosts),
    ("global", Strategy::Global),
    ("binpack", Strategy::Binpack),
    ("hash", Strategy::Hash),
];
/// Reads `placement` of `x-longshore` or of the overlay; JACO's `pack` is accepted and is not suggested.
pub(crate) fn read_strategy(problems: &mut Diagnostics, node: &Node, what: impl Display) -> Option<Strategy> {
    match node.as_text().and_then(Strategy::from_name) {
        Some(strategy) => Some(strategy),
        None => problems.choice(node, what, &STRATEGIES),
    }
}

const DRIVERS: [(&str, Driver); 3] = [("docker", Driver::Docker), ("exec", Driver::Exec), ("microvm", Driver::Microvm)];
const REBALANCE: [(&str, Rebalance); 3] =
    [("on", Rebalance::On), ("off", Rebalance::Off), ("on-join", Rebalance::OnJoin)];
const RECONCILE: [(&str, Reconcile); 4] = [
    ("keep_replacement", Reconcile::KeepReplacement),
    ("keep_original", Reconcile::KeepOriginal),
    ("best_score", Reconcile::BestScore),
    ("longest_running", Reconcile::LongestRunning),
];
const DELAYS: [(&str, DelayFunction); 3] = [
    ("constant", DelayFunction::Constant),
    ("exponential", DelayFunction::Exponential),
    ("fibonacci", DelayFunction::Fibonacci),
];

/// Keys of `x-longshore` on a service.
pub(crate) static LONGSHORE_KEYS: &[Rule<ServiceRead>] = &[
    Rule::honoured("affinities", |r, k, n| r.affinities(k, n), "list of `{match, weight}`, weight -100 to 100"),
    Rule::honoured("all_or_nothing", |r, k, n| r.all_or_nothing(k, n), "a batch is placed whole or not at all"),
    Rule::honoured("auto_promote", |r, k, n| r.auto_promote(k, n), "healthy canaries go on by themselves"),
    Rule::honoured(
        "away_from",
        |r, k, n| r.spec.placement.away_from = r.companions(k, n, "away_from"),
        "services not to share a node with; `{service, weight}` is a wish",
    ),
    Rule::honoured("canary", |r, k, n| r.canary(k, n), "slots tried first and held until promoted"),
    Rule::honoured(
        "devices",
        |r, k, n| r.device_requests_key(k, n),
        "list of `{device, count, constraints, affinities}`, e.g. `nvidia/gpu`, 1 and `memory >= 40 GiB`: all of one group of equal devices",
    ),
    Rule::honoured(
        "disconnect",
        |r, k, n| r.disconnect(k, n),
        "`lost_after`, `replace`, `reconcile` when the node is lost from sight",
    ),
    Rule::honoured("distinct_hosts", |r, k, n| r.distinct_hosts(k, n), "at most one of the service per node"),
    Rule::honoured(
        "distinct_property",
        |r, k, n| r.distinct_property(k, n),
        "an attribute, or `{attribute, limit}`: so many per value",
    ),
    Rule::honoured(
        "driver",
        |r, k, n| r.spec.driver = r.word(k, n, &DRIVERS).unwrap_or_default(),
        "`docker`, `exec` or `microvm`",
    ),
    Rule::honoured("hosts", |r, k, n| r.hosts(k, n), "nodes for `placement: hosts`; one not known yet is waited for"),
    Rule::honoured("max_concurrent", |r, k, n| r.max_concurrent(k, n), "replicas of a job that run at once"),
    Rule::honoured("max_skew", |r, k, n| r.max_skew(k, n), "largest difference between branches of each spread level"),
    Rule::honoured(
        "near",
        |r, k, n| r.spec.placement.near = r.companions(k, n, "near"),
        "services to share a node with; `{service, weight}` is a wish",
    ),
    Rule::honoured(
        "placement",
        |r, k, n| r.strategy(k, n),
        "`spread`, `least_loaded` (JACO's `pack` is accepted), `hosts`, `global`, `binpack`, `hash`",
    ),
    Rule::honoured("pool", |r, k, n| r.pool(k, n), "only nodes of that pool; `all` is any"),
    Rule::honoured("priority", |r, k, n| r.priority(k, n), "0 to 100, 50 unless said; higher is placed first"),
    Rule::honoured(
        "rebalance",
        |r, k, n| r.rebalance(k, n),
        "whether replicas may leave a hot node: `on` (default), `off`, or `on-join`, which also evens the spread when a node comes",
    ),
    Rule::honoured(
        "reschedule",
        |r, k, n| r.reschedule(k, n),
        "`attempts`, `interval`, `delay`, `delay_function`, `max_delay`, `unlimited`",
    ),
    Rule::honoured(
        "secrets_required",
        |r, k, n| r.secrets_required(k, n),
        "names the cluster must have before anything is placed",
    ),
    Rule::honoured("spread", |r, k, n| r.spread(k, n), "list of `{over, targets: {value: percent}, weight}`"),
    Rule::honoured(
        "step_timeout",
        |r, k, n| r.spec.update.step_timeout = r.duration(k, n),
        "time a rollout step may take",
    ),
    Rule::honoured(
        "surge",
        |r, k, n| r.spec.update.surge = r.positive(k, n),
        "slots with two generations at once; a quarter of the replicas and at least 3 unless said",
    ),
];

impl ServiceReader<'_> {
    pub(super) fn longshore(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        if node.is_null() {
            return;
        }
        let Some(mapping) = self.problems.mapping(node, &what) else { return };
        for (key, _) in mapping.iter().filter(|(key, _)| key.name.starts_with("x-")) {
            self.problems.unknown_key(key, &what, &[]);
        }
        for (read, key, node) in keys::dispatch(LONGSHORE_KEYS, mapping, &what, self.problems) {
            read(self, key, node);
        }
    }

    fn strategy(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        self.raw.strategy =
            read_strategy(self.problems, node, what).map(|value| Located { value, location: node.location.clone() });
    }

    fn hosts(&mut self, key: &Key, node: &Node) {
        let value = self.texts(key, node).into_iter().map(NodeName::new).collect();
        self.raw.hosts = Some(Located { value, location: node.location.clone() });
    }

    fn pool(&mut self, key: &Key, node: &Node) {
        self.spec.placement.pool = match self.text(key, node).as_deref() {
            Some("all") => PoolSelector::All,
            Some("default") | None => PoolSelector::Default,
            Some(name) => PoolSelector::Named(PoolName::from(name)),
        };
    }

    fn priority(&mut self, key: &Key, node: &Node) {
        if let Some(priority) = self.ranged(key, node, 0, 100) {
            self.spec.priority = u8::try_from(priority).unwrap_or(100);
        }
    }

    /// A whole number between two inclusive bounds.
    fn ranged(&mut self, key: &Key, node: &Node, least: i64, most: i64) -> Option<i64> {
        let what = self.of(key);
        let number = self.problems.signed(node, &what)?;
        if (least..=most).contains(&number) {
            return Some(number);
        }
        self.problems.error(&node.location, format!("{what} must be from {least} to {most}, not {number}"));
        None
    }

    fn positive(&mut self, key: &Key, node: &Node) -> Option<u32> {
        self.ranged(key, node, 1, i64::from(u32::MAX)).and_then(|number| u32::try_from(number).ok())
    }

    fn affinities(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(items) = self.problems.short_sequence(node, &what, MAX_RULES) else { return };
        for item in items {
            let what = format!("an entry of {what}");
            let Some(mapping) = self.problems.mapping(item, &what) else { continue };
            self.problems.known_keys(mapping, &what, &["match", "weight"], Extensions::Refused);
            let matches = self.problems.required(item, "match", &what);
            let matches = matches.and_then(|node| self.constraint(node, &what));
            if let (Some(matches), Some(weight)) = (matches, self.weight(mapping)) {
                self.spec.placement.affinities.push(Affinity { matches, weight });
            }
        }
    }

    /// The weight of an affinity; 50 by default.
    fn weight(&mut self, mapping: &Mapping) -> Option<i32> {
        let weight = match mapping.entry("weight") {
            Some((key, node)) => self.ranged(key, node, -100, 100)?,
            None => 50,
        };
        i32::try_from(weight).ok()
    }

    fn spread(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(items) = self.problems.sequence(node, &what) else { return };
        for item in items {
            if let Some(target) = self.spread_target(item, &format!("an entry of {what}")) {
                let preferences = &mut self.spec.placement.preferences;
                // Without target shares it is the same as a preference, which the default strategy uses, too.
                if target.percent.is_empty() && !preferences.contains(&target.over) {
                    preferences.push(target.over.clone());
                }
                self.spec.placement.spread_targets.push(target);
            }
        }
    }

    fn spread_target(&mut self, item: &Node, what: &str) -> Option<SpreadTarget> {
        let mapping = self.problems.mapping(item, what)?;
        self.problems.known_keys(mapping, what, &["over", "targets", "weight"], Extensions::Refused);
        let over = self.problems.required(item, "over", what)?;
        let text = self.problems.text(over, what)?;
        let over =
            constraint::parse_attribute(text.trim()).map_err(|error| self.refuse(&error, &over.location)).ok()?;
        let weight = match mapping.entry("weight") {
            Some((key, node)) => self.ranged(key, node, 1, 100).and_then(|weight| u32::try_from(weight).ok())?,
            None => 50,
        };
        let percent = mapping.get("targets").map(|node| self.targets(node, what)).unwrap_or_default();
        if let Some((key, _)) = mapping.entry("targets").filter(|_| !percent.is_empty()) {
            self.raw.shares.get_or_insert_with(|| key.location.clone());
        }
        Some(SpreadTarget { over, weight, percent })
    }

    fn targets(&mut self, node: &Node, what: &str) -> BTreeMap<String, u32> {
        let mut percent = BTreeMap::new();
        let Some(mapping) = self.problems.mapping(node, format_args!("`targets` of {what}")) else { return percent };
        for (key, node) in mapping.iter() {
            if let Some(share) = self.ranged(key, node, 0, 100) {
                percent.insert(key.name.to_string(), u32::try_from(share).unwrap_or(0));
            }
        }
        let total: u32 = percent.values().sum();
        if total > 100 {
            self.problems
                .error(&node.location, format!("`targets` of {what} add up to {total} percent, more than 100"));
        }
        percent
    }

    fn canary(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        self.spec.canary = Canary { count: self.problems.count(node, what).unwrap_or(0), ..self.spec.canary };
    }

    fn auto_promote(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        if self.problems.boolean(node, what) == Some(true) {
            self.spec.canary.promotion = Promotion::Automatic;
        }
    }

    fn disconnect(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(mapping) = self.problems.mapping(node, &what) else { return };
        self.problems.known_keys(mapping, &what, &["lost_after", "replace", "reconcile"], Extensions::Refused);
        let mut disconnect = Disconnect::default();
        for (key, node) in mapping.iter() {
            match &*key.name {
                "lost_after" => disconnect.lost_after = self.duration(key, node),
                "replace" => {
                    let what = self.of(key);
                    if self.problems.boolean(node, what) == Some(false) {
                        disconnect.replace = Replace::Never;
                    }
                }
                "reconcile" => disconnect.reconcile = self.word(key, node, &RECONCILE).unwrap_or_default(),
                _ => {}
            }
        }
        self.spec.disconnect = disconnect;
    }

    fn reschedule(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let Some(mapping) = self.problems.mapping(node, &what) else { return };
        let known = ["attempts", "interval", "delay", "delay_function", "max_delay", "unlimited"];
        self.problems.known_keys(mapping, &what, &known, Extensions::Refused);
        let mut policy = Reschedule::default();
        let mut unlimited = false;
        for (key, node) in mapping.iter() {
            match &*key.name {
                "attempts" => policy.attempts = self.positive(key, node),
                "interval" => policy.interval = self.duration(key, node).unwrap_or(policy.interval),
                "delay" => policy.delay = self.duration(key, node).unwrap_or(policy.delay),
                "max_delay" => policy.max_delay = self.duration(key, node).unwrap_or(policy.max_delay),
                "delay_function" => policy.delay_function = self.word(key, node, &DELAYS).unwrap_or_default(),
                "unlimited" => {
                    let what = self.of(key);
                    unlimited = self.problems.boolean(node, what) == Some(true);
                }
                _ => {}
            }
        }
        if unlimited && policy.attempts.is_some() {
            self.problems
                .error(&key.location, format!("{what} is `unlimited` and has `attempts`"))
                .hint("keep one of them");
        }
        self.spec.reschedule = Some(policy);
    }

    fn distinct_hosts(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        if self.problems.boolean(node, what) == Some(true) {
            self.spec.placement.distinct_hosts = true;
        }
    }

    fn distinct_property(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        let items = node.as_sequence().unwrap_or(std::slice::from_ref(node));
        for item in items {
            let (attribute, limit) = match &item.value {
                Value::Mapping(mapping) => {
                    self.problems.known_keys(mapping, &what, &["attribute", "limit"], Extensions::Refused);
                    let limit = mapping.entry("limit").map_or(Some(1), |(key, node)| self.positive(key, node));
                    (self.problems.required(item, "attribute", &what), limit)
                }
                Value::Scalar(_) | Value::Sequence(_) => (Some(item), Some(1)),
            };
            let (Some(attribute), Some(limit)) = (attribute, limit) else { continue };
            let Some(text) = self.problems.text(attribute, &what) else { continue };
            match constraint::parse_attribute(text.trim()) {
                Ok(attribute) => {
                    self.spec.placement.distinct_property.push(DistinctProperty { attribute, limit });
                }
                Err(error) => self.refuse(&error, &attribute.location),
            }
        }
    }

    fn companions(&mut self, key: &Key, node: &Node, word: &'static str) -> Vec<Companion> {
        let what = self.of(key);
        let items = node.as_sequence().unwrap_or(std::slice::from_ref(node));
        items.iter().filter_map(|item| self.companion(item, &what, word)).collect()
    }

    fn companion(&mut self, item: &Node, what: &str, word: &'static str) -> Option<Companion> {
        if let Some(name) = item.as_text() {
            self.refer(word, name, &item.location);
            return Some(Companion { service: ServiceName::from(name), strength: Strength::Hard });
        }
        let what = format!("an entry of {what}");
        let mapping = self.problems.mapping(item, &what)?;
        self.problems.known_keys(mapping, &what, &["service", "weight"], Extensions::Refused);
        let service = self.problems.required(item, "service", &what)?;
        let (name, location) = (self.problems.text(service, &what)?, &service.location);
        self.refer(word, name, location);
        let service = ServiceName::from(name);
        let strength = match mapping.entry("weight") {
            None => Strength::Hard,
            Some((key, node)) => Strength::Preferred(i32::try_from(self.ranged(key, node, 1, 100)?).ok()?),
        };
        Some(Companion { service, strength })
    }

    /// YAML 1.1 tools turn `on` and `off` into booleans, so those are accepted as well.
    fn rebalance(&mut self, key: &Key, node: &Node) {
        self.spec.rebalance = match node.as_text() {
            Some("true") => Rebalance::On,
            Some("false") => Rebalance::Off,
            Some(_) | None => self.word(key, node, &REBALANCE).unwrap_or_default(),
        };
    }

    fn max_skew(&mut self, key: &Key, node: &Node) {
        self.spec.placement.max_skew = self.positive(key, node);
    }

    fn all_or_nothing(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        if self.problems.boolean(node, what) == Some(true) {
            self.spec.placement.batching = Batching::AllOrNothing;
        }
    }

    fn max_concurrent(&mut self, key: &Key, node: &Node) {
        self.raw.max_concurrent = Some(key.location.clone());
        self.spec.max_concurrent = self.positive(key, node);
    }

    fn secrets_required(&mut self, key: &Key, node: &Node) {
        let names = self.texts(key, node);
        self.spec.secrets_required.extend(names.into_iter().map(SecretName::new));
    }
}
