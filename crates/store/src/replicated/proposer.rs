//! Many commands, one entry: the group commit in front of the log.
//!
//! Owns: the queue, cutting it into entries, and bringing each its answer.
//! Must not touch: policy. What is proposed is appended as it is, but for plan items that no longer fit.
//! Invariant: one entry is under way at a time and a plan, or a part of one, begins its entry, so that what it is checked
//! against is all there is. However large a plan is, nobody waits for more of it than one entry.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use longshore_model::{Actor, Command, Plan, StateIndex, Time};
use tokio::sync::{mpsc, oneshot};

use super::{
    Applied, DroppedItem, Fate, Fingerprint, IdempotencyKey, Member, Novelty, Outcome, Proposal, ProposeError,
    consensus::{Held, Leads, Node, WriteError},
    encoding,
    machine::{Batch, Item, PlanPart},
    message, plan_parts,
    record::Payload,
    transport::Sent,
};

/// The most one entry holds, unless one command alone is larger.
const ENTRY_BYTES: usize = 512 * 1024;
/// The most one command may take. The manifest of a large deployment is a tenth of it.
const COMMAND_BYTES: usize = 8 * 1024 * 1024;
/// Commands that may wait. More would only wait longer than anybody's patience.
pub(super) const QUEUE: usize = 8192;
/// How often a proposer without a leader looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

type Answer = Result<Applied, ProposeError>;

/// A proposal that waits.
pub(super) struct Queued {
    work: Work,
    repeat: Repeat,
    deadline: Instant,
    asker: Asker,
}

/// Whoever waits for an answer, and what may have become of the command on earlier tries.
struct Asker {
    answer: oneshot::Sender<Answer>,
    fate: Fate,
}

impl Asker {
    fn tell(self, answer: Answer) {
        let answer = match (answer, self.fate) {
            (Err(error), Fate::Unknown) => Err(error.perhaps_appended()),
            (answer, Fate::NotAppended | Fate::Unknown) => answer,
        };
        // Whoever asked may have stopped waiting.
        let _ = self.answer.send(answer);
    }
}

/// Whether a command whose fate is not known may be sent once more.
#[derive(Clone, Copy)]
enum Repeat {
    /// It carries a key, under which it is carried out once however often it is sent.
    Safe,
    Unsafe,
}

enum Work {
    /// Encoded by whoever proposed it.
    Ready(Payload),
    /// Encoded once it was checked against the state.
    Plan(Box<PlanProposal>),
}

/// A proposal whose command is a plan.
struct PlanProposal {
    plan: Plan,
    key: Option<IdempotencyKey>,
    asked: Option<Fingerprint>,
    actor: Actor,
    at: Time,
}

impl PlanProposal {
    fn of(&self, plan: Plan, key: Option<IdempotencyKey>) -> Proposal {
        let Self { asked, actor, at, .. } = self;
        Proposal { command: Command::Commit(Box::new(plan)), key, asked: *asked, actor: actor.clone(), at: *at }
    }
}

impl Queued {
    pub(super) fn new(
        proposal: Proposal,
        patience: Duration,
    ) -> Result<(Self, oneshot::Receiver<Answer>), ProposeError> {
        let repeat = if proposal.key.is_some() { Repeat::Safe } else { Repeat::Unsafe };
        let Proposal { command, key, asked, actor, at } = proposal;
        let work = match command {
            Command::Commit(plan) => Work::Plan(Box::new(PlanProposal { plan: *plan, key, asked, actor, at })),
            command => {
                let proposal = Proposal { command, key, asked, actor, at };
                Work::Ready(encoded(&Item { proposal, part: None })?)
            }
        };
        let (answer, answered) = oneshot::channel();
        let asker = Asker { answer, fate: Fate::NotAppended };
        Ok((Self { work, repeat, deadline: Instant::now() + patience, asker }, answered))
    }

    fn refuse(self, error: ProposeError) {
        self.asker.tell(Err(error));
    }
}

/// An item as it stands in the log.
pub(super) fn encoded(item: &Item) -> Result<Payload, ProposeError> {
    let bytes = encoding::encode(item).map_err(|error| ProposeError::StorageFailed(error.to_string()))?;
    if bytes.len() > COMMAND_BYTES {
        return Err(ProposeError::TooLarge { bytes: bytes.len(), limit: COMMAND_BYTES });
    }
    Ok(Payload(bytes.into()))
}

/// The proposer. There is one per member.
pub(super) struct Proposer {
    node: Arc<Node>,
    held: Arc<Held>,
    queue: mpsc::Receiver<Queued>,
    patience: Duration,
    /// Longest silence of a quorum after which nothing is appended any more.
    quorum_silence: Duration,
    /// Taken from the queue, and still to be decided: the next in line.
    left_over: VecDeque<Queued>,
    plans_cut: u64,
}

