//! Tests of a single node: orders in, reports and timers out.

use longshore_model::{Generation, GroupKey, SlotIndex, SlotKey, container::ContainerSpec};

use super::*;
use crate::scenario::{Check, Pull};

fn key(index: u32) -> ReplicaKey {
    let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
    ReplicaKey { group, slot: SlotKey::Index(SlotIndex(index)), generation: Generation(1) }
}

fn spec(image: &str) -> ServiceSpec {
    let container = ContainerSpec { image: image.to_owned(), ..ContainerSpec::default() };
    ServiceSpec { container, ..ServiceSpec::default() }
}

fn virtual_node(images: &[(&str, Image)]) -> VirtualNode {
    let images = images.iter().map(|(name, image)| ((*name).to_owned(), image.clone())).collect();
    VirtualNode::new("a".into(), Arc::new(images))
}

/// Fires every timer up to `until` and returns the reports as `time replica state code`.
fn play(virtual_node: &mut VirtualNode, mut out: Outbox, from: u64, until: u64) -> Vec<String> {
    let mut reports = Vec::new();
    let mut now = from;
    loop {
        reports.extend(out.reports.drain(..).map(|report| {
            let code = report.code.map_or_else(String::new, |code| format!(" {code}"));
            format!("{now} {} {}{code}", report.key.slot.replica_id(&report.key.group), report.state.as_str())
        }));
        let Some(next) = (0..out.timers.len()).min_by_key(|at| out.timers[*at].0) else { return reports };
        if out.timers[next].0.0 > until {
            return reports;
        }
        let (at, timer) = out.timers.remove(next);
        now = at.0;
        virtual_node.fire(timer, at, &mut out);
    }
}

#[test]
fn two_containers_of_one_image_share_the_pull() {
    let mut virtual_node = virtual_node(&[]);
    let mut out = Outbox::default();
    virtual_node.run(&key(0), Attempt(0), &spec("web:1"), Time(0), &mut out);
    virtual_node.run(&key(1), Attempt(0), &spec("web:1"), Time(400), &mut out);
    insta::assert_snapshot!(play(&mut virtual_node, out, 0, 10_000).join("\n"), @r"
    0 shop-web-0 pulling pulling
    0 shop-web-1 pulling pulling
    1000 shop-web-0 starting
    1000 shop-web-1 starting
    2000 shop-web-0 running
    2000 shop-web-1 running
    ");
}

#[test]
fn a_failing_pull_is_reported_once_per_attempt() {
    let mut virtual_node = virtual_node(&[("web:gone", Image { pull: Pull::Fails, ..Image::default() })]);
    let mut out = Outbox::default();
    virtual_node.run(&key(0), Attempt(0), &spec("web:gone"), Time(0), &mut out);
    insta::assert_snapshot!(play(&mut virtual_node, out, 0, 9000).join("\n"), @r"
    0 shop-web-0 pulling pulling
    1000 shop-web-0 pending image_pull_failed
    3000 shop-web-0 pending image_pull_failed
    6000 shop-web-0 pending image_pull_failed
    ");
}

#[test]
fn an_unhealthy_image_never_runs_on_the_nodes_it_is_unhealthy_on() {
    let bad = Image { health: Check::Fails, on: Some(["a".into()].into()), ..Image::default() };
    let mut here = virtual_node(&[("web:bad", bad.clone())]);
    let mut out = Outbox::default();
    here.run(&key(0), Attempt(0), &spec("web:bad"), Time(0), &mut out);
    insta::assert_snapshot!(play(&mut here, out, 0, 60_000).join("\n"), @r"
    0 shop-web-0 pulling pulling
    1000 shop-web-0 starting
    6000 shop-web-0 degraded healthcheck_failed
    ");
    let elsewhere = Image { on: Some(["b".into()].into()), ..bad };
    let mut here = virtual_node(&[("web:bad", elsewhere)]);
    let mut out = Outbox::default();
    here.run(&key(0), Attempt(0), &spec("web:bad"), Time(0), &mut out);
    assert!(play(&mut here, out, 0, 60_000).contains(&"2000 shop-web-0 running".to_owned()));
}

#[test]
fn a_process_that_exits_with_zero_is_reported_completed() {
    let ends = Image { exit: Some((0, Duration::from_secs(3))), ..Image::default() };
    let mut virtual_node = virtual_node(&[("job:1", ends)]);
    let mut out = Outbox::default();
    virtual_node.run(&key(0), Attempt(0), &spec("job:1"), Time(0), &mut out);
    assert_eq!(play(&mut virtual_node, out, 0, 60_000).last(), Some(&"5000 shop-web-0 completed".to_owned()));
}

#[test]
fn a_restart_stops_the_running_process_first() {
    let mut virtual_node = virtual_node(&[]);
    let mut out = Outbox::default();
    virtual_node.run(&key(0), Attempt(0), &spec("web:1"), Time(0), &mut out);
    play(&mut virtual_node, out, 0, 5000);
    let mut out = Outbox::default();
    virtual_node.restart(key(0), Attempt(1), &spec("web:1"), Time(5000), &mut out);
    insta::assert_snapshot!(play(&mut virtual_node, out, 5000, 60_000).join("\n"), @r"
    6000 shop-web-0 starting
    7000 shop-web-0 running
    ");
}

#[test]
fn a_stop_takes_a_second_also_for_a_container_that_never_started() {
    let mut virtual_node = virtual_node(&[]);
    let mut out = Outbox::default();
    virtual_node.stop(&key(7), Attempt(0), Time(100), &mut out);
    assert_eq!(play(&mut virtual_node, out, 100, 60_000), ["1100 shop-web-7 stopped"]);
}

#[test]
fn a_machine_that_was_off_keeps_its_images_but_not_its_containers() {
    let mut virtual_node = virtual_node(&[]);
    let mut out = Outbox::default();
    virtual_node.run(&key(0), Attempt(0), &spec("web:1"), Time(0), &mut out);
    play(&mut virtual_node, out, 0, 5000);
    virtual_node.power_off();
    assert_eq!((1..=3).map(|_| virtual_node.heartbeat(HeartbeatDelivery::Received)).collect::<Vec<u32>>(), [1, 2, 3]);
    virtual_node.boot();
    assert_eq!(virtual_node.heartbeat(HeartbeatDelivery::Received), 0);
    let mut out = Outbox::default();
    virtual_node.run(&key(0), Attempt(0), &spec("web:1"), Time(10_000), &mut out);
    assert_eq!(play(&mut virtual_node, out, 10_000, 60_000), ["10000 shop-web-0 starting", "11000 shop-web-0 running"]);
}
