//! Commit throughput and latency; `make bench` runs it and compares the results with its limits.
//!
//! Owns: what is measured, printed as one JSON object. Machine-dependent numbers are measured in turns with a baseline
//! in the same run: commands with raw syncs of the same disk, watched with unwatched.

use std::{
    collections::BTreeMap,
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
    Command, DeploymentSpec, Generation, GroupPlan, MemberId, NamespaceName, Node, Placement, Plan, PlanItem,
    Reservation, ServiceSpec, SlotIndex, SlotKey, Time, command::Quota,
};
use longshore_store::replicated::{
    Call, Delivery, Filter, LeadershipRole, Member, Proposal, Replicated, ReplicatedConfig, Transport, Unreachable,
    WatchEvent,
};
use serde_json::{Map, Value, json};

const MEASURED: Duration = Duration::from_secs(2);
/// Rounds of alternating measurements. The median counts, so that one slow round does not.
const TURNS: usize = 5;

/// Members in one process: no sockets in the path, and one disk for all of them.
#[derive(Default)]
struct FakeNetwork(Mutex<BTreeMap<MemberId, Replicated>>);

struct FakeTransport(Arc<FakeNetwork>);

impl Transport for FakeTransport {
    fn call<'a>(&'a self, to: &'a Member, message: Vec<u8>) -> Call<'a> {
        Box::pin(async move {
            let member = self.0.0.lock().ok().and_then(|members| members.get(&to.id).cloned());
            match member {
                Some(member) => Ok(member.serve(&message).await),
                None => Err(Unreachable { to: to.id, why: "down".to_owned(), sent: Delivery::NotSent }),
            }
        })
    }
}

fn member(id: u64) -> Member {
    Member { id: MemberId(id), name: format!("node-{id}").as_str().into(), address: String::new() }
}

async fn cluster(dir: &Path, voters: u64) -> Result<(Replicated, Vec<Replicated>)> {
    let network = Arc::new(FakeNetwork::default());
    let mut all: Vec<Replicated> = Vec::new();
    for id in 1..=voters {
        let config = ReplicatedConfig::new(dir.join(format!("{voters}-{id}")), MemberId(id));
        let opened = Replicated::open(config, Arc::new(FakeTransport(Arc::clone(&network)))).await?;
        if let Ok(mut members) = network.0.lock() {
            members.insert(MemberId(id), opened.clone());
        }
        match all.first() {
            None => {
                opened.initialise(member(1)).await?;
                opened.leadership().wait_for(|leadership| leadership.role == LeadershipRole::Leading).await?;
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

/// Commands per second of this many clients, each waiting for its answer, and the median latency.
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
    let command = Command::Apply {
        namespace,
        deployment: deployment.into(),
        spec: Box::new(spec),
        rerun: longshore_model::command::Rerun::IfChanged,
    };
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
            key: SlotKey::Index(SlotIndex(index)).generation(Generation(1)),
            node: format!("n{}", index % nodes).as_str().into(),
            address: Ipv6Addr::from(u128::from(first_address + index)),
            new_volumes: Vec::new(),
            devices: longshore_model::device::TakenDevices::default(),
            reservation: None,
            moved: None,
        })
    });
    let groups = vec![GroupPlan { group, reservation: Arc::new(Reservation::default()), items: items.collect() }];
    Proposal::by_system(Command::Commit(Box::new(Plan { groups, ..Plan::default() })), Time(0))
}

fn node(number: u32) -> Node {
    Node::new(format!("n{number}").as_str())
}

async fn join_nodes(one: &Replicated, nodes: u32) -> Result<()> {
    let join = |number| Proposal::by_system(Command::Join(Box::new(node(number))), Time(0));
    for answer in one.propose_all((0..nodes).map(join).collect()).await {
        answer?;
    }
    Ok(())
}

