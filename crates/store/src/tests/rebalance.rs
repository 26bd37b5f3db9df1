//! Records of rebalancing moves, and requests for spread rebalances.

use longshore_model::{
    Command, Event, Health, Intent, PlanItem, ServiceSpec, Time,
    rebalance::{MoveCause, RebalanceScore, Share, SpreadRebalance},
    service::Rebalance,
};

use super::{apply, group, node, place, plan, replicas, shop, slot};
use crate::State;

fn moved(index: u32, generation: u32, from: &str, to: &str) -> PlanItem {
    let PlanItem::Place(mut placement) = place(index, generation, to) else { unreachable!("a placement was made") };
    placement.moved = Some(Box::new(RebalanceScore {
        cause: MoveCause::Pressure,
        src: from.into(),
        dst: Some(to.into()),
        dominant: None,
        relief: None,
        score: None,
        move_cost: Share(10_000),
        src_before: None,
        src_after: None,
        dst_before: None,
        dst_after: None,
    }));
    PlanItem::Place(placement)
}

/// The time of slot 0's last move and the recorded moves, as a new leader gets them.
fn recorded_moves(state: &State) -> (Option<Time>, Vec<Event>) {
    let stamp = state.events().into_iter().find_map(|event| match event {
        Event::SlotOpened { slot: key, moved_at, .. } if key == slot(0) => moved_at,
        _ => None,
    });
    let moves = state.events().into_iter().filter(|event| matches!(event, Event::Rebalanced(_)));
    (stamp, moves.collect())
}

#[test]
fn a_move_is_emitted_after_its_placement_and_again_in_the_state_events() {
    let (mut state, web) = shop();
    let events = state.apply(plan(&web, vec![moved(0, 2, "a", "b")])).unwrap();
    let [Event::Placed { .. }, Event::Rebalanced(made)] = events.as_slice() else {
        panic!("a placement and its move: {events:?}")
    };
    assert_eq!((made.to.as_str(), made.score.src.as_str(), made.at), ("b", "a", Time(50)));
    assert_eq!(recorded_moves(&state), (Some(Time(50)), vec![events[1].clone()]));
    assert_eq!(state.apply(plan(&web, vec![moved(0, 2, "a", "b")])).unwrap(), [], "a stale move leaves no record");
}

#[test]
fn removing_a_node_drops_the_record_of_its_last_move() {
    let (mut state, web) = shop();
    state.apply(plan(&web, vec![moved(0, 2, "a", "b")])).unwrap();
    let remove = Command::SetIntent { node: "b".into(), intent: Intent::Removed, at: Time(60) };
    state.apply(remove).unwrap();
    assert_eq!(recorded_moves(&state), (Some(Time(50)), vec![]));
}

#[test]
fn a_spread_rebalance_is_requested_by_command_and_for_some_services_when_a_node_joins() {
    let (mut state, _) = shop();
    let with = |rebalance| ServiceSpec { rebalance, ..replicas(1) };
    let services =
        [("fixed", with(Rebalance::Off)), ("eager", with(Rebalance::OnJoin)), ("plain", with(Rebalance::On))];
    state.apply(apply("blog", &services)).unwrap();
    let asked = |state: &State| -> Vec<String> {
        let asked = state.groups().filter(|(_, group)| group.spread_rebalance == SpreadRebalance::Requested);
        asked.map(|(key, _)| key.service.to_string()).collect()
    };
    state.apply(Command::Join(Box::new(node("c")))).unwrap();
    assert_eq!(asked(&state), ["eager"]);
    state.apply(plan(&group("blog", "eager"), vec![PlanItem::EvenOutDone])).unwrap();
    assert!(asked(&state).is_empty());
    for (health, at) in [(Health::Suspect, 1), (Health::Ready, 2), (Health::Down, 3)] {
        state.apply(Command::SetHealth { node: "c".into(), health, at: Time(at) }).unwrap();
        assert!(asked(&state).is_empty(), "a suspect node did not leave");
    }
    state.apply(Command::SetHealth { node: "c".into(), health: Health::Ready, at: Time(4) }).unwrap();
    assert_eq!(asked(&state), ["eager"]);
    state.apply(Command::EvenOut).unwrap();
    assert_eq!(asked(&state), ["eager", "plain", "web"]);
}
