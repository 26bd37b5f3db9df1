//! Passes a foreign question on, and its answer back, unread.
//!
//! Owns: which server is asked when, and ids and ports of our own, so that nobody can guess what we wait for.
//! Invariant: the answer has the question's id, and comes from the server that was asked.

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::message::Transport;

/// Time that servers have to answer over each of UDP and TCP.
const PATIENCE: Duration = Duration::from_secs(2);
/// The next server is asked, too, if one is silent for this time.
const NEXT_SERVER: Duration = Duration::from_millis(500);
/// The largest answer.
const MAX_BYTES: usize = 65_535;
/// Response codes of a server that does not know, in the low bits of the fourth byte.
const SERVER_FAILURE: u8 = 2;
const REFUSED: u8 = 5;

/// Asks the servers, the first one first; `None` if none answers. A question that came over TCP is asked over TCP.
pub(super) async fn forward(question: &[u8], servers: &[SocketAddr], transport: Transport) -> Option<Vec<u8>> {
    if transport == Transport::Udp
        && let Some(answer) = ask_all(question, servers, Transport::Udp).await
    {
        return Some(answer);
    }
    ask_all(question, servers, Transport::Tcp).await
}

async fn ask_all(question: &[u8], servers: &[SocketAddr], transport: Transport) -> Option<Vec<u8>> {
    let mut asked = JoinSet::new();
    for (place, server) in servers.iter().copied().enumerate() {
        let question = question.to_vec();
        asked.spawn(async move {
            sleep(NEXT_SERVER * u32::try_from(place).unwrap_or(u32::MAX)).await;
            match transport {
                Transport::Udp => ask_udp(question, server).await,
                Transport::Tcp => ask_tcp(question, server).await,
            }
        });
    }
    let mut unhelpful = None;
    let first = async {
        while let Some(answered) = asked.join_next().await {
            match answered {
                Ok(Ok(answer)) if is_helpful(&answer) => return Some(answer),
                Ok(Ok(answer)) => unhelpful = Some(answer),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        None
    };
    timeout(PATIENCE, first).await.ok().flatten().or(unhelpful)
}

fn is_helpful(answer: &[u8]) -> bool {
    answer.get(3).is_some_and(|flags| ![SERVER_FAILURE, REFUSED].contains(&(flags & 0xf)))
}

async fn ask_udp(mut question: Vec<u8>, server: SocketAddr) -> io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // A socket per question: the kernel chooses an unpredictable port, and takes datagrams of this server only.
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(server).await?;
    let (asked, own) = exchange_id(&mut question);
    socket.send(&question).await?;
    let mut buffer = vec![0; MAX_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = accepted(&buffer[..length], own, asked) {
            return Ok(answer);
        }
    }
}

async fn ask_tcp(mut question: Vec<u8>, server: SocketAddr) -> io::Result<Vec<u8>> {
    let (asked, own) = exchange_id(&mut question);
    let mut stream = TcpStream::connect(server).await?;
    write_framed(&mut stream, &question).await?;
    let answer = read_framed(&mut stream).await?;
    accepted(&answer, own, asked).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Writes a message with its length in front, as DNS over TCP does.
pub(super) async fn write_framed(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    stream.write_all(&framed).await
}

/// Reads such a message.
pub(super) async fn read_framed(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

/// Puts an id of our own into the question; returns the old one and the new one.
fn exchange_id(question: &mut [u8]) -> ([u8; 2], [u8; 2]) {
    // Every state has other random keys, so the value cannot be predicted.
    let [first, second, ..] = RandomState::new().hash_one(question.len()).to_be_bytes();
    let (mut asked, own) = ([0; 2], [first, second]);
    if let Some(id) = question.first_chunk_mut::<2>() {
        asked = std::mem::replace(id, own);
    }
    (asked, own)
}

/// The answer with the question's id, if it is one to our question.
fn accepted(answer: &[u8], own: [u8; 2], asked: [u8; 2]) -> Option<Vec<u8>> {
    let is_response = answer.get(2)? & 0x80 != 0;
    if !is_response || *answer.first_chunk::<2>()? != own {
        return None;
    }
    let mut answer = answer.to_vec();
    *answer.first_chunk_mut::<2>()? = asked;
    Some(answer)
}