/// Latency of committing 100 placements: the median, and the placements per second.
async fn hundred_placements(one: &Replicated) -> Result<(Duration, f64)> {
    let mut waits = Vec::new();
    for round in 0..51 {
        let deployment = format!("shop{round}");
        one.propose(apply(100, &deployment)).await?;
        let proposal = plan(100, &deployment, 100, 1_000_000 + round * 100);
        let asked = Instant::now();
        let applied = one.propose(proposal).await?;
        waits.push(asked.elapsed());
        anyhow::ensure!(applied.dropped.is_empty(), "placements were dropped: {:?}", applied.dropped);
    }
    let total: Duration = waits.iter().sum();
    let rate = 100.0 * f64::from(u32::try_from(waits.len())?) / total.as_secs_f64();
    waits.sort();
    Ok((waits[waits.len() / 2], rate))
}

/// Running watchers, with the number of changes they received.
struct Watchers {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    heard: Arc<AtomicU64>,
    resyncs: Arc<AtomicU64>,
}

impl Watchers {
    fn of(one: &Replicated, watchers: u64) -> Self {
        let (heard, resyncs) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let listen = |_| {
            let mut watcher = one.watch(one.read_local().state.index(), Filter::All);
            let (one, heard, resyncs) = (one.clone(), Arc::clone(&heard), Arc::clone(&resyncs));
            tokio::spawn(async move {
                loop {
                    match watcher.next().await {
                        WatchEvent::Changes { changes, .. } => {
                            heard.fetch_add(changes.len() as u64, Ordering::Relaxed);
                        }
                        WatchEvent::Resync => {
                            resyncs.fetch_add(1, Ordering::Relaxed);
                            watcher.resume(one.read_local().state.index());
                        }
                        WatchEvent::Closed => return,
                    }
                }
            })
        };
        Self { tasks: (0..watchers).map(listen).collect(), heard, resyncs }
    }

    async fn leave(self) -> (u64, u64) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        for task in &self.tasks {
            task.abort();
        }
        (self.heard.load(Ordering::Relaxed), self.resyncs.load(Ordering::Relaxed))
    }
}

/// Commands at a fixed rate: the rate achieved, and the time to apply one command in microseconds.
async fn paced(one: &Replicated, per_second: u64) -> Result<(f64, f64)> {
    let (started, mut sent) = (Instant::now(), 0_u32);
    let before = one.status().applying;
    let batch = per_second / 100;
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    while started.elapsed() < MEASURED {
        tick.tick().await;
        let distinct = u64::from(sent);
        for answer in one.propose_all((0..batch).map(|place| quota(place, distinct + place + 1)).collect()).await {
            answer?;
        }
        sent += u32::try_from(batch)?;
    }
    let applying = one.status().applying.saturating_sub(before);
    Ok((f64::from(sent) / started.elapsed().as_secs_f64(), applying.as_secs_f64() * 1e6 / f64::from(sent)))
}