/// Who decides.
enum Decider {
    Us,
    Other(Member),
    Nobody,
    Stopped,
}

impl Proposer {
    pub(super) fn new(
        node: Arc<Node>,
        held: Arc<Held>,
        queue: mpsc::Receiver<Queued>,
        patience: Duration,
        quorum_silence: Duration,
    ) -> Self {
        Self { node, held, queue, patience, quorum_silence, left_over: VecDeque::new(), plans_cut: 0 }
    }

    /// Runs until nobody can propose any more.
    pub(super) async fn run(mut self) {
        loop {
            let first = match self.left_over.pop_front() {
                Some(queued) => queued,
                None => match self.queue.recv().await {
                    Some(queued) => queued,
                    None => return,
                },
            };
            if Instant::now() >= first.deadline {
                first.refuse(ProposeError::QuorumLost { fate: Fate::NotAppended });
                continue;
            }
            match self.decider(first.deadline).await {
                Decider::Us => self.decide(first).await,
                Decider::Other(leader) => self.hand_on(first, &leader).await,
                Decider::Nobody => first.refuse(ProposeError::QuorumLost { fate: Fate::NotAppended }),
                Decider::Stopped => {
                    let why = self.node.status().failure.unwrap_or_else(|| "it was stopped".to_owned());
                    first.refuse(ProposeError::StorageFailed(why));
                }
            }
        }
    }

