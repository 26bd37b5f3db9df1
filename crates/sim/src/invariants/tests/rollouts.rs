//! Rollouts that break the rules.

use longshore_model::{
    DeploymentPlan, GroupKey, RevisionNumber, RolloutNumber,
    rollout::{RolloutChange, RolloutFailure, StepFailure, StepOutcome},
};

use super::*;

/// A running shop and its next manifest, with the given update order.
fn scenario(order: &str) -> Scenario {
    let services = |image: &str| {
        format!(
            "services: {{ web: {{ image: '{image}', deploy: {{ replicas: 2, update_config: {{ order: {order} }} }}, x-longshore: {{ secrets_required: [ pass ] }} }} }}"
        )
    };
    let text = format!(
        "nodes: [ {{ name: a, cpu: 4, memory: 1GiB }} ]\ndeployments: {{ shop: \"{}\" }}\ntimeline: [ {{ at: 10s, apply: {{ shop: \"{}\" }} }} ]\n",
        services("web:1"),
        services("web:2"),
    );
    Scenario::parse("x.yaml", &text).unwrap()
}

fn web() -> GroupKey {
    GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() }
}

fn slot(index: u32) -> SlotKey {
    SlotKey::Index(SlotIndex(index))
}

/// A cluster in the middle of a rollout, with its violations.
struct World {
    state: State,
    shadow: ShadowState,
    violations: Violations,
    now: Time,
}

impl World {
    /// Both replicas run on the first manifest, and the second is in force.
    fn mid_rollout(order: &str) -> Self {
        let scenario = scenario(order);
        let (shadow, violations) = (ShadowState::default(), Violations::default());
        let mut world = Self { state: State::default(), shadow, violations, now: Time(0) };
        for node in &scenario.nodes {
            world.submit(Command::Join(Box::new(node.clone())));
        }
        let mut manifests = scenario.steps.iter().filter_map(|step| match &step.action {
            crate::scenario::Action::Command(command) => Some(Command::clone(command)),
            _ => None,
        });
        world.submit(manifests.next().unwrap());
        world.commit(vec![world.place(0, 1), world.place(1, 1)]);
        world.observe_running(0, 1);
        world.observe_running(1, 1);
        world.now = Time(20_000);
        world.submit(manifests.next().unwrap());
        world
    }

    fn submit(&mut self, command: Command) {
        for event in self.state.apply(command).unwrap() {
            self.shadow.apply(&event, &self.state);
        }
        self.shadow.check(&self.state, self.now, &mut self.violations);
    }

    /// A placement as the group is now.
    fn place(&self, index: u32, generation: u32) -> PlanItem {
        let group = self.state.group(&web()).unwrap();
        let reservation =
            Reservation { spec_hash: group.spec.spec_hash.clone(), revision: group.revision, ..Reservation::default() };
        PlanItem::Place(Placement {
            key: slot(index).generation(Generation(generation)),
            node: "a".into(),
            address: Ipv6Addr::new(
                0xfd4c,
                0x6f6e,
                0x6773,
                1,
                0,
                0,
                0,
                u16::try_from(index * 100 + generation).unwrap(),
            ),
            new_volumes: Vec::new(),
            devices: TakenDevices::new(),
            reservation: Some(Arc::new(reservation)),
            moved: None,
        })
    }

    fn commit(&mut self, items: Vec<PlanItem>) {
        let groups = vec![GroupPlan { group: web(), reservation: Arc::new(Reservation::default()), items }];
        self.submit(Command::Commit(Box::new(Plan { made_at: self.now, groups, ..Plan::default() })));
    }

    fn conclude(&mut self, change: RolloutChange) {
        let (namespace, deployment) = ("default".into(), "shop".into());
        let deployments = vec![DeploymentPlan { namespace, deployment, rollout: self.rollout(), change }];
        self.submit(Command::Commit(Box::new(Plan { made_at: self.now, deployments, ..Plan::default() })));
    }

    fn observe_running(&mut self, index: u32, generation: u32) {
        let Command::Observe(mut seen) = seen_running(index) else { unreachable!() };
        (seen.key.generation, seen.at) = (Generation(generation), self.now);
        self.submit(Command::Observe(seen));
    }

    fn rollout(&self) -> RolloutNumber {
        self.state.deployment(&"default".into(), &"shop".into()).unwrap().rollout.as_ref().unwrap().number
    }

    fn step(&self, index: u32, outcome: StepOutcome) -> PlanItem {
        PlanItem::Step { slot: slot(index), rollout: self.rollout(), outcome }
    }

    fn violations(self) -> Vec<(&'static str, String)> {
        self.violations.into_list().into_iter().map(|broken| (broken.invariant, broken.message)).collect()
    }
}

