//! Constraints on a node's attributes. All constraints of a service must hold.
//!
//! Owns: the evaluation of a constraint, also for affinities. Must not touch: manifest text, which the `compose` crate
//! parses. A value that cannot be parsed here (such as an invalid version) never matches.
//! Invariant: a rule is compiled once per spec, not once per node.
//!
//! Deliberate differences from Nomad:
//!
//! | case | Nomad | here | why |
//! | --- | --- | --- | --- |
//! | `!=`, node without the attribute | true unless the value is missing too | true | a value is never missing here |
//! | `==`, `in`, sets | case counts | case does not count | as in Swarm, whose files we read |
//! | `<` beyond 64 bits, many decimals | rounded to a float | exact | no floats in decisions |
//! | `<` with an exponent, `inf`, `0x1` | a number | a string | not used in labels, and it would need floats |
//! | `<` with units on node labels | a string | a quantity, as on devices | `9 GiB` is less than `10 GiB` everywhere |
//! | `alpha` and `alpha.beta` | the longer is older | the longer is newer | the SemVer standard both claim |
//! | `node.platform.arch == x86_64` | matches what the node reports | matches `amd64` too | one architecture, two names |

mod address;
mod bounds;
mod order;
mod quantity;
mod version;

use longshore_model::{
    Attribute, Constraint, Node, Operator, Reason, Refusal, ServiceSpec,
    constraint::PATTERN_LIMIT_BYTES,
    node::canonical_arch,
    service::{DeviceAffinity, DeviceConstraint, DeviceRequest},
};
use regex::{Regex, RegexBuilder};

use self::{
    address::Network,
    bounds::{Bounds, Dialect},
};
use super::{CandidateNode, Filter, Nature, Scope};
use crate::{request::PlacementRequest, view::classes::value};

pub(super) const FILTER: Filter =
    Filter { reason: Reason::ConstraintUnsatisfied, nature: Nature::Attribute, scope, check, explain };

/// A constraint on a node's name or address is evaluated per node, any other per class.
fn scope(request: &PlacementRequest) -> Scope {
    let constraints = &request.spec.placement.constraints;
    if constraints.is_empty() {
        Scope::Idle
    } else if constraints.iter().any(|constraint| constraint.attribute.is_unique()) {
        Scope::Node
    } else {
        Scope::Class
    }
}

fn check(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> bool {
    request.rules.constraints.iter().all(|rule| rule.holds(candidate.node))
}

fn explain(request: &PlacementRequest, candidate: &CandidateNode<'_>) -> Refusal {
    let broken = request.rules.constraints.iter().find(|rule| !rule.holds(candidate.node));
    let broken = &broken.expect("explain is only called after check failed").constraint;
    Refusal::Constraint { constraint: broken.to_string(), found: value(candidate.node, &broken.attribute) }
}

/// The compiled constraints and affinities of a service, for nodes and their devices.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) constraints: Vec<Rule>,
    /// Each with its weight.
    pub(crate) affinities: Vec<(Rule, i64)>,
    /// The rules of each device request, in the order of the requests.
    pub(crate) devices: Vec<DeviceRules>,
}

/// The compiled constraints and affinities of one device request, evaluated against a device group.
#[derive(Debug, Default)]
pub(crate) struct DeviceRules {
    pub(crate) constraints: Vec<Rule>,
    /// Each with its attribute and weight.
    pub(crate) affinities: Vec<(String, Rule, i64)>,
}

impl DeviceRules {
    fn of(request: &DeviceRequest) -> Self {
        let like = |like: &DeviceAffinity| {
            (like.matches.attribute.clone(), Rule::for_device(&like.matches), i64::from(like.weight))
        };
        Self {
            constraints: request.constraints.iter().map(Rule::for_device).collect(),
            affinities: request.affinities.iter().map(like).collect(),
        }
    }
}

impl Rules {
    pub(crate) fn of(spec: &ServiceSpec) -> Self {
        let placement = &spec.placement;
        let affinities = placement.affinities.iter();
        let requests = spec.resources.device_requests.iter();
        Self {
            constraints: placement.constraints.iter().map(Rule::new).collect(),
            affinities: affinities.map(|like| (Rule::new(&like.matches), i64::from(like.weight))).collect(),
            devices: requests.map(DeviceRules::of).collect(),
        }
    }
}

/// One compiled constraint.
#[derive(Debug)]
pub(crate) struct Rule {
    constraint: Constraint,
    test: Test,
}

/// The test applied to a node's value. A `None` inside stands for an operand that could not be parsed.
#[derive(Debug)]
enum Test {
    OneOf(Vec<String>),
    NoneOf(Vec<String>),
    Within(Vec<Option<Network>>),
    Outside(Option<Network>),
    Order(fn(std::cmp::Ordering) -> bool),
    Pattern(Option<Regex>),
    Bounds(Option<Bounds>),
    ContainsAll(Vec<String>),
    ContainsAny(Vec<String>),
    Set,
    NotSet,
}

