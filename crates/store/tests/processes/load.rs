//! Clients that write as fast as they are answered, and record what was acknowledged.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    process_cluster::{PATIENCE, ProcessCluster},
    socket,
};

/// The audit log keeps the last 10,000 writes of all clients.
const RECORDED: usize = 4_000;
/// Timeout of one request; a suspended member does not respond.
const ANSWER: Duration = Duration::from_secs(5);

/// What the clients wrote.
#[derive(Default)]
struct Done {
    /// Acknowledged write ids in order.
    acknowledged: Mutex<Vec<String>>,
    /// For each client's register, the last acknowledged value and the last one sent.
    registers: Mutex<BTreeMap<String, (u32, u32)>>,
    ended: AtomicBool,
}

pub(crate) struct Load {
    done: Arc<Done>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts clients that write to the running ones of members 1 to `members`. The name is part of their write ids.
    pub(crate) fn begin(cluster: &ProcessCluster, name: &str, clients: u64, members: u64) -> Self {
        let done = Arc::new(Done::default());
        let client = |number: u64| {
            let (done, root, register) = (Arc::clone(&done), cluster.root.clone(), format!("{name}-{number}"));
            thread::spawn(move || write(&done, &root, &register, number % members + 1, members))
        };
        let clients = (0..clients).map(client).collect();
        Self { done, clients }
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.done.acknowledged.lock().unwrap().len()
    }

    /// Waits until this many writes were acknowledged.
    pub(crate) fn wait_for(&self, acknowledged: usize) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.acknowledged() < acknowledged {
            assert!(std::time::Instant::now() < deadline, "only {} writes were acknowledged", self.acknowledged());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the clients and checks that every acknowledged write took effect exactly once. Returns their number.
    pub(crate) fn check(self, cluster: &ProcessCluster, at: u64) -> usize {
        self.done.ended.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        for (register, (acknowledged, sent)) in &*self.done.registers.lock().unwrap() {
            let value = cluster.ask(at, &format!("get {register}")).unwrap();
            let value: u32 = value.strip_prefix("value ").unwrap_or("").parse().unwrap_or(0);
            assert!((*acknowledged..=*sent).contains(&value), "{register} is {value}, not {acknowledged} to {sent}");
        }
        let write_ids = cluster.ask(at, "write_ids").unwrap();
        let write_ids: Vec<&str> = write_ids.split(' ').skip(1).collect();
        let once: BTreeSet<&str> = write_ids.iter().copied().collect();
        assert_eq!(write_ids.len(), once.len(), "a write was applied twice");
        let acknowledged = self.done.acknowledged.lock().unwrap();
        let recent = acknowledged.iter().rev().take(RECORDED);
        let lost: Vec<&String> = recent.filter(|write_id| !once.contains(write_id.as_str())).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        acknowledged.len()
    }
}

fn write(done: &Done, root: &Path, register: &str, first: u64, members: u64) {
    let mut at = first;
    for value in 1_u32.. {
        let write_id = format!("{register}-{value}");
        done.registers.lock().unwrap().entry(register.to_owned()).or_default().1 = value;
        // The same write id until it is acknowledged by some member: the idempotency key makes it one write.
        loop {
            if done.ended.load(Ordering::Relaxed) {
                return;
            }
            let sent = socket::ask(root, at, &format!("put {register} {value} {write_id}"), ANSWER);
            if sent.is_ok_and(|answer| answer == "done") {
                break;
            }
            at = at % members + 1;
            thread::sleep(Duration::from_millis(5));
        }
        done.registers.lock().unwrap().entry(register.to_owned()).or_default().0 = value;
        done.acknowledged.lock().unwrap().push(write_id);
    }
}
