//! What every part of the daemon needs of every other: who this node is, whether it keeps the log, whom to ask if not.
//!
//! Owns: beginning and ceasing to serve, and finding the leader.
//! Must not touch: what is asked. Invariant: while a node keeps no log it knows nothing but its own work.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use longshore_model::{MemberId, NodeName, Time};
use longshore_scheduler::rebalance::Rebalancer;
use longshore_store::replicated::{Member, OpenError, Part, Replicated, ReplicatedConfig};
use tokio::sync::watch;

use crate::{
    agents::Agents,
    expulsion::Expulsion,
    figures::Figures,
    folder::{Folder, FolderError},
    limit::Limit,
    link::Pulse,
    loads,
    peer::{Calls, MemberTransport, Server},
    place::{Place, Serving},
    telemetry::Telemetry,
    vault::Vault,
};

/// The middle of the daemon.
pub(crate) struct Hub {
    pub(crate) folder: Folder,
    pub(crate) calls: Arc<Calls>,
    /// Nodes this process stands for.
    pub(crate) agents: Agents,
    pub(crate) pulse: Pulse,
    pub(crate) loads: loads::Heard,
    pub(crate) figures: Figures,
    pub(crate) telemetry: Telemetry,
    /// How many may try to join in a while.
    pub(crate) newcomers: Limit,
    place: Mutex<Place>,
    vault: Mutex<Option<Vault>>,
    store: watch::Sender<Option<Replicated>>,
    /// Whether the daemon is about to end.
    ends: AtomicBool,
    /// Whom a node without a log last found leading.
    leader: Mutex<Option<Server>>,
    /// Whether this node has been told that it is no longer part of the cluster.
    pub(crate) expulsion: Expulsion,
    /// What the rebalancer last knew, where this node leads or led.
    pressures: Mutex<Option<Rebalancer>>,
    /// One promotion or demotion at a time.
    changing: tokio::sync::Mutex<()>,
}

/// Why a node could not begin to serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("the store could not be opened")]
    Store(#[from] OpenError),
    #[error("this node is member {0}, and cannot be another")]
    OtherMember(MemberId),
}

