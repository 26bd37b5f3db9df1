//! Durability under kills, suspensions and a full disk.

mod disk_full;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{Weight, load::Load, process_cluster::ProcessCluster};

pub(crate) type Test = fn(Weight);

pub(crate) const ALL: &[(&str, Test)] = &[
    ("a_voter_killed_under_load_has_everything_it_acknowledged", a_voter_killed_under_load),
    ("every_killed_leader_of_three_is_replaced_and_nothing_acknowledged_is_lost", leaders_of_three),
    ("every_killed_leader_of_five_is_replaced_and_nothing_acknowledged_is_lost", leaders_of_five),
    ("a_suspended_leader_returns_as_a_follower_and_serves_no_stale_read", a_suspended_leader),
    ("all_members_killed_at_once_under_load_have_everything_they_acknowledged", all_killed_at_once),
    ("a_member_killed_while_a_snapshot_is_installed_opens_again_and_catches_up", killed_while_installing),
    ("a_full_disk_is_reported_loses_nothing_and_writes_resume_once_there_is_space", disk_full::run),
];

/// Disables snapshots.
const NO_SNAPSHOT: u64 = u64::MAX;

/// A delay that differs from round to round and is the same in every run.
fn moment(round: u32, upto_millis: u64) -> Duration {
    let noise = u64::from(round + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    Duration::from_millis(noise % upto_millis)
}

fn a_voter_killed_under_load(weight: Weight) {
    let mut cluster = ProcessCluster::of(1, 500);
    let mut acknowledged = 0;
    let rounds = weight.rounds(4, 60);
    for round in 0..rounds {
        let load = Load::begin(&cluster, &format!("r{round}"), 16, 1);
        load.wait_for(20);
        thread::sleep(moment(round, 300));
        cluster.kill(1);
        cluster.start(1);
        acknowledged += load.check(&cluster, 1);
    }
    println!("  {rounds} kills, {acknowledged} acknowledged writes, all there");
}

fn leaders_of_three(weight: Weight) {
    leaders_killed(3, weight.rounds(3, 20));
}

fn leaders_of_five(weight: Weight) {
    leaders_killed(5, weight.rounds(2, 20));
}

fn leaders_killed(voters: u64, rounds: u32) {
    let mut cluster = ProcessCluster::of(voters, 2_000);
    let mut waits = Vec::new();
    let mut acknowledged = 0;
    for round in 0..rounds {
        let load = Load::begin(&cluster, &format!("r{round}"), 6, voters);
        load.wait_for(20);
        let leader = cluster.leader();
        cluster.kill(leader);
        waits.push(cluster.insist(cluster.ids()[0], &format!("insisted-{round}")));
        cluster.start(leader);
        acknowledged += load.check(&cluster, leader);
    }
    cluster.converge();
    waits.sort();
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!(
        "  {voters} voters, {rounds} leaders killed: writes again after {median:.2?} (median), {longest:.2?} (longest); \
         {acknowledged} acknowledged writes, all there"
    );
}

fn a_suspended_leader(weight: Weight) {
    let cluster = ProcessCluster::of(3, NO_SNAPSHOT);
    for round in 0..weight.rounds(2, 10) {
        let suspended = cluster.leader();
        let other = cluster.ids().into_iter().find(|id| *id != suspended).unwrap();
        cluster.signal(suspended, Signal::STOP);
        let waited = cluster.insist(other, &format!("held-{round}"));
        cluster.signal(suspended, Signal::CONT);
        // It resumes as if it still led, and must not answer from its old state.
        assert_eq!(cluster.ask(suspended, "get insisted").unwrap(), format!("value held-{round}"));
        println!("  writes again {waited:.2?} after the leader was suspended");
    }
    cluster.converge();
}

fn all_killed_at_once(weight: Weight) {
    let mut cluster = ProcessCluster::of(3, 500);
    for round in 0..weight.rounds(2, 20) {
        let load = Load::begin(&cluster, &format!("r{round}"), 12, 3);
        load.wait_for(50);
        thread::sleep(moment(round, 200));
        cluster.kill_all();
        for id in 1..=3 {
            cluster.start(id);
        }
        cluster.insist(1, &format!("again-{round}"));
        let acknowledged = load.check(&cluster, 1 + u64::from(round) % 3);
        println!("  {acknowledged} acknowledged writes, all there");
    }
    cluster.converge();
}

fn killed_while_installing(weight: Weight) {
    let mut cluster = ProcessCluster::of(3, 300);
    let (mut filled, mut receiving, mut placed) = (0, 0, 0);
    for round in 0..weight.rounds(2, 40) {
        cluster.kill(3);
        let leader = cluster.leader();
        let before = snapshot_entry(&cluster, leader);
        // Entries hold many commands each: small batches make the log long enough for a snapshot.
        let deadline = Instant::now() + Duration::from_mins(1);
        while snapshot_entry(&cluster, leader) < before + 300 {
            assert_eq!(cluster.ask(leader, &format!("fill {filled} 100")).unwrap(), "done");
            filled += 100;
            assert!(Instant::now() < deadline, "no snapshot is taken");
        }
        match kill_during_install(&mut cluster, round) {
            KilledDuring::Receiving => receiving += 1,
            KilledDuring::Placed => placed += 1,
        }
        // The member must open: neither a partial snapshot nor a log without its snapshot may prevent that.
        cluster.start(3);
        cluster.insist(3, &format!("caught-up-{round}"));
        cluster.converge();
    }
    println!("  killed {receiving} times while receiving, {placed} times once the file was in place");
}

fn snapshot_entry(cluster: &ProcessCluster, id: u64) -> u64 {
    cluster.ask(id, "status").unwrap().split(' ').nth(2).unwrap().parse().unwrap()
}

enum KilledDuring {
    Receiving,
    Placed,
}

/// Starts member 3 and kills it while its snapshot is in transfer, or just installed.
fn kill_during_install(cluster: &mut ProcessCluster, round: u32) -> KilledDuring {
    let dir = cluster.root.join("3/snapshots");
    let names = || -> Vec<String> {
        let files = fs::read_dir(&dir).into_iter().flatten().flatten();
        files.map(|file| file.file_name().into_string().unwrap()).collect()
    };
    let finished = |names: &[String]| names.iter().filter(|name| name.ends_with(".snapshot")).max().cloned();
    let before = finished(&names());
    cluster.start(3);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = names();
        let killed_during = if finished(&now) != before {
            KilledDuring::Placed
        } else if round.is_multiple_of(2) && now.iter().any(|name| name.starts_with("received-")) {
            KilledDuring::Receiving
        } else {
            assert!(Instant::now() < deadline, "no snapshot came: {now:?}");
            continue;
        };
        if round % 4 >= 2 {
            thread::sleep(moment(round, 15));
        }
        cluster.kill(3);
        return killed_during;
    }
}
