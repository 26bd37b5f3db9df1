//! Clients that write as fast as they are answered, and remember what was acknowledged.

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
    fleet::{Fleet, PATIENCE},
    line,
};

/// The audit record keeps the last 10,000 deeds, and other clients' are among them.
const RECORDED: usize = 4_000;
/// Time for one answer; a member that is held gives none.
const ANSWER: Duration = Duration::from_secs(5);

/// What clients did.
#[derive(Default)]
struct Done {
    /// In order.
    acknowledged: Mutex<Vec<String>>,
    /// The last acknowledged value of each client's register, and what was asked after it.
    registers: Mutex<BTreeMap<String, (u32, u32)>>,
    ended: AtomicBool,
}

pub(crate) struct Load {
    done: Arc<Done>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Clients that write at members 1 to `members`, whoever runs. The name tells their deeds from those of others.
    pub(crate) fn begin(fleet: &Fleet, name: &str, clients: u64, members: u64) -> Self {
        let done = Arc::new(Done::default());
        let client = |number: u64| {
            let (done, root, register) = (Arc::clone(&done), fleet.root.clone(), format!("{name}-{number}"));
            thread::spawn(move || write(&done, &root, &register, number % members + 1, members))
        };
        let clients = (0..clients).map(client).collect();
        Self { done, clients }
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.done.acknowledged.lock().unwrap().len()
    }

    /// Waits until that many writes were acknowledged.
    pub(crate) fn wait_for(&self, acknowledged: usize) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.acknowledged() < acknowledged {
            assert!(std::time::Instant::now() < deadline, "only {} writes were acknowledged", self.acknowledged());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the clients and looks whether all they were told is so, once each. Returns how much that was.
    pub(crate) fn check(self, fleet: &Fleet, at: u64) -> usize {
        self.done.ended.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        for (register, (acknowledged, asked)) in &*self.done.registers.lock().unwrap() {
            let value = fleet.ask(at, &format!("get {register}")).unwrap();
            let value: u32 = value.strip_prefix("value ").unwrap_or("").parse().unwrap_or(0);
            assert!((*acknowledged..=*asked).contains(&value), "{register} is {value}, not {acknowledged} to {asked}");
        }
        let deeds = fleet.ask(at, "deeds").unwrap();
        let deeds: Vec<&str> = deeds.split(' ').skip(1).collect();
        let once: BTreeSet<&str> = deeds.iter().copied().collect();
        assert_eq!(deeds.len(), once.len(), "a deed was done twice");
        let acknowledged = self.done.acknowledged.lock().unwrap();
        let recent = acknowledged.iter().rev().take(RECORDED);
        let lost: Vec<&String> = recent.filter(|deed| !once.contains(deed.as_str())).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        acknowledged.len()
    }
}

fn write(done: &Done, root: &Path, register: &str, first: u64, members: u64) {
    let mut at = first;
    for value in 1_u32.. {
        let deed = format!("{register}-{value}");
        done.registers.lock().unwrap().entry(register.to_owned()).or_default().1 = value;
        // The same deed until it is acknowledged, wherever that is possible: the key makes it one.
        loop {
            if done.ended.load(Ordering::Relaxed) {
                return;
            }
            let asked = line::ask(root, at, &format!("put {register} {value} {deed}"), ANSWER);
            if asked.is_ok_and(|answer| answer == "done") {
                break;
            }
            at = at % members + 1;
            thread::sleep(Duration::from_millis(5));
        }
        done.registers.lock().unwrap().entry(register.to_owned()).or_default().0 = value;
        done.acknowledged.lock().unwrap().push(deed);
    }
}
