//! Raw bytes over TLS, Unix and TCP sockets, so that tests can send malformed requests.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
};
use serde_json::Value;

use crate::test_cluster::Node;

/// Longer than any answer of a connection that is not kept open on purpose.
const TIMEOUT: Duration = Duration::from_secs(40);

pub(crate) type Encrypted = StreamOwned<ClientConnection, TcpStream>;

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn of(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Self { status, head: head.to_owned(), body: body.to_owned() })
    }

    pub(crate) fn code(&self) -> String {
        let envelope: Value = serde_json::from_str(&self.body).unwrap_or_default();
        envelope["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// A TLS client that trusts the cluster's CA and has no certificate.
pub(crate) fn unauthenticated(of: &Node) -> ClientConfig {
    builder(of).with_no_client_auth()
}

/// A TLS client with the key and certificate of one node that trusts the CA of another.
pub(crate) fn with_certificate_of(folder_of: &Node, trusting: &Node) -> ClientConfig {
    let read = |name: &str| fs::read(folder_of.data.join(name)).unwrap();
    let chain = vec![CertificateDer::from(read("node.der")), CertificateDer::from(read("authority.der"))];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(read("node.key")));
    builder(trusting).with_client_auth_cert(chain, key).unwrap()
}

fn builder(of: &Node) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(fs::read(of.data.join("authority.der")).unwrap())).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap().with_root_certificates(roots)
}

pub(crate) fn connect(node: &Node, config: ClientConfig) -> Encrypted {
    let name = ServerName::try_from("longshore.internal").unwrap();
    let stream = TcpStream::connect(&node.address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

/// Sends bytes and reads until the connection is closed. Returns `None` without an HTTP answer.
pub(crate) fn exchange(stream: &mut (impl Read + Write), bytes: &[u8]) -> Option<Answer> {
    // The server may refuse and close before everything is sent.
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Answer::of(&answer)
}

/// One request over TLS without a certificate.
pub(crate) fn ask(node: &Node, bytes: &[u8]) -> Option<Answer> {
    exchange(&mut connect(node, unauthenticated(node)), bytes)
}

/// A request with an optional token; the connection closes afterwards.
pub(crate) fn request(line: &str, token: Option<&str>) -> Vec<u8> {
    let proof = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{proof}\r\n").into_bytes()
}

/// The protocol version header of a node.
pub(crate) const PROTOCOL: &str = "longshore-protocol: 2\r\n";

/// A node's request; the connection closes afterwards.
pub(crate) fn message(path: &str, node: Option<&str>, body: &[u8]) -> Vec<u8> {
    let name = node.map_or_else(String::new, |node| format!("longshore-node: {node}\r\n"));
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{name}{PROTOCOL}Content-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// The same request with an `Upgrade` header, without which `exec` and log streams are refused.
pub(crate) fn upgraded(request: &[u8]) -> Vec<u8> {
    let (line, rest) = request.split_at(request.windows(2).position(|bytes| bytes == b"\r\n").unwrap());
    [line, b"\r\nUpgrade: longshore-session\r\nConnection: upgrade", rest].concat()
}

/// The same bytes over the other two listeners: the Unix socket, and plain HTTP.
pub(crate) fn over_other_listeners(node: &Node, bytes: &[u8]) -> [Option<Answer>; 2] {
    let mut local = UnixStream::connect(node.socket()).unwrap();
    let mut plain = TcpStream::connect(node.http.as_ref().unwrap()).unwrap();
    [exchange(&mut local, bytes), exchange(&mut plain, bytes)]
}
