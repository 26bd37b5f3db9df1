//! Clients that write and read registers. Registers are independent, so each is checked on its own.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use longshore_store::replicated::{CommitCertainty, Replicated};

use super::{
    NODE,
    checker::{Action, Operation, linearizable},
    fake_network::FakeNetwork,
    label,
};

const REGISTERS: u64 = 3;

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

    /// The number of operations, and whether each register's history is linearizable.
    pub(crate) fn check(&self) -> (usize, Result<(), String>) {
        let registers = self.registers.lock().unwrap();
        let count = registers.values().map(Vec::len).sum();
        let wrong = registers.iter().find(|(_, operations)| !linearizable(operations));
        (count, wrong.map_or(Ok(()), |(name, operations)| Err(format!("{name}: {operations:#?}"))))
    }
}

/// Writes and reads at random members until the history ends.
pub(crate) async fn client(client: u64, network: Arc<FakeNetwork>, history: History) {
    let mut noise = client.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
    let mut count = 0;
    while !history.ended.load(Ordering::Relaxed) {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        count += 1;
        let Some(member) = network.any(noise >> 33) else { continue };
        let register = format!("r{}", (noise >> 20) % REGISTERS);
        if (noise >> 50).is_multiple_of(2) {
            write(&member, register, format!("{client}-{count}"), &history).await;
        } else {
            read(&member, register, &history).await;
        }
        // Limits the number of operations, because the checker backtracks.
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

async fn write(member: &Replicated, register: String, value: String, history: &History) {
    let called = Instant::now();
    let returned = match member.propose(label(NODE, &register, &value)).await {
        Ok(_) => Some(Instant::now()),
        Err(error) if error.commit_certainty() == CommitCertainty::NotAppended => return,
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
