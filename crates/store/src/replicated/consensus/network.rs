//! openraft's network, on top of the transport.
//!
//! Owns: the messages between members, and snapshots split into chunks and reassembled.
//! Must not touch: authentication, which the transport does.
//! Invariant: a snapshot is installed only after all of its chunks arrived in order and its checksum matches.

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

use longshore_model::error_chain;
use openraft::{
    AnyError, Snapshot, SnapshotMeta, Vote,
    error::{Fatal, NetworkError, RPCError, RaftError, RemoteError, ReplicationClosed, StreamingError, Unreachable},
    network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory},
    raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse},
};
use serde::{Deserialize, Serialize};

use super::{
    super::{
        Member, encoding, leader_request,
        record::Payload,
        snapshot,
        transport::{Delivery, Transport},
    },
    Raft, Types,
    state_machine_store::SnapshotFile,
};

/// The most bytes of a snapshot in one message.
const CHUNK_BYTES: usize = 1024 * 1024;
/// Timeout of one chunk. openraft then sends the snapshot again.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(10);

/// A request from one member to another.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PeerRequest {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    Snapshot(Chunk),
    Leader(leader_request::Request),
}

/// The response to a `PeerRequest`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PeerResponse {
    Append(Result<AppendEntriesResponse<u64>, RaftError<u64>>),
    Vote(Result<VoteResponse<u64>, RaftError<u64>>),
    /// The chunk was stored; the snapshot is not complete yet.
    #[serde(rename = "more")]
    ChunkReceived,
    Snapshot(Result<SnapshotResponse<u64>, Fatal<u64>>),
    Leader(leader_request::Response),
    /// The request could not be decoded or processed.
    Failed(String),
}

/// One chunk of a snapshot.
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

/// Creates a client for each member.
pub(super) struct Network(pub(super) Arc<dyn Transport>);

impl RaftNetworkFactory<Types> for Network {
    type Network = PeerClient;

    async fn new_client(&mut self, _target: u64, member: &Member) -> PeerClient {
        PeerClient { transport: Arc::clone(&self.0), to: member.clone() }
    }
}

/// The client for one other member.
pub(super) struct PeerClient {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) to: Member,
}

/// A call that failed or returned no usable response.
pub(super) struct CallError {
    pub(super) why: AnyError,
    pub(super) sent: Delivery,
}

impl CallError {
    fn of(error: &(impl std::error::Error + 'static), sent: Delivery) -> Self {
        Self { why: AnyError::new(error), sent }
    }
}

impl PeerClient {
    pub(super) async fn ask(&self, ask: &PeerRequest, timeout: Duration) -> Result<PeerResponse, CallError> {
        let message = encoding::encode(ask).map_err(|error| CallError::of(&error, Delivery::NotSent))?;
        let call = self.transport.call(&self.to, message);
        let answer = tokio::time::timeout(timeout, call)
            .await
            .map_err(|elapsed| CallError::of(&elapsed, Delivery::Unknown))?
            .map_err(|error| CallError::of(&error, error.sent))?;
        match encoding::decode(&answer).map_err(|error| CallError::of(&error, Delivery::Unknown))? {
            PeerResponse::Failed(why) => Err(CallError { why: AnyError::error(why), sent: Delivery::Unknown }),
            answer @ (PeerResponse::Append(_)
            | PeerResponse::Vote(_)
            | PeerResponse::ChunkReceived
            | PeerResponse::Snapshot(_)
            | PeerResponse::Leader(_)) => Ok(answer),
        }
    }

