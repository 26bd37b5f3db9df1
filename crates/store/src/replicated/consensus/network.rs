//! The consensus library's calls, carried by our transport.
//!
//! Owns: the messages, snapshots cut into chunks, and putting the chunks together again.
//! Must not touch: who may speak; the transport has seen to that.
//! Invariant: a snapshot is handed on only when every chunk of it has arrived in order; its own checksum is then the judge.

use std::{
    fs::{self, File},
    future::Future,
    io::{Read, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use openraft::{
    AnyError, Snapshot, SnapshotMeta, Vote,
    error::{Fatal, NetworkError, RPCError, RaftError, RemoteError, ReplicationClosed, StreamingError, Unreachable},
    network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory},
    raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse},
};
use serde::{Deserialize, Serialize};

use super::{
    super::{
        Member, encoding, message,
        record::Payload,
        snapshot,
        transport::{Sent, Transport},
    },
    Raft, Types,
    machine_store::{SnapshotFile, chain},
};

/// Most of a snapshot that goes into one message.
const CHUNK_BYTES: usize = 1024 * 1024;
/// A chunk that takes longer is given up; the library then starts over.
const CHUNK_PATIENCE: Duration = Duration::from_secs(10);

/// Everything one member asks of another.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    Snapshot(Chunk),
    Leader(message::Request),
}

/// And the answers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Append(Result<AppendEntriesResponse<u64>, RaftError<u64>>),
    Vote(Result<VoteResponse<u64>, RaftError<u64>>),
    /// A chunk has arrived, and more may come.
    More,
    Snapshot(Result<SnapshotResponse<u64>, Fatal<u64>>),
    Leader(message::Response),
    /// The message was not understood, or could not be acted on.
    Failed(String),
}

/// A part of a snapshot.
#[derive(Serialize, Deserialize)]
pub(super) struct Chunk {
    vote: Vote<u64>,
    meta: SnapshotMeta<u64, Member>,
    offset: u64,
    data: Payload,
    position: ChunkPosition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ChunkPosition {
    Middle,
    Last,
}

/// Makes a line to each member.
pub(super) struct Network(pub(super) Arc<dyn Transport>);

impl RaftNetworkFactory<Types> for Network {
    type Network = Line;

    async fn new_client(&mut self, _target: u64, member: &Member) -> Line {
        Line { transport: Arc::clone(&self.0), to: member.clone() }
    }
}

/// The line to one member.
pub(super) struct Line {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) to: Member,
}

/// A call without a usable answer.
pub(super) struct CallFailed {
    pub(super) why: AnyError,
    pub(super) sent: Sent,
}

impl CallFailed {
    fn of(error: &(impl std::error::Error + 'static), sent: Sent) -> Self {
        Self { why: AnyError::new(error), sent }
    }
}

impl Line {
    pub(super) async fn ask(&self, ask: &Ask, patience: Duration) -> Result<Answer, CallFailed> {
        let message = encoding::encode(ask).map_err(|error| CallFailed::of(&error, Sent::No))?;
        let call = self.transport.call(&self.to, message);
        let answer = tokio::time::timeout(patience, call)
            .await
            .map_err(|elapsed| CallFailed::of(&elapsed, Sent::Perhaps))?
            .map_err(|error| CallFailed::of(&error, error.sent))?;
        match encoding::decode(&answer).map_err(|error| CallFailed::of(&error, Sent::Perhaps))? {
            Answer::Failed(why) => Err(CallFailed { why: AnyError::error(why), sent: Sent::Perhaps }),
            answer @ (Answer::Append(_) | Answer::Vote(_) | Answer::More | Answer::Snapshot(_) | Answer::Leader(_)) => {
                Ok(answer)
            }
        }
    }

