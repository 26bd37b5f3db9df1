//! Test vectors for every operator, taken from Nomad's tests; results differ where the module header says so.

use longshore_model::NodeNumber;

use super::*;

fn node(label: Option<&str>) -> Node {
    Node {
        number: NodeNumber(1),
        ip: Some("10.1.2.3".parse().unwrap()),
        labels: label.map(|label| ("x".to_owned(), label.to_owned())).into_iter().collect(),
        ..Node::new("n1")
    }
}

fn rule(attribute: Attribute, operator: Operator, value: &str) -> Rule {
    Rule::new(&Constraint { attribute, operator, value: value.to_owned() })
}

fn label_holds(found: Option<&str>, operator: Operator, value: &str) -> bool {
    rule(Attribute::Label("x".to_owned()), operator, value).holds(&node(found))
}

#[test]
fn every_operator_matches_its_vectors() {
    for (found, operator, value, expected) in [
        (Some("foo"), Operator::Equal, "foo", true),
        (Some("Foo"), Operator::Equal, "fOO", true),
        (Some("foo"), Operator::Equal, "bar", false),
        (Some("foo"), Operator::NotEqual, "bar", true),
        (Some("foo"), Operator::NotEqual, "foo", false),
        (Some("foo"), Operator::Less, "bar", false),
        (Some("10"), Operator::Less, "1", false),
        (Some("1"), Operator::Less, "10", true),
        (Some("10.5"), Operator::Less, "1.5", false),
        (Some("1"), Operator::Greater, "foo", false),
        (Some("3"), Operator::LessOrEqual, "3.0", true),
        (Some("3"), Operator::GreaterOrEqual, "3.0", true),
        (Some("3"), Operator::Greater, "3.0", false),
        (Some("1.2.3"), Operator::Version, "~> 1.0", true),
        (Some("1.4"), Operator::Version, ">= 1.0, < 1.4", false),
        (Some("1.3.0-beta1"), Operator::Version, ">= 0.6.1", false),
        (Some("1.3.0-beta1"), Operator::Semver, ">= 0.6.1", true),
        (Some("1.2.3"), Operator::Semver, "~> 1.0", false),
        (Some("foobar"), Operator::Regexp, "bar", true),
        (Some("foobar"), Operator::Regexp, "^bar", false),
        (Some("foobar"), Operator::Regexp, "(", false),
        (Some("foo,bar,baz"), Operator::SetContains, "foo, bar ", true),
        (Some("foo, bar,baz"), Operator::SetContains, "bar,foo", true),
        (Some("foo,bar,baz"), Operator::SetContains, "foo,bam", false),
        (Some("foo,bar,baz"), Operator::SetContainsAny, "bam, Bar", true),
        (Some("foo,bar,baz"), Operator::SetContainsAny, "bam,ba", false),
        (Some("foo"), Operator::In, "bar, FOO", true),
        (Some("foo"), Operator::In, "foobar,fo", false),
        (Some("foo"), Operator::IsSet, "", true),
        (Some(""), Operator::IsSet, "", true),
        (Some("foo"), Operator::IsNotSet, "", false),
    ] {
        assert_eq!(label_holds(found, operator, value), expected, "{found:?} {} {value}", operator.as_str());
    }
}

#[test]
fn a_node_without_the_attribute_satisfies_only_not_equal_and_is_not_set() {
    for operator in [
        Operator::Equal,
        Operator::NotEqual,
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Greater,
        Operator::GreaterOrEqual,
        Operator::Regexp,
        Operator::Version,
        Operator::Semver,
        Operator::SetContains,
        Operator::SetContainsAny,
        Operator::IsSet,
        Operator::IsNotSet,
        Operator::In,
    ] {
        let expected = matches!(operator, Operator::NotEqual | Operator::IsNotSet);
        assert_eq!(label_holds(None, operator, "1.0"), expected, "{}", operator.as_str());
    }
}

#[test]
fn an_address_is_compared_as_an_address() {
    let holds = |operator, value| rule(Attribute::Ip, operator, value).holds(&node(None));
    assert!(holds(Operator::Equal, "10.1.2.3") && holds(Operator::Equal, "10.1.0.0/16"));
    assert!(!holds(Operator::Equal, "10.2.0.0/16") && holds(Operator::NotEqual, "10.2.0.0/16"));
    assert!(holds(Operator::In, "192.168.0.0/16, 10.1.2.0/24"));
    assert!(!holds(Operator::NotEqual, "not an address"));
    let mut without_address = node(None);
    without_address.ip = None;
    assert!(rule(Attribute::Ip, Operator::NotEqual, "10.1.2.3").holds(&without_address));
    assert!(rule(Attribute::Ip, Operator::IsNotSet, "").holds(&without_address));
    assert!(!rule(Attribute::Ip, Operator::In, "10.0.0.0/8").holds(&without_address));
}

#[test]
fn an_architecture_matches_under_both_of_its_names() {
    let holds = |operator, value| rule(Attribute::Arch, operator, value).holds(&node(None));
    assert!(holds(Operator::Equal, "x86_64") && holds(Operator::Equal, "AMD64"));
    assert!(holds(Operator::In, "aarch64, x86_64"));
    assert!(!holds(Operator::NotEqual, "x86_64") && holds(Operator::NotEqual, "aarch64"));
}

#[test]
fn a_pattern_beyond_the_size_limit_matches_nothing() {
    assert!(!label_holds(Some("aaaa"), Operator::Regexp, r"(\w{99}){99}"));
    assert!(label_holds(Some("rack-12"), Operator::Regexp, r"^rack-\d{1,3}$"));
}
