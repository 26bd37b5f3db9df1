//! Membership of the Raft group: which servers are voters, which are standbys (learners).
//!
//! Owns: the number of voters and standbys, which nodes they are, and changing them one step at a time.
//! Must not touch: what is in the log. Invariant: a node votes only after it was well for a while and has caught up; no
//! step takes the vote from a node that is well unless there are too many voters.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use longshore_model::{Health, MemberId, NodeName, Time, access::NodeRole};
use longshore_store::{
    State,
    replicated::{Member, Members, MembershipError, Replicated},
};

use crate::{
    clock,
    lifecycle::node_context::NodeContext,
    node_rpc::{CallError, Promotion, ServerAddress, pack},
};

/// Time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time a node must have been well before it becomes a member.
const SETTLE_TIME: Duration = Duration::from_secs(3);
/// Learners without a vote. A learner can answer requests and replaces a voter at once; each one costs the leader a
/// copy of the log.
const MAX_STANDBYS: usize = 2;
/// Log entries a learner may lag behind and still be promoted.
const MAX_LAG_ENTRIES: u64 = 100;
/// Time one call to a node may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Health of a node that may vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CandidateHealth {
    /// Ready for long enough.
    Well,
    /// Suspect, not seen yet, or ready for too short a time.
    Unsure,
    /// Down.
    Down,
}

/// One change of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A member's address has changed.
    Relocate(Member),
    /// A node becomes a learner.
    AddLearner(MemberId),
    /// A learner becomes a voter.
    Promote(MemberId),
    /// A voter becomes a learner.
    Demote(MemberId),
    /// A learner leaves the group.
    RemoveLearner(MemberId),
}

/// A node that may vote.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    name: NodeName,
    address: String,
    health: CandidateHealth,
}

/// Number of voters for this many candidates.
const fn target_voters(candidates: usize) -> usize {
    match candidates {
        0..=2 => 1,
        3 | 4 => 3,
        5 | 6 => 5,
        7.. => 7,
    }
}

/// The next change, if one is needed.
fn next_step(me: MemberId, now: &Members, candidates: &BTreeMap<MemberId, Candidate>) -> Option<Step> {
    let moved = now.members.values().find_map(|member| {
        let address = &candidates.get(&member.id)?.address;
        (!address.is_empty() && *address != member.address)
            .then(|| Step::Relocate(Member { address: address.clone(), ..member.clone() }))
    });
    if moved.is_some() {
        return moved;
    }
    let health = |member: &MemberId| candidates.get(member).map(|candidate| candidate.health);
    // Voters that left the cluster go first, this member last: the next leader continues.
    let mut leavers = now.voters.iter().filter(|voter| health(voter).is_none());
    if let Some(leaver) = leavers.clone().find(|leaver| **leaver != me).or_else(|| leavers.next()) {
        return (now.voters.len() > 1).then_some(Step::Demote(*leaver));
    }
    let learners: BTreeSet<MemberId> = now.members.keys().copied().filter(|id| !now.voters.contains(id)).collect();
    if let Some(leaver) = learners.iter().find(|learner| health(learner).is_none()) {
        return Some(Step::RemoveLearner(*leaver));
    }
    let wanted = target_voters(candidates.len());
    let down = now.voters.iter().copied().find(|voter| health(voter) == Some(CandidateHealth::Down));
    if now.voters.len() > wanted {
        let spare = now.voters.iter().copied().rfind(|voter| *voter != me);
        return down.or(spare).map(Step::Demote);
    }
    // A voter that is down is replaced, never just dropped: it may come back, and until then the quorum stays what it
    // was.
    if now.voters.len() < wanted || down.is_some() {
        let well = |member: &&MemberId| health(member) == Some(CandidateHealth::Well);
        let ready = candidates.keys().filter(well).filter(|member| !now.voters.contains(member)).count();
        // An even number of voters tolerates no more losses than one fewer: voters are added in pairs or not at all, so
        // that a node that joined and never started does not weaken the cluster.
        let alone = down.is_none() && now.voters.len() % 2 == 1 && ready < 2;
        if let Some(learner) = learners.iter().find(well).filter(|_| !alone) {
            return Some(Step::Promote(*learner));
        }
    }
    adjust_standbys(now, &learners, candidates)
}

