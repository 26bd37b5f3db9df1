//! The endpoints of one published port: choosing one, connecting to it, and leaving alone those that do not answer.
//!
//! Owns: open connections per endpoint, and which endpoints are ejected.
//! Must not touch: listeners. Invariant: an endpoint that was removed from the set gets no new connection, unless
//! every endpoint of the set fails within [`RETIRED_FOR`] of the removal, in which it is known to serve on.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::TcpStream,
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::traffic::{EndpointTraffic, Traffic};
use crate::{
    Endpoint, TransparentWay, Vantage,
    transparent_relay::{Transparency, connect_as, connect_through, suits},
};

/// Time an endpoint has to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Endpoints tried before the client has to wait.
const TRIES: usize = 3;
/// Time an endpoint that did not answer is left alone; then one connection tries it again.
const EJECTED_FOR: Duration = Duration::from_secs(5);
/// Time a client waits for an endpoint when there is none, or none accepts: a replica that restarts, or that was the
/// only one and is being replaced, is back within it, and a client that waited notices less than one that was refused.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time between two rounds of tries.
const ROUND_PAUSE: Duration = Duration::from_millis(100);
/// Time for which an endpoint that left the set is a last resort. A replica that clients can reach serves on for one
/// second after its stop was decided, so an address is not given to anything else before that.
const RETIRED_FOR: Duration = Duration::from_secs(1);

/// The endpoints of one published port.
#[derive(Debug, Default)]
pub(super) struct EndpointSet {
    members: Mutex<Members>,
    /// Where the search for an endpoint begins, so that equals take turns.
    turn: AtomicUsize,
    changed: Notify,
    traffic: Arc<Traffic>,
    transparency: Arc<Transparency>,
}

#[derive(Debug, Default)]
struct Members {
    serving: Vec<Arc<Target>>,
    retired: Vec<(Arc<Target>, Instant)>,
}

/// One endpoint, as reached from this machine.
#[derive(Debug)]
pub(super) struct Target {
    replica: String,
    is_local: bool,
    /// How it is reached so that it sees its client's address, tried before the addresses.
    transparent: Option<TransparentWay>,
    /// At least one, best first.
    addresses: Vec<SocketAddr>,
    /// Index of the address to begin with.
    preferred: AtomicUsize,
    open: AtomicUsize,
    ejection: Mutex<Option<Instant>>,
}

/// Counts a connection or session of a target for as long as it is held.
#[derive(Debug)]
pub(super) struct Lease(Arc<Target>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lease {
    pub(super) fn target(&self) -> &Arc<Target> {
        &self.0
    }
}

impl Target {
    fn new(endpoint: &Endpoint, vantage: &Vantage) -> Option<Self> {
        let addresses = vantage.addresses_of(endpoint);
        (!addresses.is_empty()).then(|| Self {
            replica: endpoint.replica.clone(),
            is_local: endpoint.is_on(&vantage.local_nodes),
            transparent: vantage.transparent_way(endpoint),
            addresses,
            preferred: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            ejection: Mutex::default(),
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.replica, self.is_local, &self.addresses, &self.transparent)
            == (&other.replica, other.is_local, &other.addresses, &other.transparent)
    }

    /// Whether it is on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.is_local
    }

    pub(super) fn lease(self: &Arc<Self>) -> Lease {
        self.open.fetch_add(1, Ordering::Relaxed);
        Lease(Arc::clone(self))
    }

    /// The address to begin with.
    pub(super) fn address(&self) -> SocketAddr {
        let preferred = self.preferred.load(Ordering::Relaxed);
        self.addresses.get(preferred).copied().unwrap_or(self.addresses[0])
    }

    /// Whether it may be chosen now. An ejected one may once its time is over, by one caller at a time.
    fn admits(&self, now: Instant) -> bool {
        lock(&self.ejection).is_none_or(|until| until <= now)
    }

    /// Keeps others away while one caller tries. For a while only: datagrams may never be answered, and a caller that
    /// gives up tells nobody.
    fn begin_probe(&self, now: Instant) {
        if let Some(until) = lock(&self.ejection).as_mut() {
            *until = now + EJECTED_FOR;
        }
    }

    pub(super) fn succeeded(&self) {
        *lock(&self.ejection) = None;
    }

    /// Ejects it. Returns whether it was not ejected before.
    fn failed(&self) -> bool {
        lock(&self.ejection).replace(Instant::now() + EJECTED_FOR).is_none()
    }

    /// Connects so that the replica sees the client's address; `None` if that cannot be.
    async fn connect_transparently(
        &self,
        client: SocketAddr,
        transparency: &Transparency,
    ) -> Option<io::Result<TcpStream>> {
        let way = self.transparent.as_ref()?;
        let replica = way.replica_for(client.ip())?;
        if !suits(client.ip(), replica) {
            return None;
        }
        let connecting = async {
            match way.relay {
                Some(relay) => connect_through(relay, client, replica).await,
                None => connect_as(client, replica).await,
            }
        };
        if way.relay.is_none() && !transparency.is_available() {
            return None;
        }
        Some(timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())))
    }

    /// Connects to the first address that does not keep silent. A refusal is final: whoever refused is alive, and a
    /// second way in would only hide that nobody listens.
    async fn connect(&self, client: SocketAddr, transparency: &Transparency) -> io::Result<TcpStream> {
        match self.connect_transparently(client, transparency).await {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused && client.is_ipv4() => {
                return Err(error);
            }
            // An application that listens on IPv4 only refuses IPv6, and a relay may be missing.
            Some(Err(_)) | None => {}
        }
        let (first, count) = (self.preferred.load(Ordering::Relaxed), self.addresses.len());
        let mut last = io::ErrorKind::NotConnected.into();
        for index in (first..count).chain(0..first) {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(self.addresses[index])).await {
                Ok(Ok(stream)) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(stream);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(error),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }
}

