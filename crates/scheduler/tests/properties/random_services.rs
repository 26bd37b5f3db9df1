//! Random services.
//!
//! Owns: the generators of service specs. Most services request little: those with every rule fit nowhere and test
//! nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use longshore_model::{
    Attribute, Driver, GroupKey, NamespaceName, NodeName, PlacementSpec, Platform, PoolName, SecretName, ServiceKind,
    ServiceName, ServiceSpec, Strategy as PlacementStrategy, VolumeKey, VolumeName,
    service::{
        Access, Affinity, AfterExhaustion, Batching, Canary, Companion, DelayFunction, Dependency, DependencyCondition,
        DistinctProperty, FailureAction, Mount, MountSource, PoolSelector, Port, PortMode, Promotion, Protocol,
        Reschedule, Resources, RestartCondition, RestartPolicy, SpecHash, Strength, UpdateOrder, UpdatePolicy,
    },
    units::MIB,
    volume::Sharing,
};
use proptest::{
    collection::{btree_map, btree_set, vec},
    option,
    prelude::*,
    sample::{select, subsequence},
};

use super::random_nodes::{NODES, constraint, device_request, node_name, preferences};

/// All deployment names, and the service names in each.
pub(super) const DEPLOYMENTS: [&str; 3] = ["blog", "shop", "wiki"];
pub(super) const SERVICES: [&str; 3] = ["db", "job", "web"];
pub(super) const SECRETS: [&str; 2] = ["key", "token"];

pub(super) fn group_key(deployment: &str, service: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: deployment.into(), service: service.into() }
}

/// Any service.
pub(super) fn service() -> impl Strategy<Value = Arc<ServiceSpec>> {
    let asked = (placement(), resources(), attachments());
    (asked, lifecycle(), policies()).prop_map(|((placement, resources, attachments), lifecycle, policies)| {
        let (ports, mounts, secrets_required) = attachments;
        let (rollback, canary, reschedule, max_concurrent, depends_on) = policies;
        let (kind, replicas, priority, driver, update, restart, version) = lifecycle;
        let kind = if placement.strategy == PlacementStrategy::Global { kind.1 } else { kind.0 };
        Arc::new(ServiceSpec {
            kind,
            replicas,
            driver,
            resources,
            ports,
            mounts,
            secrets_required,
            placement,
            priority,
            update,
            restart,
            rollback,
            canary,
            reschedule,
            max_concurrent,
            depends_on,
            spec_hash: SpecHash(format!("v{version}").into()),
            ..ServiceSpec::default()
        })
    })
}

/// A counted, long-running service without the rules that the reference ranking leaves out.
pub(super) fn counted() -> impl Strategy<Value = Arc<ServiceSpec>> {
    service().prop_map(|mut spec| {
        let plain = Arc::make_mut(&mut spec);
        plain.kind = ServiceKind::Service;
        (plain.reschedule, plain.max_concurrent, plain.canary) = Default::default();
        plain.depends_on.clear();
        let placement = &mut plain.placement;
        if matches!(placement.strategy, PlacementStrategy::Global | PlacementStrategy::Binpack) {
            placement.strategy = PlacementStrategy::Spread;
        }
        (placement.distinct_hosts, placement.max_skew, placement.batching) = Default::default();
        (placement.distinct_property, placement.near, placement.away_from) = Default::default();
        if plain.volumes().next().is_some() {
            plain.replicas = plain.replicas.min(1);
        }
        spec
    })
}

fn placement() -> impl Strategy<Value = PlacementSpec> {
    let strategy = select(vec![
        PlacementStrategy::Spread,
        PlacementStrategy::Spread,
        PlacementStrategy::Spread,
        PlacementStrategy::Spread,
        PlacementStrategy::LeastLoaded,
        PlacementStrategy::LeastLoaded,
        PlacementStrategy::Hosts,
        PlacementStrategy::Global,
        PlacementStrategy::Hash,
        PlacementStrategy::Binpack,
    ]);
    let hosts = btree_set((0..NODES).prop_map(node_name), 0..5);
    let pool = select(vec![
        PoolSelector::All,
        PoolSelector::All,
        PoolSelector::Default,
        PoolSelector::Default,
        PoolSelector::Named(PoolName::from("batch")),
    ]);
    let kind = (
        rarely(vec(constraint(), 1..3)),
        rarely(select(vec![Platform::new("linux", "aarch64"), Platform::new("", "amd64"), Platform::new("linux", "")])),
        rarely(Just("volume/nfs".to_owned())),
    );
    let preferred = (preferences(), option::weighted(0.3, 0_u32..4), rarely(vec((constraint(), -100_i32..=100), 1..3)));
    (strategy, hosts, pool, kind, preferred, extra_rules()).prop_map(
        |(strategy, hosts, pool, kind, preferred, extra_rules)| {
            let (distinct_hosts, distinct_property, max_skew, near, away_from, batching) = extra_rules;
            let ((constraints, platforms, plugins), (preferences, max_replicas_per_node, affinities)) =
                (kind, preferred);
            let affinity = |(matches, weight)| Affinity { matches, weight };
            PlacementSpec {
                strategy,
                hosts: if strategy == PlacementStrategy::Hosts { hosts } else { BTreeSet::<NodeName>::new() },
                pool,
                constraints: constraints.unwrap_or_default(),
                preferences,
                max_replicas_per_node,
                platforms: platforms.into_iter().collect(),
                plugins: plugins.into_iter().collect(),
                affinities: affinities.unwrap_or_default().into_iter().map(affinity).collect(),
                distinct_hosts,
                distinct_property,
                max_skew,
                near,
                away_from,
                batching,
                ..PlacementSpec::default()
            }
        },
    )
}

