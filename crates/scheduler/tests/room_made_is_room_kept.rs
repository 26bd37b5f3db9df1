//! Stories about room that is made for somebody by displacing others.

use std::{collections::BTreeMap, sync::Arc};

use longshore_model::{
    Attempt, Capacity, ClusterConfig, Command, DeploymentSpec, Driver, Generation, GroupKey, Health, Intent, Node,
    NodeNumber, Observation, Plan, PlanItem, Platform, ReplicaState, Role, ServiceSpec, SlotIndex, SlotKey, Time,
    config::Preemption, replica::Details,
};
use longshore_scheduler::{View, plan};
use longshore_store::State;

const GIB: u64 = 1 << 30;

/// A cluster of one node with 4 GiB, where preemption is on.
struct World {
    state: State,
    view: View,
    now: Time,
}

impl World {
    fn new() -> Self {
        let mut world = Self { state: State::default(), view: View::new(), now: Time(0) };
        world.run(Command::Configure(ClusterConfig { preemption: Preemption::On, ..ClusterConfig::default() }));
        world.run(Command::Join(Box::new(Node {
            name: "n1".into(),
            number: NodeNumber(0),
            ip: None,
            labels: BTreeMap::new(),
            engine_labels: BTreeMap::new(),
            role: Role::Worker,
            pool: "default".into(),
            platform: Platform::new("linux", "amd64"),
            drivers: [Driver::Docker].into(),
            plugins: [].into(),
            capacity: Capacity { cpu_millis: 4000, memory_bytes: 4 * GIB, ..Capacity::default() },
            reserved: Capacity::default(),
            intent: Intent::Active,
            health: Health::Ready,
            use_degraded: longshore_model::node::UseDegraded::No,
            overlay: longshore_model::node::Overlay::Reachable,
            health_since: longshore_model::Time::default(),
            confirmed_lost: None,
            drain: None,
            removed_at: None,
        })));
        world
    }

    fn run(&mut self, command: Command) {
        for event in self.state.apply(command).expect("the story only says what can be done") {
            self.view.apply(&event);
        }
    }

    fn ask_for(&mut self, deployment: &str, priority: u8, replicas: u32, memory_gib: u64) {
        let mut spec = ServiceSpec { priority, replicas, ..ServiceSpec::default() };
        spec.resources.memory_limit_bytes = Some(memory_gib * GIB);
        let spec = DeploymentSpec { services: [("web".into(), Arc::new(spec))].into(), ..DeploymentSpec::default() };
        let (namespace, deployment) = ("default".into(), deployment.into());
        self.run(Command::Apply { namespace, deployment, spec: Box::new(spec) });
    }

    fn pass(&mut self) -> Plan {
        self.now = Time(self.now.0 + 50);
        let made = plan(&mut self.view, self.state.index(), self.now);
        self.run(Command::Commit(Box::new(made.clone())));
        made
    }

    fn see(&mut self, deployment: &str, index: u32, state: ReplicaState) {
        let group = GroupKey { namespace: "default".into(), deployment: deployment.into(), service: "web".into() };
        self.run(Command::Observe(Observation {
            group,
            slot: SlotKey::Index(SlotIndex(index)),
            generation: Generation(1),
            attempt: Attempt(0),
            placed_at: None,
            state,
            code: None,
            details: Details::new(),
            at: self.now,
        }));
    }
}

fn placed(plan: &Plan) -> Vec<String> {
    let items = plan.groups.iter().flat_map(|group| group.items.iter().map(move |item| (&group.group, item)));
    let places = items.filter_map(|(group, item)| match item {
        PlanItem::Place(placement) => Some(placement.slot.printed(group)),
        _ => None,
    });
    places.collect()
}

#[test]
fn what_was_displaced_does_not_take_its_room_back_before_all_of_it_is_free() {
    let mut world = World::new();
    world.ask_for("low", 10, 2, 2);
    assert_eq!(placed(&world.pass()), ["low-web-0", "low-web-1"]);
    world.see("low", 0, ReplicaState::Running);
    world.see("low", 1, ReplicaState::Running);
    world.ask_for("high", 90, 1, 4);
    let displaced = world.pass();
    let stops = displaced.groups.iter().flat_map(|group| &group.items);
    assert_eq!(stops.filter(|item| matches!(item, PlanItem::Stop { .. })).count(), 2);

    world.see("low", 0, ReplicaState::Stopped);
    assert_eq!(placed(&world.pass()), Vec::<String>::new(), "half of the room is free, and it is not theirs");
    world.see("low", 1, ReplicaState::Stopped);
    assert_eq!(placed(&world.pass()), ["high-web-0"]);
    assert!(world.pass().is_empty(), "the displaced wait, explained, and nothing goes round in circles");
}
