//! Who asks, and whether they may.
//!
//! Owns: the proof. On the socket of this machine it is the user the kernel names; over TCP it is a token.
//! Invariant: nothing of a request is read before its caller is known.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::{ConnectInfo, FromRequestParts, Request, State, connect_info::Connected},
    http::{HeaderMap, StatusCode, header, request::Parts},
    middleware::Next,
    response::Response,
    serve::IncomingStream,
};
use longshore_model::{Actor, RequestCode};
use tokio::net::{TcpListener, UnixListener};

use super::{Desk, Refusal};

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A user of this machine; nobody where the kernel does not say.
    Local(Option<u32>),
    /// Somebody with an address.
    Remote(SocketAddr),
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self::Local(stream.io().peer_cred().ok().map(|credentials| credentials.uid()))
    }
}

impl Connected<IncomingStream<'_, TcpListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self::Remote(*stream.remote_addr())
    }
}

/// Lets a request through, or not.
pub(super) async fn admit(
    State(desk): State<Arc<Desk>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    desk.figures.requests.add(1);
    let actor = judge(&desk, peer, request.headers())?;
    request.extensions_mut().insert(actor);
    Ok(next.run(request).await)
}

fn judge(desk: &Desk, peer: Peer, headers: &HeaderMap) -> Result<Actor, Refusal> {
    match peer {
        Peer::Local(Some(0)) => Ok(Actor::Operator("root".to_owned())),
        Peer::Local(Some(uid)) if uid == desk.own_uid => Ok(Actor::Operator(format!("uid-{uid}"))),
        Peer::Local(_) => {
            let message = "only root and the user the daemon runs as may use this socket";
            Err(Refusal::new(StatusCode::FORBIDDEN, RequestCode::Forbidden, message))
        }
        Peer::Remote(_) if bears(headers, &desk.token) => Ok(Actor::Operator("token".to_owned())),
        Peer::Remote(_) => {
            let message = "the request carries no token, or a wrong one";
            let hint = "send `Authorization: Bearer TOKEN`; the token is in the file `token` of the daemon's folder";
            let refusal = Refusal::new(StatusCode::UNAUTHORIZED, RequestCode::Unauthenticated, message);
            Err(refusal.with("hint", hint))
        }
    }
}

fn bears(headers: &HeaderMap, token: &str) -> bool {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    // Two proofs are one too many: whoever is in front of us may have looked at the other.
    let (Some(only), None) = (given.next(), given.next()) else { return false };
    only.as_bytes().strip_prefix(b"Bearer ").is_some_and(|given| same(given, token.as_bytes()))
}

/// Compares without telling by its time where the difference is.
fn same(given: &[u8], expected: &[u8]) -> bool {
    let differs = given.iter().zip(expected).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == expected.len() && std::hint::black_box(differs) == 0
}

/// Who asks for a change, and under which key.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) actor: Actor,
    pub(super) key: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        let invalid = || Refusal::new(StatusCode::BAD_REQUEST, RequestCode::RequestInvalid, "the key is not text");
        let key = parts.headers.get("idempotency-key").map(|key| key.to_str().map(str::to_owned));
        let key = key.transpose().map_err(|_| invalid())?;
        // Every route that changes anything is behind `admit`.
        let actor = parts.extensions.get::<Actor>().cloned();
        let actor = actor.ok_or_else(|| {
            Refusal::new(StatusCode::UNAUTHORIZED, RequestCode::Unauthenticated, "nobody knows who asks")
        })?;
        Ok(Self { actor, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn only_the_whole_token_opens_and_only_once() {
        assert!(bears(&with(&["Bearer s3cret"]), "s3cret"));
        for wrong in ["Bearer s3cre", "Bearer s3cretX", "bearer s3cret", "s3cret", "Basic s3cret", "Bearer "] {
            assert!(!bears(&with(&[wrong]), "s3cret"), "{wrong}");
        }
        assert!(!bears(&with(&[]), "s3cret"));
        assert!(!bears(&with(&["Bearer s3cret", "Bearer other"]), "s3cret"));
    }
}