fn stop(index: u32, generation: u32) -> PlanItem {
    PlanItem::Stop(slot(index).generation(Generation(generation)))
}

fn failed() -> RolloutChange {
    RolloutChange::Abort(RolloutFailure {
        service: "web".into(),
        slot: slot(0),
        code: StepFailure::StepTimeout,
        observed: None,
    })
}

#[test]
fn an_old_generation_that_goes_before_the_new_one_has_proved_itself_is_noticed() {
    let mut world = World::mid_rollout("start-first");
    world.commit(vec![world.place(0, 2), world.step(0, StepOutcome::UnderWay)]);
    world.observe_running(0, 2);
    world.now = Time(24_999);
    world.commit(vec![stop(0, 1)]);
    let message = "shop-web-0 was stopped before its replacement had run for the monitor time".to_owned();
    assert_eq!(world.violations(), [("rollout_availability", message)]);
}

#[test]
fn an_old_generation_that_goes_once_the_new_one_has_proved_itself_is_fine() {
    let mut world = World::mid_rollout("start-first");
    world.commit(vec![world.place(0, 2), world.step(0, StepOutcome::UnderWay)]);
    world.observe_running(0, 2);
    world.now = Time(25_000);
    world.commit(vec![world.step(0, StepOutcome::Done), stop(0, 1)]);
    assert_eq!(world.violations(), []);
}

#[test]
fn more_slots_taken_away_at_once_than_the_policy_says_are_noticed() {
    let mut world = World::mid_rollout("stop-first");
    world.commit(vec![stop(0, 1), world.step(0, StepOutcome::UnderWay)]);
    world.commit(vec![stop(1, 1), world.step(1, StepOutcome::UnderWay)]);
    assert_eq!(
        world.violations(),
        [("rollout_availability", "2 slots of shop-web are unavailable, `parallelism` is 1".to_owned())]
    );
}

#[test]
fn a_step_said_to_be_done_by_the_old_generation_is_noticed() {
    let mut world = World::mid_rollout("start-first");
    world.commit(vec![world.place(0, 2), world.step(0, StepOutcome::UnderWay)]);
    world.commit(vec![world.step(0, StepOutcome::Done)]);
    let message = "shop-web-0 has its step done by a generation that does not qualify".to_owned();
    assert_eq!(world.violations(), [("rollout_step_proven", message)]);
}

#[test]
fn a_step_said_to_be_done_before_the_monitor_time_is_over_is_noticed() {
    let mut world = World::mid_rollout("start-first");
    world.commit(vec![world.place(0, 2), world.step(0, StepOutcome::UnderWay)]);
    world.observe_running(0, 2);
    world.now = Time(24_999);
    world.commit(vec![world.step(0, StepOutcome::Done)]);
    assert_eq!(world.violations().first().map(|(rule, _)| *rule), Some("rollout_step_proven"));
}

#[test]
fn a_step_said_to_be_done_with_an_old_secret_is_noticed() {
    let mut world = World::mid_rollout("start-first");
    world.commit(vec![world.place(0, 2), world.step(0, StepOutcome::UnderWay)]);
    world.observe_running(0, 2);
    world.now = Time(25_000);
    world.submit(Command::PutSecret { namespace: "default".into(), name: "pass".into(), version: 2 });
    world.commit(vec![world.step(0, StepOutcome::Done)]);
    assert_eq!(world.violations().first().map(|(rule, _)| *rule), Some("rollout_step_proven"));
}

#[test]
fn a_slot_that_is_not_back_when_all_are_said_to_be_is_noticed() {
    let mut world = World::mid_rollout("start-first");
    world.commit(vec![world.place(0, 2), world.step(0, StepOutcome::UnderWay)]);
    world.conclude(failed());
    world.conclude(RolloutChange::RolledBack);
    assert_eq!(world.violations(), [("rolled_back", "shop-web-0 is not back on the old manifest".to_owned())]);
}

#[test]
fn a_manifest_that_failed_and_is_tried_again_is_noticed() {
    let mut world = World::mid_rollout("start-first");
    let again = world.place(0, 2);
    world.conclude(failed());
    world.commit(vec![again]);
    assert_eq!(world.state.group(&web()).unwrap().revision, RevisionNumber(1));
    assert_eq!(world.violations(), [("rolled_back", "shop-web-0 was made from revision 2, which failed".to_owned())]);
}

#[test]
fn a_third_generation_beside_two_is_noticed() {
    let mut world = World::mid_rollout("start-first");
    world.commit(vec![world.place(0, 2)]);
    world.commit(vec![world.place(0, 3)]);
    assert_eq!(world.violations(), [("generations", "shop-web-0 has 3 generations that should run".to_owned())]);
}
