//! Messages over unix sockets: one connection, one question, one answer.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream as BlockingStream,
    path::{Path, PathBuf},
    time::Duration,
};

use longshore_store::replicated::{Call, Member, Sent, Transport, Unreachable};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    Member,
    Client,
}

pub(crate) fn socket(root: &Path, id: u64) -> PathBuf {
    root.join(format!("{id}.sock"))
}

/// The way to other members.
pub(crate) struct Sockets {
    pub(crate) root: PathBuf,
}

impl Transport for Sockets {
    fn call<'a>(&'a self, to: &'a Member, message: Vec<u8>) -> Call<'a> {
        Box::pin(async move {
            let gone = |sent| move |error: io::Error| Unreachable { to: to.id, why: error.to_string(), sent };
            let mut stream = UnixStream::connect(socket(&self.root, to.id.0)).await.map_err(gone(Sent::No))?;
            stream.write_all(&framed(Asker::Member, &message)).await.map_err(gone(Sent::Perhaps))?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.map_err(gone(Sent::Perhaps))?;
            if answer.is_empty() {
                return Err(gone(Sent::Perhaps)(io::ErrorKind::UnexpectedEof.into()));
            }
            Ok(answer)
        })
    }
}

fn framed(asker: Asker, message: &[u8]) -> Vec<u8> {
    let kind = match asker {
        Asker::Member => 0,
        Asker::Client => 1,
    };
    let length = u32::try_from(message.len()).unwrap();
    [&[kind], &length.to_le_bytes()[..], message].concat()
}

/// The question on a connection.
pub(crate) async fn question(stream: &mut UnixStream) -> io::Result<(Asker, Vec<u8>)> {
    let asker = if stream.read_u8().await? == 0 { Asker::Member } else { Asker::Client };
    let mut message = vec![0; stream.read_u32_le().await? as usize];
    stream.read_exact(&mut message).await?;
    Ok((asker, message))
}

/// Asks a member in words, from a thread that may wait.
pub(crate) fn ask(root: &Path, id: u64, words: &str, patience: Duration) -> io::Result<String> {
    let mut stream = BlockingStream::connect(socket(root, id))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(&framed(Asker::Client, words.as_bytes()))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(answer)
}
