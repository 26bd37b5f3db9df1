//! Members in one process, and a wire between them that can be cut.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use longshore_model::{
    Capacity, Command, MemberId, Node, NodeName, NodeNumber, Platform, PoolName, Time,
    node::{Health, Intent, Overlay, Role, UseDegraded},
};
use longshore_store::replicated::{
    Call, Member, Part, Proposal, Replicated, ReplicatedConfig, Sent, Transport, Unreachable,
};
use tempfile::TempDir;

#[derive(Default)]
pub(crate) struct Wire {
    members: Mutex<BTreeMap<MemberId, Replicated>>,
    cut: Mutex<BTreeSet<MemberId>>,
    held: Mutex<BTreeSet<MemberId>>,
}

/// One member's end of the wire.
struct End {
    me: MemberId,
    wire: Arc<Wire>,
}

impl Wire {
    /// Some member that runs.
    pub(crate) fn any(&self, pick: u64) -> Option<Replicated> {
        let members = self.members.lock().unwrap();
        let place = usize::try_from(pick).unwrap_or(0) % members.len().max(1);
        members.values().nth(place).cloned()
    }

    fn held(&self, id: MemberId) -> bool {
        self.held.lock().unwrap().contains(&id)
    }

    /// Whether two members hear each other: both cut off, or neither.
    fn joined(&self, one: MemberId, other: MemberId) -> bool {
        let cut = self.cut.lock().unwrap();
        cut.contains(&one) == cut.contains(&other)
    }
}

impl Transport for End {
    fn call<'a>(&'a self, to: &'a Member, message: Vec<u8>) -> Call<'a> {
        Box::pin(async move {
            if self.wire.held(self.me) || self.wire.held(to.id) {
                std::future::pending::<()>().await;
            }
            let gone = |why: &str, sent| Unreachable { to: to.id, why: why.to_owned(), sent };
            if !self.wire.joined(self.me, to.id) {
                return Err(gone("cut off", Sent::No));
            }
            let member =
                self.wire.members.lock().unwrap().get(&to.id).cloned().ok_or_else(|| gone("down", Sent::No))?;
            let answer = member.serve(&message).await;
            // The answer of a member that was cut off meanwhile is lost on its way back.
            if self.wire.joined(self.me, to.id) { Ok(answer) } else { Err(gone("cut off", Sent::Perhaps)) }
        })
    }
}

/// Some members and their disks.
pub(crate) struct Cluster {
    pub(crate) wire: Arc<Wire>,
    dirs: BTreeMap<MemberId, TempDir>,
    adjust: fn(ReplicatedConfig) -> ReplicatedConfig,
}

pub(crate) fn member(id: u64) -> Member {
    Member { id: MemberId(id), name: NodeName::new(format!("node-{id}")), address: String::new() }
}

impl Cluster {
    /// A cluster of that many voters.
    pub(crate) async fn of(voters: u64) -> Self {
        Self::adjusted(voters, |config| config).await
    }

    pub(crate) async fn adjusted(voters: u64, adjust: fn(ReplicatedConfig) -> ReplicatedConfig) -> Self {
        let mut cluster = Self { wire: Arc::default(), dirs: BTreeMap::new(), adjust };
        let first = cluster.open(1).await;
        first.initialise(member(1)).await.unwrap();
        cluster.leader().await;
        for id in 2..=voters {
            cluster.join(id).await;
            let voters = (1..=id).map(MemberId).collect();
            first.set_voters(voters).await.unwrap();
        }
        cluster
    }

    /// A new member that learns.
    pub(crate) async fn join(&mut self, id: u64) -> Replicated {
        let new = self.open(id).await;
        self.leader().await.add_learner(member(id)).await.unwrap();
        new
    }

    /// Starts a member on its disk, new or not.
    pub(crate) async fn open(&mut self, id: u64) -> Replicated {
        let id = MemberId(id);
        let dir = self.dirs.entry(id).or_insert_with(|| tempfile::tempdir().unwrap()).path();
        let config = (self.adjust)(ReplicatedConfig::new(dir, id));
        let end = Arc::new(End { me: id, wire: Arc::clone(&self.wire) });
        let opened = Replicated::open(config, end).await.unwrap();
        self.wire.members.lock().unwrap().insert(id, opened.clone());
        opened
    }

    pub(crate) fn dir(&self, id: u64) -> &Path {
        self.dirs[&MemberId(id)].path()
    }

    /// Stops a member; its disk stays.
    pub(crate) async fn stop(&self, id: MemberId) {
        let stopped = self.wire.members.lock().unwrap().remove(&id);
        if let Some(stopped) = stopped {
            stopped.close().await;
        }
    }

    pub(crate) async fn stop_all(&self) {
        for id in self.ids() {
            self.stop(id).await;
        }
    }

    pub(crate) fn ids(&self) -> Vec<MemberId> {
        self.wire.members.lock().unwrap().keys().copied().collect()
    }

    pub(crate) fn get(&self, id: MemberId) -> Replicated {
        self.wire.members.lock().unwrap()[&id].clone()
    }

    /// Members that hear each other, and nobody else hears.
    pub(crate) fn cut_off(&self, ids: &[MemberId]) {
        self.wire.cut.lock().unwrap().extend(ids);
    }

    /// A member that neither answers nor is gone, as one that was stopped with its connections open.
    pub(crate) fn hold(&self, id: MemberId) {
        self.wire.held.lock().unwrap().insert(id);
    }

    pub(crate) fn heal(&self) {
        self.wire.cut.lock().unwrap().clear();
        self.wire.held.lock().unwrap().clear();
    }

    /// The member that leads, and says so.
    pub(crate) async fn leader(&self) -> Replicated {
        self.leader_of(&self.ids()).await
    }

    pub(crate) async fn leader_of(&self, ids: &[MemberId]) -> Replicated {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            for id in ids {
                let member = self.get(*id);
                if member.leadership().borrow().part == Part::Leading {
                    return member;
                }
            }
            assert!(Instant::now() < deadline, "nobody leads");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until every member knows the same.
    pub(crate) async fn converge(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let states: Vec<_> = self.ids().iter().map(|id| self.get(*id).read_local().state).collect();
            if states.windows(2).all(|pair| pair[0] == pair[1]) {
                return;
            }
            assert!(Instant::now() < deadline, "members do not agree");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A node to write labels on: a register for each label.
pub(crate) fn node(name: &str) -> Command {
    Command::Join(Box::new(Node {
        name: name.into(),
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
    }))
}

/// Sets a label.
pub(crate) fn label(node: &str, label: &str, value: &str) -> Proposal {
    let labels = BTreeMap::from([(label.to_owned(), value.to_owned())]);
    Proposal::by_system(Command::Label { node: node.into(), labels }, Time(0))
}