    fn rejected<E: std::error::Error>(&self, error: E) -> RPCError<u64, Member, E> {
        RPCError::RemoteError(RemoteError::new(self.to.id.0, error))
    }
}

fn unreachable<E: std::error::Error>(error: &AnyError) -> RPCError<u64, Member, E> {
    RPCError::Unreachable(Unreachable::new(error))
}

fn confused() -> AnyError {
    AnyError::error("the answer belongs to another question")
}

impl RaftNetwork<Types> for Line {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, Member, RaftError<u64>>> {
        match self.ask(&Ask::Append(rpc), option.hard_ttl()).await.map_err(|error| unreachable(&error.why))? {
            Answer::Append(answer) => answer.map_err(|error| self.rejected(error)),
            Answer::Vote(_) | Answer::More | Answer::Snapshot(_) | Answer::Leader(_) | Answer::Failed(_) => {
                Err(unreachable(&confused()))
            }
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, Member, RaftError<u64>>> {
        match self.ask(&Ask::Vote(rpc), option.hard_ttl()).await.map_err(|error| unreachable(&error.why))? {
            Answer::Vote(answer) => answer.map_err(|error| self.rejected(error)),
            Answer::Append(_) | Answer::More | Answer::Snapshot(_) | Answer::Leader(_) | Answer::Failed(_) => {
                Err(unreachable(&confused()))
            }
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.send_snapshot(vote, snapshot) => sent,
        }
    }

    fn backoff(&self) -> Backoff {
        // The library's half second would be most of what a healed link costs.
        Backoff::new(std::iter::repeat(Duration::from_millis(100)))
    }
}

impl Line {
    async fn send_snapshot(
        &self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types>,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let failed = |error: &AnyError| StreamingError::Unreachable(Unreachable::new(error));
        let mut file = File::open(&snapshot.snapshot.path).map_err(|error| failed(&AnyError::new(&error)))?;
        let mut offset = 0;
        loop {
            let mut data = Vec::with_capacity(CHUNK_BYTES);
            let read = Read::by_ref(&mut file).take(CHUNK_BYTES as u64).read_to_end(&mut data);
            let read = read.map_err(|error| failed(&AnyError::new(&error)))?;
            // A full chunk may happen to be the last; an empty one then ends the snapshot.
            let position = if read < CHUNK_BYTES { ChunkPosition::Last } else { ChunkPosition::Middle };
            let data = Payload(data.into());
            let chunk = Chunk { vote, meta: snapshot.meta.clone(), offset, data, position };
            match self.ask(&Ask::Snapshot(chunk), CHUNK_PATIENCE).await.map_err(|error| failed(&error.why))? {
                Answer::More => offset += read as u64,
                Answer::Snapshot(Ok(response)) => return Ok(response),
                Answer::Snapshot(Err(error)) => {
                    return Err(StreamingError::RemoteError(RemoteError::new(self.to.id.0, error)));
                }
                Answer::Append(_) | Answer::Vote(_) | Answer::Leader(_) | Answer::Failed(_) => {
                    return Err(StreamingError::Network(NetworkError::new(&confused())));
                }
            }
        }
    }
}

/// Puts the chunks of one snapshot together.
pub(super) struct Receiver {
    dir: PathBuf,
    under_way: tokio::sync::Mutex<Option<Incoming>>,
    /// Snapshots begun. One that is sent again is another file: the first may still be on its way to its place.
    begun: AtomicU64,
}

struct Incoming {
    id: String,
    path: PathBuf,
    file: File,
    length: u64,
}

impl Receiver {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, under_way: tokio::sync::Mutex::new(None), begun: AtomicU64::new(0) }
    }

    pub(super) async fn take(&self, raft: &Raft, chunk: Chunk) -> Answer {
        let mut under_way = self.under_way.lock().await;
        let incoming = match self.incoming(under_way.take(), &chunk) {
            Ok(incoming) => incoming,
            Err(why) => return Answer::Failed(why),
        };
        match chunk.position {
            ChunkPosition::Middle => {
                *under_way = Some(incoming);
                Answer::More
            }
            ChunkPosition::Last => {
                drop(under_way);
                self.install(raft, incoming, chunk).await
            }
        }
    }

    /// The snapshot is safe under its own name before the library hears of it: the library drops the log that leads there
    /// at once, and a member that is killed then must find the one or the other.
    async fn install(&self, raft: &Raft, incoming: Incoming, chunk: Chunk) -> Answer {
        let dir = self.dir.clone();
        let adopted = tokio::task::spawn_blocking(move || snapshot::adopt(&dir, &incoming.path)).await;
        let path = match adopted {
            Ok(Ok(path)) => path,
            Ok(Err(error)) => return Answer::Failed(chain(&error)),
            Err(error) => return Answer::Failed(error.to_string()),
        };
        let snapshot = Box::new(SnapshotFile { path });
        Answer::Snapshot(raft.install_full_snapshot(chunk.vote, Snapshot { meta: chunk.meta, snapshot }).await)
    }

    /// The snapshot under way with this chunk added, or a new one where the chunk begins one.
    fn incoming(&self, under_way: Option<Incoming>, chunk: &Chunk) -> Result<Incoming, String> {
        let mut incoming = match under_way {
            Some(incoming) if chunk.offset != 0 && incoming.id == chunk.meta.snapshot_id => incoming,
            abandoned if chunk.offset == 0 => {
                if let Some(abandoned) = abandoned {
                    // What stays behind is removed when the member is opened next.
                    let _ = fs::remove_file(abandoned.path);
                }
                self.begin(&chunk.meta.snapshot_id)?
            }
            Some(_) | None => return Err("a chunk of a snapshot whose beginning never came".to_owned()),
        };
        if incoming.length != chunk.offset {
            return Err(format!("a chunk at byte {} where byte {} belongs", chunk.offset, incoming.length));
        }
        incoming.file.write_all(&chunk.data.0).map_err(|error| format!("could not keep a chunk: {error}"))?;
        incoming.length += chunk.data.0.len() as u64;
        Ok(incoming)
    }

    fn begin(&self, id: &str) -> Result<Incoming, String> {
        let failed = |error: std::io::Error| format!("could not begin to receive a snapshot: {error}");
        fs::create_dir_all(&self.dir).map_err(failed)?;
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("received-{id}-{number}.tmp"));
        let file = File::create(&path).map_err(failed)?;
        Ok(Incoming { id: id.to_owned(), path, file, length: 0 })
    }
}
