//! Replicas placed too early, too many at once, or on the wrong node.

use longshore_model::GroupKey;

use super::*;

fn group(service: &str) -> GroupKey {
    GroupKey { namespace: "default".into(), deployment: "shop".into(), service: service.into() }
}

/// A plan that places slots of a service on a node, as the service is now.
fn placing(state: &State, service: &str, slots: &[SlotKey], node: &str) -> Plan {
    let known = state.group(&group(service)).unwrap();
    let reservation = Reservation {
        spec_hash: known.spec.spec_hash.clone(),
        revision: known.revision,
        kind: known.spec.kind,
        ..Reservation::default()
    };
    let place = |(slot, last): (&SlotKey, u16)| {
        PlanItem::Place(Placement {
            key: slot.generation(Generation(1)),
            node: node.into(),
            address: Ipv6Addr::new(0xfd4c, 0x6f6e, 0x6773, 1, 0, 0, 0, last),
            new_volumes: Vec::new(),
            devices: TakenDevices::new(),
            reservation: None,
            moved: None,
        })
    };
    let items = slots.iter().zip(1..).map(place).collect();
    Plan {
        groups: vec![GroupPlan { group: group(service), reservation: Arc::new(reservation), items }],
        ..Plan::default()
    }
}

fn index(index: u32) -> SlotKey {
    SlotKey::Index(SlotIndex(index))
}

#[test]
fn what_is_placed_before_the_service_it_depends_on_is_noticed() {
    let mut state = applied(
        r#"
nodes: [ { name: a, cpu: 4, memory: 1GiB } ]
deployments:
  shop: |
    services:
      db: { image: "db:1" }
      web: { image: "web:1", depends_on: { db: { condition: service_healthy } } }
"#,
    );
    let early = placing(&state, "web", &[index(0)], "a");
    assert_eq!(dependencies::check(&state, &early), ["shop-web-0 is placed before db is ready"]);
    state.apply(Command::Commit(Box::new(placing(&state, "db", &[index(0)], "a")))).unwrap();
    assert_eq!(dependencies::check(&state, &early), ["shop-web-0 is placed before db is ready"]);
    let Command::Observe(mut seen) = seen_running(0) else { unreachable!() };
    seen.key.group = group("db");
    state.apply(Command::Observe(seen)).unwrap();
    assert_eq!(dependencies::check(&state, &early), Vec::<String>::new());
}

#[test]
fn more_of_a_job_at_once_than_may_be_is_noticed() {
    let mut state = applied(
        r#"
nodes: [ { name: a, cpu: 4, memory: 1GiB } ]
deployments:
  shop: |
    services:
      job: { image: "job:1", deploy: { mode: replicated-job, replicas: 4 }, x-longshore: { max_concurrent: 2 } }
"#,
    );
    let check = |state: &State| concurrency::check(&group("job"), state.group(&group("job")).unwrap());
    state.apply(Command::Commit(Box::new(placing(&state, "job", &[index(0), index(1)], "a")))).unwrap();
    assert_eq!(check(&state), None);
    state.apply(Command::Commit(Box::new(placing(&state, "job", &[index(2)], "a")))).unwrap();
    assert_eq!(check(&state).as_deref(), Some("shop-job has 3 active slots, `max_concurrent` is 2"));
    // Lost replicas may still run.
    state.apply(Command::SetHealth { node: "a".into(), health: Health::Down, at: Time(70) }).unwrap();
    assert_eq!(check(&state).as_deref(), Some("shop-job has 3 active slots, `max_concurrent` is 2"));
}

#[test]
fn a_lowered_limit_stops_nobody_and_what_was_there_before_it_counts() {
    let job = |replicas: u32, most: u32| {
        format!(
            "nodes: [ {{ name: a, cpu: 4, memory: 1GiB }} ]\ndeployments: {{ shop: \"services: {{ job: {{ image: 'job:1', deploy: {{ mode: replicated-job, replicas: {replicas} }}, x-longshore: {{ max_concurrent: {most} }} }} }}\" }}\n"
        )
    };
    let (mut shadow, mut violations) = (ShadowState::default(), Violations::default());
    let mut state = applied(&job(4, 2));
    let mut submit = |state: &mut State, command: Command| {
        for event in state.apply(command).unwrap() {
            shadow.apply(&event, state);
        }
        shadow.check(state, Time(70), &mut violations);
        violations.list.len()
    };
    let two = placing(&state, "job", &[index(0), index(1)], "a");
    assert_eq!(submit(&mut state, Command::Commit(Box::new(two))), 0);
    let lowered = Scenario::parse("x.yaml", &job(5, 1)).unwrap();
    let crate::scenario::Action::Command(command) = &lowered.steps[0].action else { unreachable!() };
    assert_eq!(submit(&mut state, Command::clone(command)), 0);
    let third = placing(&state, "job", &[index(2)], "a");
    submit(&mut state, Command::Commit(Box::new(third)));
    let messages: Vec<String> = violations.into_list().into_iter().map(|broken| broken.message).collect();
    assert!(messages.contains(&"shop-job has 3 active slots, `max_concurrent` is 1".to_owned()), "{messages:?}");
}

#[test]
fn a_global_replica_on_another_node_than_its_own_is_noticed() {
    let mut state = applied(
        r#"
nodes: [ { name: a, cpu: 4, memory: 1GiB }, { name: b, cpu: 4, memory: 1GiB } ]
deployments:
  shop: |
    services: { agent: { image: "agent:1", deploy: { mode: global } } }
"#,
    );
    let own = |name: &str| SlotKey::Node(name.into());
    state.apply(Command::Commit(Box::new(placing(&state, "agent", &[own("a"), own("b")], "a")))).unwrap();
    assert_eq!(global::check(&state, &group("agent"), &own("a")), Vec::<String>::new());
    assert_eq!(global::check(&state, &group("agent"), &own("b")), ["shop-agent-b g1 is on a"]);
}
