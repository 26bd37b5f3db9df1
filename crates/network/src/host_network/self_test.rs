//! Tries at start whether the kernel really separates scopes: three namespaces on the bridge, of which two share a scope.
//!
//! Owns: the namespaces, which end with their threads. Must not touch: replicas; the test uses addresses of the node's
//! block that no replica has. Invariant: whatever the result, nothing of the test is left.

use std::{
    fs::File,
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::mpsc,
    thread,
    time::Duration,
};

use longshore_model::{Attempt, Generation, GroupKey, address_plan::LARGEST_IPV4_HOST};
use rustix::thread::UnshareFlags;

use super::{
    ApplyError, LocalOverlay,
    namespace_port::{attach_namespace, detach_namespace},
};
use crate::{NetworkReplica, NetworkService, Scope, ScopeName, render::Bridge};

/// Time a connection may take that shall be made, and that shall not.
const REACHES: Duration = Duration::from_secs(5);
const IS_DROPPED: Duration = Duration::from_millis(300);
const PORT: u16 = 9;

/// Three addresses of a bridge that no replica has: two members of one scope, and one of another.
pub(super) fn free_addresses(overlay: &LocalOverlay, bridge: &Bridge) -> Option<[Ipv6Addr; 3]> {
    let base = u128::from(bridge.ipv6_block.network());
    let is_free = |ip: &Ipv6Addr| bridge.replicas.iter().all(|replica| replica.ipv6 != *ip);
    let mut free = (1..=LARGEST_IPV4_HOST).rev().map(|host| Ipv6Addr::from(base | u128::from(host)));
    let mut next = || free.by_ref().find(|ip| is_free(ip) && overlay.port_of(*ip).is_some());
    Some([next()?, next()?, next()?])
}

/// The services that the test adds to the state while it runs.
pub(super) fn services(bridge: &Bridge, addresses: [Ipv6Addr; 3]) -> Vec<NetworkService> {
    let service = |(name, address): (&str, &Ipv6Addr)| {
        let group = GroupKey { namespace: "self-test".into(), deployment: name.into(), service: "probe".into() };
        let scope = Scope {
            name: ScopeName(format!("self-test/{name}/default")),
            internal: true,
            ipv6: false,
            aliases: std::collections::BTreeSet::new(),
        };
        let replica = NetworkReplica {
            id: name.to_owned(),
            generation: Generation(0),
            attempt: Attempt(0),
            node: bridge.node.clone(),
            address: *address,
            serves: true,
        };
        (group, scope, replica)
    };
    let mut services: Vec<NetworkService> = Vec::new();
    for (group, scope, replica) in ["inside", "inside", "outside"].into_iter().zip(&addresses).map(service) {
        match services.iter_mut().find(|known| known.group == group) {
            Some(known) => known.replicas.push(replica),
            None => services.push(NetworkService {
                scopes: vec![scope],
                replicas: vec![replica],
                ..NetworkService::new(group)
            }),
        }
    }
    services
}

/// Runs the test after its services are in effect. Returns what is wrong in words.
pub(super) async fn run(overlay: &LocalOverlay, addresses: [Ipv6Addr; 3]) -> Result<(), String> {
    let result = try_run(overlay, addresses).await;
    for address in addresses {
        detach_namespace(overlay, address).await;
    }
    result
}

async fn try_run(overlay: &LocalOverlay, addresses: [Ipv6Addr; 3]) -> Result<(), String> {
    let [server, _, stranger] = addresses;
    let spaces = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
    for (space, address) in spaces.iter().zip(addresses) {
        let descriptor = space.descriptor.try_clone().map_err(|error| error.to_string())?;
        attach_namespace(descriptor, overlay, address).await.map_err(|error| error.to_string())?;
    }
    let ipv4 = overlay.port_of(server).map(|(ipv4, _)| IpAddr::V4(ipv4));
    let [serving, reaching, dropped] = spaces;
    let targets = ipv4.into_iter().chain([server.into()]).map(|ip| SocketAddr::new(ip, PORT));
    let targets: Vec<SocketAddr> = targets.collect();
    let outcome = tokio::task::spawn_blocking(move || {
        let _listener = serving.run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)))?.map_err(text)?;
        for target in targets {
            let connected = reaching.run(move || TcpStream::connect_timeout(&target, REACHES))?;
            connected.map_err(|error| format!("a member of the same scope does not reach {target}: {error}"))?;
            if dropped.run(move || TcpStream::connect_timeout(&target, IS_DROPPED))?.is_ok() {
                return Err(format!("a member of another scope ({stranger}) reaches {target}"));
            }
        }
        Ok(())
    });
    outcome.await.map_err(text)?
}

/// Words of an error, for `map_err`.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives the error away")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

type Task = Box<dyn FnOnce() + Send>;

/// A network namespace that ends with its thread.
struct Namespace {
    descriptor: OwnedFd,
    tasks: mpsc::Sender<Task>,
}

impl Namespace {
    fn new() -> Result<Self, String> {
        let (tasks, queue) = mpsc::channel::<Task>();
        let (ready, made) = mpsc::channel();
        thread::spawn(move || {
            let made = enter_new_namespace().map_err(|error| format!("no network namespace can be made: {error}"));
            let failed = made.is_err();
            if ready.send(made).is_err() || failed {
                return;
            }
            while let Ok(task) = queue.recv() {
                task();
            }
        });
        let descriptor = made.recv().map_err(text)??;
        Ok(Self { descriptor, tasks })
    }

    /// Runs a function in the namespace.
    fn run<T: Send + 'static>(&self, function: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        let (send, answer) = mpsc::channel();
        let task = Box::new(move || drop(send.send(function())));
        self.tasks.send(task).map_err(text)?;
        answer.recv().map_err(text)
    }
}

#[expect(deprecated, reason = "only sharing of open files would be unsound, and that is not given up")]
fn enter_new_namespace() -> Result<OwnedFd, ApplyError> {
    rustix::thread::unshare(UnshareFlags::NEWNET).map_err(std::io::Error::from)?;
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}
