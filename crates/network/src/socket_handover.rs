//! Open sockets that one dataplane process hands over to the next.
//!
//! Owns: passing descriptors over a unix socket, each with a name. Must not touch: what they are for.
//! Invariant: a descriptor that nobody takes is closed when the set is dropped, and no name is taken twice.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Descriptors in one message; the kernel takes at most 253.
const PER_MESSAGE: usize = 128;
/// Longest list of names in one message, in bytes.
const MAX_NAMES: usize = 64 * 1024;

/// A descriptor with the name under which the next process finds it.
#[derive(Debug)]
pub(crate) struct NamedSocket {
    /// Its name.
    pub(crate) name: String,
    /// A descriptor of the same socket.
    pub(crate) socket: OwnedFd,
}

impl NamedSocket {
    /// A second descriptor of a socket; `None` if there are no descriptors left.
    pub(crate) fn of(name: String, socket: impl AsFd) -> Option<Self> {
        socket.as_fd().try_clone_to_owned().ok().map(|socket| Self { name, socket })
    }
}

/// The sockets of the process before this one.
#[derive(Debug, Default)]
pub(crate) struct InheritedSockets(BTreeMap<String, OwnedFd>);

impl InheritedSockets {
    /// Takes the socket of a name.
    pub(crate) fn take(&mut self, name: &str) -> Option<OwnedFd> {
        self.0.remove(name)
    }

    /// Takes those whose names begin with a prefix, as a set of their own.
    pub(crate) fn split_off(&mut self, prefix: &str) -> Self {
        let names: Vec<String> = self.0.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
        Self(names.into_iter().filter_map(|name| self.0.remove_entry(&name)).collect())
    }

    /// Receives what [`send`] sends.
    pub(crate) fn receive(stream: &UnixStream) -> io::Result<Self> {
        let mut sockets = BTreeMap::new();
        loop {
            let (names, descriptors) = receive_message(stream)?;
            if names.len() != descriptors.len() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if names.is_empty() {
                return Ok(Self(sockets));
            }
            sockets.extend(names.into_iter().zip(descriptors));
        }
    }
}

/// Sends sockets, then an empty list.
pub(crate) fn send(stream: &UnixStream, sockets: &[NamedSocket]) -> io::Result<()> {
    for part in sockets.chunks(PER_MESSAGE) {
        send_message(stream, part)?;
    }
    send_message(stream, &[])
}

fn send_message(stream: &UnixStream, sockets: &[NamedSocket]) -> io::Result<()> {
    let names: Vec<&str> = sockets.iter().map(|named| named.name.as_str()).collect();
    let mut text = serde_json::to_vec(&names)?;
    text.push(b'\n');
    let descriptors: Vec<_> = sockets.iter().map(|named| named.socket.as_fd()).collect();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PER_MESSAGE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut sent = sendmsg(stream, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
    while sent < text.len() {
        let mut none = SendAncillaryBuffer::new(&mut []);
        sent += sendmsg(stream, &[IoSlice::new(&text[sent..])], &mut none, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// One list of names and its descriptors. Descriptors come with the first byte of their list.
fn receive_message(stream: &UnixStream) -> io::Result<(Vec<String>, Vec<OwnedFd>)> {
    let (mut text, mut descriptors) = (Vec::new(), Vec::new());
    while text.last() != Some(&b'\n') {
        // A byte at a time: a longer read could swallow the beginning of what follows the last list.
        let mut part = [0; 1];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PER_MESSAGE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(stream, &mut [IoSliceMut::new(&mut part)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if received.flags.contains(ReturnFlags::CTRUNC) || text.len() > MAX_NAMES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        text.extend_from_slice(&part);
    }
    Ok((serde_json::from_slice(&text)?, descriptors))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn listeners_arrive_by_name_however_many_there_are() {
        let (old, new) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = TcpStream::connect(address).unwrap();
        let count = PER_MESSAGE * 2 + 3;
        let sockets = (0..count).filter_map(|number| NamedSocket::of(format!("socket {number}"), &listener));
        let sockets: Vec<NamedSocket> = sockets.collect();
        let sender = std::thread::spawn(move || send(&old, &sockets).unwrap());
        let mut received = InheritedSockets::receive(&new).unwrap();
        sender.join().unwrap();
        drop(listener);
        assert_eq!(received.0.len(), count);
        assert_eq!(received.split_off("socket 1").0.len(), 1 + 10 + 100);
        let taken = TcpListener::from(received.take("socket 0").unwrap());
        assert!(received.take("socket 0").is_none());
        let (mut accepted, _) = taken.accept().unwrap();
        accepted.write_all(b"hello").unwrap();
        drop(accepted);
        let mut text = String::new();
        waiting.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello", "a client that waited is served by the new owner");
    }
}
