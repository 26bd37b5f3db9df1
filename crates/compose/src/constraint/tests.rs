//! Examples of the language: Swarm's expressions, Nomad's operators, and expressions that are refused.

use super::*;

fn accepted(expression: &str) -> Constraint {
    parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

fn refused(expression: &str) -> String {
    parse(expression).map_or_else(|error| error.to_string(), |found| panic!("{expression}: accepted as {found}"))
}

#[test]
fn swarm_expressions_have_swarms_meaning() {
    let found = accepted("node.labels.zone==east");
    assert_eq!(found.attribute, Attribute::Label("zone".to_owned()));
    assert_eq!((found.operator, found.value.as_str()), (Operator::Equal, "east"));

    let found = accepted("  node.role  !=  manager ");
    assert_eq!(
        (found.attribute, found.operator, found.value.as_str()),
        (Attribute::Role, Operator::NotEqual, "manager")
    );

    assert_eq!(accepted("NODE.LABELS.Zone == East (new)").attribute, Attribute::Label("Zone".to_owned()));
    assert_eq!(accepted("engine.labels.operatingsystem==ubuntu 24.04").value, "ubuntu 24.04");
    assert_eq!(accepted("node.labels.x == f*o").value, "f*o");
    assert_eq!(accepted("node.ip == 10.0.0.0/8").attribute, Attribute::Ip);
    assert_eq!(accepted("node.ip != fd00::1").value, "fd00::1");
}

#[test]
fn every_nomad_operator_is_accepted() {
    for expression in [
        "node.labels.x < 3",
        "node.labels.x <= 3",
        "node.labels.x > 3",
        "node.labels.x>=3",
        "node.labels.x regexp ^a[0-9]+$",
        "node.labels.x version >= 1.2, < 2.0",
        "node.labels.x version ~> 1.2",
        "node.labels.x semver >= 1.2.0-rc.1",
        "node.labels.x set_contains a,b",
        "node.labels.x set_contains_any a, b",
        "node.labels.x is_set",
        "node.labels.x is_not_set",
        "node.labels.x in a,b,c",
    ] {
        let found = accepted(expression);
        assert_eq!(accepted(&found.to_string()), found, "printing {expression} and reading it again");
    }
}

#[test]
fn an_unknown_key_gets_the_list_of_known_ones() {
    assert_eq!(
        refused("node.abc == x"),
        "`node.abc` names nothing of a node; known are `node.id`, `node.hostname`, `node.ip`, `node.role`, `node.pool`, \
         `node.datacenter`, \
         `node.platform.os`, `node.platform.arch`, `node.labels.<name>` or `engine.labels.<name>`"
    );
    let error = parse("node.hostnme == x").unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean `node.hostname`?"));
    let error = parse("node.labls.zone == x").unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean `node.labels.zone`?"));
    assert!(refused("node.labels. == x").contains("names nothing"));
}

#[test]
fn malformed_expressions_are_refused() {
    for expression in [
        "",
        "==",
        "== x",
        "node.labels.x",
        "node.labels.x =",
        "node.labels.x = y",
        "node.labels.x ==",
        "1node.id == x",
        "node labels == x",
        "node.labels.$x == y",
        "node.labels.x === y",
        "node.labels.x ~ y",
        "node.labels.x == a,b",
        "node.labels.x == a;b",
        "node.labels.x is_set y",
        "node.labels.x in",
        "node.labels.x in a,,b",
    ] {
        refused(expression);
    }
    assert_eq!(parse("node.labels.x = y").unwrap_err().hint().as_deref(), Some("equality is written `==`"));
}

#[test]
fn values_that_could_never_be_evaluated_are_refused() {
    assert_eq!(refused("node.labels.x regexp a("), "`a(` is not a regular expression: unclosed group");
    assert!(refused("node.labels.x regexp (a{1000}){1000}").contains("is too large a regular expression"));
    assert!(refused("node.labels.x version >= one").contains("version bounds"));
    assert!(refused("node.labels.x semver ~> 1.2").contains("semantic version bounds"));
    assert!(refused("node.ip == 10.0.0.300").contains("neither an IP address"));
    assert!(refused("node.ip == 10.0.0.0/33").contains("neither an IP address"));
}