type ExtraRules = (bool, Vec<DistinctProperty>, Option<u32>, Vec<Companion>, Vec<Companion>, Batching);

/// Placement rules `extra_rules` the strategies' table.
fn extra_rules() -> impl Strategy<Value = ExtraRules> {
    let distinct = (select(vec!["zone", "rack"]), 1_u32..4)
        .prop_map(|(label, limit)| DistinctProperty { attribute: Attribute::Label(label.to_owned()), limit });
    let strength = select(vec![Strength::Hard, Strength::Preferred(50)]);
    let companion = (select(SERVICES.to_vec()), strength)
        .prop_map(|(service, strength)| Companion { service: service.into(), strength });
    let companions = option::weighted(0.05, companion).prop_map(|one| one.into_iter().collect::<Vec<_>>());
    (
        prop_oneof![12 => Just(false), 1 => Just(true)],
        option::weighted(0.07, distinct).prop_map(|one| one.into_iter().collect()),
        option::weighted(0.07, 1_u32..3),
        companions.clone(),
        companions,
        prop_oneof![12 => Just(Batching::AsManyAsFit), 1 => Just(Batching::AllOrNothing)],
    )
}

fn rarely<S: Strategy>(of: S) -> impl Strategy<Value = Option<S::Value>> {
    option::weighted(0.15, of)
}

fn resources() -> impl Strategy<Value = Resources> {
    let memory = || option::weighted(0.5, select(vec![0, 64 * MIB, 128 * MIB, 256 * MIB, 600 * MIB]));
    let cpu = || option::weighted(0.4, select(vec![0_u64, 100, 250, 1000, 3000]));
    (memory(), memory(), cpu(), cpu(), rarely(0_u64..3), rarely(device_request())).prop_map(
        |(limit, reservation, cpu_limit, cpu, gpus, request)| Resources {
            cpu_limit_millis: cpu_limit,
            cpu_reservation_millis: cpu,
            memory_limit_bytes: limit,
            memory_reservation_bytes: reservation,
            devices: gpus.map(|gpus| ("gpu".to_owned(), gpus)).into_iter().collect(),
            device_requests: request.into_iter().collect(),
        },
    )
}

type Attachments = (Vec<Port>, Vec<Mount>, BTreeSet<SecretName>);

fn attachments() -> impl Strategy<Value = Attachments> {
    let port = |(published, protocol)| Port {
        target: 80,
        published: Some(published),
        protocol,
        mode: PortMode::Host,
        host_ip: None,
    };
    let ports = vec![(8080, Protocol::Tcp), (8080, Protocol::Udp), (9090, Protocol::Tcp)];
    let ports = rarely(subsequence(ports, 1..3));
    let mounts = rarely(
        select(vec![Sharing::Deployment, Sharing::Exclusive]).prop_flat_map(|sharing| vec(mount(sharing), 1..3)),
    );
    let secrets = rarely(subsequence(SECRETS.to_vec(), 1..3));
    (ports, mounts, secrets).prop_map(move |(ports, mounts, secrets)| {
        let secrets = secrets.unwrap_or_default().into_iter().map(SecretName::from).collect();
        (ports.unwrap_or_default().into_iter().map(port).collect(), mounts.unwrap_or_default(), secrets)
    })
}

