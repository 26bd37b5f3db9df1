//! The commands of the fixture `format-1-sequel`: those of `format-1`, then the kinds of commands and plan items it lacks.
//!
//! Never changed: the fixture was written from these. A kind added later gets a file and a fixture of its own.

use std::{collections::BTreeMap, net::Ipv6Addr, time::Duration};

use longshore_model::{
    Actor, Attempt, Capacity, Command, DeploymentPlan, Evacuation, Generation, GroupKey, GroupPlan, MemberId,
    NamespaceName, NodePlan, Placement, Plan, PlanItem, Platform, RolloutNumber, RuntimeCode, SlotIndex, SlotKey,
    StateIndex, Time,
    access::{AccessCommand, NodeMembership, NodeRole, Sealed, SealedItem},
    command::RolloutControl,
    drain::{DrainBlocker, UndrainedReplica},
    node::NodeFingerprint,
    rebalance::{Dimension, MoveCause, RebalanceScore, Share},
    rollout::{RolloutChange, RolloutFailure, StepFailure, StepOutcome},
};
use longshore_store::replicated::{Fingerprint, IdempotencyKey, Proposal};

use crate::first_commands;

pub(crate) fn commands() -> Vec<Proposal> {
    let by_bob = |command| Proposal {
        command,
        key: None,
        request: None,
        actor: Actor::Node("b".into()),
        at: Time(1_700_000_100_000),
    };
    let mut all = first_commands::commands();
    all.extend(node_and_rollout_commands().into_iter().chain(plans()).chain(access_commands()).map(by_bob));
    let command = Command::ControlRollout {
        namespace: NamespaceName::default_namespace(),
        deployment: "shop".into(),
        control: RolloutControl::Resume,
        at: Time(130_000),
    };
    let request = Some(Fingerprint::of([b"POST".as_slice(), b"/v1/deployments/shop/resume", b"{}"]));
    let key = Some(IdempotencyKey::new("asked-with-a-fingerprint").unwrap());
    all.push(Proposal { key, request, ..Proposal::by_system(command, Time(130_000)) });
    all
}

fn node_and_rollout_commands() -> Vec<Command> {
    let survey = NodeFingerprint {
        platform: Platform::new("linux", "arm64"),
        capacity: Capacity { cpu_millis: 4_000, memory_bytes: 4 << 30, ..Capacity::default() },
        drivers: [longshore_model::Driver::Docker].into(),
        engine_labels: BTreeMap::from([("os".to_owned(), "alpine".to_owned())]),
        plugins: ["volume/local".to_owned()].into(),
        network: None,
        flags: longshore_model::NodeAttributes::default(),
    };
    let steer = |word, at| Command::ControlRollout {
        namespace: NamespaceName::default_namespace(),
        deployment: "shop".into(),
        control: word,
        at: Time(at),
    };
    vec![
        Command::Refresh { node: "a".into(), fingerprint: Box::new(survey) },
        steer(RolloutControl::Pause, 101_000),
        steer(RolloutControl::Promote, 102_000),
        Command::RecordExec { group: group("web"), slot: slot(0) },
        Command::RecordBackup,
    ]
}

