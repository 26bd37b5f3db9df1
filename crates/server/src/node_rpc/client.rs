//! Client for calls to other nodes.
//!
//! Owns: idle connections, and whether a failed call may have arrived.
//! Invariant: the remote node is authenticated before anything is sent to it.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::SendRequest,
    header::{self, HeaderValue, InvalidHeaderValue},
    upgrade::Upgraded,
};
use longshore_api::{Envelope, SESSION_PROTOCOL, connection};
use longshore_model::{ApiErrorCode, NodeName};
use longshore_store::replicated::{Delivery, MAX_MESSAGE_BYTES};
use tokio_rustls::TlsConnector;

use crate::{
    node_rpc::ServerAddress,
    security::identity::{node_dns, server_name},
};

/// Time to connect, TLS included; a machine that is off does not refuse.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Idle connections kept per node.
const MAX_IDLE: usize = 4;

/// Header with the sender's name; its certificate proves it.
pub(crate) const NODE_HEADER: &str = "longshore-node";
/// Header with the protocol version.
pub(crate) const PROTOCOL_HEADER: &str = "longshore-protocol";
/// Raised whenever a message changes in a way that the previous version would misread or not understand: then the two
/// refuse each other with a code. A new field with a default is no such change.
pub(crate) const PROTOCOL: &str = "2";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// There was no answer.
    #[error("{why}")]
    NoAnswer {
        /// The cause.
        why: String,
        /// Whether the message may have arrived.
        sent: Delivery,
    },
    /// The other node refused.
    #[error("{0}")]
    Refused(Envelope),
}

/// A connection that can send a request.
pub(crate) type PeerConnection = SendRequest<Body>;
/// Idle connections, by node and address.
type Idle = HashMap<(NodeName, String), Vec<PeerConnection>>;

/// Calls other nodes.
pub(crate) struct PeerClient {
    me: NodeName,
    connector: TlsConnector,
    idle: Mutex<Idle>,
    /// Nodes with another protocol version, each already logged once.
    mismatched: Mutex<BTreeSet<NodeName>>,
}

impl PeerClient {
    pub(crate) fn new(me: NodeName, config: rustls::ClientConfig) -> Self {
        Self {
            me,
            connector: TlsConnector::from(Arc::new(config)),
            idle: Mutex::default(),
            mismatched: Mutex::default(),
        }
    }

    /// Sends a message and waits for the answer. There is no time limit once the connection stands.
    pub(crate) async fn post(&self, to: &ServerAddress, path: &str, message: Vec<u8>) -> Result<Bytes, CallError> {
        let (mut connection, response) = self.send(to, path, message).await?;
        let status = response.status();
        let body = connection::read_body(response.into_body(), MAX_MESSAGE_BYTES * 8).await;
        let body = body.map_err(|error| no_answer(error, Delivery::Unknown))?;
        if connection.ready().await.is_ok() {
            self.keep(to, connection);
        }
        if status.is_success() {
            self.mismatched().remove(&to.name);
            return Ok(body);
        }
        let refusal = refusal_of(status, &body);
        self.log_protocol_mismatch(to, &refusal);
        Err(refusal)
    }

    fn mismatched(&self) -> MutexGuard<'_, BTreeSet<NodeName>> {
        // A poisoned set is still consistent.
        self.mismatched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs once per node that it has another protocol version; to everything else it only looks unreachable.
    fn log_protocol_mismatch(&self, of: &ServerAddress, refusal: &CallError) {
        let CallError::Refused(envelope) = refusal else { return };
        if envelope.code != ApiErrorCode::ProtocolMismatch.code() {
            return;
        }
        if self.mismatched().insert(of.name.clone()) {
            tracing::warn!(node = %of.name, code = envelope.code, said = envelope.message, "a node has another protocol version");
        }
    }

    /// Starts a streamed answer.
    pub(crate) async fn stream(&self, to: &ServerAddress, path: &str, message: Vec<u8>) -> Result<Incoming, CallError> {
        let (_, response) = self.send(to, path, message).await?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        Err(read_refusal(response).await)
    }

