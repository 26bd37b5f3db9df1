//! How fast the cluster decides: `cargo run --release -p longshore-store --features replicated --example commit_bench`.
//!
//! Owns: what is measured. The raw sync rate of the same disk is measured in the same run, so that figures of different
//! machines can be compared by their ratio.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Write,
    net::Ipv6Addr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use longshore_model::{
    Capacity, Command, DeploymentSpec, Generation, GroupPlan, Health, Intent, MemberId, NamespaceName, Node,
    NodeNumber, Placement, Plan, PlanItem, Platform, PoolName, Role, ServiceSpec, SlotIndex, SlotKey, Terms, Time,
    command::Quota,
    node::{Overlay, UseDegraded},
};
use longshore_store::replicated::{
    Call, Filter, Member, Part, Proposal, Replicated, ReplicatedConfig, Sent, Transport, Unreachable, Watched,
};

const MEASURED: Duration = Duration::from_secs(2);

/// Members in one process: no sockets in the path, and one disk for all of them.
#[derive(Default)]
struct Wire(Mutex<BTreeMap<MemberId, Replicated>>);

struct End(Arc<Wire>);

impl Transport for End {
    fn call<'a>(&'a self, to: &'a Member, message: Vec<u8>) -> Call<'a> {
        Box::pin(async move {
            let member = self.0.0.lock().ok().and_then(|members| members.get(&to.id).cloned());
            match member {
                Some(member) => Ok(member.serve(&message).await),
                None => Err(Unreachable { to: to.id, why: "down".to_owned(), sent: Sent::No }),
            }
        })
    }
}

fn member(id: u64) -> Member {
    Member { id: MemberId(id), name: format!("node-{id}").as_str().into(), address: String::new() }
}

async fn cluster(dir: &Path, voters: u64) -> Result<(Replicated, Vec<Replicated>)> {
    let wire = Arc::new(Wire::default());
    let mut all: Vec<Replicated> = Vec::new();
    for id in 1..=voters {
        let config = ReplicatedConfig::new(dir.join(format!("{voters}-{id}")), MemberId(id));
        let opened = Replicated::open(config, Arc::new(End(Arc::clone(&wire)))).await?;
        if let Ok(mut members) = wire.0.lock() {
            members.insert(MemberId(id), opened.clone());
        }
        match all.first() {
            None => {
                opened.initialise(member(1)).await?;
                opened.leadership().wait_for(|leadership| leadership.part == Part::Leading).await?;
            }
            Some(first) => {
                first.add_learner(member(id)).await?;
                first.set_voters((1..=id).map(MemberId).collect()).await?;
            }
        }
        all.push(opened);
    }
    let first = all.first().context("at least one voter")?.clone();
    Ok((first, all))
}

/// Syncs of a 256-byte append per second.
fn raw_syncs(dir: &Path) -> Result<f64> {
    let mut file = File::create(dir.join("raw"))?;
    let (started, mut count) = (Instant::now(), 0_u32);
    while started.elapsed() < MEASURED {
        file.write_all(&[7; 256])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

fn quota(namespace: u64, replicas: u64) -> Proposal {
    let quota = Quota { replicas: Some(replicas), ..Quota::default() };
    let command = Command::SetQuota { namespace: format!("team-{namespace}").as_str().into(), quota };
    Proposal::by_system(command, Time(0))
}

/// Commands per second of that many clients, each waiting for its answer; and the median wait.
async fn rate(one: &Replicated, clients: u64) -> Result<(f64, Duration)> {
    let started = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let one = one.clone();
            tokio::spawn(async move {
                let mut waits = Vec::new();
                let mut count = 0;
                while started.elapsed() < MEASURED {
                    count += 1;
                    let asked = Instant::now();
                    one.propose(quota(client, count)).await?;
                    waits.push(asked.elapsed());
                }
                Ok::<_, longshore_store::replicated::ProposeError>(waits)
            })
        })
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await??);
    }
    waits.sort();
    let rate = f64::from(u32::try_from(waits.len())?) / started.elapsed().as_secs_f64();
    Ok((rate, waits[waits.len() / 2]))
}

fn apply(replicas: u32, deployment: &str) -> Proposal {
    let service = Arc::new(ServiceSpec { replicas, ..ServiceSpec::default() });
    let spec = DeploymentSpec { services: [("web".into(), service)].into(), ..DeploymentSpec::default() };
    let namespace = NamespaceName::default_namespace();
    let command = Command::Apply { namespace, deployment: deployment.into(), spec: Box::new(spec) };
    Proposal::by_system(command, Time(0))
}

fn plan(replicas: u32, deployment: &str, nodes: u32, first_address: u32) -> Proposal {
    let group = longshore_model::GroupKey {
        namespace: NamespaceName::default_namespace(),
        deployment: deployment.into(),
        service: "web".into(),
    };
    let items = (0..replicas).map(|index| {
        PlanItem::Place(Placement {
            slot: SlotKey::Index(SlotIndex(index)),
            generation: Generation(1),
            node: format!("n{}", index % nodes).as_str().into(),
            address: Ipv6Addr::from(u128::from(first_address + index)),
            new_volumes: Vec::new(),
            devices: longshore_model::device::TakenDevices::default(),
            terms: None,
            moved: None,
        })
    });
    let groups = vec![GroupPlan { group, terms: Arc::new(Terms::default()), items: items.collect() }];
    Proposal::by_system(Command::Commit(Box::new(Plan { groups, ..Plan::default() })), Time(0))
}