impl Hub {
    pub(crate) fn new(folder: Folder, place: Place, vault: Option<Vault>, calls: Calls, telemetry: Telemetry) -> Self {
        Self {
            folder,
            calls: Arc::new(calls),
            agents: Agents::default(),
            pulse: Pulse::default(),
            loads: loads::Heard::default(),
            figures: Figures::default(),
            telemetry,
            newcomers: Limit::new(20, 5),
            place: Mutex::new(place),
            vault: Mutex::new(vault),
            store: watch::channel(None).0,
            ends: AtomicBool::new(false),
            leader: Mutex::default(),
            expulsion: Expulsion::default(),
            pressures: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Keeps what the rebalancer knows for those who ask what it would do.
    pub(crate) fn note_pressures(&self, rebalancer: &Rebalancer) {
        *lock(&self.pressures) = Some(rebalancer.clone());
    }

    /// A rebalancer that knows what this node last knew of pressures; nothing where it never led.
    pub(crate) fn pressures(&self, now: Time) -> Rebalancer {
        lock(&self.pressures).clone().unwrap_or_else(|| Rebalancer::new(now))
    }

    pub(crate) fn place(&self) -> Place {
        lock(&self.place).clone()
    }

    pub(crate) fn node(&self) -> NodeName {
        lock(&self.place).node.clone()
    }

    pub(crate) fn vault(&self) -> Option<Vault> {
        lock(&self.vault).clone()
    }

    /// Takes keys in or gives them up: on disk first, so that nothing is ever sealed with a key that a restart forgets.
    pub(crate) fn change_vault<E: From<FolderError>>(
        &self,
        change: impl FnOnce(&Vault) -> Result<Vault, E>,
    ) -> Result<Vault, E> {
        let mut vault = lock(&self.vault);
        let before = vault.clone().unwrap_or_else(Vault::empty);
        let changed = change(&before)?;
        if changed != before {
            self.folder.keep_vault(&changed)?;
            *vault = Some(changed.clone());
        }
        Ok(changed)
    }

    /// The store, on a node that keeps the log.
    pub(crate) fn store(&self) -> Option<Replicated> {
        self.store.borrow().clone()
    }

    /// The store, now and whenever the node begins or ceases to keep the log.
    pub(crate) fn stores(&self) -> watch::Receiver<Option<Replicated>> {
        self.store.subscribe()
    }

    /// Whether this node keeps the log by right and has it not in hand: it is being opened, or was closed for good.
    pub(crate) fn lacks_store(&self) -> bool {
        self.store().is_none() && self.place().serving == Serving::Yes
    }

    /// Waits for a store that is being opened, for a while.
    pub(crate) async fn opened(&self, patience: Duration) {
        if self.lacks_store() && !self.ends.load(Ordering::Relaxed) {
            // Whatever comes of it is seen by looking again.
            let _ = tokio::time::timeout(patience, self.stores().wait_for(Option::is_some)).await;
        }
    }

    /// Begins to keep the log, with the cluster's keys; one that does already goes on.
    pub(crate) async fn serve(&self, member: MemberId, vault: Vault) -> Result<Replicated, ServeError> {
        let _one = self.changing.lock().await;
        let place = self.place();
        if place.member != member {
            return Err(ServeError::OtherMember(place.member));
        }
        if let Some(store) = self.store() {
            return Ok(store);
        }
        self.folder.keep_vault(&vault)?;
        self.keep_place(|place| place.serving = Serving::Yes)?;
        *lock(&self.vault) = Some(vault);
        let config = ReplicatedConfig::new(self.folder.part("store"), member);
        let transport = Arc::new(MemberTransport(Arc::clone(&self.calls)));
        let store = Replicated::open(config, transport).await?;
        self.store.send_replace(Some(store.clone()));
        Ok(store)
    }

    /// Ceases to keep the log. What is on disk stays: a vote that was cast is never forgotten.
    pub(crate) async fn cease(&self) -> Result<(), FolderError> {
        let _one = self.changing.lock().await;
        let servers = self.servers();
        self.keep_place(|place| (place.serving, place.servers) = (Serving::No, servers))?;
        if let Some(store) = self.store.send_replace(None) {
            store.close().await;
        }
        Ok(())
    }

    /// Closes the store, for the end of the daemon.
    pub(crate) async fn close(&self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(store) = self.store.send_replace(None) {
            store.close().await;
        }
    }

    /// Those who keep the log, as far as this node knows.
    pub(crate) fn servers(&self) -> Vec<Server> {
        match self.store() {
            Some(store) => store.members().members.values().map(server).collect(),
            None => lock(&self.place).servers.clone(),
        }
    }

    /// Remembers whom to ask.
    pub(crate) fn learn(&self, servers: Vec<Server>) {
        let known = lock(&self.place).servers == servers;
        if servers.is_empty() || known {
            return;
        }
        if let Err(error) = self.keep_place(|place| place.servers = servers) {
            tracing::warn!(%error, "the list of servers could not be kept");
        }
    }

    /// Who leads, as far as this node knows.
    pub(crate) fn leader(&self) -> Leader {
        match self.store() {
            Some(store) => {
                let leadership = store.leadership().borrow().clone();
                match (leadership.part, leadership.leader) {
                    (Part::Leading, _) => Leader::Here(store),
                    (Part::Following | Part::Stopped, Some(leader)) => Leader::There(server(&leader)),
                    (Part::Following | Part::Stopped, None) => Leader::Unknown,
                }
            }
            None => lock(&self.leader).clone().map_or(Leader::Unknown, Leader::There),
        }
    }

    pub(crate) fn found_leading(&self, leader: Option<Server>) {
        *lock(&self.leader) = leader;
    }

    fn keep_place(&self, change: impl FnOnce(&mut Place)) -> Result<(), FolderError> {
        let mut place = lock(&self.place);
        let mut changed = place.clone();
        change(&mut changed);
        if *place != changed {
            self.folder.keep_place(&changed)?;
            *place = changed;
        }
        Ok(())
    }
}

/// Where the leader is.
pub(crate) enum Leader {
    Here(Replicated),
    There(Server),
    Unknown,
}

/// A member as nodes know it.
pub(crate) fn server(member: &Member) -> Server {
    Server { name: member.name.clone(), address: member.address.clone() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