    fn rejected<E: std::error::Error>(&self, error: E) -> RPCError<u64, Member, E> {
        RPCError::RemoteError(RemoteError::new(self.to.id.0, error))
    }
}

fn unreachable<E: std::error::Error>(error: &AnyError) -> RPCError<u64, Member, E> {
    RPCError::Unreachable(Unreachable::new(error))
}

fn unexpected_response() -> AnyError {
    AnyError::error("the response is of another kind than the request")
}

impl RaftNetwork<Types> for PeerClient {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, Member, RaftError<u64>>> {
        match self.ask(&PeerRequest::Append(rpc), option.hard_ttl()).await.map_err(|error| unreachable(&error.why))? {
            PeerResponse::Append(answer) => answer.map_err(|error| self.rejected(error)),
            PeerResponse::Vote(_)
            | PeerResponse::ChunkReceived
            | PeerResponse::Snapshot(_)
            | PeerResponse::Leader(_)
            | PeerResponse::Failed(_) => Err(unreachable(&unexpected_response())),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, Member, RaftError<u64>>> {
        match self.ask(&PeerRequest::Vote(rpc), option.hard_ttl()).await.map_err(|error| unreachable(&error.why))? {
            PeerResponse::Vote(answer) => answer.map_err(|error| self.rejected(error)),
            PeerResponse::Append(_)
            | PeerResponse::ChunkReceived
            | PeerResponse::Snapshot(_)
            | PeerResponse::Leader(_)
            | PeerResponse::Failed(_) => Err(unreachable(&unexpected_response())),
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
        // openraft's default of half a second would dominate the recovery of a healed link.
        Backoff::new(std::iter::repeat(Duration::from_millis(100)))
    }
}

impl PeerClient {
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
            // A full chunk may be the last one; then an empty chunk ends the snapshot.
            let position = if read < CHUNK_BYTES { ChunkPosition::Last } else { ChunkPosition::Middle };
            let data = Payload(data.into());
            let chunk = Chunk { vote, meta: snapshot.meta.clone(), offset, data, position };
            match self.ask(&PeerRequest::Snapshot(chunk), CHUNK_TIMEOUT).await.map_err(|error| failed(&error.why))? {
                PeerResponse::ChunkReceived => offset += read as u64,
                PeerResponse::Snapshot(Ok(response)) => return Ok(response),
                PeerResponse::Snapshot(Err(error)) => {
                    return Err(StreamingError::RemoteError(RemoteError::new(self.to.id.0, error)));
                }
                PeerResponse::Append(_) | PeerResponse::Vote(_) | PeerResponse::Leader(_) | PeerResponse::Failed(_) => {
                    return Err(StreamingError::Network(NetworkError::new(&unexpected_response())));
                }
            }
        }
    }
}

/// Reassembles the chunks of one snapshot.
pub(super) struct SnapshotReceiver {
    dir: PathBuf,
    under_way: tokio::sync::Mutex<Option<IncomingSnapshot>>,
    /// Number of transfers started. Each has its own file, because the file of an earlier one may still be in use.
    begun: AtomicU64,
}

struct IncomingSnapshot {
    id: String,
    path: PathBuf,
    file: File,
    length: u64,
}

impl SnapshotReceiver {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, under_way: tokio::sync::Mutex::new(None), begun: AtomicU64::new(0) }
    }

    pub(super) async fn take(&self, raft: &Raft, chunk: Chunk) -> PeerResponse {
        let mut under_way = self.under_way.lock().await;
        let incoming = match self.incoming(under_way.take(), &chunk) {
            Ok(incoming) => incoming,
            Err(why) => return PeerResponse::Failed(why),
        };
        match chunk.position {
            ChunkPosition::Middle => {
                *under_way = Some(incoming);
                PeerResponse::ChunkReceived
            }
            ChunkPosition::Last => {
                drop(under_way);
                self.install(raft, incoming, chunk).await
            }
        }
    }

    /// The snapshot has its final name before openraft installs it: openraft then purges the log at once, and a member
    /// killed at that moment must find one of the two.
    async fn install(&self, raft: &Raft, incoming: IncomingSnapshot, chunk: Chunk) -> PeerResponse {
        let dir = self.dir.clone();
        let adopted = tokio::task::spawn_blocking(move || snapshot::adopt(&dir, &incoming.path)).await;
        let path = match adopted {
            Ok(Ok(path)) => path,
            Ok(Err(error)) => return PeerResponse::Failed(error_chain(&error)),
            Err(error) => return PeerResponse::Failed(error.to_string()),
        };
        let snapshot = Box::new(SnapshotFile { path });
        PeerResponse::Snapshot(raft.install_full_snapshot(chunk.vote, Snapshot { meta: chunk.meta, snapshot }).await)
    }

    /// Appends the chunk to the transfer under way, or starts a new transfer with the first chunk.
    fn incoming(&self, under_way: Option<IncomingSnapshot>, chunk: &Chunk) -> Result<IncomingSnapshot, String> {
        let mut incoming = match under_way {
            Some(incoming) if chunk.offset != 0 && incoming.id == chunk.meta.snapshot_id => incoming,
            abandoned if chunk.offset == 0 => {
                if let Some(abandoned) = abandoned {
                    // A file left behind is removed when the member is opened next.
                    let _ = fs::remove_file(abandoned.path);
                }
                self.begin(&chunk.meta.snapshot_id)?
            }
            Some(_) | None => return Err("a chunk of a snapshot whose first chunk is missing".to_owned()),
        };
        if incoming.length != chunk.offset {
            return Err(format!("a chunk at byte {}, expected byte {}", chunk.offset, incoming.length));
        }
        incoming.file.write_all(&chunk.data.0).map_err(|error| format!("could not write a chunk: {error}"))?;
        incoming.length += chunk.data.0.len() as u64;
        Ok(incoming)
    }

    fn begin(&self, id: &str) -> Result<IncomingSnapshot, String> {
        let failed = |error: std::io::Error| format!("could not create the file of a snapshot: {error}");
        fs::create_dir_all(&self.dir).map_err(failed)?;
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("received-{id}-{number}.tmp"));
        let file = File::create(&path).map_err(failed)?;
        Ok(IncomingSnapshot { id: id.to_owned(), path, file, length: 0 })
    }
}
