//! Copies between two TCP connections.
//!
//! Owns: copying in both directions, half-closed ends, and when the kernel moves the bytes itself.
//! Invariant: every byte that was read is written before the end is passed on; an idle connection holds no buffer.
//!
//! A copy through user space is cheaper for small messages, a pipe between the two sockets for large ones. A direction
//! begins with the first and changes to the second while full buffers arrive one after the other.

use std::{cell::RefCell, io, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    net::{Shutdown, shutdown},
    pipe::{PipeFlags, SpliceFlags, pipe_with, splice},
};
use tokio::{io::Interest, net::TcpStream, try_join};

use crate::port_proxy::Counter;

/// Bytes that are copied at a time.
const BUFFER_BYTES: usize = 16 * 1024;
/// Full buffers in a row after which a pipe is used, and short transfers in a row after which it is not.
const STREAK: u32 = 4;
/// Bytes that a pipe takes at a time; its default capacity.
const PIPE_BYTES: usize = 64 * 1024;

thread_local! {
    /// Used between two awaits only, so one for each thread is enough.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER_BYTES]);
}

/// Copies in both directions until both have ended, or one fails.
pub(crate) async fn relay(
    client: &TcpStream,
    upstream: &TcpStream,
    bytes_in: &Counter,
    bytes_out: &Counter,
) -> io::Result<()> {
    try_join!(copy(client, upstream, bytes_in), copy(upstream, client, bytes_out)).map(drop)
}

async fn copy(from: &TcpStream, to: &TcpStream, bytes: &Counter) -> io::Result<()> {
    let mut full = 0;
    loop {
        from.readable().await?;
        let moved = match move_buffer(from, to)? {
            Moved::Nothing => continue,
            Moved::End => break,
            Moved::All(count) => count,
            Moved::Part(count, rest) => {
                write_all(to, &rest).await?;
                count
            }
        };
        bytes.add(moved as u64);
        full = if moved == BUFFER_BYTES { full + 1 } else { 0 };
        if full >= STREAK {
            full = 0;
            // Without descriptors for a pipe, copying goes on.
            if let Ok(pipe) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
                && splice_all(from, to, &pipe, bytes).await? == Flow::Ended
            {
                break;
            }
        }
    }
    match shutdown(to, Shutdown::Write) {
        // The other end is gone already.
        Ok(()) | Err(Errno::NOTCONN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

enum Moved {
    Nothing,
    End,
    All(usize),
    /// What could not be written yet.
    Part(usize, Vec<u8>),
}

fn move_buffer(from: &TcpStream, to: &TcpStream) -> io::Result<Moved> {
    BUFFER.with_borrow_mut(|buffer| {
        let count = match from.try_read(buffer) {
            Ok(0) => return Ok(Moved::End),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Moved::Nothing),
            Err(error) => return Err(error),
        };
        match to.try_write(&buffer[..count]) {
            Ok(written) if written == count => Ok(Moved::All(count)),
            Ok(written) => Ok(Moved::Part(count, buffer[written..count].to_vec())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Moved::Part(count, buffer[..count].to_vec())),
            Err(error) => Err(error),
        }
    })
}

async fn write_all(to: &TcpStream, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        to.writable().await?;
        match to.try_write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Flow {
    /// Transfers are small again.
    Thin,
    Ended,
}

/// Moves bytes through a pipe until the sender ends, or sends little.
async fn splice_all(
    from: &TcpStream,
    to: &TcpStream,
    (out, into): &(OwnedFd, OwnedFd),
    bytes: &Counter,
) -> io::Result<Flow> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    let mut short = 0;
    while short < STREAK {
        let taken =
            from.async_io(Interest::READABLE, || Ok(splice(from, None, into, None, PIPE_BYTES, flags)?)).await?;
        if taken == 0 {
            return Ok(Flow::Ended);
        }
        let mut left = taken;
        while left > 0 {
            left -= to.async_io(Interest::WRITABLE, || Ok(splice(out, None, to, None, left, flags)?)).await?;
        }
        bytes.add(taken as u64);
        short = if taken < BUFFER_BYTES { short + 1 } else { 0 };
    }
    Ok(Flow::Thin)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (connected, accepted) =
            try_join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept()).unwrap();
        (connected, accepted.0)
    }

    /// Large and small messages in turn, so that both ways of copying are used, with a reader that is slow at first.
    #[tokio::test]
    async fn every_byte_arrives_in_order_whichever_way_it_takes() {
        let ((mut client, near), (far, mut server)) = (pair().await, pair().await);
        let counters = (Counter::default(), Counter::default());
        let relaying = tokio::spawn(async move {
            relay(&near, &far, &counters.0, &counters.1).await.unwrap();
            counters
        });
        let mut sent = Vec::new();
        for (number, length) in
            [(1_u8, 3_000_000), (2, 10), (3, 20_000), (4, 1), (5, 2), (6, 3), (7, 4), (8, 2_000_000)]
        {
            sent.extend((0..length).map(|index: usize| number ^ u8::try_from(index % 251).unwrap()));
        }
        let expected = sent.clone();
        let writer = tokio::spawn(async move {
            for part in sent.chunks(700_001) {
                client.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
            client.shutdown().await.unwrap();
            let mut reply = String::new();
            client.read_to_string(&mut reply).await.unwrap();
            reply
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        assert!(received == expected, "{} of {} bytes", received.len(), expected.len());
        server.write_all(b"thanks").await.unwrap();
        drop(server);
        assert_eq!(writer.await.unwrap(), "thanks", "the other direction outlives the first");
        relaying.await.unwrap();
    }
}
