//! Calling other nodes.
//!
//! Owns: connections, kept while they are idle, and whether a call that failed may have arrived.
//! Invariant: the node at the other end has proven its name before anything is sent to it.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::SendRequest,
    header::{self, HeaderValue, InvalidHeaderValue},
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use longshore_api::{Envelope, SESSION_PROTOCOL, connection};
use longshore_model::{NodeName, RequestCode};
use longshore_store::replicated::{LARGEST_MESSAGE, Sent};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Server;
use crate::identity::{node_dns, server_name};

/// Time to connect and agree on keys; a machine that is off says nothing at all.
const CONNECT: Duration = Duration::from_secs(2);
/// Idle connections kept to one node.
const KEPT: usize = 4;

/// Header in which a node says who it is; its certificate proves it.
pub(crate) const NODE_HEADER: &str = "longshore-node";
/// Header in which a node says which version of these messages it speaks.
pub(crate) const PROTOCOL_HEADER: &str = "longshore-protocol";
/// Raised whenever a message changes in a way that a daemon of the version before would misread or not understand: then
/// the two refuse each other by name. A field that is added with a default is no such change.
pub(crate) const PROTOCOL: &str = "2";

/// Why a call brought nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// It was not answered.
    #[error("{why}")]
    Silent {
        /// What is known about it.
        why: String,
        /// Whether it may have arrived.
        sent: Sent,
    },
    /// The answer was no.
    #[error("{0}")]
    Refused(Envelope),
}

/// A connection that a request can be sent on.
pub(crate) type Connection = SendRequest<Body>;
/// Idle connections, by node and address.
type Idle = HashMap<(NodeName, String), Vec<Connection>>;

/// Calls other nodes on behalf of this one.
pub(crate) struct Calls {
    me: NodeName,
    connector: TlsConnector,
    idle: Mutex<Idle>,
    /// Nodes that speak another protocol, of which was said so.
    unlike: Mutex<BTreeSet<NodeName>>,
}

impl Calls {
    pub(crate) fn new(me: NodeName, config: rustls::ClientConfig) -> Self {
        Self { me, connector: TlsConnector::from(Arc::new(config)), idle: Mutex::default(), unlike: Mutex::default() }
    }

