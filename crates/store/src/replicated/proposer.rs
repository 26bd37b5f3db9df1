//! Group commit: many queued commands in one log entry.
//!
//! Owns: the queue, its division into entries, and the delivery of the answers.
//! Must not touch: policy. Proposals are appended unchanged, except for placements that no longer fit.
//! Invariant: one entry is in flight at a time, and a plan, or a part of one, starts its entry, so that it is checked
//! against everything applied before. Other commands wait for at most one entry of a large plan.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use longshore_model::{Actor, Command, Plan, StateIndex, Time};
use tokio::sync::{mpsc, oneshot};

use super::{
    Applied, CommitCertainty, Dedup, DroppedItem, Fingerprint, IdempotencyKey, Member, Outcome, Proposal, ProposeError,
    consensus::{RaftNode, RaftRole, StateMachineHandle, WriteError},
    encoding, leader_request, plan_parts,
    record::Payload,
    state_machine::{Batch, Item, PlanPart},
    transport::Delivery,
};

/// The most bytes in one entry, unless a single command is larger.
const ENTRY_BYTES: usize = 512 * 1024;
/// The most bytes in one command. The manifest of a large deployment takes a tenth of it.
const COMMAND_BYTES: usize = 8 * 1024 * 1024;
/// Capacity of the queue. More commands would exceed the request timeout anyway.
pub(super) const QUEUE_CAPACITY: usize = 8192;
/// How often the proposer looks for a leader while there is none.
const LEADER_POLL_INTERVAL: Duration = Duration::from_millis(20);

type Answer = Result<Applied, ProposeError>;

/// A queued proposal.
pub(super) struct QueuedProposal {
    command: QueuedCommand,
    retry: RetrySafety,
    deadline: Instant,
    waiter: Waiter,
}

/// The caller waiting for an answer, and whether an earlier attempt may have appended the command.
struct Waiter {
    answer: oneshot::Sender<Answer>,
    commit: CommitCertainty,
}

impl Waiter {
    fn answer(self, answer: Answer) {
        let answer = match (answer, self.commit) {
            (Err(error), CommitCertainty::Unknown) => Err(error.perhaps_appended()),
            (answer, CommitCertainty::NotAppended | CommitCertainty::Unknown) => answer,
        };
        // The caller may have stopped waiting.
        let _ = self.answer.send(answer);
    }
}

/// Whether a command with an unknown outcome may be sent again.
#[derive(Clone, Copy)]
enum RetrySafety {
    /// It has an idempotency key, so it is applied once however often it is sent.
    Safe,
    Unsafe,
}

enum QueuedCommand {
    /// Encoded by the caller.
    Encoded(Payload),
    /// Encoded after it was checked against the state.
    Plan(Box<PlanProposal>),
}

/// A proposal whose command is a plan.
struct PlanProposal {
    plan: Plan,
    key: Option<IdempotencyKey>,
    request: Option<Fingerprint>,
    actor: Actor,
    at: Time,
}

impl PlanProposal {
    fn of(&self, plan: Plan, key: Option<IdempotencyKey>) -> Proposal {
        let Self { request, actor, at, .. } = self;
        Proposal { command: Command::Commit(Box::new(plan)), key, request: *request, actor: actor.clone(), at: *at }
    }
}

impl QueuedProposal {
    pub(super) fn new(
        proposal: Proposal,
        timeout: Duration,
    ) -> Result<(Self, oneshot::Receiver<Answer>), ProposeError> {
        let retry = if proposal.key.is_some() { RetrySafety::Safe } else { RetrySafety::Unsafe };
        let Proposal { command, key, request, actor, at } = proposal;
        let command = match command {
            Command::Commit(plan) => {
                QueuedCommand::Plan(Box::new(PlanProposal { plan: *plan, key, request, actor, at }))
            }
            command => {
                let proposal = Proposal { command, key, request, actor, at };
                QueuedCommand::Encoded(encoded(&Item { proposal, part: None })?)
            }
        };
        let (answer, answered) = oneshot::channel();
        let waiter = Waiter { answer, commit: CommitCertainty::NotAppended };
        Ok((Self { command, retry, deadline: Instant::now() + timeout, waiter }, answered))
    }

    fn refuse(self, error: ProposeError) {
        self.waiter.answer(Err(error));
    }
}

