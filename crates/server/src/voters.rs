//! Who keeps the log and who votes on it.
//!
//! Owns: how many voters a cluster has, which nodes they are, who stands by, and getting there one change at a time.
//! Must not touch: what is in the log. Invariant: a node votes only after it has been well for a while and has caught up;
//! no step takes a vote from a node that is well unless there are too many.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use longshore_model::{Health, MemberId, NodeName, Time, access::SeatPart};
use longshore_store::{
    State,
    replicated::{Member, Members, MembershipError, Replicated},
};

use crate::{
    clock,
    hub::Hub,
    peer::{CallError, Promotion, Server, pack},
};

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Time a node must have been well before it is trusted with the log.
const SETTLE: Duration = Duration::from_secs(3);
/// Servers that keep the log without a vote. One that has it answers whoever asks it, and replaces a voter at once; every
/// further one costs the leader a copy of all it writes.
const STANDBYS: usize = 2;
/// Entries a learner may be behind and still count as caught up.
const CAUGHT_UP: u64 = 100;
/// Time one call to a node may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a node that may vote is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Well, and for long enough.
    Well,
    /// Nobody can say yet.
    Unsure,
    /// Down.
    Down,
}

/// One change of who keeps the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A node is reached elsewhere.
    Relocate(Member),
    /// A node begins to keep the log.
    Enlist(MemberId),
    /// A node that keeps it begins to vote.
    Vote(MemberId),
    /// A node no longer votes.
    Unvote(MemberId),
    /// A node no longer keeps the log.
    Dismiss(MemberId),
}

/// A node that may vote.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    name: NodeName,
    address: String,
    standing: Standing,
}

/// Voters of a cluster with so many nodes that may vote.
const fn voters_wanted(candidates: usize) -> usize {
    match candidates {
        0..=2 => 1,
        3 | 4 => 3,
        5 | 6 => 5,
        7.. => 7,
    }
}

/// What is to be done next, if anything.
fn next_step(me: MemberId, now: &Members, candidates: &BTreeMap<MemberId, Candidate>) -> Option<Step> {
    let moved = now.members.values().find_map(|member| {
        let address = &candidates.get(&member.id)?.address;
        (!address.is_empty() && *address != member.address)
            .then(|| Step::Relocate(Member { address: address.clone(), ..member.clone() }))
    });
    if moved.is_some() {
        return moved;
    }
    let standing = |member: &MemberId| candidates.get(member).map(|candidate| candidate.standing);
    // Whoever left goes first, this member last: whoever leads after it goes on.
    let mut leavers = now.voters.iter().filter(|voter| standing(voter).is_none());
    if let Some(leaver) = leavers.clone().find(|leaver| **leaver != me).or_else(|| leavers.next()) {
        return (now.voters.len() > 1).then_some(Step::Unvote(*leaver));
    }
    let learners: BTreeSet<MemberId> = now.members.keys().copied().filter(|id| !now.voters.contains(id)).collect();
    if let Some(leaver) = learners.iter().find(|learner| standing(learner).is_none()) {
        return Some(Step::Dismiss(*leaver));
    }
    let wanted = voters_wanted(candidates.len());
    let down = now.voters.iter().copied().find(|voter| standing(voter) == Some(Standing::Down));
    if now.voters.len() > wanted {
        let spare = now.voters.iter().copied().rfind(|voter| *voter != me);
        return down.or(spare).map(Step::Unvote);
    }
    // A voter that is down is replaced, never just dropped: it may come back, and until then the count is what it was.
    if now.voters.len() < wanted || down.is_some() {
        let well = |member: &&MemberId| standing(member) == Some(Standing::Well);
        let ready = candidates.keys().filter(well).filter(|member| !now.voters.contains(member)).count();
        // An even number of voters bears no more losses than one fewer does, and waits for one more: two are begun together
        // or not at all, so that a node that joined and never came does not make the cluster weaker.
        let alone = down.is_none() && now.voters.len() % 2 == 1 && ready < 2;
        if let Some(learner) = learners.iter().find(well).filter(|_| !alone) {
            return Some(Step::Vote(*learner));
        }
    }
    stand_by(now, &learners, candidates)
}

/// Who begins or ceases to keep the log without a vote. One that is not well is not sent away: it could not be told, and
/// would come back as a member of nothing.
fn stand_by(now: &Members, learners: &BTreeSet<MemberId>, candidates: &BTreeMap<MemberId, Candidate>) -> Option<Step> {
    let stands = |member: &MemberId, standing| candidates.get(member).is_some_and(|it| it.standing == standing);
    let well = |member: &&MemberId| stands(member, Standing::Well);
    if learners.len() > STANDBYS {
        return learners.iter().rfind(well).map(|learner| Step::Dismiss(*learner));
    }
    // Whoever is to vote keeps the log first, however many that are away stand by already.
    let short = now.voters.len() < voters_wanted(candidates.len())
        || now.voters.iter().any(|voter| stands(voter, Standing::Down));
    if learners.len() < STANDBYS || (short && !learners.iter().any(|learner| well(&learner))) {
        let mut outside = candidates.keys().filter(|member| !now.members.contains_key(member));
        return outside.find(well).map(|member| Step::Enlist(*member));
    }
    None
}

