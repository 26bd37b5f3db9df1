//! Messages over unix sockets: one connection, one request, one response.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream as BlockingStream,
    path::{Path, PathBuf},
    time::Duration,
};

use longshore_store::replicated::{Call, Delivery, Member, Transport, Unreachable};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

/// Who sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Member,
    Client,
}

pub(crate) fn socket_path(root: &Path, id: u64) -> PathBuf {
    root.join(format!("{id}.sock"))
}

/// The transport to other members.
pub(crate) struct Sockets {
    pub(crate) root: PathBuf,
}

impl Transport for Sockets {
    fn call<'a>(&'a self, to: &'a Member, message: Vec<u8>) -> Call<'a> {
        Box::pin(async move {
            let gone = |sent| move |error: io::Error| Unreachable { to: to.id, why: error.to_string(), sent };
            let mut stream =
                UnixStream::connect(socket_path(&self.root, to.id.0)).await.map_err(gone(Delivery::NotSent))?;
            stream.write_all(&framed(Caller::Member, &message)).await.map_err(gone(Delivery::Unknown))?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.map_err(gone(Delivery::Unknown))?;
            if answer.is_empty() {
                return Err(gone(Delivery::Unknown)(io::ErrorKind::UnexpectedEof.into()));
            }
            Ok(answer)
        })
    }
}

fn framed(caller: Caller, message: &[u8]) -> Vec<u8> {
    let kind = match caller {
        Caller::Member => 0,
        Caller::Client => 1,
    };
    let length = u32::try_from(message.len()).unwrap();
    [&[kind], &length.to_le_bytes()[..], message].concat()
}

/// Reads the request of a connection.
pub(crate) async fn read_request(stream: &mut UnixStream) -> io::Result<(Caller, Vec<u8>)> {
    let caller = if stream.read_u8().await? == 0 { Caller::Member } else { Caller::Client };
    let mut message = vec![0; stream.read_u32_le().await? as usize];
    stream.read_exact(&mut message).await?;
    Ok((caller, message))
}

/// Sends a text command to a member, blocking.
pub(crate) fn ask(root: &Path, id: u64, words: &str, patience: Duration) -> io::Result<String> {
    let mut stream = BlockingStream::connect(socket_path(root, id))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(&framed(Caller::Client, words.as_bytes()))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(answer)
}
