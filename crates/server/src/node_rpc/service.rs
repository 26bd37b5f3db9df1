//! What a server does for nodes: registers them, accepts their reports, hands out secrets, admits them.
//!
//! Owns: which command follows from a node's request. Must not touch: the transport.
//! Invariant: a node receives only what its own replicas need, whatever it asks for.

use longshore_api::{Pin, Token, TokenKind};
use longshore_model::{
    Actor, Command, ConstraintRole, GroupKey, NamespaceName, Node, NodeName, ReplicaReport, Report, ServiceSpec, Time,
    access::{AccessCommand, Digest, JoinGrant, NodeRole, TokenId},
    agent_protocol::FileRequest,
    container::{registry_login_secret, registry_of},
    node::NodeFingerprint,
};
use longshore_store::{
    CommandError, State,
    replicated::{Outcome, Proposal, ProposeError, ReadError, Replicated},
};

use crate::{
    api::name_rules,
    clock,
    lifecycle::node_context::{NodeContext, server},
    node_rpc::{Hello, HelloAnswer, JoinAnswer, JoinRequest, fingerprint_limits},
    security::{
        identity::{IdentityError, SigningAuthority},
        keyring::{KeyringError, constant_time_eq, digest_of, random_hex},
    },
};

/// Why a node's request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeRequestError {
    #[error(transparent)]
    Propose(#[from] ProposeError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Refused(#[from] CommandError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    #[error("node `{0}` does not run a replica that needs this file")]
    NotAssigned(NodeName),
    #[error("secret `{0}` has no contents of that version")]
    NoContents(String),
    #[error("name and address are up to {} bytes of plain text", name_rules::MAX_BYTES)]
    InvalidName,
    #[error("the cluster has no authority yet")]
    NotBootstrapped,
    #[error("`{address}` is the address of node `{owner}`")]
    AddressTaken { address: String, owner: NodeName },
    #[error("what the node says of itself cannot be: {0}")]
    AbsurdFingerprint(&'static str),
}

/// Proposes one command; a refusal is an error.
pub(crate) async fn propose(store: &Replicated, actor: Actor, command: Command) -> Result<(), NodeRequestError> {
    let applied = store.propose(Proposal { command, key: None, request: None, actor, at: clock::now() }).await?;
    match applied.outcome {
        Outcome::Changed | Outcome::Unchanged | Outcome::KeyReused => Ok(()),
        Outcome::Refused(error) => Err(error.into()),
    }
}

/// Registers a node's fingerprint: an unknown node joins, a known one is refreshed.
pub(crate) async fn register(
    ctx: &NodeContext,
    store: &Replicated,
    node: &NodeName,
    hello: Hello,
) -> Result<HelloAnswer, NodeRequestError> {
    let Hello { fingerprint, address } = hello;
    fingerprint_limits::check(&fingerprint).map_err(NodeRequestError::AbsurdFingerprint)?;
    let state = store.read().await?.state;
    let command = match state.node(node) {
        Some(_) => Command::Refresh { node: node.clone(), fingerprint: Box::new(fingerprint) },
        None => Command::Join(Box::new(new_node(&state, node.clone(), fingerprint, clock::now()))),
    };
    let actor = Actor::Node(node.clone());
    propose(store, actor.clone(), command).await?;
    if let Some(address) = address
        .filter(|address| state.access().membership(node).is_some_and(|membership| membership.address != *address))
    {
        ensure_address_free(&state, node, &address)?;
        let relocate = AccessCommand::Relocate { node: node.clone(), address };
        propose(store, actor, Command::Access(Box::new(relocate))).await?;
    }
    Ok(HelloAnswer { servers: ctx.servers() })
}

/// A node that moves may not take the address of another: calls for that one would reach it.
fn ensure_address_free(state: &State, node: &NodeName, address: &str) -> Result<(), NodeRequestError> {
    if !name_rules::is_usable(address) {
        return Err(NodeRequestError::InvalidName);
    }
    let mut others = state.access().memberships().filter(|(name, _)| *name != node);
    match others.find(|(_, membership)| membership.address == address) {
        Some((owner, _)) => Err(NodeRequestError::AddressTaken { address: address.to_owned(), owner: owner.clone() }),
        None => Ok(()),
    }
}

/// The initial state of a node that joins.
pub(crate) fn new_node(state: &State, name: NodeName, fingerprint: NodeFingerprint, now: Time) -> Node {
    let NodeFingerprint { platform, capacity, drivers, engine_labels, plugins, flags, network } = fingerprint;
    let role = match state.access().membership(&name).map(|membership| membership.role) {
        Some(NodeRole::Server) | None => ConstraintRole::Manager,
        Some(NodeRole::Worker) => ConstraintRole::Worker,
    };
    let joined_at = Some(now);
    Node {
        engine_labels,
        role,
        platform,
        drivers,
        plugins,
        capacity,
        flags,
        network,
        health_since: now,
        joined_at,
        ..Node::new(name)
    }
}

/// Commits what a node reports; only on the leader, whose clock stamps it.
pub(crate) async fn accept_reports(
    ctx: &NodeContext,
    store: &Replicated,
    node: &NodeName,
    reports: Vec<Report>,
) -> Result<(), NodeRequestError> {
    let mut seen = Vec::new();
    for report in reports {
        match report {
            Report::Replica(report) => seen.push(report),
            Report::Heartbeat(beat) => ctx.heartbeats.publish(node, beat),
        }
    }
    let (at, state) = (clock::now(), store.read_local().state);
    let own = seen.into_iter().filter(|report| is_on(&state, report, node));
    let proposals = own.map(|report| Proposal {
        command: Command::Observe(report.into_observation(at)),
        key: None,
        request: None,
        actor: Actor::Node(node.clone()),
        at,
    });
    for answer in store.propose_all(proposals.collect()).await {
        match answer?.outcome {
            Outcome::Changed | Outcome::Unchanged => {}
            // It is about a replica that is gone; sending it again would not help.
            Outcome::Refused(error) => tracing::debug!(code = error.code(), "report refused"),
            Outcome::KeyReused => tracing::debug!("report refused"),
        }
    }
    Ok(())
}

/// Whether a generation is assigned to the node: no node reports for another.
fn is_on(state: &State, report: &ReplicaReport, node: &NodeName) -> bool {
    state.replica(&report.key).is_some_and(|replica| replica.assignment.node == *node)
}

/// The contents of a secret, for a node that runs a replica that needs it.
pub(crate) async fn file(
    ctx: &NodeContext,
    store: &Replicated,
    node: &NodeName,
    request: &FileRequest,
) -> Result<Vec<u8>, NodeRequestError> {
    let state = store.read().await?.state;
    let not_yours = || NodeRequestError::NotAssigned(node.clone());
    let key = &request.key;
    let replica = state.replica(key).filter(|replica| replica.assignment.node == *node).ok_or_else(not_yours)?;
    let version = replica.assignment.reservation.secret_versions.get(&request.name).copied().ok_or_else(not_yours)?;
    let namespace = &key.group.namespace;
    let of = state
        .group(&key.group)
        .map_or(&key.group.deployment, |group| group.spec.secrets_deployment(&key.group.deployment));
    if !state.access().may_use(namespace, of, &request.name) {
        return Err(not_yours());
    }
    let sealed = state.access().contents(namespace, &request.name, version);
    let sealed = sealed.ok_or_else(|| NodeRequestError::NoContents(request.name.to_string()))?;
    let keyring = ctx.keyring().ok_or(NodeRequestError::NotBootstrapped)?;
    Ok(keyring.open(&secret_purpose(namespace.as_str(), request.name.as_str(), version), sealed)?)
}

/// User and password for a registry, for a node that runs an image of it.
pub(crate) async fn registry_login(
    ctx: &NodeContext,
    store: &Replicated,
    node: &NodeName,
    registry: &str,
) -> Result<Option<(String, String)>, NodeRequestError> {
    let state = store.read().await?.state;
    let from_it = |spec: &ServiceSpec| registry_of(&spec.container.image) == registry;
    let needs = |group: &GroupKey, number| {
        let known = state.deployment(&group.namespace, &group.deployment);
        let revision = known.and_then(|known| known.revision(number)?.spec.services.get(&group.service));
        revision.or_else(|| state.group(group).map(|group| &group.spec)).is_some_and(|spec| from_it(spec))
    };
    let mut here = state.replicas().filter(|(_, _, replica)| replica.assignment.node == *node);
    if !here.any(|(group, _, replica)| needs(group, replica.assignment.reservation.revision)) {
        return Err(NodeRequestError::NotAssigned(node.clone()));
    }
    stored_registry_login(ctx, &state, registry)
}

/// User and password that the cluster has for a registry.
pub(crate) fn stored_registry_login(
    ctx: &NodeContext,
    state: &State,
    registry: &str,
) -> Result<Option<(String, String)>, NodeRequestError> {
    let (namespace, name) = (NamespaceName::default_namespace(), registry_login_secret(registry));
    let Some(version) = state.secret_version(&namespace, &name) else { return Ok(None) };
    let sealed = state.access().contents(&namespace, &name, version);
    let sealed = sealed.ok_or_else(|| NodeRequestError::NoContents(name.to_string()))?;
    let keyring = ctx.keyring().ok_or(NodeRequestError::NotBootstrapped)?;
    let login = keyring.open(&secret_purpose(namespace.as_str(), name.as_str(), version), sealed)?;
    let login = String::from_utf8_lossy(&login).into_owned();
    Ok(login.split_once(':').map(|(username, password)| (username.to_owned(), password.to_owned())))
}

/// The purpose that binds a sealed secret to its name and version.
pub(crate) fn secret_purpose(namespace: &str, name: &str, version: u64) -> String {
    format!("secret/{namespace}/{name}/{version}")
}

/// The purpose that binds the sealed authority key.
pub(crate) const AUTHORITY_PURPOSE: &str = "authority";

/// A join token, and the command that makes it valid.
pub(crate) fn join_grant(
    state: &State,
    role: NodeRole,
    valid: std::time::Duration,
) -> Result<(Token, AccessCommand), NodeRequestError> {
    let authority = state.access().authority().ok_or(NodeRequestError::NotBootstrapped)?;
    let token = Token {
        kind: TokenKind::Join,
        id: random_hex(8)?,
        secret: random_hex(16)?,
        pin: Pin::of(&authority.certificate),
    };
    let expires_at = clock::now().after(valid);
    let grant = JoinGrant { digest: digest_of(token.secret.as_bytes()), role, expires_at };
    let command = AccessCommand::GrantJoin { id: TokenId::from(token.id.as_str()), grant };
    Ok((token, command))
}

/// Whether a join request shows a token that this member knows; one that was just created may be unknown.
pub(crate) fn has_known_token(state: &State, request: &JoinRequest) -> bool {
    let Ok(credential) = JoinCredential::of(request) else { return false };
    credential.granted_role(state).is_some() || credential.is_admitted(state)
}

/// The credential of a join request.
struct JoinCredential<'a> {
    node: &'a NodeName,
    id: TokenId,
    digest: Digest,
    key: Digest,
}

