//! Members in one process, with a network between them that can be partitioned.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use longshore_model::{Command, MemberId, Node, NodeName, Time};
use longshore_store::replicated::{
    Call, Delivery, LeadershipRole, Member, Proposal, Replicated, ReplicatedConfig, Transport, Unreachable,
};
use tempfile::TempDir;

#[derive(Default)]
pub(crate) struct FakeNetwork {
    members: Mutex<BTreeMap<MemberId, Replicated>>,
    cut: Mutex<BTreeSet<MemberId>>,
    held: Mutex<BTreeSet<MemberId>>,
}

/// One member's transport on the network.
struct FakeTransport {
    me: MemberId,
    network: Arc<FakeNetwork>,
}

impl FakeNetwork {
    /// A running member, selected by `pick`.
    pub(crate) fn any(&self, pick: u64) -> Option<Replicated> {
        let members = self.members.lock().unwrap();
        let place = usize::try_from(pick).unwrap_or(0) % members.len().max(1);
        members.values().nth(place).cloned()
    }

    fn held(&self, id: MemberId) -> bool {
        self.held.lock().unwrap().contains(&id)
    }

    /// Whether two members can reach each other: both isolated, or neither.
    fn joined(&self, one: MemberId, other: MemberId) -> bool {
        let cut = self.cut.lock().unwrap();
        cut.contains(&one) == cut.contains(&other)
    }
}

impl Transport for FakeTransport {
    fn call<'a>(&'a self, to: &'a Member, message: Vec<u8>) -> Call<'a> {
        Box::pin(async move {
            if self.network.held(self.me) || self.network.held(to.id) {
                std::future::pending::<()>().await;
            }
            let gone = |why: &str, sent| Unreachable { to: to.id, why: why.to_owned(), sent };
            if !self.network.joined(self.me, to.id) {
                return Err(gone("cut off", Delivery::NotSent));
            }
            let member = self
                .network
                .members
                .lock()
                .unwrap()
                .get(&to.id)
                .cloned()
                .ok_or_else(|| gone("down", Delivery::NotSent))?;
            let answer = member.serve(&message).await;
            // The response of a member that was isolated in the meantime is lost.
            if self.network.joined(self.me, to.id) { Ok(answer) } else { Err(gone("cut off", Delivery::Unknown)) }
        })
    }
}

/// Members and their directories.
pub(crate) struct Cluster {
    pub(crate) network: Arc<FakeNetwork>,
    dirs: BTreeMap<MemberId, TempDir>,
    adjust: fn(ReplicatedConfig) -> ReplicatedConfig,
}

pub(crate) fn member(id: u64) -> Member {
    Member { id: MemberId(id), name: NodeName::new(format!("node-{id}")), address: String::new() }
}

impl Cluster {
    /// A cluster with this many voters.
    pub(crate) async fn of(voters: u64) -> Self {
        Self::adjusted(voters, |config| config).await
    }

    pub(crate) async fn adjusted(voters: u64, adjust: fn(ReplicatedConfig) -> ReplicatedConfig) -> Self {
        let mut cluster = Self { network: Arc::default(), dirs: BTreeMap::new(), adjust };
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

    /// Adds a learner.
    pub(crate) async fn join(&mut self, id: u64) -> Replicated {
        let new = self.open(id).await;
        self.leader().await.add_learner(member(id)).await.unwrap();
        new
    }

    /// Starts a member on its directory, creating it if needed.
    pub(crate) async fn open(&mut self, id: u64) -> Replicated {
        let id = MemberId(id);
        let dir = self.dirs.entry(id).or_insert_with(|| tempfile::tempdir().unwrap()).path();
        let config = (self.adjust)(ReplicatedConfig::new(dir, id));
        let transport = Arc::new(FakeTransport { me: id, network: Arc::clone(&self.network) });
        let opened = Replicated::open(config, transport).await.unwrap();
        self.network.members.lock().unwrap().insert(id, opened.clone());
        opened
    }

    pub(crate) fn dir(&self, id: u64) -> &Path {
        self.dirs[&MemberId(id)].path()
    }

    /// Stops a member; its directory stays.
    pub(crate) async fn stop(&self, id: MemberId) {
        let stopped = self.network.members.lock().unwrap().remove(&id);
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
        self.network.members.lock().unwrap().keys().copied().collect()
    }

    pub(crate) fn get(&self, id: MemberId) -> Replicated {
        self.network.members.lock().unwrap()[&id].clone()
    }

    /// Isolates these members together from all others.
    pub(crate) fn cut_off(&self, ids: &[MemberId]) {
        self.network.cut.lock().unwrap().extend(ids);
    }

    /// A member that hangs: it neither responds nor closes its connections.
    pub(crate) fn hold(&self, id: MemberId) {
        self.network.held.lock().unwrap().insert(id);
    }

    pub(crate) fn heal(&self) {
        self.network.cut.lock().unwrap().clear();
        self.network.held.lock().unwrap().clear();
    }

    /// The member that leads.
    pub(crate) async fn leader(&self) -> Replicated {
        self.leader_of(&self.ids()).await
    }

    pub(crate) async fn leader_of(&self, ids: &[MemberId]) -> Replicated {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            for id in ids {
                let member = self.get(*id);
                if member.leadership().borrow().role == LeadershipRole::Leading {
                    return member;
                }
            }
            assert!(Instant::now() < deadline, "nobody leads");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until all members have the same state.
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

/// A node whose labels serve as registers.
pub(crate) fn node(name: &str) -> Command {
    Command::Join(Box::new(Node::new(name)))
}

/// A proposal that sets a label.
pub(crate) fn label(node: &str, label: &str, value: &str) -> Proposal {
    let labels = BTreeMap::from([(label.to_owned(), value.to_owned())]);
    Proposal::by_system(Command::Label { node: node.into(), labels }, Time(0))
}