    /// Waits for somebody who can decide.
    async fn decider(&self, deadline: Instant) -> Decider {
        loop {
            let standing = self.node.standing();
            match (standing.leads, standing.leader) {
                (Leads::Stopped, _) => return Decider::Stopped,
                (Leads::Yes { since_quorum }, _) if since_quorum.is_none_or(|since| since < self.quorum_silence) => {
                    return Decider::Us;
                }
                (Leads::No, Some(leader)) => return Decider::Other(leader),
                (Leads::Yes { .. }, _) | (Leads::No, None) => {}
            }
            if Instant::now() >= deadline {
                return Decider::Nobody;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn decide(&mut self, first: Queued) {
        let Queued { work, repeat, deadline, asker } = first;
        match work {
            Work::Ready(item) => {
                self.decide_with(Queued { work: Work::Ready(item), repeat, deadline, asker }, Vec::new()).await;
            }
            Work::Plan(mut whole) => match plan_parts::cut(std::mem::take(&mut whole.plan), ENTRY_BYTES) {
                Err(error) => asker.tell(Err(error)),
                Ok(parts) if parts.len() <= 1 => {
                    let plan = parts.into_iter().next().unwrap_or_default();
                    let key = whole.key.take();
                    self.decide_plan(whole.of(plan, key), deadline, asker).await;
                }
                Ok(parts) => {
                    let answer = self.decide_parts(parts.into_iter().map(|part| whole.of(part, None))).await;
                    asker.tell(answer);
                }
            },
        }
    }

    /// A plan that fits into one entry.
    async fn decide_plan(&mut self, proposal: Proposal, deadline: Instant, asker: Asker) {
        match self.checked(proposal, None) {
            Err(error) => asker.tell(Err(error)),
            Ok((None, dropped)) => asker.tell(Ok(self.nothing_left(dropped))),
            Ok((Some(plan), dropped)) => {
                // Checked against this state, so not to be kept for another.
                let queued = Queued { work: Work::Ready(plan), repeat: Repeat::Unsafe, deadline, asker };
                self.decide_with(queued, dropped).await;
            }
        }
    }

    /// An entry that begins with this item, and takes along what waits and fits.
    async fn decide_with(&mut self, first: Queued, dropped: Vec<DroppedItem>) {
        let (mut bytes, mut items, mut waiting) = (0, Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(queued) = next.take().or_else(|| self.next_fitting(ENTRY_BYTES.saturating_sub(bytes))) {
            // A plan begins an entry of its own; `next_fitting` leaves it for later.
            if let Work::Ready(item) = &queued.work {
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
                    queued.asker.tell(Ok(answer));
                }
            }
            // Somebody else leads by now, or soon will.
            Err(ProposeError::LeaderLost { fate: Fate::Unknown }) => self.keep_repeatable(waiting),
            Err(error) => waiting.into_iter().for_each(|queued| queued.refuse(error.clone())),
        }
    }

    /// The next in the queue if it may join an entry that has this much room; otherwise it waits for the next entry.
    fn next_fitting(&mut self, room: usize) -> Option<Queued> {
        let queued = self.left_over.pop_front().or_else(|| self.queue.try_recv().ok())?;
        let fits = match &queued.work {
            Work::Ready(bytes) => bytes.0.len() <= room,
            Work::Plan(_) => false,
        };
        if fits {
            return Some(queued);
        }
        self.left_over.push_front(queued);
        None
    }

    /// A plan too large for one entry: part after part, each checked when its turn comes, and whoever waits in between.
    /// Where one fails, nobody is told that nothing of the plan was written.
    async fn decide_parts(&mut self, parts: impl ExactSizeIterator<Item = Proposal>) -> Answer {
        self.plans_cut += 1;
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let mut whole = self.nothing_left(Vec::new());
        for (proposal, part) in parts.zip(0..) {
            let failed = |error: ProposeError| if part == 0 { error } else { error.perhaps_appended() };
            let about = PlanPart { plan: self.plans_cut, part, parts: count };
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
                self.decide_with(queued, Vec::new()).await;
            }
        }
        Ok(whole)
    }

    async fn write(&self, items: Vec<Payload>) -> Result<Vec<Applied>, ProposeError> {
        let batch =
            encoding::encode(&Batch { items }).map_err(|error| ProposeError::StorageFailed(error.to_string()))?;
        self.node.write(Payload(batch.into()), self.patience).await.map_err(|error| match error {
            WriteError::NotLeading => ProposeError::LeaderLost { fate: Fate::NotAppended },
            WriteError::DiskFull => ProposeError::DiskFull,
            WriteError::TimedOut => ProposeError::QuorumLost { fate: Fate::Unknown },
            WriteError::Superseded => ProposeError::LeaderLost { fate: Fate::Unknown },
            WriteError::Stopped(why) => ProposeError::StorageFailed(why),
        })
    }

    /// The plan without what no longer fits, as it stands in the log; nothing if nothing of it fits.
    fn checked(
        &self,
        mut proposal: Proposal,
        part: Option<PlanPart>,
    ) -> Result<(Option<Payload>, Vec<DroppedItem>), ProposeError> {
        let mut dropped = Vec::new();
        if let Command::Commit(plan) = &mut proposal.command {
            dropped = self.held.recheck(plan);
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

    fn nothing_left(&self, dropped: Vec<DroppedItem>) -> Applied {
        let index: StateIndex = self.held.look(|machine| machine.state.index());
        Applied { index, outcome: Outcome::Unchanged, novelty: Novelty::New, dropped }
    }

    /// Another member leads: what waits is sent there together. What certainly did not arrive is kept and tried again, and
    /// so is what may be carried out twice without being done twice. A leader that hangs is not waited for once there is
    /// another.
    async fn hand_on(&mut self, first: Queued, leader: &Member) {
        let mut bytes = 0;
        let mut items = Vec::new();
        let mut waiting = Vec::new();
        let mut next = Some(first);
        while let Some(queued) = next.take().or_else(|| self.next_fitting(ENTRY_BYTES.saturating_sub(bytes))) {
            let item = match &queued.work {
                Work::Ready(item) => Ok(item.clone()),
                Work::Plan(whole) => {
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
            answer = self.node.ask(leader, message::Request::Propose(items), self.patience * 2) => answer,
            () = self.node.led_by_another(leader.id) => Err(Sent::Perhaps),
        };
        match answer {
            Ok(message::Response::Answers(answers)) => {
                self.answer(waiting, answers);
                if !self.left_over.is_empty() {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
            Ok(message::Response::NotLeading(_)) | Err(Sent::No) => {
                self.keep(waiting);
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Ok(message::Response::Barrier(_) | message::Response::NoQuorum) | Err(Sent::Perhaps) => {
                self.keep_repeatable(waiting);
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }

    /// Their fate is not known: who has a key is sent again, the others are told.
    fn keep_repeatable(&mut self, waiting: Vec<Queued>) {
        let mut kept = Vec::new();
        for mut queued in waiting {
            queued.asker.fate = Fate::Unknown;
            match queued.repeat {
                Repeat::Safe => kept.push(queued),
                Repeat::Unsafe => queued.refuse(ProposeError::LeaderLost { fate: Fate::Unknown }),
            }
        }
        self.keep(kept);
    }

    /// The leader's answers, but for those that another leader may still give.
    fn answer(&mut self, waiting: Vec<Queued>, answers: Vec<Answer>) {
        let (mut kept, mut in_doubt) = (Vec::new(), Vec::new());
        for (queued, answer) in waiting.into_iter().zip(answers) {
            match answer {
                Err(ProposeError::LeaderLost { fate: Fate::NotAppended }) => kept.push(queued),
                // What that member says of itself is nothing to whoever asked this one.
                Err(
                    ProposeError::LeaderLost { fate: Fate::Unknown }
                    | ProposeError::Closing
                    | ProposeError::StorageFailed(_),
                ) => {
                    in_doubt.push(queued);
                }
                answer @ (Ok(_) | Err(_)) => queued.asker.tell(answer),
            }
        }
        self.keep_repeatable(in_doubt);
        self.keep(kept);
    }

    /// Back to the front of the line, in order.
    fn keep(&mut self, waiting: Vec<Queued>) {
        for queued in waiting.into_iter().rev() {
            self.left_over.push_front(queued);
        }
    }
}
