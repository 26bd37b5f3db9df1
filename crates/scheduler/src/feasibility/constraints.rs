//! What a service demands of a node's attributes. All constraints must hold.
//!
//! Owns: the truth of a constraint; affinities ask here too. Must not touch: text, which the `compose` room reads. What
//! cannot be read here all the same (a version that is none) holds nowhere.
//! Invariant: a rule is made ready once for a spec, not once for a node.
//!
//! Where the answer differs from Nomad's, on purpose:
//!
//! | case | Nomad | here | why |
//! | --- | --- | --- | --- |
//! | `!=`, node without the attribute | true unless the value is missing too | true | a value is never missing here |
//! | `==`, `in`, sets | case counts | case does not count | as in Swarm, whose files we read |
//! | `<` beyond 64 bits, many decimals | rounded to a float | exact | no floats in decisions |
//! | `<` with an exponent, `inf`, `0x1` | a number | a text | nobody labels nodes so, and floats would come back |
//! | `<` with units on node labels | a text | an amount, as on devices | `9 GiB` is less than `10 GiB` everywhere |
//! | `alpha` and `alpha.beta` | the longer is the older | the longer is the newer | the standard both claim |
//! | `node.platform.arch == x86_64` | matches what the node reports | matches `amd64` too | one machine, two names |

mod address;
mod amount;
mod bounds;
mod order;
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
use super::{Filter, Nature, Scope, Site};
use crate::{ask::Ask, view::classes::value};

pub(super) const FILTER: Filter =
    Filter { reason: Reason::ConstraintUnsatisfied, nature: Nature::Attribute, scope, check, explain };

/// A constraint on a name or address must be put to each node; the others to a class.
fn scope(ask: &Ask) -> Scope {
    let constraints = &ask.spec.placement.constraints;
    if constraints.is_empty() {
        Scope::Idle
    } else if constraints.iter().any(|constraint| constraint.attribute.is_unique()) {
        Scope::Node
    } else {
        Scope::Class
    }
}

fn check(ask: &Ask, site: &Site<'_>) -> bool {
    ask.rules.constraints.iter().all(|rule| rule.holds(site.node))
}

fn explain(ask: &Ask, site: &Site<'_>) -> Refusal {
    let broken = ask.rules.constraints.iter().find(|rule| !rule.holds(site.node));
    let broken = &broken.expect("only asked where a constraint does not hold").constraint;
    Refusal::Constraint { constraint: broken.to_string(), found: value(site.node, &broken.attribute) }
}

/// The constraints and affinities of a service, ready to be put to nodes and their devices.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) constraints: Vec<Rule>,
    /// With their weights.
    pub(crate) affinities: Vec<(Rule, i64)>,
    /// What each request for devices demands of a group, and likes of it.
    pub(crate) devices: Vec<DeviceRules>,
}

/// What a request for devices asks of a group.
#[derive(Debug, Default)]
pub(crate) struct DeviceRules {
    pub(crate) constraints: Vec<Rule>,
    /// Each with the attribute it is about and its weight.
    pub(crate) affinities: Vec<(String, Rule, i64)>,
}

impl DeviceRules {
    fn of(request: &DeviceRequest) -> Self {
        let like = |like: &DeviceAffinity| {
            (like.matches.attribute.clone(), Rule::of_devices(&like.matches), i64::from(like.weight))
        };
        Self {
            constraints: request.constraints.iter().map(Rule::of_devices).collect(),
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

/// One constraint, ready to be put to nodes.
#[derive(Debug)]
pub(crate) struct Rule {
    constraint: Constraint,
    test: Test,
}

/// What is asked of the value found. `None` inside is what could not be read.
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

    /// The same question about a device: what is known of a device is a text under a name, as a label is.
    fn of_devices(asked: &DeviceConstraint) -> Self {
        let attribute = Attribute::Label(asked.attribute.clone());
        Self::new(&Constraint { attribute, operator: asked.operator, value: asked.value.clone() })
    }

    /// Whether what was found under its name satisfies it.
    pub(crate) fn holds_for(&self, found: Option<&str>) -> bool {
        self.test.holds(found, &self.constraint.value)
    }

    /// Whether a node satisfies it.
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
            Operator::Equal if is_ip => Self::Within(vec![Network::read(text)]),
            Operator::NotEqual if is_ip => Self::Outside(Network::read(text)),
            Operator::In if is_ip => Self::Within(text.split(',').map(|one| Network::read(one.trim())).collect()),
            Operator::Equal => Self::OneOf(single()),
            Operator::NotEqual => Self::NoneOf(single()),
            Operator::In => Self::OneOf(listed()),
            Operator::Less => Self::Order(std::cmp::Ordering::is_lt),
            Operator::LessOrEqual => Self::Order(std::cmp::Ordering::is_le),
            Operator::Greater => Self::Order(std::cmp::Ordering::is_gt),
            Operator::GreaterOrEqual => Self::Order(std::cmp::Ordering::is_ge),
            Operator::Regexp => Self::Pattern(pattern(text)),
            Operator::Version => Self::Bounds(Bounds::read(text, Dialect::Apart)),
            Operator::Semver => Self::Bounds(Bounds::read(text, Dialect::Ordered)),
            Operator::SetContains => Self::ContainsAll(listed()),
            Operator::SetContainsAny => Self::ContainsAny(listed()),
            Operator::IsSet => Self::Set,
            Operator::IsNotSet => Self::NotSet,
        }
    }

    /// Whether it holds for what was found, `wanted` being the constraint's text.
    fn holds(&self, found: Option<&str>, wanted: &str) -> bool {
        let Some(found) = found else { return matches!(self, Self::NoneOf(_) | Self::NotSet) };
        match self {
            Self::OneOf(values) => values.contains(&found.to_lowercase()) || is_amount_of(found, wanted),
            Self::NoneOf(values) => !values.contains(&found.to_lowercase()) && !is_amount_of(found, wanted),
            Self::Order(fits) => order::compare(found, wanted).is_some_and(fits),
            Self::Pattern(pattern) => pattern.as_ref().is_some_and(|pattern| pattern.is_match(found)),
            Self::Bounds(bounds) => bounds.as_ref().is_some_and(|bounds| bounds.hold_for(found)),
            Self::ContainsAll(values) => values.iter().all(|value| members(found).any(|one| one == *value)),
            Self::ContainsAny(values) => values.iter().any(|value| members(found).any(|one| one == *value)),
            Self::Set => true,
            // Addresses are asked of the node itself, before its value is made a text.
            Self::NotSet | Self::Within(_) | Self::Outside(_) => false,
        }
    }
}

/// Values are compared in full and without regard to case; an architecture by its canonical name.
fn fold(attribute: &Attribute, text: &str) -> String {
    if *attribute == Attribute::Arch { canonical_arch(text) } else { text.to_lowercase() }
}

/// Whether a value is the amount asked for, or one of a list, in whatever unit.
fn is_amount_of(found: &str, wanted: &str) -> bool {
    wanted.split(',').any(|one| order::same_amount(found, one))
}

fn members(list: &str) -> impl Iterator<Item = String> {
    list.split(',').map(|one| one.trim().to_lowercase())
}

/// The pattern is looked for anywhere in the value. One that grows beyond the limit is as good as unreadable: a few
/// characters such as `(\w{99}){99}` would otherwise cost gigabytes.
fn pattern(text: &str) -> Option<Regex> {
    RegexBuilder::new(text).size_limit(PATTERN_LIMIT_BYTES).dfa_size_limit(PATTERN_LIMIT_BYTES).build().ok()
}

#[cfg(test)]
mod tests;
