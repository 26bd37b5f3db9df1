//! Rules of policies against what manifests ask.

use super::*;

fn policy(rule: PolicyRule, values: &[&str]) -> NamespacePolicy {
    let mut policy = NamespacePolicy::default();
    policy.set(rule, values.iter().map(|value| (*value).to_owned()).collect());
    policy
}

#[test]
fn a_path_is_allowed_by_whole_components() {
    let policy = policy(PolicyRule::BindMounts, &["/srv/team"]);
    for allowed in ["/srv/team", "/srv/team/", "/srv//team/a", "/srv/./team/a"] {
        assert!(policy.allows(PolicyRule::BindMounts, allowed), "{allowed}");
    }
    for denied in ["/", "/srv", "/srv/team2", "/srv/team/../prod", "srv/team", ""] {
        assert!(!policy.allows(PolicyRule::BindMounts, denied), "{denied}");
    }
}

#[test]
fn an_image_is_allowed_by_its_full_name() {
    let policy = policy(PolicyRule::Images, &["ghcr.io/team", "nginx", "docker.io/library/redis:7"]);
    for allowed in ["ghcr.io/team/web:1", "nginx", "nginx:1.27", "docker.io/library/nginx@sha256:0", "redis:7"] {
        assert!(policy.allows(PolicyRule::Images, allowed), "{allowed}");
    }
    for denied in ["ghcr.io/team2/web", "nginx-evil", "evil/nginx", "redis:8", "ghcr.io.evil/team/web"] {
        assert!(!policy.allows(PolicyRule::Images, denied), "{denied}");
    }
}

#[test]
fn ports_are_single_or_ranges() {
    let policy = policy(PolicyRule::HostPorts, &["8080", "30000-30010"]);
    assert!(policy.allows(PolicyRule::HostPorts, "8080") && policy.allows(PolicyRule::HostPorts, "30010"));
    assert!(!policy.allows(PolicyRule::HostPorts, "30011") && !policy.allows(PolicyRule::HostPorts, "any"));
}

#[test]
fn everything_does_not_include_root_nor_names_that_the_cluster_gave() {
    let policy = NamespacePolicy::allow_all_but_exec_as_root();
    assert!(policy.allows(PolicyRule::ExecUsers, "nobody"));
    assert!(!policy.allows(PolicyRule::ExecUsers, ROOT));
    assert!(!policy.allows(PolicyRule::ExecUsers, "nobody:docker"), "a group is allowed by name only");
    assert!(policy.allows(PolicyRule::EngineNames, "shared"));
    assert!(!policy.allows(PolicyRule::EngineNames, "longshore_prod.bank_data"));
    let all = NamespacePolicy::allow_all();
    assert!(all.allows(PolicyRule::ExecUsers, ROOT) && all.allows(PolicyRule::EngineNames, "longshore_prod.bank_data"));
}

#[test]
fn a_rule_has_one_name_everywhere() {
    for rule in PolicyRule::ALL {
        assert_eq!(PolicyRule::named(rule.as_str()), Some(*rule));
    }
}