fn node(number: u32) -> Node {
    Node {
        name: format!("n{number}").as_str().into(),
        number: NodeNumber(0),
        ip: None,
        labels: BTreeMap::new(),
        engine_labels: BTreeMap::new(),
        role: Role::Worker,
        pool: PoolName::from("default"),
        platform: Platform::new("linux", "amd64"),
        drivers: BTreeSet::new(),
        plugins: BTreeSet::new(),
        capacity: Capacity::default(),
        reserved: Capacity::default(),
        intent: Intent::Active,
        health: Health::Ready,
        use_degraded: UseDegraded::No,
        overlay: Overlay::Reachable,
        health_since: Time(0),
        confirmed_lost: None,
        drain: None,
        removed_at: None,
    }
}

async fn join_nodes(one: &Replicated, nodes: u32) -> Result<()> {
    let join = |number| Proposal::by_system(Command::Join(Box::new(node(number))), Time(0));
    for answer in one.propose_all((0..nodes).map(join).collect()).await {
        answer?;
    }
    Ok(())
}

/// Median time from a decision to its commit, 100 replicas each.
async fn hundred_placements(one: &Replicated) -> Result<Duration> {
    let mut waits = Vec::new();
    for round in 0..21 {
        let deployment = format!("shop{round}");
        one.propose(apply(100, &deployment)).await?;
        let proposal = plan(100, &deployment, 100, 1_000_000 + round * 100);
        let asked = Instant::now();
        let applied = one.propose(proposal).await?;
        waits.push(asked.elapsed());
        anyhow::ensure!(applied.dropped.is_empty(), "placements were dropped: {:?}", applied.dropped);
    }
    waits.sort();
    Ok(waits[waits.len() / 2])
}

/// Commands per second while a thousand watch, and what each of them heard.
async fn watched(one: &Replicated, watchers: u64) -> Result<(f64, Duration, u64, u64)> {
    let (heard, resyncs) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..watchers)
        .map(|_| {
            let mut watcher = one.watch(one.read_local().state.index(), Filter::All);
            let (one, heard, resyncs) = (one.clone(), Arc::clone(&heard), Arc::clone(&resyncs));
            tokio::spawn(async move {
                loop {
                    match watcher.next().await {
                        Watched::Changes { changes, .. } => {
                            heard.fetch_add(changes.len() as u64, Ordering::Relaxed);
                        }
                        Watched::Resync => {
                            resyncs.fetch_add(1, Ordering::Relaxed);
                            watcher.resume(one.read_local().state.index());
                        }
                        Watched::Closed => return,
                    }
                }
            })
        })
        .collect();
    let (rate, wait) = paced(one, 10_000).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    for task in tasks {
        task.abort();
    }
    Ok((rate, wait, heard.load(Ordering::Relaxed), resyncs.load(Ordering::Relaxed)))
}

/// Commands at a steady pace: what was reached, and the median time a batch of them took.
async fn paced(one: &Replicated, per_second: u64) -> Result<(f64, Duration)> {
    let (started, mut sent, mut waits) = (Instant::now(), 0_u64, Vec::new());
    let batch = per_second / 100;
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    while started.elapsed() < MEASURED {
        tick.tick().await;
        let asked = Instant::now();
        for answer in one.propose_all((0..batch).map(|place| quota(place, sent + place + 1)).collect()).await {
            answer?;
        }
        waits.push(asked.elapsed());
        sent += batch;
    }
    waits.sort();
    let rate = f64::from(u32::try_from(sent)?) / started.elapsed().as_secs_f64();
    Ok((rate, waits[waits.len() / 2]))
}

/// The longest wait for a commit while a snapshot of a large state is taken, and without one.
async fn snapshot_stall(one: &Replicated) -> Result<()> {
    for deployment in 0..1_000_u32 {
        let name = format!("big{deployment}");
        one.propose(apply(100, &name)).await?;
        one.propose(plan(100, &name, 100, 2_000_000 + deployment * 100)).await?;
    }
    let mut longest = Vec::new();
    for backup in [false, true] {
        let other = one.clone();
        let copying = tokio::spawn(async move {
            if backup {
                let started = Instant::now();
                let bytes = other.backup().await.map(|bytes| bytes.len());
                println!("  packed 100,000 replicas in {:?}: {bytes:?} bytes", started.elapsed());
            }
        });
        let (started, mut worst) = (Instant::now(), Duration::ZERO);
        let mut count = 0;
        while started.elapsed() < Duration::from_secs(1) {
            count += 1;
            let asked = Instant::now();
            one.propose(quota(7, 1_000_000 * u64::from(backup) + count)).await?;
            worst = worst.max(asked.elapsed());
        }
        copying.await?;
        longest.push(worst);
    }
    println!("longest commit without / with a snapshot of 100,000 replicas: {:?} / {:?}", longest[0], longest[1]);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    for voters in [1, 3] {
        let raw = raw_syncs(dir.path())?;
        let (one, all) = cluster(dir.path(), voters).await?;
        println!("{voters} voters; raw syncs of 256 bytes: {raw:.0}/s");
        for clients in [1, 64, 1024] {
            let (rate, wait) = rate(&one, clients).await?;
            println!("  {clients:5} clients: {rate:8.0} commands/s = {:6.2} x raw, median {wait:?}", rate / raw);
        }
        join_nodes(&one, 100).await?;
        println!("  100 replicas decided -> committed: median {:?}", hundred_placements(&one).await?);
        if voters == 1 {
            let (rate, wait) = paced(&one, 10_000).await?;
            println!("  10,000 commands/s asked, nobody watches: {rate:.0}/s, median batch {wait:?}");
            let (rate, wait, heard, resyncs) = watched(&one, 1_000).await?;
            println!(
                "  … 1,000 watchers: {rate:.0}/s, median batch {wait:?}, {heard} changes heard, {resyncs} resyncs"
            );
            snapshot_stall(&one).await?;
        }
        for member in all {
            member.close().await;
        }
    }
    Ok(())
}
