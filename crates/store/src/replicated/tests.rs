//! Tests of a single member.

use std::{fs, sync::Arc};

use longshore_model::{
    Actor, AuditAction, AuditOutcome, Command, MemberId, NodeName, StateIndex, Time, command::Quota,
};

use super::*;

fn member(id: u64) -> Member {
    Member { id: MemberId(id), name: NodeName::new(format!("node-{id}")), address: String::new() }
}

fn quota(replicas: u64) -> Command {
    Command::SetQuota { namespace: "default".into(), quota: Quota { replicas: Some(replicas), ..Quota::default() } }
}

fn proposal(command: Command) -> Proposal {
    Proposal::by_system(command, Time(7))
}

fn keyed(command: Command, key: &str) -> Proposal {
    Proposal { key: Some(IdempotencyKey::new(key).unwrap()), ..proposal(command) }
}

async fn alone(dir: &Path) -> Replicated {
    let one = Replicated::open(ReplicatedConfig::new(dir, MemberId(1)), Arc::new(NoTransport)).await.unwrap();
    match one.initialise(member(1)).await {
        Ok(()) | Err(MembershipError::AlreadyInitialised) => one,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn acknowledged_commands_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let one = alone(dir.path()).await;
    for count in 1..=20 {
        let applied = one.propose(proposal(quota(count))).await.unwrap();
        assert_eq!((applied.index, applied.outcome), (StateIndex(count), Outcome::Changed));
    }
    let before = one.read().await.unwrap();
    assert_eq!(before.freshness, Freshness::Linearizable);
    one.close().await;

    let one = alone(dir.path()).await;
    assert_eq!(one.read().await.unwrap().state, before.state);
    one.close().await;
}

#[tokio::test]
async fn commands_with_the_same_key_are_applied_once_and_answered_twice() {
    let dir = tempfile::tempdir().unwrap();
    let one = alone(dir.path()).await;
    let first = one.propose(keyed(quota(1), "a")).await.unwrap();
    one.propose(proposal(quota(2))).await.unwrap();
    let again = one.propose(keyed(quota(1), "a")).await.unwrap();
    assert_eq!(again, Applied { dedup: Dedup::Repeated, ..first });
    assert_eq!(one.read().await.unwrap().state.index(), StateIndex(2), "the repeated command changed nothing");

    let other = one.propose(keyed(quota(3), "a")).await.unwrap();
    assert_eq!(other.outcome, Outcome::KeyReused);
    one.close().await;
}

#[tokio::test]
async fn a_refusal_is_stored_as_the_answer_to_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let one = alone(dir.path()).await;
    let remove = Command::Remove { namespace: "default".into(), deployment: "shop".into() };
    let by = Actor::Operator("ann".to_owned());
    let first = one.propose(Proposal { actor: by.clone(), ..keyed(remove.clone(), "k") }).await.unwrap();
    assert!(matches!(first.outcome, Outcome::Refused(_)), "{first:?}");
    let again = one.propose(keyed(remove, "k")).await.unwrap();
    assert_eq!(again.outcome, first.outcome);

    let audit = one.audit(0, 10);
    assert_eq!(audit.len(), 1, "a repeated request is not audited again");
    assert_eq!(audit[0].action, AuditAction::DeploymentRemoved);
    assert_eq!((&audit[0].actor, audit[0].at), (&by, Time(7)));
    assert_eq!(audit[0].outcome, AuditOutcome::Refused("unknown_deployment".to_owned()));
    one.close().await;
}

#[tokio::test]
async fn concurrent_proposals_share_entries() {
    let dir = tempfile::tempdir().unwrap();
    let one = alone(dir.path()).await;
    let before = one.status().last_entry;
    let answers = one.propose_all((1..=500).map(|count| proposal(quota(count))).collect()).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|applied| applied.outcome == Outcome::Changed)));
    let entries = one.status().last_entry - before;
    assert!(entries < 100, "500 commands took {entries} entries");
    one.close().await;
}