/// What a thousand watchers cost `apply` at 10,000 changes a second.
async fn watched(one: &Replicated) -> Result<Value> {
    let (mut alone, mut with, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let (mut heard, mut resyncs) = (0, 0);
    for _ in 0..TURNS {
        alone.push(paced(one, 10_000).await?.1);
        let watchers = Watchers::of(one, 1_000);
        let (rate, micros) = paced(one, 10_000).await?;
        let (more, again) = watchers.leave().await;
        (heard, resyncs) = (heard + more, resyncs + again);
        with.push(micros);
        rates.push(rate);
    }
    let (alone, with) = (median(alone), median(with));
    Ok(json!({
        "watchers": 1_000, "changes_per_s": median(rates).round(), "heard": heard, "resyncs": resyncs,
        "apply_us_alone": alone, "apply_us_watched": with, "slowdown": with / alone,
    }))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A large cluster: the cost of one more plan, and the longest commit with and without a concurrent snapshot.
async fn large(one: &Replicated) -> Result<Value> {
    for deployment in 0..1_000_u32 {
        let name = format!("big{deployment}");
        one.propose(apply(100, &name)).await?;
        one.propose(plan(100, &name, 100, 2_000_000 + deployment * 100)).await?;
    }
    let mut waits = Vec::new();
    for round in 0..11 {
        let name = format!("more{round}");
        one.propose(apply(10, &name)).await?;
        let proposal = plan(10, &name, 10, 3_000_000 + round * 10);
        let asked = Instant::now();
        one.propose(proposal).await?;
        waits.push(asked.elapsed().as_secs_f64() * 1e3);
    }
    let without = longest_commit(one, Duration::from_secs(1), 0).await?;
    let other = one.clone();
    let started = Instant::now();
    let backup = tokio::spawn(async move { other.backup().await.map(|bytes| (bytes.len(), started.elapsed())) });
    let with = longest_commit(one, Duration::from_secs(1), 1_000_000).await?;
    let (bytes, took) = backup.await??;
    Ok(json!({
        "replicas": 100_000, "ten_more_ms": median(waits), "snapshot_ms": took.as_millis(), "snapshot_bytes": bytes,
        "longest_commit_ms": without, "longest_commit_during_snapshot_ms": with,
    }))
}

async fn longest_commit(one: &Replicated, during: Duration, offset: u64) -> Result<f64> {
    let (started, mut worst) = (Instant::now(), Duration::ZERO);
    let mut count = offset;
    while started.elapsed() < during {
        count += 1;
        let asked = Instant::now();
        one.propose(quota(7, count)).await?;
        worst = worst.max(asked.elapsed());
    }
    Ok(worst.as_secs_f64() * 1e3)
}

/// A plan of 100 placements, encoded with `MessagePack` and with JSON.
fn encodings() -> Result<Value> {
    let proposal = plan(100, "shop", 100, 1);
    let in_use = spent(&proposal, |proposal| Ok(rmp_serde::to_vec_named(proposal)?), |b| Ok(rmp_serde::from_slice(b)?));
    let json = spent(&proposal, |proposal| Ok(serde_json::to_vec(proposal)?), |b| Ok(serde_json::from_slice(b)?));
    Ok(json!({ "messagepack_named": in_use?, "json": json? }))
}

fn spent(
    proposal: &Proposal,
    encode: impl Fn(&Proposal) -> Result<Vec<u8>>,
    decode: impl Fn(&[u8]) -> Result<Proposal>,
) -> Result<Value> {
    let bytes = encode(proposal)?;
    let (mut encoding, mut decoding) = (Vec::new(), Vec::new());
    for _ in 0..501 {
        let started = Instant::now();
        let again = encode(proposal)?;
        encoding.push(started.elapsed().as_secs_f64() * 1e6);
        let started = Instant::now();
        let read = decode(&again)?;
        decoding.push(started.elapsed().as_secs_f64() * 1e6);
        anyhow::ensure!(read == *proposal, "it was not read as it was written");
    }
    Ok(json!({ "bytes": bytes.len(), "encode_us": median(encoding), "decode_us": median(decoding) }))
}

async fn committed(one: &Replicated, dir: &Path) -> Result<Map<String, Value>> {
    let mut figures = Map::new();
    let raw = raw_syncs(dir)?;
    figures.insert("raw_syncs_per_s".to_owned(), json!(raw.round()));
    for clients in [1, 64, 1024] {
        let (rate, wait) = rate(one, clients).await?;
        let figure = json!({
            "commands_per_s": rate.round(), "to_raw_syncs": rate / raw, "median_ms": wait.as_secs_f64() * 1e3,
        });
        figures.insert(format!("clients_{clients}"), figure);
    }
    join_nodes(one, 100).await?;
    let (hundred, rate) = hundred_placements(one).await?;
    figures.insert("hundred_placements_ms".to_owned(), json!(hundred.as_secs_f64() * 1e3));
    figures.insert("placements_per_s".to_owned(), json!(rate.round()));
    figures.insert("placements_to_raw_syncs".to_owned(), json!(rate / raw));
    Ok(figures)
}

#[tokio::main]
async fn main() -> Result<()> {
    // In the working directory, because /tmp may be in memory, where a sync costs nothing.
    let dir = tempfile::tempdir_in(".")?;
    let mut figures = Map::new();
    for voters in [1, 3] {
        let (one, all) = cluster(dir.path(), voters).await?;
        figures.insert(format!("voters_{voters}"), committed(&one, dir.path()).await?.into());
        if voters == 1 {
            figures.insert("watched".to_owned(), watched(&one).await?);
            figures.insert("large".to_owned(), large(&one).await?);
        }
        for member in all {
            member.close().await;
        }
    }
    figures.insert("encodings".to_owned(), encodings()?);
    println!("{}", Value::Object(figures));
    Ok(())
}
