//! Clients of a published port: 200 requests a second, each on its own connection.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Clients, each with this share of the rate.
const CLIENTS: u32 = 20;
/// Time between two requests of one client: 20 clients make 200 requests a second.
const INTERVAL: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(10);

/// The response to one request on a connection of its own.
pub(crate) fn get(address: impl ToSocketAddrs) -> io::Result<String> {
    let address: SocketAddr = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let is_ok = answer.split(' ').nth(1) == Some("200");
    if is_ok { Ok(answer) } else { Err(io::Error::other(format!("answered `{answer}`"))) }
}

pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    requests: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    clients: Vec<JoinHandle<()>>,
}

/// What became of the requests.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    pub(crate) failed: usize,
    #[expect(dead_code, reason = "printed where requests failed")]
    first_failures: Vec<String>,
}

impl Load {
    pub(crate) fn start(address: impl Into<SocketAddr>) -> Self {
        let address = address.into();
        let mut load =
            Self { stop: Arc::default(), requests: Arc::default(), failures: Arc::default(), clients: Vec::new() };
        for number in 0..CLIENTS {
            let (stop, requests) = (Arc::clone(&load.stop), Arc::clone(&load.requests));
            let failures = Arc::clone(&load.failures);
            let mut due = Instant::now() + INTERVAL * number / CLIENTS;
            load.clients.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    due += INTERVAL;
                    requests.fetch_add(1, Ordering::Relaxed);
                    if let Err(error) = get(address) {
                        failures.lock().unwrap().push(error.to_string());
                    }
                }
            }));
        }
        load
    }

    pub(crate) fn end(self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        let failures = self.failures.lock().unwrap();
        let first_failures = failures.iter().take(5).cloned().collect();
        Outcome { requests: self.requests.load(Ordering::Relaxed), failed: failures.len(), first_failures }
    }
}