impl<'a> JoinCredential<'a> {
    fn of(request: &'a JoinRequest) -> Result<Self, CommandError> {
        let token = Token::of_kind(TokenKind::Join, &request.token).map_err(|_| CommandError::JoinTokenInvalid)?;
        let (id, digest) = (TokenId::from(token.id.as_str()), digest_of(token.secret.as_bytes()));
        Ok(Self { node: &request.node, id, digest, key: digest_of(&request.public_key) })
    }

    fn granted_role(&self, state: &State) -> Option<NodeRole> {
        let grant = state.access().grant(&self.id)?;
        constant_time_eq(grant.digest.as_str().as_bytes(), self.digest.as_str().as_bytes()).then_some(grant.role)
    }

    /// Whether the node was admitted with it already: the answer was lost and is requested again.
    fn is_admitted(&self, state: &State) -> bool {
        let membership = state.access().membership(self.node);
        membership.is_some_and(|membership| {
            let digest = membership.token_digest.as_ref().map_or("", |digest| digest.as_str());
            constant_time_eq(digest.as_bytes(), self.digest.as_str().as_bytes())
                && membership.token.as_ref() == Some(&self.id)
                && membership.key == self.key
        })
    }
}

/// Admits a node that shows a valid token.
pub(crate) async fn admit_node(
    ctx: &NodeContext,
    store: &Replicated,
    request: &JoinRequest,
) -> Result<JoinAnswer, NodeRequestError> {
    let credential = JoinCredential::of(request)?;
    let JoinRequest { node, address, public_key, .. } = request;
    let state = store.read().await?.state;
    // A request without a valid token costs no signature; the state machine makes the final decision.
    if !credential.is_admitted(&state) {
        let role = credential.granted_role(&state).ok_or(CommandError::JoinTokenInvalid)?;
        if !name_rules::is_node(node.as_str()) || !name_rules::is_usable(address) {
            return Err(NodeRequestError::InvalidName);
        }
        let certificate = signer(ctx, &state)?.sign(node, role, public_key)?;
        let admit = AccessCommand::Admit {
            node: node.clone(),
            token: credential.id,
            digest: credential.digest,
            address: address.clone(),
            fingerprint: digest_of(&certificate),
            certificate,
            key: credential.key,
            at: clock::now(),
        };
        propose(store, Actor::Node(node.clone()), Command::Access(Box::new(admit))).await?;
    }
    let state = store.read().await?.state;
    let membership = state.access().membership(node).ok_or(CommandError::JoinTokenInvalid)?;
    let authority = state.access().authority().ok_or(NodeRequestError::NotBootstrapped)?;
    Ok(JoinAnswer {
        cluster: ctx.record().cluster,
        member: membership.member,
        role: membership.role,
        authority: authority.certificate.clone(),
        certificate: membership.certificate.clone(),
        servers: store.members().members.values().map(server).collect(),
        ipv4_pool: Some(state.config().ipv4_pool),
    })
}

fn signer(ctx: &NodeContext, state: &State) -> Result<SigningAuthority, NodeRequestError> {
    let authority = state.access().authority().ok_or(NodeRequestError::NotBootstrapped)?;
    let keyring = ctx.keyring().ok_or(NodeRequestError::NotBootstrapped)?;
    let key = keyring.open(AUTHORITY_PURPOSE, &authority.key)?;
    Ok(SigningAuthority::open(&ctx.record().cluster, &authority.certificate, &key)?)
}
