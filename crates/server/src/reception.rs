//! What a server does for nodes: hears them out, hands them files, lets them in.
//!
//! Owns: which command follows from what a node says. Must not touch: how it was said.
//! Invariant: a node is told only what its own replicas need, whatever it asks for.

use longshore_api::{Pin, Token, TokenKind};
use longshore_model::{
    Actor, Command, GroupKey, Health, Intent, NamespaceName, Node, NodeName, NodeNumber, PoolName, Report, Role,
    ServiceSpec, Sighting, Time,
    access::{AccessCommand, Digest, JoinGrant, SeatPart, TokenId},
    container::{login_name, registry_of},
    node::{Capacity, Overlay, Survey, UseDegraded},
    work::FileWanted,
};
use longshore_store::{
    CommandError, State,
    replicated::{Outcome, Proposal, ProposeError, ReadError, Replicated},
};

use crate::{
    clock,
    hub::{Hub, server},
    identity::{IdentityError, SigningAuthority},
    names,
    peer::{Admitted, Coming, Hello, Welcome},
    vault::{VaultError, digest_of, random_hex, same},
};

/// Why a node's wish was not granted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceptionError {
    #[error(transparent)]
    Propose(#[from] ProposeError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Refused(#[from] CommandError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("`{0}` does not run what it asks a file for")]
    NotYours(NodeName),
    #[error("there is no secret `{0}` with contents of that version")]
    NoContents(String),
    #[error("name and address are up to {} bytes of plain text", names::LONGEST)]
    Unusable,
    #[error("the cluster has no authority yet")]
    NotFounded,
}

/// Proposes one command and wants it done.
pub(crate) async fn tell(store: &Replicated, actor: Actor, command: Command) -> Result<(), ReceptionError> {
    let applied = store.propose(Proposal { command, key: None, asked: None, actor, at: clock::now() }).await?;
    match applied.outcome {
        Outcome::Changed | Outcome::Unchanged | Outcome::KeyReused => Ok(()),
        Outcome::Refused(error) => Err(error.into()),
    }
}

/// A node says what it has: a new one joins, one that is known is refreshed.
pub(crate) async fn welcome(
    hub: &Hub,
    store: &Replicated,
    node: &NodeName,
    hello: Hello,
) -> Result<Welcome, ReceptionError> {
    let Hello { survey, address } = hello;
    let state = store.read().await?.state;
    let command = match state.node(node) {
        Some(_) => Command::Refresh { node: node.clone(), survey: Box::new(survey) },
        None => Command::Join(Box::new(newcomer(&state, node.clone(), survey, clock::now()))),
    };
    let actor = Actor::Node(node.clone());
    tell(store, actor.clone(), command).await?;
    if let Some(address) =
        address.filter(|address| state.access().seat(node).is_some_and(|seat| seat.address != *address))
    {
        let relocate = AccessCommand::Relocate { node: node.clone(), address };
        tell(store, actor, Command::Access(Box::new(relocate))).await?;
    }
    Ok(Welcome { servers: hub.servers() })
}

/// The node a newcomer becomes.
pub(crate) fn newcomer(state: &State, name: NodeName, survey: Survey, now: Time) -> Node {
    let Survey { platform, capacity, drivers, engine_labels, plugins } = survey;
    let role = match state.access().seat(&name).map(|seat| seat.part) {
        Some(SeatPart::Server) | None => Role::Manager,
        Some(SeatPart::Worker) => Role::Worker,
    };
    Node {
        number: NodeNumber(0),
        ip: None,
        labels: std::collections::BTreeMap::new(),
        engine_labels,
        role,
        pool: PoolName::default_pool(),
        platform,
        drivers,
        plugins,
        capacity,
        reserved: Capacity::default(),
        intent: Intent::Active,
        health: Health::Ready,
        use_degraded: UseDegraded::No,
        overlay: Overlay::Reachable,
        health_since: now,
        confirmed_lost: None,
        drain: None,
        removed_at: None,
        name,
    }
}

