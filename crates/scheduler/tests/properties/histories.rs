//! Random histories: actions of operators, nodes and time on a cluster.
//!
//! Owns: the kinds of steps. Commands about unknown things are part of the test: the state machine refuses them.

use std::{sync::Arc, time::Duration};

use longshore_model::{
    Health, Intent, Node, ReplicaState, ServiceSpec,
    command::{Quota, RolloutControl},
    settings::Preemption,
    units::MIB,
};
use proptest::{collection::vec, option, prelude::*, sample::select, strategy::Strategy};

use super::{
    random_nodes::{NODES, Terse, node},
    random_services::{DEPLOYMENTS, SECRETS, SERVICES, service},
};

/// Services of one manifest, by position in [`SERVICES`].
pub(super) type Manifest = Vec<(usize, Terse<Arc<ServiceSpec>>)>;

/// One step of a history.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Join(u8, Terse<Box<Node>>),
    Label(u8, &'static str, &'static str),
    SetIntent(u8, Intent),
    Health(u8, Health),
    UseDegraded(u8),
    Configure {
        default_memory_bytes: u64,
        cpu_overcommit_millionths: u64,
        preemption: Preemption,
    },
    Apply(usize, Manifest),
    Scale(usize, usize, u32),
    Remove(usize),
    /// To the previous revision, or to one by its number.
    Rollback(usize, Option<u64>),
    ControlRollout(usize, RolloutControl),
    Restart(usize, usize),
    Stop(usize),
    Start(usize),
    EvenOut,
    Secret(usize, u64),
    Quota(Quota),
    /// One replica, chosen by a number, is observed in a state.
    Observe(u16, ReplicaState, Target),
    /// Every node that is not down runs and stops its replicas as desired.
    Settle,
    Wait(Duration),
    /// The scheduler plans, and the plan is committed.
    Decide,
}

/// Whether an observation names the current attempt of a known replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Current,
    OldAttempt,
    OldGeneration,
    UnknownSlot,
    UnknownGroup,
}

/// Some nodes and manifests, followed by random steps.
pub(super) fn history(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    let machines = vec((0..NODES, node()).prop_map(|(name, node)| Step::Join(name, Terse(Box::new(node)))), 1..7);
    let manifests = vec(apply(), 1..4);
    (machines, manifests, vec(step(), 0..steps))
        .prop_map(|(machines, manifests, lifecycle)| machines.into_iter().chain(manifests).chain(lifecycle).collect())
}

/// The same with preemption and a quota, from the start and changing: there one decision leads to the next.
pub(super) fn tight_history(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![12 => step(), 1 => quota(), 1 => settings()];
    let settings = settings().prop_map(|step| match step {
        Step::Configure { default_memory_bytes, cpu_overcommit_millionths, .. } => {
            Step::Configure { default_memory_bytes, cpu_overcommit_millionths, preemption: Preemption::On }
        }
        other => other,
    });
    (settings, quota(), history(steps / 2), vec(step, 0..steps / 2))
        .prop_map(|(settings, quota, early, late)| [settings, quota].into_iter().chain(early).chain(late).collect())
}

fn apply() -> impl Strategy<Value = Step> {
    let services = vec((0..SERVICES.len(), service().prop_map(Terse)), 0..3);
    (0..DEPLOYMENTS.len(), services).prop_map(|(deployment, services)| Step::Apply(deployment, services))
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => Just(Step::Decide),
        6 => Just(Step::Settle),
        4 => apply(),
        10 => of_replicas(),
        8 => of_nodes(),
        4 => of_operators(),
        3 => (0..5400_u64).prop_map(|secs| Step::Wait(Duration::from_secs(secs))),
        5 => (0..15_u64).prop_map(|secs| Step::Wait(Duration::from_secs(secs))),
    ]
}

