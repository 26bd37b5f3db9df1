//! Network namespaces of a test: the machine's, and those of replicas. Each ends with its threads.
//!
//! Owns: entering them. Must not touch: the namespace the tests were started in.

use std::{
    fs::File,
    future::Future,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::OwnedFd,
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::thread::UnshareFlags;

/// Time a connection may take on a busy machine: a first packet that is lost is sent again after a second.
const PATIENCE: Duration = Duration::from_secs(4);

/// Runs a test as a machine of its own.
pub(crate) fn on_a_machine<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let machine = thread::spawn(move || {
        unshare();
        run("ip", &["link", "set", "lo", "up"]);
        // Threads of the runtime are started from here, so they are in the same namespace.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(test());
        runtime.shutdown_timeout(Duration::from_secs(1));
    });
    if let Err(panic) = machine.join() {
        std::panic::resume_unwind(panic);
    }
}

#[expect(deprecated, reason = "only sharing of open files would be unsound, and that is not given up")]
fn unshare() {
    rustix::thread::unshare(UnshareFlags::NEWNET).expect("tests of the host side need root");
}

/// Runs a program of the machine and returns what it wrote.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

type Task = Box<dyn FnOnce() + Send>;

/// A namespace of a replica.
pub(crate) struct Namespace {
    pub(crate) descriptor: OwnedFd,
    tasks: mpsc::Sender<Task>,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        let (tasks, queue) = mpsc::channel::<Task>();
        let (ready, made) = mpsc::channel();
        thread::spawn(move || {
            unshare();
            ready.send(File::open("/proc/thread-self/ns/net").unwrap()).unwrap();
            while let Ok(task) = queue.recv() {
                task();
            }
        });
        Self { descriptor: made.recv().unwrap().into(), tasks }
    }

    /// Runs a function inside.
    pub(crate) fn run<T: Send + 'static>(&self, function: impl FnOnce() -> T + Send + 'static) -> T {
        let (send, answer) = mpsc::channel();
        self.tasks.send(Box::new(move || drop(send.send(function())))).unwrap();
        answer.recv().unwrap()
    }

    /// Answers every TCP connection and every datagram at the port with a name, for as long as the test runs.
    pub(crate) fn serve(&self, port: u16, name: &str) {
        let (over_tcp, over_udp) = (name.to_owned(), name.to_owned());
        let (listener, socket) = self.run(move || {
            let any = (Ipv6Addr::UNSPECIFIED, port);
            (TcpListener::bind(any).unwrap(), UdpSocket::bind(any).unwrap())
        });
        thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let peer = connection.peer_addr().map(|peer| peer.ip().to_canonical().to_string()).unwrap_or_default();
                let _ = write!(connection, "{over_tcp} {peer}");
            }
        });
        thread::spawn(move || {
            let mut bytes = [0; 64];
            while let Ok((_, from)) = socket.recv_from(&mut bytes) {
                let _ = socket.send_to(over_udp.as_bytes(), from);
            }
        });
    }

    /// The answer of a server, as its name and the address it saw; an error in words if there was none.
    pub(crate) fn ask(&self, ip: impl Into<IpAddr>, port: u16) -> Result<(String, String), String> {
        let target = SocketAddr::new(ip.into(), port);
        let text = self.run(move || -> std::io::Result<String> {
            let mut connection = TcpStream::connect_timeout(&target, PATIENCE)?;
            connection.set_read_timeout(Some(Duration::from_secs(5)))?;
            let mut text = String::new();
            connection.read_to_string(&mut text)?;
            Ok(text)
        });
        let text = text.map_err(|error| error.kind().to_string())?;
        let (name, peer) = text.split_once(' ').unwrap_or((&text, ""));
        Ok((name.to_owned(), peer.to_owned()))
    }
}