/// Takes in what a node reports; only on the leader, whose clock stamps it.
pub(crate) async fn take_reports(
    hub: &Hub,
    store: &Replicated,
    node: &NodeName,
    reports: Vec<Report>,
) -> Result<(), ReceptionError> {
    let mut seen = Vec::new();
    for report in reports {
        match report {
            Report::Seen(sighting) => seen.push(sighting),
            Report::Beat(beat) => hub.pulse.beat(node, beat),
        }
    }
    let (at, state) = (clock::now(), store.read_local().state);
    let own = seen.into_iter().filter(|sighting| is_on(&state, sighting, node));
    let proposals = own.map(|sighting| Proposal {
        command: Command::Observe(sighting.stamped(at)),
        key: None,
        asked: None,
        actor: Actor::Node(node.clone()),
        at,
    });
    for answer in store.propose_all(proposals.collect()).await {
        match answer?.outcome {
            Outcome::Changed | Outcome::Unchanged => {}
            // It is about something that is gone by now; saying it again would not help.
            Outcome::Refused(error) => tracing::debug!(code = error.code(), "sighting refused"),
            Outcome::KeyReused => tracing::debug!("sighting refused"),
        }
    }
    Ok(())
}

/// Whether a generation is on a node: no node speaks for another.
fn is_on(state: &State, sighting: &Sighting, node: &NodeName) -> bool {
    let key = &sighting.key;
    let slot = state.group(&key.group).and_then(|group| group.slots.get(&key.slot));
    let replica = slot.and_then(|slot| slot.replicas.iter().find(|replica| replica.generation == key.generation));
    replica.is_some_and(|replica| replica.assignment.node == *node)
}

/// What is in a secret, for a node that runs a replica that needs it.
pub(crate) async fn file(
    hub: &Hub,
    store: &Replicated,
    node: &NodeName,
    wanted: &FileWanted,
) -> Result<Vec<u8>, ReceptionError> {
    let state = store.read().await?.state;
    let not_yours = || ReceptionError::NotYours(node.clone());
    let key = &wanted.key;
    let group = state.group(&key.group).ok_or_else(not_yours)?;
    let slot = group.slots.get(&key.slot).ok_or_else(not_yours)?;
    let replica = slot.replicas.iter().find(|replica| replica.generation == key.generation);
    let replica = replica.filter(|replica| replica.assignment.node == *node).ok_or_else(not_yours)?;
    let version = replica.assignment.terms.secret_versions.get(&wanted.name).copied().ok_or_else(not_yours)?;
    let namespace = &key.group.namespace;
    if !state.access().may_use(namespace, &key.group.deployment, &wanted.name) {
        return Err(not_yours());
    }
    let sealed = state.access().contents(namespace, &wanted.name, version);
    let sealed = sealed.ok_or_else(|| ReceptionError::NoContents(wanted.name.to_string()))?;
    let vault = hub.vault().ok_or(ReceptionError::NotFounded)?;
    Ok(vault.open(&secret_purpose(namespace.as_str(), wanted.name.as_str(), version), sealed)?)
}

/// Name and password for a registry, for a node that runs an image of it.
pub(crate) async fn registry_login(
    hub: &Hub,
    store: &Replicated,
    node: &NodeName,
    registry: &str,
) -> Result<Option<(String, String)>, ReceptionError> {
    let state = store.read().await?.state;
    let from_it = |spec: &ServiceSpec| registry_of(&spec.container.image) == registry;
    let needs = |group: &GroupKey, number| {
        let known = state.deployment(&group.namespace, &group.deployment);
        let revision = known.and_then(|known| known.revision(number)?.spec.services.get(&group.service));
        revision.or_else(|| state.group(group).map(|group| &group.spec)).is_some_and(|spec| from_it(spec))
    };
    let mut here = state.replicas().filter(|(_, _, replica)| replica.assignment.node == *node);
    if !here.any(|(group, _, replica)| needs(group, replica.assignment.terms.revision)) {
        return Err(ReceptionError::NotYours(node.clone()));
    }
    let (namespace, name) = (NamespaceName::default_namespace(), login_name(registry));
    let Some(version) = state.secret_version(&namespace, &name) else { return Ok(None) };
    let sealed = state.access().contents(&namespace, &name, version);
    let sealed = sealed.ok_or_else(|| ReceptionError::NoContents(name.to_string()))?;
    let vault = hub.vault().ok_or(ReceptionError::NotFounded)?;
    let login = vault.open(&secret_purpose(namespace.as_str(), name.as_str(), version), sealed)?;
    let login = String::from_utf8_lossy(&login).into_owned();
    Ok(login.split_once(':').map(|(username, password)| (username.to_owned(), password.to_owned())))
}

/// What a secret is sealed for.
pub(crate) fn secret_purpose(namespace: &str, name: &str, version: u64) -> String {
    format!("secret/{namespace}/{name}/{version}")
}