/// One of each plan item. Most are stale and change nothing, which must stay so.
fn plans() -> Vec<Command> {
    let generation = Generation(1);
    let failed = StepOutcome::Failed(StepFailure::StepTimeout);
    let items = vec![
        PlanItem::Restart { key: slot(1).generation(generation), attempt: Attempt(1) },
        PlanItem::GiveUp { key: slot(1).generation(generation), code: RuntimeCode::RestartExhausted },
        PlanItem::Reschedule { key: slot(1).generation(generation), delay: Duration::from_secs(5) },
        PlanItem::Step { slot: slot(0), rollout: RolloutNumber(4), outcome: StepOutcome::UnderWay },
        PlanItem::Step { slot: slot(0), rollout: RolloutNumber(4), outcome: failed },
        PlanItem::NoRoom { since: Time(105_000) },
        PlanItem::Promote,
        PlanItem::Stop(slot(0).generation(generation)),
        PlanItem::Place(moved()),
        PlanItem::Close(slot(2)),
        PlanItem::Collect(slot(2).generation(generation)),
        PlanItem::EvenOutDone,
    ];
    let left = vec![
        UndrainedReplica { group: group("db"), slot: slot(0), why: DrainBlocker::Stateful { volumes: Vec::new() } },
        UndrainedReplica { group: group("web"), slot: slot(1), why: DrainBlocker::Moving },
    ];
    let drain = NodePlan::Drain {
        node: "c".into(),
        since: Time(73_000),
        outcome: longshore_model::DrainOutcome::TimedOut,
        left,
    };
    let paused = Evacuation::Paused { since: Time(106_000), gone: vec!["b".into()], nodes: 3 };
    let failure =
        RolloutFailure { service: "web".into(), slot: slot(0), code: StepFailure::StepTimeout, observed: None };
    let about = |change| DeploymentPlan {
        namespace: NamespaceName::default_namespace(),
        deployment: "shop".into(),
        rollout: RolloutNumber(4),
        change,
    };
    let plan = Plan {
        made_from: StateIndex(40),
        made_at: Time(107_000),
        groups: vec![GroupPlan { group: group("web"), reservation: std::sync::Arc::default(), items }],
        nodes: vec![drain, NodePlan::Evacuation(paused), NodePlan::Forget { node: "z".into(), removed_at: Time(1) }],
        deployments: vec![
            about(RolloutChange::AwaitPromotion),
            about(RolloutChange::Pause(failure.clone())),
            about(RolloutChange::Abort(failure)),
            about(RolloutChange::RolledBack),
            about(RolloutChange::Complete),
        ],
        wake_at: None,
    };
    vec![Command::Commit(Box::new(plan))]
}

fn moved() -> Placement {
    let share = |millionths| Some(Share(millionths));
    Placement {
        key: slot(0).generation(Generation(2)),
        node: "a".into(),
        address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9),
        new_volumes: Vec::new(),
        devices: longshore_model::device::TakenDevices::default(),
        reservation: Some(std::sync::Arc::default()),
        moved: Some(Box::new(RebalanceScore {
            cause: MoveCause::Pressure,
            src: "c".into(),
            dst: Some("a".into()),
            dominant: Some(Dimension::Cpu),
            relief: share(120_000),
            score: share(100_000),
            move_cost: Share(20_000),
            src_before: share(900_000),
            src_after: share(780_000),
            dst_before: share(100_000),
            dst_after: share(220_000),
        })),
    }
}

fn access_commands() -> Vec<Command> {
    let sealed = |key| Sealed { key, bytes: vec![1, 2, 254, 255] };
    let (namespace, name) = (NamespaceName::default_namespace, || "api-key".into());
    let seat = NodeMembership {
        member: MemberId(9),
        address: "10.0.0.9:7474".to_owned(),
        certificate: vec![48, 139],
        fingerprint: "f9".into(),
        key: "k9".into(),
        role: NodeRole::Server,
        token: Some("t1".into()),
        token_digest: Some("p1".into()),
        since: Time(120_000),
    };
    let secret = SealedItem::Secret { namespace: namespace(), name: name(), version: 1 };
    let commands = [
        AccessCommand::UseKey { key: 2 },
        AccessCommand::Reseal { what: SealedItem::Authority, sealed: sealed(2) },
        AccessCommand::Reseal { what: secret, sealed: sealed(2) },
        AccessCommand::RemoveSecret { namespace: namespace(), name: name() },
        AccessCommand::RevokeToken { id: "o1".into() },
        AccessCommand::Recover { node: "n9".into(), membership: seat },
    ];
    commands.map(|command| Command::Access(Box::new(command))).into()
}

fn group(service: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: "shop".into(), service: service.into() }
}

fn slot(index: u32) -> SlotKey {
    SlotKey::Index(SlotIndex(index))
}