/// Keeps the number of voters right while this member leads.
pub(crate) async fn keep(hub: Arc<Hub>, store: Replicated) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let (state, members) = (store.read_local().state, store.members());
        let candidates = candidates(&state, clock::now());
        let Some(step) = next_step(hub.place().member, &members, &candidates) else { continue };
        match carry_out(&hub, &store, &members, &candidates, &step).await {
            Ok(Done::Yes) => tracing::info!(?step, "members changed"),
            Ok(Done::NotYet) => {}
            Err(error) => tracing::debug!(?step, error, "members could not be changed"),
        }
    }
}

fn candidates(state: &State, now: Time) -> BTreeMap<MemberId, Candidate> {
    let seats = state.access().seats().filter(|(_, seat)| seat.part == SeatPart::Server);
    let candidates = seats.map(|(name, seat)| {
        let node = state.node(name);
        let standing = match node.map(|node| (node.health, node.health_since)) {
            Some((Health::Ready | Health::Degraded, since)) if now.since(since.max(seat.since)) >= SETTLE => {
                Standing::Well
            }
            Some((Health::Down, _)) => Standing::Down,
            Some((Health::Ready | Health::Degraded | Health::Suspect, _)) | None => Standing::Unsure,
        };
        (seat.member, Candidate { name: name.clone(), address: seat.address.clone(), standing })
    });
    candidates.collect()
}

enum Done {
    Yes,
    NotYet,
}

async fn carry_out(
    hub: &Hub,
    store: &Replicated,
    members: &Members,
    candidates: &BTreeMap<MemberId, Candidate>,
    step: &Step,
) -> Result<Done, String> {
    let failed = |error: MembershipError| error.to_string();
    match step {
        Step::Relocate(member) => store.relocate(member.clone()).await.map_err(failed)?,
        Step::Enlist(id) => {
            let Some(Candidate { name, address, .. }) = candidates.get(id) else { return Ok(Done::NotYet) };
            let vault = hub.vault().ok_or("this node has no keys")?;
            let promotion = pack(&Promotion { member: *id, vault })?;
            let server = Server { name: name.clone(), address: address.clone() };
            call(hub, &server, "/peer/promote", promotion).await?;
            let member = Member { id: *id, name: name.clone(), address: address.clone() };
            store.add_learner(member).await.map_err(failed)?;
        }
        Step::Vote(id) => {
            let behind = store.status().lag.get(id).copied().unwrap_or(u64::MAX);
            if behind > CAUGHT_UP {
                return Ok(Done::NotYet);
            }
            let voters = members.voters.iter().copied().chain([*id]).collect();
            store.set_voters(voters).await.map_err(failed)?;
        }
        Step::Unvote(id) => {
            let voters = members.voters.iter().copied().filter(|voter| voter != id).collect();
            store.set_voters(voters).await.map_err(failed)?;
        }
        Step::Dismiss(id) => {
            store.remove_member(*id).await.map_err(failed)?;
            if let Some(member) = members.members.get(id) {
                // One that is gone needs no telling; one that is not will be told when it asks for its work.
                let server = Server { name: member.name.clone(), address: member.address.clone() };
                let _ = call(hub, &server, "/peer/demote", Vec::new()).await;
            }
        }
    }
    Ok(Done::Yes)
}