/// What the authority's key is sealed for.
pub(crate) const AUTHORITY_PURPOSE: &str = "authority";

/// A token that lets one node in, and the command that makes it count.
pub(crate) fn join_grant(
    state: &State,
    part: SeatPart,
    valid: std::time::Duration,
) -> Result<(Token, AccessCommand), ReceptionError> {
    let authority = state.access().authority().ok_or(ReceptionError::NotFounded)?;
    let token = Token {
        kind: TokenKind::Join,
        id: random_hex(8)?,
        secret: random_hex(16)?,
        pin: Pin::of(&authority.certificate),
    };
    let expires_at = clock::now().after(valid);
    let grant = JoinGrant { digest: digest_of(token.secret.as_bytes()), part, expires_at };
    let command = AccessCommand::GrantJoin { id: TokenId::from(token.id.as_str()), grant };
    Ok((token, command))
}

/// Whether a newcomer shows a token that this member knows; one made a moment ago it may not.
pub(crate) fn is_expected(state: &State, coming: &Coming) -> bool {
    let Ok(shown) = Shown::of(coming) else { return false };
    shown.is_granted(state).is_some() || shown.is_seated(state)
}

/// What a newcomer shows.
struct Shown<'a> {
    node: &'a NodeName,
    id: TokenId,
    digest: Digest,
    key: Digest,
}

impl<'a> Shown<'a> {
    fn of(coming: &'a Coming) -> Result<Self, CommandError> {
        let token = Token::of_kind(TokenKind::Join, &coming.token).map_err(|_| CommandError::JoinTokenInvalid)?;
        let (id, digest) = (TokenId::from(token.id.as_str()), digest_of(token.secret.as_bytes()));
        Ok(Self { node: &coming.node, id, digest, key: digest_of(&coming.public_key) })
    }

    fn is_granted(&self, state: &State) -> Option<SeatPart> {
        let grant = state.access().grant(&self.id)?;
        same(grant.digest.as_str().as_bytes(), self.digest.as_str().as_bytes()).then_some(grant.part)
    }

    /// The answer was lost on its way, and is asked for again.
    fn is_seated(&self, state: &State) -> bool {
        let seat = state.access().seat(self.node);
        seat.is_some_and(|seat| {
            let proof = seat.proof.as_ref().map_or("", |proof| proof.as_str());
            same(proof.as_bytes(), self.digest.as_str().as_bytes())
                && seat.token.as_ref() == Some(&self.id)
                && seat.key == self.key
        })
    }
}

/// Lets a node in that shows a token.
pub(crate) async fn admit(hub: &Hub, store: &Replicated, coming: &Coming) -> Result<Admitted, ReceptionError> {
    let shown = Shown::of(coming)?;
    let Coming { node, address, public_key, .. } = coming;
    let state = store.read().await?.state;
    // Somebody who shows nothing valid costs no signature; whether it lets in is for the state to say, once.
    if !shown.is_seated(&state) {
        let part = shown.is_granted(&state).ok_or(CommandError::JoinTokenInvalid)?;
        if !names::is_usable(node.as_str()) || !names::is_usable(address) {
            return Err(ReceptionError::Unusable);
        }
        let certificate = signer(hub, &state)?.sign(node, part, public_key)?;
        let admit = AccessCommand::Admit {
            node: node.clone(),
            token: shown.id,
            digest: shown.digest,
            address: address.clone(),
            fingerprint: digest_of(&certificate),
            certificate,
            key: shown.key,
            at: clock::now(),
        };
        tell(store, Actor::Node(node.clone()), Command::Access(Box::new(admit))).await?;
    }
    let state = store.read().await?.state;
    let seat = state.access().seat(node).ok_or(CommandError::JoinTokenInvalid)?;
    let authority = state.access().authority().ok_or(ReceptionError::NotFounded)?;
    Ok(Admitted {
        cluster: hub.place().cluster,
        member: seat.member,
        part: seat.part,
        authority: authority.certificate.clone(),
        certificate: seat.certificate.clone(),
        servers: store.members().members.values().map(server).collect(),
    })
}

fn signer(hub: &Hub, state: &State) -> Result<SigningAuthority, ReceptionError> {
    let authority = state.access().authority().ok_or(ReceptionError::NotFounded)?;
    let vault = hub.vault().ok_or(ReceptionError::NotFounded)?;
    let key = vault.open(AUTHORITY_PURPOSE, &authority.key)?;
    Ok(SigningAuthority::open(&hub.place().cluster, &authority.certificate, &key)?)
}