    /// Starts a session on a connection of its own.
    pub(crate) async fn open_session(
        &self,
        to: &ServerAddress,
        path: &str,
        message: Vec<u8>,
    ) -> Result<Upgraded, CallError> {
        let mut request = self.request(to, path, message.into())?;
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        request.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(SESSION_PROTOCOL));
        let mut connection = self.connection_to(to).await?;
        let answered = connection.send_request(request).await;
        let response = answered.map_err(|error| no_answer(error, Delivery::Unknown))?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return hyper::upgrade::on(response).await.map_err(|error| no_answer(error, Delivery::Unknown));
        }
        Err(read_refusal(response).await)
    }

    async fn send(
        &self,
        to: &ServerAddress,
        path: &str,
        message: Vec<u8>,
    ) -> Result<(PeerConnection, Response<Incoming>), CallError> {
        let message = Bytes::from(message);
        // An idle connection may have been closed by the other side: then the next one is tried.
        while let Some(mut connection) = self.take(to) {
            if connection.ready().await.is_err() {
                continue;
            }
            match connection.try_send_request(self.request(to, path, message.clone())?).await {
                Ok(response) => return Ok((connection, response)),
                Err(mut failed) => {
                    if failed.take_message().is_none() {
                        return Err(no_answer(failed.into_error(), Delivery::Unknown));
                    }
                }
            }
        }
        let mut connection = self.connection_to(to).await?;
        match connection.try_send_request(self.request(to, path, message)?).await {
            Ok(response) => Ok((connection, response)),
            Err(mut failed) => {
                let sent = if failed.take_message().is_some() { Delivery::NotSent } else { Delivery::Unknown };
                Err(no_answer(failed.into_error(), sent))
            }
        }
    }

    fn request(&self, to: &ServerAddress, path: &str, message: Bytes) -> Result<Request<Body>, CallError> {
        let request = Request::builder().method(Method::POST).uri(path);
        let mut request = request.body(Body::from(message)).map_err(unsendable)?;
        self.sign(to, request.headers_mut()).map_err(unsendable)?;
        Ok(request)
    }

    /// Adds the sender's name, the host and the protocol version.
    pub(crate) fn sign(&self, to: &ServerAddress, headers: &mut HeaderMap) -> Result<(), InvalidHeaderValue> {
        headers.insert(header::HOST, HeaderValue::from_str(&to.address)?);
        headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
        // A node name may hold any text.
        headers.insert(NODE_HEADER, HeaderValue::from_bytes(self.me.as_str().as_bytes())?);
        Ok(())
    }

    /// A new connection to a node.
    pub(crate) async fn connection_to(&self, to: &ServerAddress) -> Result<PeerConnection, CallError> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.dial(to)).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        connected.map_err(|error| no_answer(error, Delivery::NotSent))
    }

    async fn dial(&self, to: &ServerAddress) -> io::Result<PeerConnection> {
        let stream = connection::connect_tcp(&to.address).await?;
        let name = server_name(node_dns(&to.name)).map_err(io::Error::other)?;
        let stream = self.connector.connect(name, stream).await?;
        connection::handshake(stream).await.map_err(io::Error::other)
    }

    fn take(&self, to: &ServerAddress) -> Option<PeerConnection> {
        self.idle_mut().get_mut(&(to.name.clone(), to.address.clone()))?.pop()
    }

    fn keep(&self, to: &ServerAddress, connection: PeerConnection) {
        let mut idle = self.idle_mut();
        let kept = idle.entry((to.name.clone(), to.address.clone())).or_default();
        if kept.len() < MAX_IDLE {
            kept.push(connection);
        }
    }

    fn idle_mut(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error in a refused answer.
async fn read_refusal(response: Response<Incoming>) -> CallError {
    let status = response.status();
    match connection::read_body(response.into_body(), MAX_MESSAGE_BYTES).await {
        Ok(body) => refusal_of(status, &body),
        Err(error) => no_answer(error, Delivery::Unknown),
    }
}

fn refusal_of(status: StatusCode, body: &[u8]) -> CallError {
    let unclear = || Envelope::new("unclear", format!("the answer was {status}"));
    CallError::Refused(serde_json::from_slice(body).unwrap_or_else(|_| unclear()))
}

fn no_answer(error: impl std::fmt::Display, sent: Delivery) -> CallError {
    CallError::NoAnswer { why: error.to_string(), sent }
}

fn unsendable(error: impl std::fmt::Display) -> CallError {
    no_answer(error, Delivery::NotSent)
}