async fn call(hub: &Hub, to: &Server, path: &str, message: Vec<u8>) -> Result<(), String> {
    match tokio::time::timeout(PATIENCE, hub.calls.post(to, path, message)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(CallError::Refused(envelope))) => Err(envelope.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it takes too long".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: MemberId = MemberId(1);

    fn members(voters: &[u64], learners: &[u64]) -> Members {
        let ids = |ids: &[u64]| ids.iter().copied().map(MemberId).collect::<Vec<_>>();
        let member = |id: MemberId| Member { id, name: format!("n{id}").as_str().into(), address: format!("n{id}:1") };
        Members {
            voters: ids(voters).into_iter().collect(),
            members: ids(voters).into_iter().chain(ids(learners)).map(|id| (id, member(id))).collect(),
        }
    }

    fn nodes(standings: &[(u64, Standing)]) -> BTreeMap<MemberId, Candidate> {
        let candidate = |id: u64, standing| {
            (MemberId(id), Candidate { name: format!("n{id}").as_str().into(), address: format!("n{id}:1"), standing })
        };
        standings.iter().map(|(id, standing)| candidate(*id, *standing)).collect()
    }

    fn well(count: u64) -> Vec<(u64, Standing)> {
        (1..=count).map(|id| (id, Standing::Well)).collect()
    }

    /// Takes steps until there is none, and says how many voters and learners are left.
    fn settle(mut now: Members, candidates: &BTreeMap<MemberId, Candidate>) -> (Vec<u64>, usize) {
        for _ in 0..50 {
            let Some(step) = next_step(ME, &now, candidates) else {
                let voters: Vec<u64> = now.voters.iter().map(|id| id.0).collect();
                let learners = now.members.len() - voters.len();
                return (voters, learners);
            };
            match step {
                Step::Relocate(member) => drop(now.members.insert(member.id, member)),
                Step::Enlist(id) => now.members.extend(members(&[], &[id.0]).members),
                Step::Vote(id) => drop(now.voters.insert(id)),
                Step::Unvote(id) => drop(now.voters.remove(&id)),
                Step::Dismiss(id) => drop(now.members.remove(&id)),
            }
            assert!(now.voters.iter().all(|voter| now.members.contains_key(voter)));
            assert!(!now.voters.is_empty());
        }
        panic!("it never settles: {now:?}");
    }

    #[test]
    fn a_node_that_joined_and_never_came_takes_nobody_to_an_even_number() {
        let (well, unsure) = (Standing::Well, Standing::Unsure);
        let settled = settle(members(&[1], &[]), &nodes(&[(1, well), (2, well), (3, unsure)]));
        assert_eq!(settled, (vec![1], 1));
        let settled =
            settle(members(&[1, 2, 3], &[]), &nodes(&[(1, well), (2, well), (3, well), (4, well), (5, unsure)]));
        assert_eq!(settled, (vec![1, 2, 3], 1));
    }

    #[test]
    fn of_two_servers_the_second_keeps_the_log_without_a_vote() {
        assert_eq!(settle(members(&[1], &[]), &nodes(&well(2))), (vec![1], 1));
    }

    #[test]
    fn two_stand_by_at_most_and_one_that_is_away_is_not_sent_away() {
        let counts: Vec<usize> = (1..=12).map(|count| settle(members(&[1], &[]), &nodes(&well(count))).1).collect();
        assert_eq!(counts, [0, 1, 0, 1, 0, 1, 0, 1, 2, 2, 2, 2]);
        let away = [well(9), vec![(10, Standing::Down)]].concat();
        let settled = settle(members(&[1, 2, 3, 4, 5, 6, 7], &[8, 9, 10]), &nodes(&away));
        assert_eq!(settled, (vec![1, 2, 3, 4, 5, 6, 7], 2), "it is 9 that goes");
    }

    #[test]
    fn the_number_of_voters_follows_the_number_of_nodes() {
        let counts: Vec<usize> =
            (1..=9).map(|count| settle(members(&[1], &[]), &nodes(&well(count))).0.len()).collect();
        assert_eq!(counts, [1, 1, 3, 3, 5, 5, 7, 7, 7]);
    }

    #[test]
    fn nodes_that_leave_take_their_votes_along_and_the_number_goes_down() {
        let seven = members(&[1, 2, 3, 4, 5, 6, 7], &[]);
        assert_eq!(settle(seven.clone(), &nodes(&well(4))), (vec![1, 2, 3], 1));
        assert_eq!(settle(seven, &nodes(&well(1))), (vec![1], 0));
    }

    #[test]
    fn a_leader_that_leaves_gives_up_its_vote_after_all_others_that_leave() {
        let candidates = nodes(&[(2, Standing::Well)]);
        assert_eq!(next_step(ME, &members(&[1, 2, 3], &[]), &candidates), Some(Step::Unvote(MemberId(3))));
        assert_eq!(next_step(ME, &members(&[1, 2], &[3]), &candidates), Some(Step::Unvote(ME)));
    }

    #[test]
    fn a_voter_that_is_down_is_replaced_where_somebody_can_stand_in_and_kept_where_not() {
        let alone = [(1, Standing::Well), (2, Standing::Down), (3, Standing::Well)];
        assert_eq!(settle(members(&[1, 2, 3], &[]), &nodes(&alone)), (vec![1, 2, 3], 0));
        let with_another = [alone.as_slice(), &[(4, Standing::Well)]].concat();
        assert_eq!(settle(members(&[1, 2, 3], &[]), &nodes(&with_another)), (vec![1, 3, 4], 1));
    }

    #[test]
    fn a_node_that_has_not_settled_is_not_trusted_yet() {
        let candidates = nodes(&[(1, Standing::Well), (2, Standing::Unsure), (3, Standing::Unsure)]);
        assert_eq!(next_step(ME, &members(&[1], &[]), &candidates), None);
    }

    #[test]
    fn a_member_that_moved_is_looked_for_where_it_is() {
        let mut candidates = nodes(&well(1));
        candidates.get_mut(&ME).unwrap().address = "elsewhere:1".to_owned();
        let Some(Step::Relocate(member)) = next_step(ME, &members(&[1], &[]), &candidates) else {
            panic!("it was not noticed")
        };
        assert_eq!((member.id, member.address.as_str()), (ME, "elsewhere:1"));
    }
}
