//! `--durable`: the same decision committed through the real replicated log, with every sync.
//!
//! Owns: a cluster of members in this process and its temporary folder.
//! Must not touch: the measurements of the decision; nothing here runs during those.
//! Invariant: members share one disk and use no network; a raw sync of that disk is measured too.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write as _},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use longshore_model::{Command, MemberId, Time};
use longshore_scheduler::View;
use longshore_store::replicated::{
    Call, Delivery, LeadershipRole, Member, Outcome, Proposal, Replicated, ReplicatedConfig, Transport, Unreachable,
};
use serde::Serialize;

use super::{Options, generate::Cluster, median, rounded};

/// The measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DurableResult {
    /// Members of the replicated log.
    pub voters: u32,
    /// Placements that were committed.
    pub committed: usize,
    /// Time from the decision to its commit on a majority of disks.
    pub commit_ms: f64,
    /// Time of one small append to the same disk, synced.
    pub raw_sync_ms: f64,
}

/// Samples of the raw sync.
const SYNCS: usize = 51;
/// Commands proposed per batch while the cluster is created.
const BATCH: usize = 1000;

/// Runs the benchmark in a temporary folder below `folder`, which should be on a real disk.
pub fn run(options: &Options, voters: u32, folder: &Path) -> io::Result<DurableResult> {
    let folder = tempfile::tempdir_in(folder)?;
    let raw = raw_sync(folder.path())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let commands = Cluster::new(options).commands();
    let (mut waits, mut committed) = (Vec::new(), 0);
    for round in 0..options.repeat.max(1) {
        let members = folder.path().join(round.to_string());
        let (wait, placed) = runtime.block_on(measure(&members, voters, commands.clone()))?;
        waits.push(wait);
        committed = placed;
    }
    Ok(DurableResult { voters, committed, commit_ms: rounded(median(waits), 1e3), raw_sync_ms: rounded(raw, 1e3) })
}

async fn measure(folder: &Path, voters: u32, commands: Vec<Command>) -> io::Result<(Duration, usize)> {
    let members = open_members(folder, voters).await?;
    let first = &members[0];
    for some in commands.chunks(BATCH) {
        let proposals = some.iter().map(|command| Proposal::by_system(command.clone(), Time(0)));
        for answer in first.propose_all(proposals.collect()).await {
            accepted(&answer.map_err(io::Error::other)?.outcome)?;
        }
    }
    let state = first.read_local().state;
    let mut view = View::default();
    state.events().iter().for_each(|event| view.apply(event));
    let plan = longshore_scheduler::plan(&mut view, state.index(), Time(0));
    let placed = plan.placements();
    let decided = Instant::now();
    let commit = first.propose(Proposal::by_system(Command::Commit(Box::new(plan)), Time(0))).await;
    let took = decided.elapsed();
    accepted(&commit.map_err(io::Error::other)?.outcome)?;
    for member in members {
        member.close().await;
    }
    Ok((took, placed))
}

fn accepted(outcome: &Outcome) -> io::Result<()> {
    match outcome {
        Outcome::Changed | Outcome::Unchanged => Ok(()),
        Outcome::Refused(refusal) => Err(io::Error::other(refusal.to_string())),
        Outcome::KeyReused => Err(io::Error::other("a key was used twice")),
    }
}

/// The members of this process, by id.
#[derive(Default)]
struct Members(Mutex<BTreeMap<MemberId, Replicated>>);

struct InProcessTransport(Arc<Members>);

impl Members {
    fn member(&self, id: MemberId) -> Option<Replicated> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

impl Transport for InProcessTransport {
    fn call<'a>(&'a self, to: &'a Member, message: Vec<u8>) -> Call<'a> {
        Box::pin(async move {
            match self.0.member(to.id) {
                Some(member) => Ok(member.serve(&message).await),
                None => Err(Unreachable { to: to.id, why: "it is not open yet".to_owned(), sent: Delivery::NotSent }),
            }
        })
    }
}

/// Opens all voters; the first one leads.
async fn open_members(folder: &Path, voters: u32) -> io::Result<Vec<Replicated>> {
    let registry = Arc::new(Members::default());
    let mut all: Vec<Replicated> = Vec::new();
    for id in (1..=u64::from(voters)).map(MemberId) {
        let config = ReplicatedConfig::new(folder.join(id.to_string()), id);
        let member = Replicated::open(config, Arc::new(InProcessTransport(Arc::clone(&registry))))
            .await
            .map_err(io::Error::other)?;
        registry.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, member.clone());
        let member_record = Member { id, name: format!("member-{id}").as_str().into(), address: String::new() };
        match all.first() {
            None => {
                member.initialise(member_record).await.map_err(io::Error::other)?;
                let mut leadership = member.leadership();
                leadership.wait_for(|now| now.role == LeadershipRole::Leading).await.map_err(io::Error::other)?;
            }
            Some(first) => {
                first.add_learner(member_record).await.map_err(io::Error::other)?;
                first.set_voters((1..=id.0).map(MemberId).collect()).await.map_err(io::Error::other)?;
            }
        }
        all.push(member);
    }
    Ok(all)
}

fn raw_sync(folder: &Path) -> io::Result<Duration> {
    let mut file = File::create(folder.join("raw"))?;
    let mut times = Vec::new();
    for _ in 0..SYNCS {
        let started = Instant::now();
        file.write_all(&[7; 256])?;
        file.sync_data()?;
        times.push(started.elapsed());
    }
    Ok(median(times))
}