/// A volume that any deployment may name, or a bind mount.
fn mount(sharing: Sharing) -> impl Strategy<Value = Mount> {
    let source = prop_oneof![
        4 => select(vec!["data", "logs"]).prop_map(move |name| MountSource::Volume {
            key: VolumeKey { namespace: NamespaceName::default_namespace(), name: VolumeName::from(name) },
            sharing,
            driver: None,
        }),
        1 => Just(MountSource::Bind("/srv".to_owned())),
    ];
    source.prop_map(|source| Mount {
        source,
        target: "/data".to_owned(),
        access: Access::ReadWrite,
        options: std::collections::BTreeMap::new(),
    })
}

type Lifecycle = ((ServiceKind, ServiceKind), u32, u8, Driver, UpdatePolicy, RestartPolicy, u8);

fn lifecycle() -> impl Strategy<Value = Lifecycle> {
    let kind = select(vec![
        (ServiceKind::Service, ServiceKind::System),
        (ServiceKind::Service, ServiceKind::System),
        (ServiceKind::Batch, ServiceKind::Sysbatch),
    ]);
    let replicas = prop_oneof![6 => 0_u32..6, 1 => 6_u32..41];
    let priority = select(vec![50_u8, 50, 10, 90]);
    let driver = select(vec![Driver::Docker, Driver::Docker, Driver::Docker, Driver::Exec, Driver::Microvm]);
    (kind, replicas, priority, driver, update(), restart(), 0_u8..3)
}

fn update() -> impl Strategy<Value = UpdatePolicy> {
    let order = select(vec![None, None, Some(UpdateOrder::StartFirst), Some(UpdateOrder::StopFirst)]);
    let action =
        select(vec![FailureAction::Rollback, FailureAction::Rollback, FailureAction::Pause, FailureAction::Continue]);
    let seconds = |most: u64| (0..most).prop_map(Duration::from_secs);
    let ratio = select(vec![0_u32, 0, 300_000, 1_000_000]);
    let pace = (0_u32..4, option::weighted(0.2, seconds(10)), select(vec![0_u64, 5, 5, 20]));
    (pace, order, action, ratio).prop_map(|((parallelism, delay, monitor), order, failure_action, ratio)| {
        UpdatePolicy {
            parallelism: parallelism.checked_sub(1),
            delay: delay.unwrap_or_default(),
            order,
            monitor: Duration::from_secs(monitor),
            failure_action,
            max_failure_ratio_millionths: ratio,
            step_timeout: None,
            surge: None,
        }
    })
}

type Policies = (Option<UpdatePolicy>, Canary, Option<Reschedule>, Option<u32>, BTreeMap<ServiceName, Dependency>);

/// Rollback policy, canaries, rescheduling, `max_concurrent` and dependencies.
fn policies() -> impl Strategy<Value = Policies> {
    let canary = (1_u32..3, select(vec![Promotion::Manual, Promotion::Automatic]))
        .prop_map(|(count, promotion)| Canary { count, promotion });
    let function = select(vec![DelayFunction::Constant, DelayFunction::Exponential, DelayFunction::Fibonacci]);
    let reschedule = (option::of(0_u32..3), 0_u64..20, function).prop_map(|(attempts, delay, delay_function)| {
        let delay = Duration::from_secs(delay);
        Reschedule { attempts, delay, delay_function, ..Reschedule::default() }
    });
    let condition = select(vec![
        DependencyCondition::ServiceStarted,
        DependencyCondition::ServiceHealthy,
        DependencyCondition::ServiceCompletedSuccessfully,
    ]);
    let dependency = (condition, any::<bool>(), any::<bool>()).prop_map(|(condition, restart, required)| Dependency {
        condition,
        restart,
        required,
    });
    let depends_on = btree_map(select(SERVICES.to_vec()).prop_map(ServiceName::from), dependency, 1..3);
    (
        rarely(update()),
        rarely(canary).prop_map(Option::unwrap_or_default),
        rarely(reschedule),
        rarely(1_u32..3),
        rarely(depends_on).prop_map(Option::unwrap_or_default),
    )
}

fn restart() -> impl Strategy<Value = RestartPolicy> {
    let condition =
        select(vec![RestartCondition::Any, RestartCondition::Any, RestartCondition::OnFailure, RestartCondition::None]);
    let delay = option::weighted(0.3, (0_u64..20).prop_map(Duration::from_secs));
    let after = select(vec![AfterExhaustion::GiveUp, AfterExhaustion::GiveUp, AfterExhaustion::Return]);
    (condition, delay, option::weighted(0.3, 0_u32..8), after).prop_map(
        |(condition, delay, max_attempts, after_exhaustion)| RestartPolicy {
            condition,
            delay,
            max_attempts,
            window: None,
            after_exhaustion,
        },
    )
}
