//! Clusters of three and five members that lose leaders, connections and most of the log.

#![expect(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "cluster/checker.rs"]
mod checker;
#[path = "cluster/fake_network.rs"]
mod fake_network;
#[path = "cluster/linearizability.rs"]
mod linearizability;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use longshore_model::{MemberId, Time};
use longshore_store::replicated::{
    CommitCertainty, Dedup, IdempotencyKey, MembershipError, Outcome, Proposal, ProposeError, ReadError, Replicated,
    ReplicatedConfig, recover_as_single_voter, restore,
};

use fake_network::{Cluster, label, member, node};

const NODE: &str = "worker";

/// The value of a label, by a linearizable read.
async fn value(member: &Replicated, label: &str) -> Option<String> {
    let state = member.read().await.unwrap().state;
    state.node(&NODE.into()).and_then(|node| node.labels.get(label).cloned())
}

/// Proposes with a key until it is committed.
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
async fn any_member_accepts_writes_and_reads_and_sees_what_another_acknowledged() {
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
async fn after_the_leader_is_lost_writes_resume_and_nothing_acknowledged_is_missing() {
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
        eprintln!("round {round}: writes resumed after {:?}", since.elapsed());
        for name in ["before", "after"] {
            assert_eq!(value(&survivor, &format!("{name}-{round}")).await, Some(text.clone()));
        }
        cluster.open(id.0).await;
    }
    cluster.converge().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_leader_is_not_waited_for_once_another_leads() {
    // A very long timeout: a request that waits for the hanging leader fails the test.
    let patient = |config| ReplicatedConfig { request_timeout: Duration::from_mins(2), ..config };
    let cluster = Cluster::adjusted(3, patient).await;
    with_node(&cluster).await;
    let old = cluster.leader().await.leadership().borrow().leader.clone().unwrap().id;
    let survivors: Vec<Replicated> =
        cluster.ids().into_iter().filter(|id| *id != old).map(|id| cluster.get(id)).collect();

    cluster.hold(old);
    let keyed = Proposal { key: Some(IdempotencyKey::new("k").unwrap()), ..label(NODE, "keyed", "1") };
    let (keyed, unkeyed, read) = tokio::time::timeout(Duration::from_secs(30), async {
        // On different members: each member handles one proposal at a time.
        let unkeyed = label(NODE, "unkeyed", "1");
        tokio::join!(survivors[0].propose(keyed), survivors[1].propose(unkeyed), survivors[0].read())
    })
    .await
    .unwrap();
    assert_eq!(keyed.unwrap().outcome, Outcome::Changed, "retried with the next leader, which its key makes safe");
    assert_eq!(unkeyed, Err(ProposeError::LeaderLost { commit: CommitCertainty::Unknown }));
    assert!(read.is_ok());

    cluster.heal();
    cluster.converge().await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_leader_commits_a_keyed_command_that_the_old_one_could_not() {
    let patient = |config| ReplicatedConfig { request_timeout: Duration::from_mins(2), ..config };
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
async fn a_minority_refuses_writes_while_the_majority_continues_and_they_converge_after_healing() {
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
            // The outcome of an append by the old leader may be unknown; once it notices the partition, it appends
            // nothing.
            tokio::time::sleep(Duration::from_millis(1500)).await;
            old.propose(label(NODE, "n", "minority")).await
        },
        insist(&elsewhere, label(NODE, "n", "majority"), "m"),
    );
    assert_eq!(refused, Err(ProposeError::QuorumLost { commit: CommitCertainty::NotAppended }));
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
async fn a_member_far_behind_is_caught_up_by_a_snapshot_and_its_watchers_resync() {
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
    // More than one chunk, and hard to compress: each value is a hash of its number.
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
    assert_eq!(watcher.next().await, longshore_store::replicated::WatchEvent::Resync);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_members_keep_everything_over_a_restart() {
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
async fn the_next_leader_returns_the_stored_answer_of_a_key() {
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
    assert_eq!((again.index, again.outcome, again.dedup), (first.index, first.outcome, Dedup::Repeated));
    assert_eq!(value(&cluster.leader().await, "n").await.as_deref(), Some("2"), "it was not applied again");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voters_change_one_at_a_time_and_leave_in_two_steps() {
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
async fn one_of_three_members_recovers_alone_with_everything_it_has() {
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
async fn a_backup_starts_another_cluster_and_never_overwrites_one() {
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
    let other = Replicated::open(config, Arc::new(longshore_store::replicated::NoTransport)).await.unwrap();
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
async fn concurrent_clients_see_a_linearizable_history_during_failures() {
    let mut cluster = Cluster::of(3).await;
    with_node(&cluster).await;
    let history = linearizability::History::default();
    let clients: Vec<_> = (0..6)
        .map(|client| tokio::spawn(linearizability::client(client, Arc::clone(&cluster.network), history.clone())))
        .collect();
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
