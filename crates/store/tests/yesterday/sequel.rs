//! What happened after the first story: every kind of command and of decision that is not in it.
//!
//! Never changed: the bytes beside it were written from these. A kind that is added later gets a story and a folder of its
//! own; a test counts them.

use std::{collections::BTreeMap, net::Ipv6Addr, time::Duration};

use longshore_model::{
    Actor, Attempt, Capacity, Command, DeploymentPlan, Evacuation, Generation, GroupKey, GroupPlan, MemberId,
    NamespaceName, NodePlan, Placement, Plan, PlanItem, Platform, RolloutNumber, RuntimeCode, SlotIndex, SlotKey,
    StateIndex, Time,
    access::{AccessCommand, Sealed, SealedThing, Seat, SeatPart},
    command::Steering,
    drain::{Hindrance, Remainder},
    node::Survey,
    rebalance::{Dimension, MoveCause, Share, Weighed},
    rollout::{RolloutChange, RolloutFailure, StepFailure, StepOutcome},
};
use longshore_store::replicated::{Fingerprint, IdempotencyKey, Proposal};

use crate::story::story;

/// Both stories, one after the other.
pub(crate) fn sequel() -> Vec<Proposal> {
    let by_bob = |command| Proposal {
        command,
        key: None,
        asked: None,
        actor: Actor::Node("b".into()),
        at: Time(1_700_000_100_000),
    };
    let mut all = story();
    all.extend(commands().into_iter().chain(decisions()).chain(doors()).map(by_bob));
    let command = Command::Steer {
        namespace: NamespaceName::default_namespace(),
        deployment: "shop".into(),
        word: Steering::Resume,
        at: Time(130_000),
    };
    let asked = Some(Fingerprint::of([b"POST".as_slice(), b"/v1/deployments/shop/resume", b"{}"]));
    let key = Some(IdempotencyKey::new("asked-with-a-fingerprint").unwrap());
    all.push(Proposal { key, asked, ..Proposal::by_system(command, Time(130_000)) });
    all
}

fn commands() -> Vec<Command> {
    let survey = Survey {
        platform: Platform::new("linux", "arm64"),
        capacity: Capacity { cpu_millis: 4_000, memory_bytes: 4 << 30, ..Capacity::default() },
        drivers: [longshore_model::Driver::Docker].into(),
        engine_labels: BTreeMap::from([("os".to_owned(), "alpine".to_owned())]),
        plugins: ["volume/local".to_owned()].into(),
    };
    let steer = |word, at| Command::Steer {
        namespace: NamespaceName::default_namespace(),
        deployment: "shop".into(),
        word,
        at: Time(at),
    };
    vec![
        Command::Refresh { node: "a".into(), survey: Box::new(survey) },
        steer(Steering::Pause, 101_000),
        steer(Steering::Promote, 102_000),
        Command::NoteExec { group: group("web"), slot: slot(0) },
        Command::NoteBackup,
    ]
}

/// One of each; most are stale by now and change nothing, which is to be the same tomorrow.
fn decisions() -> Vec<Command> {
    let generation = Generation(1);
    let failed = StepOutcome::Failed(StepFailure::StepTimeout);
    let items = vec![
        PlanItem::Restart { slot: slot(1), generation, attempt: Attempt(1) },
        PlanItem::GiveUp { slot: slot(1), generation, code: RuntimeCode::RestartExhausted },
        PlanItem::Reschedule { slot: slot(1), generation, delay: Duration::from_secs(5) },
        PlanItem::Step { slot: slot(0), rollout: RolloutNumber(4), outcome: StepOutcome::UnderWay },
        PlanItem::Step { slot: slot(0), rollout: RolloutNumber(4), outcome: failed },
        PlanItem::NoRoom { since: Time(105_000) },
        PlanItem::Promote,
        PlanItem::Stop { slot: slot(0), generation },
        PlanItem::Place(moved()),
        PlanItem::Close(slot(2)),
        PlanItem::Collect { slot: slot(2), generation },
        PlanItem::EvenedOut,
    ];
    let left = vec![
        Remainder { group: group("db"), slot: slot(0), why: Hindrance::Stateful { volumes: Vec::new() } },
        Remainder { group: group("web"), slot: slot(1), why: Hindrance::Moving },
    ];
    let drain = NodePlan::Drain {
        node: "c".into(),
        since: Time(73_000),
        outcome: longshore_model::DrainOutcome::TimedOut,
        left,
    };
    let paused = Evacuation::Paused { since: Time(106_000), gone: vec!["b".into()], nodes: 3 };
    let failure = RolloutFailure { service: "web".into(), slot: slot(0), code: StepFailure::StepTimeout };
    let about = |change| DeploymentPlan {
        namespace: NamespaceName::default_namespace(),
        deployment: "shop".into(),
        rollout: RolloutNumber(4),
        change,
    };
    let plan = Plan {
        made_from: StateIndex(40),
        made_at: Time(107_000),
        groups: vec![GroupPlan { group: group("web"), terms: std::sync::Arc::default(), items }],
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
        slot: slot(0),
        generation: Generation(2),
        node: "a".into(),
        address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9),
        new_volumes: Vec::new(),
        devices: longshore_model::device::TakenDevices::default(),
        terms: Some(std::sync::Arc::default()),
        moved: Some(Box::new(Weighed {
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

fn doors() -> Vec<Command> {
    let sealed = |key| Sealed { key, bytes: vec![1, 2, 254, 255] };
    let (namespace, name) = (NamespaceName::default_namespace, || "api-key".into());
    let seat = Seat {
        member: MemberId(9),
        address: "10.0.0.9:7474".to_owned(),
        certificate: vec![48, 139],
        fingerprint: "f9".into(),
        key: "k9".into(),
        part: SeatPart::Server,
        token: Some("t1".into()),
        proof: Some("p1".into()),
        since: Time(120_000),
    };
    let secret = SealedThing::Secret { namespace: namespace(), name: name(), version: 1 };
    let commands = [
        AccessCommand::UseKey { key: 2 },
        AccessCommand::Reseal { what: SealedThing::Authority, sealed: sealed(2) },
        AccessCommand::Reseal { what: secret, sealed: sealed(2) },
        AccessCommand::RemoveSecret { namespace: namespace(), name: name() },
        AccessCommand::RevokeToken { id: "o1".into() },
        AccessCommand::BeginAgain { node: "n9".into(), seat },
    ];
    commands.map(|command| Command::Access(Box::new(command))).into()
}

fn group(service: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: "shop".into(), service: service.into() }
}

fn slot(index: u32) -> SlotKey {
    SlotKey::Index(SlotIndex(index))
}
