//! Capacity freed by preemption stays reserved for the service that displaced the victims.

use std::sync::Arc;

use longshore_model::{
    Attempt, Capacity, ClusterConfig, Command, DeploymentSpec, Driver, Generation, GroupKey, Node, Observation, Plan,
    PlanItem, ReplicaState, ServiceSpec, SlotIndex, SlotKey, Time, replica::Details, settings::Preemption,
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
            drivers: [Driver::Docker].into(),
            capacity: Capacity { cpu_millis: 4000, memory_bytes: 4 * GIB, ..Capacity::default() },
            ..Node::new("n1")
        })));
        world
    }

    fn run(&mut self, command: Command) {
        for event in self.state.apply(command).expect("the test sends valid commands only") {
            self.view.apply(&event);
        }
    }

    fn apply(&mut self, deployment: &str, priority: u8, replicas: u32, memory_gib: u64) {
        let mut spec = ServiceSpec { priority, replicas, ..ServiceSpec::default() };
        spec.resources.memory_limit_bytes = Some(memory_gib * GIB);
        let spec = DeploymentSpec { services: [("web".into(), Arc::new(spec))].into(), ..DeploymentSpec::default() };
        let (namespace, deployment) = ("default".into(), deployment.into());
        self.run(Command::Apply {
            namespace,
            deployment,
            spec: Box::new(spec),
            rerun: longshore_model::command::Rerun::IfChanged,
        });
    }

    fn pass(&mut self) -> Plan {
        self.now = Time(self.now.0 + 50);
        let made = plan(&mut self.view, self.state.index(), self.now);
        self.run(Command::Commit(Box::new(made.clone())));
        made
    }

    fn observe(&mut self, deployment: &str, index: u32, state: ReplicaState) {
        let group = GroupKey { namespace: "default".into(), deployment: deployment.into(), service: "web".into() };
        self.run(Command::Observe(Observation {
            key: group.replica(&SlotKey::Index(SlotIndex(index)), Generation(1)),
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
        PlanItem::Place(placement) => Some(placement.key.slot.replica_id(group)),
        _ => None,
    });
    places.collect()
}

#[test]
fn victims_do_not_take_their_capacity_back_before_all_of_it_is_free() {
    let mut world = World::new();
    world.apply("low", 10, 2, 2);
    assert_eq!(placed(&world.pass()), ["low-web-0", "low-web-1"]);
    world.observe("low", 0, ReplicaState::Running);
    world.observe("low", 1, ReplicaState::Running);
    world.apply("high", 90, 1, 4);
    let displaced = world.pass();
    let stops = displaced.groups.iter().flat_map(|group| &group.items);
    assert_eq!(stops.filter(|item| matches!(item, PlanItem::Stop(_))).count(), 2);

    world.observe("low", 0, ReplicaState::Stopped);
    assert_eq!(placed(&world.pass()), Vec::<String>::new(), "half of the capacity is free, but reserved");
    world.observe("low", 1, ReplicaState::Stopped);
    assert_eq!(placed(&world.pass()), ["high-web-0"]);
    assert!(world.pass().is_empty(), "the displaced replicas wait with a reason, and planning converges");
}
