//! Clusters of three and five members that lose leaders, links, disks' worth of log, and each other.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall stop where it stands")]

#[path = "cluster/checker.rs"]
mod checker;
#[path = "cluster/linear.rs"]
mod linear;
#[path = "cluster/wire.rs"]
mod wire;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use longshore_model::{MemberId, Time};
use longshore_store::replicated::{
    Fate, IdempotencyKey, MembershipError, Novelty, Outcome, Proposal, ProposeError, ReadError, Replicated,
    ReplicatedConfig, recover_as_single_voter, restore,
};

use wire::{Cluster, label, member, node};

const NODE: &str = "worker";

/// A label's value where it was read.
async fn value(member: &Replicated, label: &str) -> Option<String> {
    let state = member.read().await.unwrap().state;
    state.node(&NODE.into()).and_then(|node| node.labels.get(label).cloned())
}

/// Proposes until it is decided, as a client with a key may.
async fn insist(member: &Replicated, proposal: Proposal, key: &str) -> Outcome {
    let keyed = Proposal { key: Some(IdempotencyKey::new(key).unwrap()), ..proposal };
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match member.propose(keyed.clone()).await {
            Ok(applied) => return applied.outcome,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn with_node(cluster: &Cluster) {
    let leader = cluster.leader().await;
    leader.propose(Proposal::by_system(node(NODE), Time(0))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_member_takes_writes_and_reads_and_sees_what_another_acknowledged() {
    let cluster = Cluster::of(3).await;
    with_node(&cluster).await;
    for (count, id) in cluster.ids().iter().cycle().take(12).enumerate() {
        let applied = cluster.get(*id).propose(label(NODE, "n", &count.to_string())).await.unwrap();
        assert_eq!(applied.outcome, Outcome::Changed);
        let other = cluster.get(MemberId(id.0 % 3 + 1));
        assert_eq!(value(&other, "n").await, Some(count.to_string()));
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_leader_is_lost_writes_are_taken_again_and_nothing_acknowledged_is_missing() {
    let mut cluster = Cluster::of(3).await;
    with_node(&cluster).await;
    for round in 0..3 {
        let leader = cluster.leader().await;
        let (text, id) = (round.to_string(), leader.leadership().borrow().leader.clone().unwrap().id);
        leader.propose(label(NODE, &format!("before-{round}"), &text)).await.unwrap();
        cluster.stop(id).await;
        let since = Instant::now();
        let survivor = cluster.get(cluster.ids()[0]);
        insist(&survivor, label(NODE, &format!("after-{round}"), &text), &text).await;
        eprintln!("round {round}: writes again after {:?}", since.elapsed());
        for name in ["before", "after"] {
            assert_eq!(value(&survivor, &format!("{name}-{round}")).await, Some(text.clone()));
        }
        cluster.open(id.0).await;
    }
    cluster.converge().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hangs_is_not_waited_for_once_another_leads() {
    // A patience nobody has: whoever waits for the one that hangs does not end in time.
    let patient = |config| ReplicatedConfig { patience: Duration::from_mins(2), ..config };
    let cluster = Cluster::adjusted(3, patient).await;
    with_node(&cluster).await;
    let old = cluster.leader().await.leadership().borrow().leader.clone().unwrap().id;
    let survivors: Vec<Replicated> =
        cluster.ids().into_iter().filter(|id| *id != old).map(|id| cluster.get(id)).collect();

    cluster.hold(old);
    let keyed = Proposal { key: Some(IdempotencyKey::new("k").unwrap()), ..label(NODE, "keyed", "1") };
    let (keyed, unkeyed, read) = tokio::time::timeout(Duration::from_secs(30), async {
        // One of each: what a member is asked second is not under way before the first has its answer.
        let unkeyed = label(NODE, "unkeyed", "1");
        tokio::join!(survivors[0].propose(keyed), survivors[1].propose(unkeyed), survivors[0].read())
    })
    .await
    .unwrap();
    assert_eq!(keyed.unwrap().outcome, Outcome::Changed, "sent again to the next leader, as its key makes that safe");
    assert_eq!(unkeyed, Err(ProposeError::LeaderLost { fate: Fate::Unknown }));
    assert!(read.is_ok());

    cluster.heal();
    cluster.converge().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_leader_could_not_finish_the_next_one_does_where_that_is_safe() {
    let patient = |config| ReplicatedConfig { patience: Duration::from_mins(2), ..config };
    let cluster = Cluster::adjusted(3, patient).await;
    with_node(&cluster).await;
    let old = cluster.leader().await;
    let id = old.leadership().borrow().leader.clone().unwrap().id;
    let others: Vec<MemberId> = cluster.ids().into_iter().filter(|other| *other != id).collect();

    cluster.cut_off(&[id]);
    let keyed = Proposal { key: Some(IdempotencyKey::new("k").unwrap()), ..label(NODE, "keyed", "1") };
    let asked = tokio::spawn(async move { old.propose(keyed).await });
    cluster.leader_of(&others).await;
    cluster.heal();
    let answer = tokio::time::timeout(Duration::from_mins(1), asked).await.unwrap().unwrap();
    assert_eq!(answer.unwrap().outcome, Outcome::Changed);
    assert_eq!(value(&cluster.get(others[0]), "keyed").await.as_deref(), Some("1"));
    cluster.converge().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_refuses_a_majority_goes_on_and_healing_makes_them_one() {
    let cluster = Cluster::of(5).await;
    with_node(&cluster).await;
    let old = cluster.leader().await;
    let old_id = old.leadership().borrow().leader.clone().unwrap().id;
    let minority = [old_id, MemberId(old_id.0 % 5 + 1)];
    cluster.cut_off(&minority);
    let majority: Vec<MemberId> = cluster.ids().into_iter().filter(|id| !minority.contains(id)).collect();

    let elsewhere = cluster.get(majority[0]);
    let (refused, went_on) = tokio::join!(
        async {
            // What the old leader appends at once may stay in doubt; once it has noticed, nothing is appended at all.
            tokio::time::sleep(Duration::from_millis(1500)).await;
            old.propose(label(NODE, "n", "minority")).await
        },
        insist(&elsewhere, label(NODE, "n", "majority"), "m"),
    );
    assert_eq!(refused, Err(ProposeError::QuorumLost { fate: Fate::NotAppended }));
    assert_eq!(refused.unwrap_err().code(), "quorum_lost");
    assert_eq!(old.read().await.err(), Some(ReadError::QuorumLost));
    assert_eq!(went_on, Outcome::Changed);
    assert_eq!(value(&cluster.get(majority[1]), "n").await.as_deref(), Some("majority"));

    cluster.heal();
    cluster.converge().await;
    assert_eq!(value(&old, "n").await.as_deref(), Some("majority"));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_far_behind_is_brought_up_by_a_snapshot_and_watchers_there_start_over() {
    let mut cluster = Cluster::adjusted(3, |mut config| {
        config.snapshot_after_entries = 50;
        config
    })
    .await;
    with_node(&cluster).await;
    let leader = cluster.leader().await;
    let behind =
        cluster.ids().into_iter().find(|id| *id != leader.leadership().borrow().leader.clone().unwrap().id).unwrap();
    cluster.stop(behind).await;
    // More than one chunk, and hard to pack: each value is a hash of its number.
    let mut noise = 1_u64;
    for round in 0..500_u64 {
        let labels = (0..64).map(|place| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (
                format!("{round}-{place}"),
                format!("{noise:x}{:x}{:x}", noise.rotate_left(21) ^ place, noise.rotate_left(43)),
            )
        });
        let command = longshore_model::Command::Label { node: NODE.into(), labels: labels.collect() };
        leader.propose(Proposal::by_system(command, Time(0))).await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while leader.status().snapshot_entry < 300 {
        assert!(Instant::now() < deadline, "{:?}", leader.status());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let back = cluster.open(behind.0).await;
    let mut watcher = back.watch(back.read_local().state.index(), longshore_store::replicated::Filter::All);
    cluster.converge().await;
    assert!(back.status().snapshot_entry >= 300, "{:?}", back.status());
    assert_eq!(watcher.next().await, longshore_store::replicated::Watched::Resync);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_members_stopped_and_started_again_know_everything() {
    let mut cluster = Cluster::of(3).await;
    with_node(&cluster).await;
    let leader = cluster.leader().await;
    for count in 0..100 {
        leader.propose(label(NODE, "n", &count.to_string())).await.unwrap();
    }
    cluster.stop_all().await;
    for id in 1..=3 {
        cluster.open(id).await;
    }
    let leader = cluster.leader().await;
    assert_eq!(value(&leader, "n").await.as_deref(), Some("99"));
    cluster.converge().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_answered_the_same_by_the_next_leader() {
    let cluster = Cluster::of(3).await;
    with_node(&cluster).await;
    let leader = cluster.leader().await;
    let id = leader.leadership().borrow().leader.clone().unwrap().id;
    let keyed = Proposal { key: Some(IdempotencyKey::new("once").unwrap()), ..label(NODE, "n", "1") };
    let first = leader.propose(keyed.clone()).await.unwrap();
    leader.propose(label(NODE, "n", "2")).await.unwrap();
    cluster.stop(id).await;
    cluster.leader().await;
    let again = cluster.get(cluster.ids()[0]).propose(keyed).await.unwrap();
    assert_eq!((again.index, again.outcome, again.novelty), (first.index, first.outcome, Novelty::Repeated));
    assert_eq!(value(&cluster.leader().await, "n").await.as_deref(), Some("2"), "it was not carried out again");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_change_one_at_a_time_and_a_voter_leaves_in_two_steps() {
    let mut cluster = Cluster::of(3).await;
    cluster.join(4).await;
    let leader = cluster.leader().await;
    let id = leader.leadership().borrow().leader.clone().unwrap().id;
    let gone = MemberId(if id.0 == 3 { 2 } else { 3 });
    let all = |ids: &[u64]| ids.iter().copied().map(MemberId).collect();
    assert!(matches!(leader.set_voters(all(&[1, 4])).await, Err(MembershipError::MoreThanOneChange { changes: 3 })));
    assert!(matches!(leader.set_voters(all(&[1, 2, 3, 9])).await, Err(MembershipError::UnknownMember(MemberId(9)))));
    assert!(matches!(leader.remove_member(gone).await, Err(MembershipError::StillVotes(_))));
    let stay: std::collections::BTreeSet<MemberId> =
        leader.members().voters.into_iter().filter(|voter| *voter != gone).collect();
    leader.set_voters(stay.clone()).await.unwrap();
    leader.remove_member(gone).await.unwrap();
    assert_eq!((leader.members().voters, leader.members().members.contains_key(&gone)), (stay, false));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_left_of_three_recovers_alone_with_everything_it_has() {
    let mut cluster = Cluster::of(3).await;
    with_node(&cluster).await;
    cluster.leader().await.propose(label(NODE, "n", "kept")).await.unwrap();
    cluster.converge().await;
    cluster.stop_all().await;

    let recovery = recover_as_single_voter(cluster.dir(2), &member(2)).unwrap();
    let alone = cluster.open(2).await;
    assert_eq!(value(&alone, "n").await.as_deref(), Some("kept"));
    assert_eq!(alone.read_local().state.index(), recovery.index);
    assert_eq!(alone.members().voters, [MemberId(2)].into());
    alone.propose(label(NODE, "n", "goes on")).await.unwrap();
    cluster.stop_all().await;
    let alone = cluster.open(2).await;
    assert_eq!(value(&alone, "n").await.as_deref(), Some("goes on"));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_begins_another_cluster_and_never_overwrites_one() {
    let cluster = Cluster::of(1).await;
    with_node(&cluster).await;
    let one = cluster.leader().await;
    one.propose(label(NODE, "n", "saved")).await.unwrap();
    let backup = one.backup().await.unwrap();
    one.propose(label(NODE, "n", "after")).await.unwrap();
    cluster.stop_all().await;
    assert!(restore(cluster.dir(1), &member(1), &backup).is_err(), "a directory in use is refused");

    let dir = tempfile::tempdir().unwrap();
    restore(dir.path(), &member(7), &backup).unwrap();
    let config = longshore_store::replicated::ReplicatedConfig::new(dir.path(), MemberId(7));
    let other = Replicated::open(config, Arc::new(longshore_store::replicated::Alone)).await.unwrap();
    assert_eq!(value(&other, "n").await.as_deref(), Some("saved"));
    other.propose(label(NODE, "n", "on its own")).await.unwrap();
    other.close().await;

    let mut damaged = backup;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 4;
    let error = restore(tempfile::tempdir().unwrap().path(), &member(7), &damaged).unwrap_err();
    assert!(format!("{error:?}").contains("checksum"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_clients_see_one_order_while_leaders_and_links_come_and_go() {
    let mut cluster = Cluster::of(3).await;
    with_node(&cluster).await;
    let history = linear::History::default();
    let clients: Vec<_> =
        (0..6).map(|client| tokio::spawn(linear::client(client, Arc::clone(&cluster.wire), history.clone()))).collect();
    for round in 0..3 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let leader = cluster.leader().await.leadership().borrow().leader.clone().unwrap().id;
        if round % 2 == 0 {
            cluster.cut_off(&[leader]);
            tokio::time::sleep(Duration::from_secs(2)).await;
            cluster.heal();
        } else {
            cluster.stop(leader).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            cluster.open(leader.0).await;
        }
    }
    history.end();
    for client in clients {
        client.await.unwrap();
    }
    cluster.converge().await;
    let (operations, checked) = history.check();
    eprintln!("{operations} operations");
    assert!(operations > 100, "only {operations} operations");
    checked.unwrap();
    cluster.stop_all().await;
}
