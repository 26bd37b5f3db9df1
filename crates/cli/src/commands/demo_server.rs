//! `longshore hello`: the web server of `examples/hello`, so that the example needs nothing but this binary.
//!
//! Several of them may listen on one port with `SO_REUSEPORT`; the kernel gives each connection to one of them. So
//! replicas of the example share a port without a load balancer.
//!
//! Owns: one page that names the replica serving it, the same for a datagram, and a client that fetches the page. Must
//! not touch: anything else.

use std::{
    env, io,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::net::TcpSocket;

use crate::{exit::Exit, output::print};

/// Timeout of reading a request, and of connecting and reading as a client.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 128;

/// Serve a page that names the replica serving it, or fetch one.
#[derive(Debug, Args)]
pub(crate) struct DemoServerArgs {
    /// Address to listen on; the port in `PORT`, which replicas get, or 127.0.0.1:8080 unless given.
    address: Option<SocketAddr>,
    /// Fetch this page instead and print it; retried for ten seconds while the connection is refused.
    #[arg(long, value_name = "URL", conflicts_with = "address")]
    fetch: Option<String>,
}

pub(crate) fn run(args: &DemoServerArgs) -> anyhow::Result<Exit> {
    match &args.fetch {
        Some(url) => fetch(url),
        None => serve(args.address.unwrap_or_else(default_address)),
    }
}

/// Every address with the port in `PORT`: the node of another replica may ask for this one's page.
fn default_address() -> SocketAddr {
    let assigned = env::var("PORT").ok().and_then(|port| port.parse().ok());
    assigned.map_or_else(|| ([127, 0, 0, 1], 8080).into(), |port: u16| ([0, 0, 0, 0], port).into())
}

fn serve(address: SocketAddr) -> anyhow::Result<Exit> {
    let listener = shared_listener(address).with_context(|| format!("could not listen on `{address}`"))?;
    print::stdout(&format!("{} listens at http://{address}\n", replica()))?;
    // Replicas that share the port share it with TCP only: one of them answers datagrams, too.
    if let Ok(socket) = UdpSocket::bind(address) {
        thread::spawn(move || answer_datagrams(&socket));
    }
    for caller in listener.incoming() {
        let Ok(caller) = caller else { continue };
        // One thread per connection, so that a slow client delays no other.
        thread::spawn(move || drop(answer(&caller)));
    }
    Ok(Exit::Success)
}

/// Answers every datagram with the greeting and the datagram, for ever.
fn answer_datagrams(socket: &UdpSocket) {
    let mut buffer = [0; 1024];
    loop {
        // An error is about an earlier answer that was refused.
        let Ok((length, caller)) = socket.recv_from(&mut buffer) else { continue };
        let answer = format!("{}: {}", greeting(), String::from_utf8_lossy(&buffer[..length]));
        let _ = socket.send_to(answer.as_bytes(), caller);
    }
}

/// A listener with `SO_REUSEPORT`.
fn shared_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?.into_std()?;
    listener.set_nonblocking(false)?;
    Ok(listener)
}

fn answer(caller: &TcpStream) -> io::Result<()> {
    caller.set_read_timeout(Some(TIMEOUT))?;
    caller.set_write_timeout(Some(TIMEOUT))?;
    let mut lines = BufReader::new(caller.take(64 * 1024)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let mut browser = false;
    for line in lines {
        let line = line?.to_lowercase();
        browser |= line.starts_with("accept:") && line.contains("text/html");
        if line.is_empty() {
            break;
        }
    }
    let (status, kind, body) = match request.split(' ').nth(1) {
        Some("/healthz") => ("200 OK", "text/plain", "ok\n".to_owned()),
        Some("/") if browser => ("200 OK", "text/html", page()),
        Some("/") => ("200 OK", "text/plain", greeting() + "\n"),
        Some(_) | None => ("404 Not Found", "text/plain", "only / and /healthz exist\n".to_owned()),
    };
    let mut out = caller;
    write!(
        out,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    print::stdout(&format!("{request} {status}\n")).map_err(io::Error::other)
}

fn replica() -> String {
    env::var("LONGSHORE_REPLICA").unwrap_or_else(|_| "hello".to_owned())
}

fn greeting() -> String {
    let node = env::var("LONGSHORE_NODE").map(|node| format!(" on {node}")).unwrap_or_default();
    let words = env::var("GREETING").unwrap_or_else(|_| "Hello".to_owned());
    format!("{words} from {}{node}", replica())
}

fn page() -> String {
    let greeting = escaped(&greeting());
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{greeting}</title><style>:root{{color-scheme:light dark}}body{{font:1.25rem/1.6 system-ui;\
         max-width:34rem;margin:18vh auto;padding:0 1rem}}code{{font-size:.9em}}</style>\
         <h1>{greeting}</h1><p>Served by a replica that Longshore keeps running. Load the page again: with several \
         replicas another may answer.</p><p>Try <code>longshore status</code>, <code>longshore why {}</code> or \
         <code>longshore scale hello web=5</code>.</p></html>\n",
        escaped(&replica())
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn fetch(url: &str) -> anyhow::Result<Exit> {
    let rest = url.strip_prefix("http://").context("the URL must begin with http://")?;
    let (host, path) = rest.split_once('/').map_or((rest, String::new()), |(host, path)| (host, path.to_owned()));
    let until = Instant::now() + Duration::from_secs(10);
    let answer = loop {
        match get(host, &path) {
            Ok(answer) => break answer,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < until => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error).with_context(|| format!("`{url}` does not answer")),
        }
    };
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("`{url}` did not answer with HTTP") };
    let status = head.lines().next().unwrap_or_default();
    print::stdout(&format!("{status}\n{body}"))?;
    Ok(if status.split(' ').nth(1) == Some("200") { Exit::Success } else { Exit::Error })
}

fn get(host: &str, path: &str) -> io::Result<String> {
    let address = host.to_socket_addrs()?.find(SocketAddr::is_ipv4).ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(1 << 20).read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_servers_share_one_address() {
        let first = shared_listener(([127, 0, 0, 1], 0).into()).unwrap();
        let second = shared_listener(first.local_addr().unwrap()).unwrap();
        assert_eq!(first.local_addr().unwrap(), second.local_addr().unwrap());
    }

    #[test]
    fn a_page_is_served_and_a_wrong_path_is_not_found() {
        let listener = shared_listener(([127, 0, 0, 1], 0).into()).unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            for caller in listener.incoming().take(2) {
                answer(&caller.unwrap()).unwrap();
            }
        });
        assert!(get(&host, "").unwrap().starts_with("HTTP/1.1 200 OK"));
        assert!(get(&host, "nothing").unwrap().starts_with("HTTP/1.1 404 Not Found"));
        server.join().unwrap();
    }
}