#[tokio::test]
async fn a_watcher_gets_every_change_after_its_index_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let one = alone(dir.path()).await;
    one.propose(proposal(quota(1))).await.unwrap();
    let mut watcher = one.watch(StateIndex(1), Filter::All);
    let receiving = tokio::spawn(async move {
        let mut received = Vec::new();
        while received.len() < 50 {
            match watcher.next().await {
                WatchEvent::Changes { changes, .. } => received.extend(changes.iter().map(|change| change.index.0)),
                other @ (WatchEvent::Resync | WatchEvent::Closed) => panic!("{other:?}"),
            }
        }
        received
    });
    for count in 2..=51 {
        one.propose(proposal(quota(count))).await.unwrap();
    }
    assert_eq!(receiving.await.unwrap(), (2..=51).collect::<Vec<_>>());
    one.close().await;
}

#[tokio::test]
async fn a_watcher_that_falls_too_far_behind_gets_resync() {
    let dir = tempfile::tempdir().unwrap();
    let config = ReplicatedConfig { watch_events: 10, ..ReplicatedConfig::new(dir.path(), MemberId(1)) };
    let one = Replicated::open(config, Arc::new(NoTransport)).await.unwrap();
    one.initialise(member(1)).await.unwrap();
    let mut watcher = one.watch(StateIndex(0), Filter::All);
    one.propose_all((1..=30).map(|count| proposal(quota(count))).collect()).await;
    assert_eq!(watcher.next().await, WatchEvent::Resync);
    assert_eq!(watcher.next().await, WatchEvent::Resync, "until it has read the state");

    let now = one.read_local();
    assert_eq!(now.freshness, Freshness::Stale);
    watcher.resume(now.state.index());
    one.propose(proposal(quota(99))).await.unwrap();
    assert!(matches!(watcher.next().await, WatchEvent::Changes { through: StateIndex(31), .. }));
    one.close().await;
    assert_eq!(watcher.next().await, WatchEvent::Closed);
}

#[tokio::test]
async fn a_member_publishes_leading_once_it_may_act_as_leader() {
    let dir = tempfile::tempdir().unwrap();
    let one = alone(dir.path()).await;
    let mut leadership = one.leadership();
    let leading = leadership.wait_for(|leadership| leadership.role == LeadershipRole::Leading).await.unwrap().clone();
    assert_eq!(leading.leader, Some(member(1)));
    one.close().await;
}

#[tokio::test]
async fn a_directory_belongs_to_one_member() {
    let dir = tempfile::tempdir().unwrap();
    alone(dir.path()).await.close().await;
    let error =
        Replicated::open(ReplicatedConfig::new(dir.path(), MemberId(2)), Arc::new(NoTransport)).await.err().unwrap();
    assert!(matches!(error, OpenError::OtherMember { .. }), "{error}");
}