/// Adds or removes a learner. One that is not well is not removed: it could not be told, and would come back as a
/// member of nothing.
fn adjust_standbys(
    now: &Members,
    learners: &BTreeSet<MemberId>,
    candidates: &BTreeMap<MemberId, Candidate>,
) -> Option<Step> {
    let stands = |member: &MemberId, health| candidates.get(member).is_some_and(|it| it.health == health);
    let well = |member: &&MemberId| stands(member, CandidateHealth::Well);
    if learners.len() > MAX_STANDBYS {
        return learners.iter().rfind(well).map(|learner| Step::RemoveLearner(*learner));
    }
    // A future voter must be a learner first, however many unreachable learners there are.
    let short = now.voters.len() < target_voters(candidates.len())
        || now.voters.iter().any(|voter| stands(voter, CandidateHealth::Down));
    if learners.len() < MAX_STANDBYS || (short && !learners.iter().any(|learner| well(&learner))) {
        let mut outside = candidates.keys().filter(|member| !now.members.contains_key(member));
        return outside.find(well).map(|member| Step::AddLearner(*member));
    }
    None
}

/// Keeps the membership right while this member leads.
pub(crate) async fn maintain(ctx: Arc<NodeContext>, store: Replicated) {
    let mut look = tokio::time::interval(CHECK_INTERVAL);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let (state, members) = (store.read_local().state, store.members());
        let candidates = candidates(&state, clock::now());
        let Some(step) = next_step(ctx.record().member, &members, &candidates) else { continue };
        match carry_out(&ctx, &store, &members, &candidates, &step).await {
            Ok(StepResult::Done) => tracing::info!(?step, "membership changed"),
            Ok(StepResult::NotYet) => {}
            Err(error) => tracing::debug!(?step, error, "membership could not be changed"),
        }
    }
}

fn candidates(state: &State, now: Time) -> BTreeMap<MemberId, Candidate> {
    let servers = state.access().memberships().filter(|(_, membership)| membership.role == NodeRole::Server);
    let candidates = servers.map(|(name, membership)| {
        let node = state.node(name);
        let health = match node.map(|node| (node.health, node.health_since)) {
            Some((Health::Ready | Health::Degraded, since))
                if now.since(since.max(membership.since)) >= SETTLE_TIME =>
            {
                CandidateHealth::Well
            }
            Some((Health::Down, _)) => CandidateHealth::Down,
            Some((Health::Ready | Health::Degraded | Health::Suspect, _)) | None => CandidateHealth::Unsure,
        };
        (membership.member, Candidate { name: name.clone(), address: membership.address.clone(), health })
    });
    candidates.collect()
}

/// Whether a step was carried out.
enum StepResult {
    Done,
    NotYet,
}

async fn carry_out(
    ctx: &NodeContext,
    store: &Replicated,
    members: &Members,
    candidates: &BTreeMap<MemberId, Candidate>,
    step: &Step,
) -> Result<StepResult, String> {
    let failed = |error: MembershipError| error.to_string();
    match step {
        Step::Relocate(member) => store.relocate(member.clone()).await.map_err(failed)?,
        Step::AddLearner(id) => {
            let Some(Candidate { name, address, .. }) = candidates.get(id) else { return Ok(StepResult::NotYet) };
            let keyring = ctx.keyring().ok_or("this node has no keys")?;
            let promotion = pack(&Promotion { member: *id, keyring })?;
            let server = ServerAddress { name: name.clone(), address: address.clone() };
            call(ctx, &server, "/peer/promote", promotion).await?;
            let member = Member { id: *id, name: name.clone(), address: address.clone() };
            store.add_learner(member).await.map_err(failed)?;
        }
        Step::Promote(id) => {
            let behind = store.status().lag.get(id).copied().unwrap_or(u64::MAX);
            if behind > MAX_LAG_ENTRIES {
                return Ok(StepResult::NotYet);
            }
            let voters = members.voters.iter().copied().chain([*id]).collect();
            store.set_voters(voters).await.map_err(failed)?;
        }
        Step::Demote(id) => {
            let voters = members.voters.iter().copied().filter(|voter| voter != id).collect();
            store.set_voters(voters).await.map_err(failed)?;
        }
        Step::RemoveLearner(id) => {
            store.remove_member(*id).await.map_err(failed)?;
            if let Some(member) = members.members.get(id) {
                // A node that is gone cannot be told; one that is not learns it when it asks for its work.
                let server = ServerAddress { name: member.name.clone(), address: member.address.clone() };
                let _ = call(ctx, &server, "/peer/demote", Vec::new()).await;
            }
        }
    }
    Ok(StepResult::Done)
}

