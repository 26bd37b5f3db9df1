//! What must hold, in the words of an operator.

mod disk_full;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{Weight, fleet::Fleet, load::Load};

pub(crate) type Story = fn(Weight);

pub(crate) const ALL: &[(&str, Story)] = &[
    ("a_voter_killed_under_load_has_everything_it_acknowledged", a_voter_killed_under_load),
    ("every_killed_leader_of_three_is_replaced_and_nothing_acknowledged_is_lost", leaders_of_three),
    ("every_killed_leader_of_five_is_replaced_and_nothing_acknowledged_is_lost", leaders_of_five),
    ("a_leader_that_was_held_comes_back_as_a_follower_and_tells_no_old_news", a_held_leader),
    ("all_members_killed_at_once_under_load_have_everything_they_acknowledged", all_killed_at_once),
    ("a_member_killed_while_a_snapshot_is_installed_opens_again_and_catches_up", killed_while_installing),
    ("a_full_disk_is_named_loses_nothing_and_is_forgotten_once_there_is_space", disk_full::tell),
];

/// Never by itself.
const NO_SNAPSHOT: u64 = u64::MAX;

/// Moments that differ from round to round, the same in every run.
fn moment(round: u32, upto_millis: u64) -> Duration {
    let noise = u64::from(round + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    Duration::from_millis(noise % upto_millis)
}

fn a_voter_killed_under_load(weight: Weight) {
    let mut fleet = Fleet::of(1, 500);
    let mut acknowledged = 0;
    let rounds = weight.rounds(4, 60);
    for round in 0..rounds {
        let load = Load::begin(&fleet, &format!("r{round}"), 16, 1);
        load.wait_for(20);
        thread::sleep(moment(round, 300));
        fleet.kill(1);
        fleet.start(1);
        acknowledged += load.check(&fleet, 1);
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
    let mut fleet = Fleet::of(voters, 2_000);
    let mut waits = Vec::new();
    let mut acknowledged = 0;
    for round in 0..rounds {
        let load = Load::begin(&fleet, &format!("r{round}"), 6, voters);
        load.wait_for(20);
        let leader = fleet.leader();
        fleet.kill(leader);
        waits.push(fleet.insist(fleet.ids()[0], &format!("insisted-{round}")));
        fleet.start(leader);
        acknowledged += load.check(&fleet, leader);
    }
    fleet.converge();
    waits.sort();
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!(
        "  {voters} voters, {rounds} leaders killed: writes again after {median:.2?} (median), {longest:.2?} (longest); \
         {acknowledged} acknowledged writes, all there"
    );
}

fn a_held_leader(weight: Weight) {
    let fleet = Fleet::of(3, NO_SNAPSHOT);
    for round in 0..weight.rounds(2, 10) {
        let held = fleet.leader();
        let other = fleet.ids().into_iter().find(|id| *id != held).unwrap();
        fleet.signal(held, Signal::STOP);
        let waited = fleet.insist(other, &format!("held-{round}"));
        fleet.signal(held, Signal::CONT);
        // It wakes up believing that it leads, and must not answer from what it knew.
        assert_eq!(fleet.ask(held, "get insisted").unwrap(), format!("value held-{round}"));
        println!("  writes again {waited:.2?} after the leader was held");
    }
    fleet.converge();
}

fn all_killed_at_once(weight: Weight) {
    let mut fleet = Fleet::of(3, 500);
    for round in 0..weight.rounds(2, 20) {
        let load = Load::begin(&fleet, &format!("r{round}"), 12, 3);
        load.wait_for(50);
        thread::sleep(moment(round, 200));
        fleet.kill_all();
        for id in 1..=3 {
            fleet.start(id);
        }
        fleet.insist(1, &format!("again-{round}"));
        let acknowledged = load.check(&fleet, 1 + u64::from(round) % 3);
        println!("  {acknowledged} acknowledged writes, all there");
    }
    fleet.converge();
}

fn killed_while_installing(weight: Weight) {
    let mut fleet = Fleet::of(3, 300);
    let (mut filled, mut receiving, mut placed) = (0, 0, 0);
    for round in 0..weight.rounds(2, 40) {
        fleet.kill(3);
        let leader = fleet.leader();
        let before = snapshot_entry(&fleet, leader);
        // Entries hold many commands each: small portions make the log long enough for a snapshot.
        let deadline = Instant::now() + Duration::from_mins(1);
        while snapshot_entry(&fleet, leader) < before + 300 {
            assert_eq!(fleet.ask(leader, &format!("fill {filled} 100")).unwrap(), "done");
            filled += 100;
            assert!(Instant::now() < deadline, "no snapshot is taken");
        }
        match killed_in_the_act(&mut fleet, round) {
            Act::Receiving => receiving += 1,
            Act::Placed => placed += 1,
        }
        // Opening is the story: neither half a snapshot nor a log without one may be in its way.
        fleet.start(3);
        fleet.insist(3, &format!("caught-up-{round}"));
        fleet.converge();
    }
    println!("  killed {receiving} times while receiving, {placed} times once the file was in place");
}

fn snapshot_entry(fleet: &Fleet, id: u64) -> u64 {
    fleet.ask(id, "standing").unwrap().split(' ').nth(2).unwrap().parse().unwrap()
}

enum Act {
    Receiving,
    Placed,
}

/// Starts member 3 and kills it when its snapshot is on the way, or has just arrived.
fn killed_in_the_act(fleet: &mut Fleet, round: u32) -> Act {
    let dir = fleet.root.join("3/snapshots");
    let names = || -> Vec<String> {
        let files = fs::read_dir(&dir).into_iter().flatten().flatten();
        files.map(|file| file.file_name().into_string().unwrap()).collect()
    };
    let finished = |names: &[String]| names.iter().filter(|name| name.ends_with(".snapshot")).max().cloned();
    let before = finished(&names());
    fleet.start(3);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = names();
        let act = if finished(&now) != before {
            Act::Placed
        } else if round.is_multiple_of(2) && now.iter().any(|name| name.starts_with("received-")) {
            Act::Receiving
        } else {
            assert!(Instant::now() < deadline, "no snapshot came: {now:?}");
            continue;
        };
        if round % 4 >= 2 {
            thread::sleep(moment(round, 15));
        }
        fleet.kill(3);
        return act;
    }
}
