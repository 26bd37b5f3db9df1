//! Clients that write and read registers, and a check that some order explains all they saw.
//!
//! The check is the one of Wing and Gong with the memory of Lowe: pick any operation that could come next, see whether
//! its answer fits, go on, and go back when nothing fits. A register is checked on its own, as they do not meet.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use longshore_store::replicated::{Fate, Replicated};

use super::{NODE, label, wire::Wire};

const REGISTERS: u64 = 3;

/// What was done to a register and when.
#[derive(Clone, Debug)]
struct Operation {
    action: Action,
    called: Instant,
    /// `None` while nobody knows whether it will still happen.
    returned: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Write(String),
    Read(Option<String>),
}

#[derive(Clone, Default)]
pub(crate) struct History {
    registers: Arc<Mutex<BTreeMap<String, Vec<Operation>>>>,
    ended: Arc<AtomicBool>,
}

impl History {
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn record(&self, register: String, operation: Operation) {
        self.registers.lock().unwrap().entry(register).or_default().push(operation);
    }

    /// How much was done, and whether one order explains it.
    pub(crate) fn check(&self) -> (usize, Result<(), String>) {
        let registers = self.registers.lock().unwrap();
        let count = registers.values().map(Vec::len).sum();
        let wrong = registers.iter().find(|(_, operations)| !linearizable(operations));
        (count, wrong.map_or(Ok(()), |(name, operations)| Err(format!("{name}: {operations:#?}"))))
    }
}

/// Writes and reads at random members until the history ends.
pub(crate) async fn client(client: u64, wire: Arc<Wire>, history: History) {
    let mut noise = client.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
    let mut count = 0;
    while !history.ended.load(Ordering::Relaxed) {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        count += 1;
        let Some(member) = wire.any(noise >> 33) else { continue };
        let register = format!("r{}", (noise >> 20) % REGISTERS);
        if (noise >> 50).is_multiple_of(2) {
            write(&member, register, format!("{client}-{count}"), &history).await;
        } else {
            read(&member, register, &history).await;
        }
        // A checker that goes back and forth has its limits; so do clients.
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

async fn write(member: &Replicated, register: String, value: String, history: &History) {
    let called = Instant::now();
    let returned = match member.propose(label(NODE, &register, &value)).await {
        Ok(_) => Some(Instant::now()),
        Err(error) if error.fate() == Fate::NotAppended => return,
        Err(_) => None,
    };
    history.record(register, Operation { action: Action::Write(value), called, returned });
}

async fn read(member: &Replicated, register: String, history: &History) {
    let called = Instant::now();
    if let Ok(reading) = member.read().await {
        let value = reading.state.node(&NODE.into()).and_then(|node| node.labels.get(&register).cloned());
        let returned = Some(Instant::now());
        history.record(register, Operation { action: Action::Read(value), called, returned });
    }
}

fn linearizable(operations: &[Operation]) -> bool {
    let mut seen = HashSet::new();
    // Depth first with its own stack: which operations are done, and the register after them.
    let mut stack = vec![(vec![false; operations.len()], None::<String>)];
    while let Some((done, value)) = stack.pop() {
        let open = || operations.iter().zip(&done).filter(|(_, done)| !**done).map(|(operation, _)| operation);
        if open().all(|operation| operation.returned.is_none()) {
            return true;
        }
        // Whatever was called before the first open operation returned may come next.
        let first_return = open().filter_map(|operation| operation.returned).min();
        for (place, operation) in operations.iter().enumerate() {
            if done[place] || first_return.is_some_and(|first| operation.called > first) {
                continue;
            }
            let next = match &operation.action {
                Action::Write(written) => Some(written.clone()),
                Action::Read(read) if *read == value => value.clone(),
                Action::Read(_) => continue,
            };
            let mut done = done.clone();
            done[place] = true;
            if seen.insert((done.clone(), next.clone())) {
                stack.push((done, next));
            }
        }
    }
    operations.is_empty()
}

#[test]
fn the_check_knows_right_from_wrong() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let operation = |action, from, to: Option<u64>| Operation { action, called: at(from), returned: to.map(at) };
    let write = |value: &str, from, to| operation(Action::Write(value.to_owned()), from, to);
    let read = |value: Option<&str>, from, to| operation(Action::Read(value.map(str::to_owned)), from, Some(to));

    assert!(linearizable(&[write("a", 0, Some(10)), read(None, 1, 3), read(Some("a"), 4, 12)]), "overlapping");
    assert!(!linearizable(&[write("a", 0, Some(10)), read(None, 11, 12)]), "a stale read");
    assert!(!linearizable(&[write("a", 0, Some(10)), read(Some("a"), 1, 3), read(None, 4, 6)]), "time runs backwards");
    assert!(linearizable(&[write("a", 0, None), read(None, 5, 6), read(Some("a"), 7, 8)]), "it came into force late");
    assert!(!linearizable(&[write("a", 0, Some(1)), write("b", 2, Some(3)), read(Some("a"), 4, 5)]), "a lost write");
}
