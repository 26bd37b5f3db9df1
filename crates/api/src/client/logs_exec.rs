//! Streams: logs, and sessions with a command.
//!
//! Owns: reading them piece by piece. Invariant: there is no time limit once the answer has begun; the caller decides
//! how long to read.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{CONNECTION, CONTENT_TYPE, UPGRADE},
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf},
    net::UnixStream,
};

use super::{Client, ClientError, Endpoint, MAX_ANSWER, encoded};
use crate::{Change, ExecRequest, Frame, LogEntry, LogQuery, SESSION_PROTOCOL, connection};

/// Longest line in bytes.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// An open log stream.
#[derive(Debug)]
pub struct LogLines {
    client: Client,
    body: Incoming,
    arrived: BytesMut,
}

impl LogLines {
    /// The next line; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<LogEntry>, ClientError> {
        loop {
            if let Some(end) = self.arrived.iter().position(|byte| *byte == b'\n') {
                let line = self.arrived.split_to(end + 1);
                // An empty line is a keepalive.
                if line.len() > 1 {
                    return serde_json::from_slice(&line).map(Some).map_err(|cause| self.client.garbled(cause));
                }
                continue;
            }
            if self.arrived.len() > MAX_LINE {
                return Err(self.client.garbled("a line is too long"));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(cause)) => return Err(self.client.broken(cause)),
                Some(Ok(frame)) => self.arrived.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            }
        }
    }
}

/// An open stream of changes.
#[derive(Debug)]
pub struct Changes {
    client: Client,
    body: Incoming,
    arrived: BytesMut,
}

impl Changes {
    /// The next change; `None` at the end, also when the server no longer keeps what comes next.
    pub async fn next(&mut self) -> Result<Option<Change>, ClientError> {
        loop {
            if let Some(end) = self.arrived.iter().position(|byte| *byte == b'\n') {
                let line = self.arrived.split_to(end + 1);
                // Other fields of a server-sent event are its name and its id, which the change has, too.
                match line.strip_prefix(b"data: ").filter(|data| data.starts_with(b"{")) {
                    Some(data) => {
                        return serde_json::from_slice(data).map(Some).map_err(|cause| self.client.garbled(cause));
                    }
                    None => continue,
                }
            }
            if self.arrived.len() > MAX_LINE {
                return Err(self.client.garbled("a line is too long"));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(cause)) => return Err(self.client.broken(cause)),
                Some(Ok(frame)) => self.arrived.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            }
        }
    }
}

/// The input side of an exec session.
#[derive(Debug)]
pub struct SessionInput(WriteHalf<TokioIo<Upgraded>>);

impl SessionInput {
    /// Sends a frame. A command that no longer reads shows in its output.
    pub async fn send(&mut self, frame: &Frame) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.0.write_all(&bytes).await?;
        self.0.flush().await
    }
}

/// The output side of an exec session.
#[derive(Debug)]
pub struct SessionOutput {
    client: Client,
    stream: ReadHalf<TokioIo<Upgraded>>,
    arrived: BytesMut,
}

impl SessionOutput {
    /// The next frame; `None` once the connection has closed, after the exit or instead of it.
    pub async fn next(&mut self) -> Result<Option<Frame>, ClientError> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.arrived).map_err(|cause| self.client.garbled(cause))? {
                return Ok(Some(frame));
            }
            let read = self.stream.read_buf(&mut self.arrived).await.map_err(|cause| self.client.broken(cause))?;
            if read == 0 {
                return Ok(None);
            }
        }
    }
}

impl Client {
    /// Logs of one or several replicas.
    pub async fn logs(&self, query: &LogQuery) -> Result<LogLines, ClientError> {
        let LogQuery { of, namespace, follow, since_ms, tail } = query;
        let mut path = format!("/v1/logs?of={}&namespace={}&follow={follow}", encoded(of), encoded(namespace));
        for (name, value) in [("since_ms", since_ms), ("tail", tail)] {
            if let Some(value) = value {
                path = format!("{path}&{name}={value}");
            }
        }
        let response = self.begin(Method::GET, &path, Bytes::new(), None).await?;
        match response.status() {
            StatusCode::OK => {
                Ok(LogLines { client: self.clone(), body: response.into_body(), arrived: BytesMut::new() })
            }
            _ => Err(self.refusal(response).await),
        }
    }

    /// Changes of the cluster as they happen: after an index, or from now on.
    pub async fn events(&self, after: Option<u64>) -> Result<Changes, ClientError> {
        let path = after.map_or_else(|| "/v1/events".to_owned(), |after| format!("/v1/events?after={after}"));
        let response = self.begin(Method::GET, &path, Bytes::new(), None).await?;
        match response.status() {
            StatusCode::OK => {
                Ok(Changes { client: self.clone(), body: response.into_body(), arrived: BytesMut::new() })
            }
            _ => Err(self.refusal(response).await),
        }
    }

    /// Runs a command in a replica.
    pub async fn exec(
        &self,
        replica: &str,
        request: &ExecRequest,
    ) -> Result<(SessionInput, SessionOutput), ClientError> {
        let path = format!("/v1/replicas/{}/exec", encoded(replica));
        let body = serde_json::to_vec(request).map_err(|cause| self.garbled(cause))?;
        let response = self.begin(Method::POST, &path, body.into(), Some(SESSION_PROTOCOL)).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.refusal(response).await);
        }
        let stream = hyper::upgrade::on(response).await.map_err(|cause| self.broken(cause))?;
        let (read, write) = tokio::io::split(TokioIo::new(stream));
        let output = SessionOutput { client: self.clone(), stream: read, arrived: BytesMut::new() };
        Ok((SessionInput(write), output))
    }

    /// Sends a request and waits for the head of the answer.
    async fn begin(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        protocol: Option<&str>,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = self.with_credentials(Request::builder().method(method).uri(path));
        request = request.header(CONTENT_TYPE, "application/json");
        if let Some(protocol) = protocol {
            request = request.header(CONNECTION, "upgrade").header(UPGRADE, protocol);
        }
        let request = request.body(Full::new(body)).map_err(|cause| self.broken(cause))?;
        let begun = tokio::time::timeout(self.timeout, self.send(request)).await;
        begun.map_err(|_| self.broken("it timed out"))?
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let unreachable = |cause| ClientError::Unreachable { endpoint: self.endpoint.clone(), cause };
        let sender = match &self.endpoint {
            Endpoint::Unix(socket) => {
                connection::handshake(UnixStream::connect(socket).await.map_err(unreachable)?).await
            }
            Endpoint::Tls { address, token } => {
                let stream = connection::connect_pinned(address, token.pin).await.map_err(unreachable)?;
                connection::handshake(stream).await
            }
        };
        let mut sender = sender.map_err(|cause| self.broken(cause))?;
        sender.send_request(request).await.map_err(|cause| self.broken(cause))
    }

    async fn refusal(&self, response: Response<Incoming>) -> ClientError {
        match connection::read_body(response.into_body(), MAX_ANSWER).await {
            Ok(body) => match serde_json::from_slice(&body) {
                Ok(envelope) => ClientError::Refused(envelope),
                Err(cause) => self.garbled(cause),
            },
            Err(cause) => self.broken(cause),
        }
    }
}
