//! Admission under a quota.

use std::sync::Arc;

use longshore_model::{
    DeploymentSpec, Driver, ServiceName,
    replica::{Detail, Details},
    service::Resources,
    units::MIB,
};

use super::*;

fn service(replicas: u32, memory_mib: u64) -> ServiceSpec {
    let resources = Resources { memory_limit_bytes: Some(memory_mib * MIB), ..Resources::default() };
    ServiceSpec { replicas, resources, ..ServiceSpec::default() }
}

fn apply(deployment: &str, services: &[(&str, ServiceSpec)]) -> Command {
    let services = services.iter().map(|(name, spec)| (ServiceName::from(*name), Arc::new(spec.clone()))).collect();
    let spec = Box::new(DeploymentSpec { services, ..DeploymentSpec::default() });
    Command::Apply {
        namespace: NamespaceName::default_namespace(),
        deployment: deployment.into(),
        spec,
        rerun: longshore_model::command::Rerun::IfChanged,
    }
}

fn scale(deployment: &str, service: &str, replicas: u32) -> Command {
    let namespace = NamespaceName::default_namespace();
    Command::Scale { group: GroupKey { namespace, deployment: deployment.into(), service: service.into() }, replicas }
}

/// `shop/web` with two replicas of 256 MiB each, under a quota.
fn shop(quota: Quota) -> State {
    let mut state = State::default();
    state.apply(Command::SetQuota { namespace: NamespaceName::default_namespace(), quota }).unwrap();
    state.apply(apply("shop", &[("web", service(2, 256))])).unwrap();
    state
}

#[test]
fn a_scale_beyond_the_quota_is_refused_with_the_numbers() {
    let state = shop(Quota { replicas: Some(4), ..Quota::default() });
    assert_eq!(state.admits(&scale("shop", "web", 4)), Ok(()));
    let refused = state.admits(&scale("shop", "web", 5)).unwrap_err();
    assert_eq!(refused.code(), "quota_exceeded");
    assert_eq!(
        refused.to_string(),
        "the replicas quota of namespace `default` is 4, 2 in use, and 3 more would be needed"
    );
    let expected: Details = [
        ("dimension".to_owned(), Detail::Text("replicas".to_owned())),
        ("limit".to_owned(), Detail::Number(4)),
        ("current_usage".to_owned(), Detail::Number(2)),
        ("requested_delta".to_owned(), Detail::Number(3)),
    ]
    .into();
    assert_eq!(refused.details(), expected);
}

#[test]
fn memory_includes_the_overhead_of_the_driver() {
    let state = shop(Quota { memory_bytes: Some(1024 * MIB), ..Quota::default() });
    assert_eq!(state.admits(&scale("shop", "web", 4)), Ok(()));
    let small_machine = ServiceSpec { driver: Driver::Microvm, ..service(2, 256) };
    let refused = state.admits(&apply("lab", &[("vm", small_machine)])).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the memory quota of namespace `default` is 1 GiB, 512 MiB in use, and 640 MiB more would be needed"
    );
}

#[test]
fn an_apply_counts_the_groups_it_replaces_only_once() {
    let state = shop(Quota { replicas: Some(3), ..Quota::default() });
    assert_eq!(state.admits(&apply("shop", &[("web", service(1, 0)), ("api", service(2, 0))])), Ok(()));
    assert!(state.admits(&apply("other", &[("api", service(2, 0))])).is_err());
}

#[test]
fn requesting_less_is_admitted_even_above_a_lowered_quota() {
    let mut state = shop(Quota::default());
    let quota = Quota { replicas: Some(0), memory_bytes: Some(0), cpu_millis: Some(0) };
    state.apply(Command::SetQuota { namespace: NamespaceName::default_namespace(), quota }).unwrap();
    assert_eq!(state.admits(&scale("shop", "web", 1)), Ok(()));
    assert_eq!(state.admits(&scale("shop", "web", 2)), Ok(()));
    assert!(state.admits(&scale("shop", "web", 3)).is_err());
}

#[test]
fn commands_admitted_by_two_servers_at_once_are_both_applied_and_left_to_the_scheduler() {
    let mut state = shop(Quota { replicas: Some(3), ..Quota::default() });
    let (one, other) = (scale("shop", "web", 3), apply("lab", &[("job", service(1, 0))]));
    assert_eq!((state.admits(&one), state.admits(&other)), (Ok(()), Ok(())));
    state.apply(one).unwrap();
    assert!(state.admits(&other).is_err());
    assert!(state.apply(other).is_ok(), "applied; the scheduler lets it wait with quota_exceeded");
}

#[test]
fn a_cluster_is_not_asked_for_more_than_its_nodes_could_run() {
    let mut state = shop(Quota::default());
    let most = u32::try_from(REPLICAS_PER_NODE).unwrap();
    assert!(state.admits(&apply("blog", &[("web", service(most - 2, 1))])).is_ok());
    let many = apply("blog", &[("a", service(most, 1)), ("b", service(1_000_000, 1))]);
    for command in [many, scale("shop", "web", most + 1)] {
        let refused = state.admits(&command).unwrap_err();
        assert_eq!(refused.code(), "too_many_replicas", "{refused}");
    }
    // What was admitted when there were more nodes may shrink.
    state.apply(apply("big", &[("web", service(3 * most, 1))])).unwrap();
    assert!(state.admits(&scale("big", "web", 2 * most)).is_ok());
    assert!(state.admits(&scale("big", "web", 4 * most)).is_err());
}