    /// Sends a message and waits for the answer. Has no time limit of its own once it is connected.
    pub(crate) async fn post(&self, to: &Server, path: &str, message: Vec<u8>) -> Result<Bytes, CallError> {
        let (mut connection, response) = self.send(to, path, message).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST_MESSAGE * 8).collect().await;
        let body = body.map_err(|error| silent(error, Sent::Perhaps))?.to_bytes();
        if connection.ready().await.is_ok() {
            self.keep(to, connection);
        }
        if status.is_success() {
            self.unlike().remove(&to.name);
            return Ok(body);
        }
        let refusal = no(status, &body);
        self.complain(to, &refusal);
        Err(refusal)
    }

    fn unlike(&self) -> MutexGuard<'_, BTreeSet<NodeName>> {
        // A name is in it or not.
        self.unlike.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says once of each node that it speaks another protocol: to everybody else it only looks as if it were away.
    fn complain(&self, of: &Server, refusal: &CallError) {
        let CallError::Refused(envelope) = refusal else { return };
        if envelope.code != RequestCode::ProtocolMismatch.code() {
            return;
        }
        if self.unlike().insert(of.name.clone()) {
            tracing::warn!(node = %of.name, code = envelope.code, said = envelope.message, "a node cannot be talked to");
        }
    }

    /// Asks for something that is answered bit by bit.
    pub(crate) async fn stream(&self, to: &Server, path: &str, message: Vec<u8>) -> Result<Incoming, CallError> {
        let (_, response) = self.send(to, path, message).await?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        Err(refused(response).await)
    }

    /// Asks for something that is talked about, on a connection of its own.
    pub(crate) async fn converse(&self, to: &Server, path: &str, message: Vec<u8>) -> Result<Upgraded, CallError> {
        let mut request = self.request(to, path, message.into())?;
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        request.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(SESSION_PROTOCOL));
        let mut connection = self.connected(to).await?;
        let answered = connection.send_request(request).await;
        let response = answered.map_err(|error| silent(error, Sent::Perhaps))?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return hyper::upgrade::on(response).await.map_err(|error| silent(error, Sent::Perhaps));
        }
        Err(refused(response).await)
    }

    async fn send(
        &self,
        to: &Server,
        path: &str,
        message: Vec<u8>,
    ) -> Result<(Connection, Response<Incoming>), CallError> {
        let message = Bytes::from(message);
        // A connection kept for too long may have been closed by the other side: then the next one is tried.
        while let Some(mut connection) = self.take(to) {
            if connection.ready().await.is_err() {
                continue;
            }
            match connection.try_send_request(self.request(to, path, message.clone())?).await {
                Ok(response) => return Ok((connection, response)),
                Err(mut failed) => {
                    if failed.take_message().is_none() {
                        return Err(silent(failed.into_error(), Sent::Perhaps));
                    }
                }
            }
        }
        let mut connection = self.connected(to).await?;
        match connection.try_send_request(self.request(to, path, message)?).await {
            Ok(response) => Ok((connection, response)),
            Err(mut failed) => {
                let sent = if failed.take_message().is_some() { Sent::No } else { Sent::Perhaps };
                Err(silent(failed.into_error(), sent))
            }
        }
    }

    fn request(&self, to: &Server, path: &str, message: Bytes) -> Result<Request<Body>, CallError> {
        let request = Request::builder().method(Method::POST).uri(path);
        let mut request = request.body(Body::from(message)).map_err(unsendable)?;
        self.sign(to, request.headers_mut()).map_err(unsendable)?;
        Ok(request)
    }

    /// Says who asks, whom, and in which words.
    pub(crate) fn sign(&self, to: &Server, headers: &mut HeaderMap) -> Result<(), InvalidHeaderValue> {
        headers.insert(header::HOST, HeaderValue::from_str(&to.address)?);
        headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
        // Names are any text; headers are not.
        headers.insert(NODE_HEADER, HeaderValue::from_bytes(self.me.as_str().as_bytes())?);
        Ok(())
    }

    /// A new connection to a node.
    pub(crate) async fn connected(&self, to: &Server) -> Result<Connection, CallError> {
        let connected = tokio::time::timeout(CONNECT, self.connect(to)).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        connected.map_err(|error| silent(error, Sent::No))
    }

    async fn connect(&self, to: &Server) -> io::Result<Connection> {
        let stream = TcpStream::connect(&to.address).await?;
        connection::tend(&stream)?;
        let name = server_name(node_dns(&to.name)).map_err(io::Error::other)?;
        let stream = self.connector.connect(name, stream).await?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(io::Error::other)?;
        // Ends by itself when the sender is dropped or the other side is gone.
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    fn take(&self, to: &Server) -> Option<Connection> {
        self.idle_mut().get_mut(&(to.name.clone(), to.address.clone()))?.pop()
    }

    fn keep(&self, to: &Server, connection: Connection) {
        let mut idle = self.idle_mut();
        let kept = idle.entry((to.name.clone(), to.address.clone())).or_default();
        if kept.len() < KEPT {
            kept.push(connection);
        }
    }

    fn idle_mut(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a refusal says.
async fn refused(response: Response<Incoming>) -> CallError {
    let status = response.status();
    match Limited::new(response.into_body(), LARGEST_MESSAGE).collect().await {
        Ok(body) => no(status, &body.to_bytes()),
        Err(error) => silent(error, Sent::Perhaps),
    }
}

fn no(status: StatusCode, body: &[u8]) -> CallError {
    let unclear = || Envelope::new("unclear", format!("the answer was {status}"));
    CallError::Refused(serde_json::from_slice(body).unwrap_or_else(|_| unclear()))
}

fn silent(error: impl std::fmt::Display, sent: Sent) -> CallError {
    CallError::Silent { why: error.to_string(), sent }
}

fn unsendable(error: impl std::fmt::Display) -> CallError {
    silent(error, Sent::No)
}