#[tokio::test]
async fn a_member_whose_log_is_gone_does_not_begin_again_as_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    alone(dir.path()).await.close().await;
    fs::remove_dir_all(dir.path().join("log")).unwrap();
    for _ in 0..2 {
        let opened = Replicated::open(ReplicatedConfig::new(dir.path(), MemberId(1)), Arc::new(NoTransport)).await;
        let error = opened.err().unwrap();
        assert!(matches!(error, OpenError::LogMissing { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_member_of_a_cluster_cannot_initialise_another() {
    let dir = tempfile::tempdir().unwrap();
    let one = alone(dir.path()).await;
    one.propose(proposal(quota(1))).await.unwrap();
    assert!(matches!(one.initialise(member(1)).await, Err(MembershipError::AlreadyInitialised)));
    one.close().await;
}

/// A plan that places all replicas of a service on one node.
fn placements(replicas: u32) -> Command {
    use longshore_model::{Generation, GroupKey, GroupPlan, Placement, Plan, PlanItem, SlotIndex, SlotKey};
    let place = |index| {
        PlanItem::Place(Placement {
            key: SlotKey::Index(SlotIndex(index)).generation(Generation(1)),
            node: "worker".into(),
            address: std::net::Ipv6Addr::from(u128::from(index) + 1),
            new_volumes: Vec::new(),
            devices: longshore_model::device::TakenDevices::default(),
            reservation: None,
            moved: None,
        })
    };
    let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
    let items = (0..replicas).map(place).collect();
    Command::Commit(Box::new(Plan {
        groups: vec![GroupPlan { group, reservation: Arc::default(), items }],
        ..Plan::default()
    }))
}

async fn with_service(one: &Replicated, replicas: u32) {
    let service = longshore_model::ServiceSpec { replicas, ..longshore_model::ServiceSpec::default() };
    let services = [("web".into(), Arc::new(service))].into();
    let spec = longshore_model::DeploymentSpec { services, ..longshore_model::DeploymentSpec::default() };
    let apply = Command::Apply {
        namespace: "default".into(),
        deployment: "shop".into(),
        spec: Box::new(spec),
        rerun: longshore_model::command::Rerun::IfChanged,
    };
    one.propose(proposal(Command::Join(Box::new(crate::tests::node("worker"))))).await.unwrap();
    one.propose(proposal(apply)).await.unwrap();
}

#[tokio::test]
async fn a_plan_too_large_for_one_entry_is_committed_in_several() {
    let dir = tempfile::tempdir().unwrap();
    let one = alone(dir.path()).await;
    with_service(&one, 8_000).await;

    let before = one.status().last_entry;
    let applied = one.propose(proposal(placements(8_000))).await.unwrap();
    assert_eq!((applied.outcome, applied.dropped), (Outcome::Changed, Vec::new()));
    let entries = one.status().last_entry - before;
    assert!((2..=8).contains(&entries), "{entries} entries");
    assert_eq!(one.read_local().state.replicas().count(), 8_000);

    let again = one.propose(proposal(placements(8_000))).await.unwrap();
    assert_eq!(again.outcome, Outcome::Unchanged, "the addresses are taken");
    assert_eq!(again.dropped.len(), 8_000);
    one.close().await;
}

#[tokio::test]
async fn other_commands_are_committed_between_the_parts_of_a_large_plan() {
    let dir = tempfile::tempdir().unwrap();
    let one = alone(dir.path()).await;
    with_service(&one, 30_000).await;
    let (plan, quota_set) = tokio::join!(one.propose(proposal(placements(30_000))), one.propose(proposal(quota(7))));
    let (plan, quota_set) = (plan.unwrap(), quota_set.unwrap());
    assert_eq!((&plan.outcome, plan.dropped.len()), (&Outcome::Changed, 0));
    assert!(quota_set.index < plan.index, "{:?} is not before {:?}", quota_set.index, plan.index);
    assert_eq!(one.read_local().state.replicas().count(), 30_000);
    one.close().await;
}

#[tokio::test]
async fn a_member_with_a_missing_or_damaged_snapshot_is_refused_with_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let config = || ReplicatedConfig { snapshot_after_entries: 280, ..ReplicatedConfig::new(dir.path(), MemberId(1)) };
    let one = Replicated::open(config(), Arc::new(NoTransport)).await.unwrap();
    one.initialise(member(1)).await.unwrap();
    let mut count = 0;
    // The last entries before a snapshot stay in the log; some must have been purged.
    while one.status().snapshot_entry < 270 {
        count += 1;
        one.propose(proposal(quota(count))).await.unwrap();
    }
    one.propose(proposal(quota(count + 1))).await.unwrap();
    one.close().await;

    let file = std::fs::read_dir(dir.path().join("snapshots")).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&file).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let error = Replicated::open(config(), Arc::new(NoTransport)).await.err().unwrap();
    let OpenError::Snapshot(cause) = error else { panic!("{error}") };
    assert!(cause.to_string().contains(file.to_str().unwrap()), "{cause}");

    std::fs::remove_file(&file).unwrap();
    let error = Replicated::open(config(), Arc::new(NoTransport)).await.err().unwrap();
    assert!(matches!(error, OpenError::SnapshotMissing { snapshot_ends_at: 0, .. }), "{error}");

    std::fs::write(&file, bytes).unwrap();
    let one = Replicated::open(config(), Arc::new(NoTransport)).await.unwrap();
    assert_eq!(one.read().await.unwrap().state.index(), StateIndex(count + 1), "the failed opens changed nothing");
    one.close().await;
}