/// Encodes an item, and refuses it if it is too large.
pub(super) fn encoded(item: &Item) -> Result<Payload, ProposeError> {
    let bytes = encoding::encode(item).map_err(|error| ProposeError::StorageFailed(error.to_string()))?;
    if bytes.len() > COMMAND_BYTES {
        return Err(ProposeError::TooLarge { bytes: bytes.len(), limit: COMMAND_BYTES });
    }
    Ok(Payload(bytes.into()))
}

/// The proposer of a member.
pub(super) struct Proposer {
    node: Arc<RaftNode>,
    state_machine: Arc<StateMachineHandle>,
    queue: mpsc::Receiver<QueuedProposal>,
    timeout: Duration,
    /// A leader without a quorum for this long appends nothing.
    quorum_silence: Duration,
    /// Taken from the queue but not committed yet; these go first.
    requeued: VecDeque<QueuedProposal>,
    plans_split: u64,
}

/// The member that can commit.
enum Leader {
    ThisMember,
    Other(Member),
    Unknown,
    Stopped,
}

impl Proposer {
    pub(super) fn new(
        node: Arc<RaftNode>,
        state_machine: Arc<StateMachineHandle>,
        queue: mpsc::Receiver<QueuedProposal>,
        timeout: Duration,
        quorum_silence: Duration,
    ) -> Self {
        Self { node, state_machine, queue, timeout, quorum_silence, requeued: VecDeque::new(), plans_split: 0 }
    }