impl EndpointSet {
    /// No endpoints yet, of a port of a service with these counters.
    pub(super) fn new(traffic: Arc<Traffic>, transparency: Arc<Transparency>) -> Self {
        Self { traffic, transparency, ..Self::default() }
    }

    pub(super) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// What each endpoint does now.
    pub(super) fn endpoints(&self) -> Vec<EndpointTraffic> {
        let members = lock(&self.members);
        let of = |target: &Arc<Target>| EndpointTraffic {
            replica: target.replica.clone(),
            open: target.open.load(Ordering::Relaxed) as u64,
            is_ejected: lock(&target.ejection).is_some(),
        };
        members.serving.iter().map(of).collect()
    }

    /// Ejects an endpoint that did not answer; another one is tried.
    pub(super) fn eject(&self, target: &Target) {
        self.traffic.retries.add(1);
        if target.failed() {
            self.traffic.ejections.add(1);
        }
    }

    /// Replaces the endpoints. One that stays keeps its connections and its ejection.
    pub(super) fn replace(&self, endpoints: &[Endpoint], vantage: &Vantage) {
        let wanted = endpoints.iter().filter_map(|endpoint| Target::new(endpoint, vantage));
        let mut members = lock(&self.members);
        let now = Instant::now();
        let before = std::mem::take(&mut members.serving);
        members.serving = wanted
            .map(|new| before.iter().find(|old| old.is_same(&new)).map_or_else(|| Arc::new(new), Arc::clone))
            .collect();
        let left: Vec<_> = before.into_iter().filter(|old| !contains(&members.serving, old)).collect();
        members.retired.retain(|(_, since)| now.duration_since(*since) < RETIRED_FOR);
        members.retired.extend(left.into_iter().map(|target| (target, now)));
        drop(members);
        self.changed.notify_waiters();
    }

    /// Whether a target is still in the set.
    pub(super) fn serves(&self, target: &Arc<Target>) -> bool {
        contains(&lock(&self.members).serving, target)
    }

    /// The endpoint with the fewest connections that was not tried yet; of equals one of this machine, and of those in
    /// turn. Ejected ones only where there is no other, and what left the set a moment ago only where there is none at
    /// all.
    pub(super) fn choose(&self, tried: &[Arc<Target>]) -> Option<Arc<Target>> {
        self.choose_at(Instant::now(), tried)
    }

    fn choose_at(&self, now: Instant, tried: &[Arc<Target>]) -> Option<Arc<Target>> {
        let members = lock(&self.members);
        let serving: Vec<&Arc<Target>> = members.serving.iter().filter(|target| !contains(tried, target)).collect();
        let admitted: Vec<&Arc<Target>> = serving.iter().copied().filter(|target| target.admits(now)).collect();
        let retired = members.retired.iter().filter(|(_, since)| now.duration_since(*since) < RETIRED_FOR);
        let retired: Vec<&Arc<Target>> =
            retired.map(|(target, _)| target).filter(|target| !contains(tried, target)).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let chosen = [admitted, serving, retired].iter().find_map(|tier| least_busy(tier, turn))?;
        chosen.begin_probe(now);
        Some(chosen)
    }

    /// Connects to an endpoint for a client that just arrived. `None` once the client has waited long enough.
    pub(super) async fn connect(&self, client: SocketAddr) -> Option<(TcpStream, Lease)> {
        let until = Instant::now() + PATIENCE;
        loop {
            let changed = self.changed.notified();
            let mut tried: Vec<Arc<Target>> = Vec::new();
            while tried.len() < TRIES
                && let Some(target) = self.choose(&tried)
            {
                let lease = target.lease();
                match target.connect(client, &self.transparency).await {
                    Ok(stream) => {
                        target.succeeded();
                        return Some((stream, lease));
                    }
                    Err(error) => {
                        tracing::debug!(replica = target.replica, %error, "an endpoint does not accept connections");
                        self.eject(&target);
                        tried.push(target);
                    }
                }
            }
            if Instant::now() >= until {
                return None;
            }
            tokio::select! {
                () = changed => {}
                () = sleep(ROUND_PAUSE) => {}
            }
        }
    }
}

fn least_busy(tier: &[&Arc<Target>], turn: usize) -> Option<Arc<Target>> {
    let count = tier.len();
    let in_turn = (0..count).map(|step| tier[(turn + step) % count]);
    let rank = |target: &&Arc<Target>| (target.open.load(Ordering::Relaxed), !target.is_local);
    in_turn.min_by_key(rank).cloned()
}

fn contains(targets: &[Arc<Target>], target: &Arc<Target>) -> bool {
    targets.iter().any(|other| Arc::ptr_eq(other, target))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one assignment, so a panic elsewhere leaves no partial update.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