impl Rule {
    pub(crate) fn new(constraint: &Constraint) -> Self {
        Self { test: Test::of(constraint), constraint: constraint.clone() }
    }

    /// Compiles a device constraint. A device attribute is a named string, so it is treated like a node label.
    fn for_device(asked: &DeviceConstraint) -> Self {
        let attribute = Attribute::Label(asked.attribute.clone());
        Self::new(&Constraint { attribute, operator: asked.operator, value: asked.value.clone() })
    }

    /// Whether an attribute value satisfies the constraint; `None` is a missing attribute.
    pub(crate) fn holds_for(&self, found: Option<&str>) -> bool {
        self.test.holds(found, &self.constraint.value)
    }

    /// Whether a node satisfies the constraint.
    pub(crate) fn holds(&self, node: &Node) -> bool {
        match &self.test {
            Test::Within(networks) => node.ip.is_some_and(|ip| networks.iter().flatten().any(|one| one.contains(ip))),
            Test::Outside(network) => {
                node.ip.is_none_or(|ip| network.as_ref().is_some_and(|network| !network.contains(ip)))
            }
            test => test.holds(value(node, &self.constraint.attribute).as_deref(), &self.constraint.value),
        }
    }
}

impl Test {
    fn of(constraint: &Constraint) -> Self {
        let text = constraint.value.as_str();
        let is_ip = constraint.attribute == Attribute::Ip;
        let single = || vec![fold(&constraint.attribute, text)];
        let listed = || text.split(',').map(|one| fold(&constraint.attribute, one.trim())).collect();
        match constraint.operator {
            Operator::Equal if is_ip => Self::Within(vec![Network::parse(text)]),
            Operator::NotEqual if is_ip => Self::Outside(Network::parse(text)),
            Operator::In if is_ip => Self::Within(text.split(',').map(|one| Network::parse(one.trim())).collect()),
            Operator::Equal => Self::OneOf(single()),
            Operator::NotEqual => Self::NoneOf(single()),
            Operator::In => Self::OneOf(listed()),
            Operator::Less => Self::Order(std::cmp::Ordering::is_lt),
            Operator::LessOrEqual => Self::Order(std::cmp::Ordering::is_le),
            Operator::Greater => Self::Order(std::cmp::Ordering::is_gt),
            Operator::GreaterOrEqual => Self::Order(std::cmp::Ordering::is_ge),
            Operator::Regexp => Self::Pattern(pattern(text)),
            Operator::Version => Self::Bounds(Bounds::parse(text, Dialect::Version)),
            Operator::Semver => Self::Bounds(Bounds::parse(text, Dialect::Semver)),
            Operator::SetContains => Self::ContainsAll(listed()),
            Operator::SetContainsAny => Self::ContainsAny(listed()),
            Operator::IsSet => Self::Set,
            Operator::IsNotSet => Self::NotSet,
        }
    }

    /// Whether the test holds for the value `found`; `wanted` is the constraint's operand.
    fn holds(&self, found: Option<&str>, wanted: &str) -> bool {
        let Some(found) = found else { return matches!(self, Self::NoneOf(_) | Self::NotSet) };
        match self {
            Self::OneOf(values) => values.contains(&found.to_lowercase()) || is_quantity_of(found, wanted),
            Self::NoneOf(values) => !values.contains(&found.to_lowercase()) && !is_quantity_of(found, wanted),
            Self::Order(fits) => order::compare(found, wanted).is_some_and(fits),
            Self::Pattern(pattern) => pattern.as_ref().is_some_and(|pattern| pattern.is_match(found)),
            Self::Bounds(bounds) => bounds.as_ref().is_some_and(|bounds| bounds.contain(found)),
            Self::ContainsAll(values) => values.iter().all(|value| members(found).any(|one| one == *value)),
            Self::ContainsAny(values) => values.iter().any(|value| members(found).any(|one| one == *value)),
            Self::Set => true,
            // Addresses are handled in `Rule::holds`, on the node's typed address.
            Self::NotSet | Self::Within(_) | Self::Outside(_) => false,
        }
    }
}

/// Normalises a value for comparison: lower case, and an architecture by its canonical name.
fn fold(attribute: &Attribute, text: &str) -> String {
    if *attribute == Attribute::Arch { canonical_arch(text) } else { text.to_lowercase() }
}

/// Whether a value equals the wanted quantity, or one in a comma list of them, in any unit.
fn is_quantity_of(found: &str, wanted: &str) -> bool {
    wanted.split(',').any(|one| order::same_quantity(found, one))
}

fn members(list: &str) -> impl Iterator<Item = String> {
    list.split(',').map(|one| one.trim().to_lowercase())
}

/// Compiles a pattern, which may match anywhere in the value. Returns `None` for one beyond the size limit: a few
/// characters such as `(\w{99}){99}` would otherwise cost gigabytes.
fn pattern(text: &str) -> Option<Regex> {
    RegexBuilder::new(text).size_limit(PATTERN_LIMIT_BYTES).dfa_size_limit(PATTERN_LIMIT_BYTES).build().ok()
}

#[cfg(test)]
mod tests;