    /// Runs until the member is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let first = match self.requeued.pop_front() {
                Some(queued) => queued,
                None => match self.queue.recv().await {
                    Some(queued) => queued,
                    None => return,
                },
            };
            if Instant::now() >= first.deadline {
                first.refuse(ProposeError::QuorumLost { commit: CommitCertainty::NotAppended });
                continue;
            }
            match self.wait_for_leader(first.deadline).await {
                Leader::ThisMember => self.commit_queued(first).await,
                Leader::Other(leader) => self.forward_to_leader(first, &leader).await,
                Leader::Unknown => first.refuse(ProposeError::QuorumLost { commit: CommitCertainty::NotAppended }),
                Leader::Stopped => {
                    let why = self.node.status().failure.unwrap_or_else(|| "it was stopped".to_owned());
                    first.refuse(ProposeError::StorageFailed(why));
                }
            }
        }
    }

    /// Waits until a member can commit, or until the deadline.
    async fn wait_for_leader(&self, deadline: Instant) -> Leader {
        loop {
            let status = self.node.raft_status();
            match (status.role, status.leader) {
                (RaftRole::Stopped, _) => return Leader::Stopped,
                (RaftRole::Leader { since_quorum }, _)
                    if since_quorum.is_none_or(|since| since < self.quorum_silence) =>
                {
                    return Leader::ThisMember;
                }
                (RaftRole::NotLeader, Some(leader)) => return Leader::Other(leader),
                (RaftRole::Leader { .. }, _) | (RaftRole::NotLeader, None) => {}
            }
            if Instant::now() >= deadline {
                return Leader::Unknown;
            }
            tokio::time::sleep(LEADER_POLL_INTERVAL).await;
        }
    }

    async fn commit_queued(&mut self, first: QueuedProposal) {
        let QueuedProposal { command, retry, deadline, waiter } = first;
        match command {
            QueuedCommand::Encoded(item) => {
                self.commit_batch(
                    QueuedProposal { command: QueuedCommand::Encoded(item), retry, deadline, waiter },
                    Vec::new(),
                )
                .await;
            }
            QueuedCommand::Plan(mut whole) => match plan_parts::split(std::mem::take(&mut whole.plan), ENTRY_BYTES) {
                Err(error) => waiter.answer(Err(error)),
                Ok(parts) if parts.len() <= 1 => {
                    let plan = parts.into_iter().next().unwrap_or_default();
                    let key = whole.key.take();
                    self.commit_plan(whole.of(plan, key), deadline, waiter).await;
                }
                Ok(parts) => {
                    let answer = self.commit_parts(parts.into_iter().map(|part| whole.of(part, None))).await;
                    waiter.answer(answer);
                }
            },
        }
    }

    /// Commits a plan that fits into one entry.
    async fn commit_plan(&mut self, proposal: Proposal, deadline: Instant, waiter: Waiter) {
        match self.checked(proposal, None) {
            Err(error) => waiter.answer(Err(error)),
            Ok((None, dropped)) => waiter.answer(Ok(self.unchanged(dropped))),
            Ok((Some(plan), dropped)) => {
                // It was checked against this state, so it must not be retried against another.
                let queued = QueuedProposal {
                    command: QueuedCommand::Encoded(plan),
                    retry: RetrySafety::Unsafe,
                    deadline,
                    waiter,
                };
                self.commit_batch(queued, dropped).await;
            }
        }
    }

    /// Commits an entry that starts with this item, and adds queued commands that fit.
    async fn commit_batch(&mut self, first: QueuedProposal, dropped: Vec<DroppedItem>) {
        let (mut bytes, mut items, mut waiting) = (0, Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(queued) = next.take().or_else(|| self.next_fitting(ENTRY_BYTES.saturating_sub(bytes))) {
            // A plan starts an entry of its own; `next_fitting` leaves it in the queue.
            if let QueuedCommand::Encoded(item) = &queued.command {
                bytes += item.0.len();
                items.push(item.clone());
                waiting.push(queued);
            }
        }
        match self.write(items).await {
            Ok(mut answers) => {
                if let Some(first) = answers.first_mut() {
                    first.dropped = dropped;
                }
                for (queued, answer) in waiting.into_iter().zip(answers) {
                    queued.waiter.answer(Ok(answer));
                }
            }
            // Another member leads now, or will soon.
            Err(ProposeError::LeaderLost { commit: CommitCertainty::Unknown }) => self.requeue_retryable(waiting),
            Err(error) => waiting.into_iter().for_each(|queued| queued.refuse(error.clone())),
        }
    }

    /// The next queued command, if it fits into `room` bytes; otherwise it waits for the next entry.
    fn next_fitting(&mut self, room: usize) -> Option<QueuedProposal> {
        let queued = self.requeued.pop_front().or_else(|| self.queue.try_recv().ok())?;
        let fits = match &queued.command {
            QueuedCommand::Encoded(bytes) => bytes.0.len() <= room,
            QueuedCommand::Plan(_) => false,
        };
        if fits {
            return Some(queued);
        }
        self.requeued.push_front(queued);
        None
    }

    /// Commits a plan that is too large for one entry, part by part. Each part is checked when its turn comes, and
    /// other commands are committed in between. After the first part, errors say that the plan may have been appended.
    async fn commit_parts(&mut self, parts: impl ExactSizeIterator<Item = Proposal>) -> Answer {
        self.plans_split += 1;
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let mut whole = self.unchanged(Vec::new());
        for (proposal, part) in parts.zip(0..) {
            let failed = |error: ProposeError| if part == 0 { error } else { error.perhaps_appended() };
            let about = PlanPart { plan: self.plans_split, part, parts: count };
            let (item, dropped) = self.checked(proposal, Some(about)).map_err(failed)?;
            whole.dropped.extend(dropped);
            let Some(item) = item else { continue };
            if let Some(applied) = self.write(vec![item]).await.map_err(failed)?.pop() {
                whole.index = applied.index;
                if applied.outcome != Outcome::Unchanged {
                    whole.outcome = applied.outcome;
                }
            }
            if let Some(queued) = self.next_fitting(COMMAND_BYTES) {
                self.commit_batch(queued, Vec::new()).await;
            }
        }
        Ok(whole)
    }

    async fn write(&self, items: Vec<Payload>) -> Result<Vec<Applied>, ProposeError> {
        let batch =
            encoding::encode(&Batch { items }).map_err(|error| ProposeError::StorageFailed(error.to_string()))?;
        self.node.write(Payload(batch.into()), self.timeout).await.map_err(|error| match error {
            WriteError::NotLeading => ProposeError::LeaderLost { commit: CommitCertainty::NotAppended },
            WriteError::DiskFull => ProposeError::DiskFull,
            WriteError::TimedOut => ProposeError::QuorumLost { commit: CommitCertainty::Unknown },
            WriteError::Superseded => ProposeError::LeaderLost { commit: CommitCertainty::Unknown },
            WriteError::Stopped(why) => ProposeError::StorageFailed(why),
        })
    }

    /// Encodes the plan without the placements that no longer fit. Returns `None` if nothing of it is left.
    fn checked(
        &self,
        mut proposal: Proposal,
        part: Option<PlanPart>,
    ) -> Result<(Option<Payload>, Vec<DroppedItem>), ProposeError> {
        let mut dropped = Vec::new();
        if let Command::Commit(plan) = &mut proposal.command {
            dropped = self.state_machine.drop_stale_placements(plan);
            for item in &dropped {
                let reason = item.reason.code();
                tracing::warn!(group = %item.group, reason, "a placement no longer fits and is dropped");
            }
            if plan.is_empty() {
                return Ok((None, dropped));
            }
        }
        Ok((Some(encoded(&Item { proposal, part })?), dropped))
    }

    fn unchanged(&self, dropped: Vec<DroppedItem>) -> Applied {
        let index: StateIndex = self.state_machine.with_machine(|machine| machine.state.index());
        Applied { index, outcome: Outcome::Unchanged, dedup: Dedup::New, dropped }
    }

    /// Sends the queued commands to the leader in one request. Commands that were not delivered are retried, and so are
    /// commands with an idempotency key. Gives up on a hanging leader as soon as another one is known.
    async fn forward_to_leader(&mut self, first: QueuedProposal, leader: &Member) {
        let mut bytes = 0;
        let mut items = Vec::new();
        let mut waiting = Vec::new();
        let mut next = Some(first);
        while let Some(queued) = next.take().or_else(|| self.next_fitting(ENTRY_BYTES.saturating_sub(bytes))) {
            let item = match &queued.command {
                QueuedCommand::Encoded(item) => Ok(item.clone()),
                QueuedCommand::Plan(whole) => {
                    encoded(&Item { proposal: whole.of(whole.plan.clone(), whole.key.clone()), part: None })
                }
            };
            match item {
                Ok(item) => {
                    bytes += item.0.len();
                    items.push(item);
                    waiting.push(queued);
                }
                Err(error) => queued.refuse(error),
            }
        }
        let answer = tokio::select! {
            answer = self.node.ask(leader, leader_request::Request::Propose(items), self.timeout * 2) => answer,
            () = self.node.leader_changed_from(leader.id) => Err(Delivery::Unknown),
        };
        match answer {
            Ok(leader_request::Response::Answers(answers)) => {
                self.deliver_answers(waiting, answers);
                if !self.requeued.is_empty() {
                    tokio::time::sleep(LEADER_POLL_INTERVAL).await;
                }
            }
            Ok(leader_request::Response::NotLeading(_)) | Err(Delivery::NotSent) => {
                self.requeue(waiting);
                tokio::time::sleep(LEADER_POLL_INTERVAL).await;
            }
            Ok(leader_request::Response::Barrier(_) | leader_request::Response::NoQuorum) | Err(Delivery::Unknown) => {
                self.requeue_retryable(waiting);
                tokio::time::sleep(LEADER_POLL_INTERVAL).await;
            }
        }
    }

    /// For commands with an unknown outcome: those with an idempotency key are requeued, the others fail.
    fn requeue_retryable(&mut self, waiting: Vec<QueuedProposal>) {
        let mut kept = Vec::new();
        for mut queued in waiting {
            queued.waiter.commit = CommitCertainty::Unknown;
            match queued.retry {
                RetrySafety::Safe => kept.push(queued),
                RetrySafety::Unsafe => queued.refuse(ProposeError::LeaderLost { commit: CommitCertainty::Unknown }),
            }
        }
        self.requeue(kept);
    }

    /// Delivers the leader's answers, except for those that another leader may still give.
    fn deliver_answers(&mut self, waiting: Vec<QueuedProposal>, answers: Vec<Answer>) {
        let (mut kept, mut in_doubt) = (Vec::new(), Vec::new());
        for (queued, answer) in waiting.into_iter().zip(answers) {
            match answer {
                Err(ProposeError::LeaderLost { commit: CommitCertainty::NotAppended }) => kept.push(queued),
                // These errors are about the other member, not about the command.
                Err(
                    ProposeError::LeaderLost { commit: CommitCertainty::Unknown }
                    | ProposeError::ShuttingDown
                    | ProposeError::StorageFailed(_),
                ) => {
                    in_doubt.push(queued);
                }
                answer @ (Ok(_) | Err(_)) => queued.waiter.answer(answer),
            }
        }
        self.requeue_retryable(in_doubt);
        self.requeue(kept);
    }

    /// Puts commands back at the front of the queue, in order.
    fn requeue(&mut self, waiting: Vec<QueuedProposal>) {
        for queued in waiting.into_iter().rev() {
            self.requeued.push_front(queued);
        }
    }
}
