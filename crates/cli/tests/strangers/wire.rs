//! Bytes as they go over the wire: nothing here knows what a well-formed request is.

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

use crate::rig::Node;

/// Longer than anything that is not kept open on purpose takes.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) type Encrypted = StreamOwned<ClientConnection, TcpStream>;

/// What was answered.
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

/// Somebody who knows the cluster's authority and has nothing to show.
pub(crate) fn stranger(of: &Node) -> ClientConfig {
    builder(of).with_no_client_auth()
}

/// Somebody who has a node's key and certificate, and trusts another's authority.
pub(crate) fn holder(folder_of: &Node, trusting: &Node) -> ClientConfig {
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
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

/// Sends bytes and reads until the other side hangs up. None where it does so without a word.
pub(crate) fn exchange(stream: &mut (impl Read + Write), bytes: &[u8]) -> Option<Answer> {
    // Whoever is refused early may not get everything out.
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Answer::of(&answer)
}

/// One request over TLS without a certificate.
pub(crate) fn ask(node: &Node, bytes: &[u8]) -> Option<Answer> {
    exchange(&mut connect(node, stranger(node)), bytes)
}

/// A plain request, with a token where one is given, after which the connection ends.
pub(crate) fn request(line: &str, token: Option<&str>) -> Vec<u8> {
    let proof = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{proof}\r\n").into_bytes()
}

/// What a node of this version says of itself.
pub(crate) const PROTOCOL: &str = "longshore-protocol: 2\r\n";

/// A message of a node, after which the connection ends.
pub(crate) fn message(path: &str, node: Option<&str>, body: &[u8]) -> Vec<u8> {
    let name = node.map_or_else(String::new, |node| format!("longshore-node: {node}\r\n"));
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{name}{PROTOCOL}Content-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// The same request as one for a conversation: whoever asks for one without saying so is refused for that alone.
pub(crate) fn upgraded(request: &[u8]) -> Vec<u8> {
    let (line, rest) = request.split_at(request.windows(2).position(|bytes| bytes == b"\r\n").unwrap());
    [line, b"\r\nUpgrade: longshore-session\r\nConnection: upgrade", rest].concat()
}

/// The same bytes through the other two doors: the socket of this machine, and plain HTTP.
pub(crate) fn through_other_doors(node: &Node, bytes: &[u8]) -> [Option<Answer>; 2] {
    let mut local = UnixStream::connect(node.socket()).unwrap();
    let mut plain = TcpStream::connect(&node.http).unwrap();
    [exchange(&mut local, bytes), exchange(&mut plain, bytes)]
}