async fn call(ctx: &NodeContext, to: &ServerAddress, path: &str, message: Vec<u8>) -> Result<(), String> {
    match tokio::time::timeout(CALL_TIMEOUT, ctx.peers.post(to, path, message)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(CallError::Refused(envelope))) => Err(envelope.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it timed out".to_owned()),
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

    fn nodes(standings: &[(u64, CandidateHealth)]) -> BTreeMap<MemberId, Candidate> {
        let candidate = |id: u64, health| {
            (MemberId(id), Candidate { name: format!("n{id}").as_str().into(), address: format!("n{id}:1"), health })
        };
        standings.iter().map(|(id, health)| candidate(*id, *health)).collect()
    }

    fn well(count: u64) -> Vec<(u64, CandidateHealth)> {
        (1..=count).map(|id| (id, CandidateHealth::Well)).collect()
    }

    /// Takes steps until there is none; returns the voters and the number of learners.
    fn settle(mut now: Members, candidates: &BTreeMap<MemberId, Candidate>) -> (Vec<u64>, usize) {
        for _ in 0..50 {
            let Some(step) = next_step(ME, &now, candidates) else {
                let voters: Vec<u64> = now.voters.iter().map(|id| id.0).collect();
                let learners = now.members.len() - voters.len();
                return (voters, learners);
            };
            match step {
                Step::Relocate(member) => drop(now.members.insert(member.id, member)),
                Step::AddLearner(id) => now.members.extend(members(&[], &[id.0]).members),
                Step::Promote(id) => drop(now.voters.insert(id)),
                Step::Demote(id) => drop(now.voters.remove(&id)),
                Step::RemoveLearner(id) => drop(now.members.remove(&id)),
            }
            assert!(now.voters.iter().all(|voter| now.members.contains_key(voter)));
            assert!(!now.voters.is_empty());
        }
        panic!("it never settles: {now:?}");
    }

    #[test]
    fn a_node_that_joined_and_never_started_does_not_make_the_voters_even() {
        let (well, unsure) = (CandidateHealth::Well, CandidateHealth::Unsure);
        let settled = settle(members(&[1], &[]), &nodes(&[(1, well), (2, well), (3, unsure)]));
        assert_eq!(settled, (vec![1], 1));
        let settled =
            settle(members(&[1, 2, 3], &[]), &nodes(&[(1, well), (2, well), (3, well), (4, well), (5, unsure)]));
        assert_eq!(settled, (vec![1, 2, 3], 1));
    }

    #[test]
    fn of_two_servers_the_second_is_a_learner() {
        assert_eq!(settle(members(&[1], &[]), &nodes(&well(2))), (vec![1], 1));
    }

    #[test]
    fn at_most_two_learners_stand_by_and_one_that_is_down_is_not_removed() {
        let counts: Vec<usize> = (1..=12).map(|count| settle(members(&[1], &[]), &nodes(&well(count))).1).collect();
        assert_eq!(counts, [0, 1, 0, 1, 0, 1, 0, 1, 2, 2, 2, 2]);
        let away = [well(9), vec![(10, CandidateHealth::Down)]].concat();
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
    fn removed_nodes_lose_their_votes_and_the_number_of_voters_shrinks() {
        let seven = members(&[1, 2, 3, 4, 5, 6, 7], &[]);
        assert_eq!(settle(seven.clone(), &nodes(&well(4))), (vec![1, 2, 3], 1));
        assert_eq!(settle(seven, &nodes(&well(1))), (vec![1], 0));
    }

    #[test]
    fn a_removed_leader_gives_up_its_vote_after_the_other_removed_voters() {
        let candidates = nodes(&[(2, CandidateHealth::Well)]);
        assert_eq!(next_step(ME, &members(&[1, 2, 3], &[]), &candidates), Some(Step::Demote(MemberId(3))));
        assert_eq!(next_step(ME, &members(&[1, 2], &[3]), &candidates), Some(Step::Demote(ME)));
    }

    #[test]
    fn a_voter_that_is_down_is_replaced_if_another_node_can_and_kept_otherwise() {
        let alone = [(1, CandidateHealth::Well), (2, CandidateHealth::Down), (3, CandidateHealth::Well)];
        assert_eq!(settle(members(&[1, 2, 3], &[]), &nodes(&alone)), (vec![1, 2, 3], 0));
        let with_another = [alone.as_slice(), &[(4, CandidateHealth::Well)]].concat();
        assert_eq!(settle(members(&[1, 2, 3], &[]), &nodes(&with_another)), (vec![1, 3, 4], 1));
    }

    #[test]
    fn a_node_that_has_not_settled_is_not_promoted() {
        let candidates =
            nodes(&[(1, CandidateHealth::Well), (2, CandidateHealth::Unsure), (3, CandidateHealth::Unsure)]);
        assert_eq!(next_step(ME, &members(&[1], &[]), &candidates), None);
    }

    #[test]
    fn a_member_whose_address_changed_is_relocated() {
        let mut candidates = nodes(&well(1));
        candidates.get_mut(&ME).unwrap().address = "elsewhere:1".to_owned();
        let Some(Step::Relocate(member)) = next_step(ME, &members(&[1], &[]), &candidates) else {
            panic!("it was not noticed")
        };
        assert_eq!((member.id, member.address.as_str()), (ME, "elsewhere:1"));
    }
}
