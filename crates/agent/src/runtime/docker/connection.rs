//! The connection to the engine: finding its socket, negotiating the API version, and connecting again after a restart.
//!
//! Owns: which socket is used. An engine may be installed, started, restarted or upgraded at any time, so nothing is
//! decided once for all: sockets are looked for until one answers, and a broken connection is negotiated anew.
//! Invariant: once an engine has answered, no other socket is used in this process: its containers are there.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use bollard::Docker as Client;
use longshore_model::error_chain;

use super::{
    CLIENT_SECS, SHORT,
    session::{Continuity, EngineSession, engine_process},
    unavailable, within,
};
use crate::runtime::RuntimeError;

pub(super) struct Connection {
    sockets: Vec<PathBuf>,
    chosen: OnceLock<PathBuf>,
    current: Mutex<Current>,
    pub(super) session: EngineSession,
}

struct Current {
    client: Option<Client>,
    /// Whether the next connection follows one that broke.
    continuity: Continuity,
}

impl Connection {
    pub(super) fn new(sockets: Vec<PathBuf>, session: EngineSession) -> Self {
        let current = Mutex::new(Current { client: None, continuity: Continuity::First });
        Self { sockets, chosen: OnceLock::new(), current, session }
    }

    /// The negotiated client. Connects if there is none, so that an agent starts without its engine.
    pub(super) async fn client(&self) -> Result<Client, RuntimeError> {
        if let Some(client) = self.lock().client.clone() {
            return Ok(client);
        }
        let mut failure = unavailable("there is no engine on this node".to_owned());
        for socket in self.chosen.get().map_or(&*self.sockets, std::slice::from_ref) {
            match negotiate(socket).await {
                Ok(client) => return Ok(self.established(socket, client).await),
                // A socket that exists says more than one that does not.
                Err(error) if socket.exists() => failure = error,
                Err(_) => {}
            }
        }
        Err(failure)
    }

    /// Forgets the client after its connection broke: the engine that answers next may be another version.
    pub(super) fn reset(&self) {
        let mut current = self.lock();
        if current.client.take().is_some() {
            current.continuity = Continuity::Broken;
        }
    }

    /// The session is updated before anybody can inspect a container with the new client.
    async fn established(&self, socket: &Path, client: Client) -> Client {
        let process = engine_process(socket).await;
        let mut current = self.lock();
        if let Some(earlier) = &current.client {
            return earlier.clone();
        }
        let _ = self.chosen.set(socket.to_owned());
        self.session.connected(process, current.continuity);
        current.client = Some(client.clone());
        client
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        // Each change sets one field, so a panic elsewhere leaves no partial update.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.sockets).finish()
    }
}

async fn negotiate(socket: &Path) -> Result<Client, RuntimeError> {
    let path = socket.to_string_lossy();
    let client = Client::connect_with_unix(&path, CLIENT_SECS, bollard::API_DEFAULT_VERSION)
        .map_err(|error| unavailable(error_chain(&error)))?;
    within(SHORT, client.negotiate_version()).await
}