fn of_replicas() -> impl Strategy<Value = Step> {
    let state = select(vec![
        ReplicaState::Pulling,
        ReplicaState::Starting,
        ReplicaState::Running,
        ReplicaState::Degraded,
        ReplicaState::Stopped,
        ReplicaState::Failed,
        ReplicaState::Failed,
        ReplicaState::Completed,
    ]);
    let target = prop_oneof![
        12 => Just(Target::Current),
        1 => select(vec![Target::OldAttempt, Target::OldGeneration, Target::UnknownSlot, Target::UnknownGroup]),
    ];
    (any::<u16>(), state, target).prop_map(|(which, state, target)| Step::Observe(which, state, target))
}

fn of_nodes() -> impl Strategy<Value = Step> {
    let health =
        select(vec![Health::Ready, Health::Ready, Health::Suspect, Health::Down, Health::Down, Health::Degraded]);
    let intent = select(vec![Intent::Active, Intent::Active, Intent::Paused, Intent::Draining, Intent::Removed]);
    let label = (select(vec!["zone", "rack"]), select(vec!["", "a", "b", "1"]));
    prop_oneof![
        3 => (0..NODES, node()).prop_map(|(name, node)| Step::Join(name, Terse(Box::new(node)))),
        2 => (0..NODES, label).prop_map(|(node, (label, value))| Step::Label(node, label, value)),
        3 => (0..NODES, health).prop_map(|(node, health)| Step::Health(node, health)),
        2 => (0..NODES, intent).prop_map(|(node, intent)| Step::SetIntent(node, intent)),
        1 => (0..NODES).prop_map(Step::UseDegraded),
    ]
}

fn of_operators() -> impl Strategy<Value = Step> {
    let replicas = prop_oneof![6 => 0_u32..6, 1 => 6_u32..41];
    prop_oneof![
        5 => (0..DEPLOYMENTS.len(), 0..SERVICES.len(), replicas).prop_map(|(d, s, n)| Step::Scale(d, s, n)),
        1 => (0..DEPLOYMENTS.len()).prop_map(Step::Remove),
        3 => of_rollouts(),
        1 => Just(Step::EvenOut),
        2 => (0..SECRETS.len(), 1_u64..4).prop_map(|(name, version)| Step::Secret(name, version)),
        1 => quota(),
        1 => settings(),
    ]
}

/// Rollout commands of operators.
fn of_rollouts() -> impl Strategy<Value = Step> {
    let words = vec![
        RolloutControl::Pause,
        RolloutControl::Resume,
        RolloutControl::Resume,
        RolloutControl::Promote,
        RolloutControl::Promote,
    ];
    prop_oneof![
        2 => (0..DEPLOYMENTS.len(), option::of(1_u64..5)).prop_map(|(d, to)| Step::Rollback(d, to)),
        3 => (0..DEPLOYMENTS.len(), select(words)).prop_map(|(d, word)| Step::ControlRollout(d, word)),
        2 => (0..DEPLOYMENTS.len(), 0..SERVICES.len()).prop_map(|(d, s)| Step::Restart(d, s)),
        1 => (0..DEPLOYMENTS.len()).prop_map(Step::Stop),
        1 => (0..DEPLOYMENTS.len()).prop_map(Step::Start),
    ]
}

fn quota() -> impl Strategy<Value = Step> {
    let memory = option::of(select(vec![0, 100 * MIB, 1000 * MIB]));
    let quota = (option::of(0_u64..20), memory, option::of(select(vec![0_u64, 500, 5000])));
    quota.prop_map(|(replicas, memory_bytes, cpu_millis)| Step::Quota(Quota { replicas, memory_bytes, cpu_millis }))
}

fn settings() -> impl Strategy<Value = Step> {
    let preemption = select(vec![Preemption::Off, Preemption::On]);
    (select(vec![0, 64 * MIB]), select(vec![1_000_000_u64, 4_000_000]), preemption).prop_map(
        |(default_memory_bytes, cpu_overcommit_millionths, preemption)| Step::Configure {
            default_memory_bytes,
            cpu_overcommit_millionths,
            preemption,
        },
    )
}
