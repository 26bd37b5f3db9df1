//! A machine on its own: orders in, reports and alarms out.

use longshore_model::{SlotIndex, container::ContainerSpec};

use super::*;
use crate::scenario::{Check, Pull};

fn id(index: u32) -> ContainerId {
    let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
    ContainerId { group, slot: SlotKey::Index(SlotIndex(index)), generation: Generation(1) }
}

fn spec(image: &str) -> ServiceSpec {
    let container = ContainerSpec { image: image.to_owned(), ..ContainerSpec::default() };
    ServiceSpec { container, ..ServiceSpec::default() }
}

fn machine(images: &[(&str, Image)]) -> Machine {
    let images = images.iter().map(|(name, image)| ((*name).to_owned(), image.clone())).collect();
    Machine::new("a".into(), Arc::new(images))
}

/// Rings every alarm up to `until`; what was reported, as `time state`.
fn play(machine: &mut Machine, mut out: Outbox, from: u64, until: u64) -> Vec<String> {
    let mut said = Vec::new();
    let mut now = from;
    loop {
        said.extend(out.reports.drain(..).map(|report| {
            let code = report.code.map_or_else(String::new, |code| format!(" {code}"));
            format!("{now} {} {}{code}", report.id.slot.printed(&report.id.group), report.state.as_str())
        }));
        let Some(next) = (0..out.alarms.len()).min_by_key(|at| out.alarms[*at].0) else { return said };
        if out.alarms[next].0.0 > until {
            return said;
        }
        let (at, alarm) = out.alarms.remove(next);
        now = at.0;
        machine.ring(alarm, at, &mut out);
    }
}

#[test]
fn two_containers_of_one_image_share_the_pull() {
    let mut machine = machine(&[]);
    let mut out = Outbox::default();
    machine.run(&id(0), Attempt(0), &spec("web:1"), Time(0), &mut out);
    machine.run(&id(1), Attempt(0), &spec("web:1"), Time(400), &mut out);
    insta::assert_snapshot!(play(&mut machine, out, 0, 10_000).join("\n"), @r"
    0 shop-web-0 pulling pulling
    0 shop-web-1 pulling pulling
    1000 shop-web-0 starting
    1000 shop-web-1 starting
    2000 shop-web-0 running
    2000 shop-web-1 running
    ");
}

#[test]
fn a_pull_that_fails_says_so_once_per_try() {
    let mut machine = machine(&[("web:gone", Image { pull: Pull::Fails, ..Image::default() })]);
    let mut out = Outbox::default();
    machine.run(&id(0), Attempt(0), &spec("web:gone"), Time(0), &mut out);
    insta::assert_snapshot!(play(&mut machine, out, 0, 9000).join("\n"), @r"
    0 shop-web-0 pulling pulling
    1000 shop-web-0 pending image_pull_failed
    3000 shop-web-0 pending image_pull_failed
    6000 shop-web-0 pending image_pull_failed
    ");
}

#[test]
fn an_unhealthy_image_is_never_running_and_only_where_it_was_said() {
    let bad = Image { health: Check::Fails, on: Some(["a".into()].into()), ..Image::default() };
    let mut here = machine(&[("web:bad", bad.clone())]);
    let mut out = Outbox::default();
    here.run(&id(0), Attempt(0), &spec("web:bad"), Time(0), &mut out);
    insta::assert_snapshot!(play(&mut here, out, 0, 60_000).join("\n"), @r"
    0 shop-web-0 pulling pulling
    1000 shop-web-0 starting
    6000 shop-web-0 degraded healthcheck_failed
    ");
    let elsewhere = Image { on: Some(["b".into()].into()), ..bad };
    let mut here = machine(&[("web:bad", elsewhere)]);
    let mut out = Outbox::default();
    here.run(&id(0), Attempt(0), &spec("web:bad"), Time(0), &mut out);
    assert!(play(&mut here, out, 0, 60_000).contains(&"2000 shop-web-0 running".to_owned()));
}

#[test]
fn what_exits_with_zero_has_completed_and_what_that_means_is_not_the_machines_to_say() {
    let ends = Image { exit: Some((0, Duration::from_secs(3))), ..Image::default() };
    let mut machine = machine(&[("job:1", ends)]);
    let mut out = Outbox::default();
    machine.run(&id(0), Attempt(0), &spec("job:1"), Time(0), &mut out);
    assert_eq!(play(&mut machine, out, 0, 60_000).last(), Some(&"5000 shop-web-0 completed".to_owned()));
}

#[test]
fn a_restart_of_what_still_runs_stops_it_first() {
    let mut machine = machine(&[]);
    let mut out = Outbox::default();
    machine.run(&id(0), Attempt(0), &spec("web:1"), Time(0), &mut out);
    play(&mut machine, out, 0, 5000);
    let mut out = Outbox::default();
    machine.restart(id(0), Attempt(1), &spec("web:1"), Time(5000), &mut out);
    insta::assert_snapshot!(play(&mut machine, out, 5000, 60_000).join("\n"), @r"
    6000 shop-web-0 starting
    7000 shop-web-0 running
    ");
}

#[test]
fn stopping_takes_a_second_and_what_was_never_started_can_be_stopped_too() {
    let mut machine = machine(&[]);
    let mut out = Outbox::default();
    machine.stop(&id(7), Attempt(0), Time(100), &mut out);
    assert_eq!(play(&mut machine, out, 100, 60_000), ["1100 shop-web-7 stopped"]);
}

#[test]
fn a_machine_that_went_off_forgets_its_containers_but_not_its_images() {
    let mut machine = machine(&[]);
    let mut out = Outbox::default();
    machine.run(&id(0), Attempt(0), &spec("web:1"), Time(0), &mut out);
    play(&mut machine, out, 0, 5000);
    machine.power_off();
    assert_eq!((1..=3).map(|_| machine.beat(Beat::Heard)).collect::<Vec<u32>>(), [1, 2, 3]);
    machine.boot();
    assert_eq!(machine.beat(Beat::Heard), 0);
    let mut out = Outbox::default();
    machine.run(&id(0), Attempt(0), &spec("web:1"), Time(10_000), &mut out);
    assert_eq!(play(&mut machine, out, 10_000, 60_000), ["10000 shop-web-0 starting", "11000 shop-web-0 running"]);
}
