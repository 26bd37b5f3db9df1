//! Seats, tokens and sealed secrets.
//!
//! Owns: who has a seat, which tokens open what, and what is sealed for whom.
//! Must not touch: keys and certificates themselves; they are made and judged where the connections are.
//! Invariant: a grant lets in one node; a node that left has no seat, and so no certificate that counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    DeploymentName, Event, GroupKey, MemberId, NamespaceName, NodeName, SecretName, Time,
    access::{AccessCommand, AccessToken, Authority, Digest, JoinGrant, Sealed, SealedThing, Seat, SeatPart, TokenId},
    replica::Wanted,
};
use serde::{Deserialize, Serialize};

use crate::{CommandError, State};

/// Versions of a secret that are kept: replicas that still run with an older one may have to start again.
const VERSIONS_KEPT: usize = 10;

/// Who belongs to the cluster and who may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    authority: Option<Authority>,
    /// How often the cluster began again.
    incarnation: u64,
    seats: BTreeMap<NodeName, Arc<Seat>>,
    /// Certificates of nodes that left. They count for nothing, also with members that do not know every seat yet.
    unseated: BTreeSet<Digest>,
    /// Member ids given out; never goes back.
    members_given: u64,
    grants: BTreeMap<TokenId, JoinGrant>,
    tokens: BTreeMap<TokenId, AccessToken>,
    contents: BTreeMap<(NamespaceName, SecretName), BTreeMap<u64, Arc<Sealed>>>,
    /// Secrets that only one deployment may use.
    owners: BTreeMap<(NamespaceName, SecretName), DeploymentName>,
    /// The cluster's key that seals; the first until another is named.
    sealing_key: Option<u32>,
}

/// The key a cluster is founded with.
const FIRST_KEY: u32 = 1;

impl Access {
    /// The cluster's authority, once it is founded.
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// How often the cluster began again, from a backup or from the disk of one member.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The next member id that nobody has had.
    pub fn next_member(&self) -> MemberId {
        MemberId(self.members_given + 1)
    }

    /// All seats, by node.
    pub fn seats(&self) -> impl Iterator<Item = (&NodeName, &Arc<Seat>)> {
        self.seats.iter()
    }

    /// The seat of a node.
    pub fn seat(&self, node: &NodeName) -> Option<&Arc<Seat>> {
        self.seats.get(node)
    }

    /// Whether a certificate was one of a node that left.
    pub fn is_unseated(&self, fingerprint: &Digest) -> bool {
        self.unseated.contains(fingerprint)
    }

    /// A token that lets a node in.
    pub fn grant(&self, id: &TokenId) -> Option<&JoinGrant> {
        self.grants.get(id)
    }

    /// All tokens of operators, by id.
    pub fn tokens(&self) -> impl Iterator<Item = (&TokenId, &AccessToken)> {
        self.tokens.iter()
    }

    /// A token of an operator.
    pub fn token(&self, id: &TokenId) -> Option<&AccessToken> {
        self.tokens.get(id)
    }

    /// What is in a version of a secret, sealed.
    pub fn contents(&self, namespace: &NamespaceName, name: &SecretName, version: u64) -> Option<&Arc<Sealed>> {
        self.contents.get(&(namespace.clone(), name.clone()))?.get(&version)
    }

    /// The only deployment that may use a secret, where there is one.
    pub fn owner(&self, namespace: &NamespaceName, name: &SecretName) -> Option<&DeploymentName> {
        self.owners.get(&(namespace.clone(), name.clone()))
    }

    /// Whether a deployment may use a secret.
    pub fn may_use(&self, namespace: &NamespaceName, deployment: &DeploymentName, name: &SecretName) -> bool {
        self.owner(namespace, name).is_none_or(|owner| owner == deployment)
    }

    /// The cluster's key that seals.
    pub fn sealing_key(&self) -> u32 {
        self.sealing_key.unwrap_or(FIRST_KEY)
    }

    /// Everything sealed.
    pub fn sealed(&self) -> impl Iterator<Item = (SealedThing, &Sealed)> {
        let authority = self.authority.iter().map(|authority| (SealedThing::Authority, &authority.key));
        let secrets = self.contents.iter().flat_map(|((namespace, name), versions)| {
            versions.iter().map(|(version, sealed)| {
                let (namespace, name) = (namespace.clone(), name.clone());
                (SealedThing::Secret { namespace, name, version: *version }, &**sealed)
            })
        });
        authority.chain(secrets)
    }
}

impl State {
    pub(crate) fn change_access(&mut self, command: AccessCommand) -> Result<Vec<Event>, CommandError> {
        match command {
            AccessCommand::Found { authority, node, seat } => self.found(authority, node, seat),
            AccessCommand::BeginAgain { node, seat } => Ok(self.begin_again(node, seat)),
            AccessCommand::GrantJoin { id, grant } => {
                if self.access.grants.contains_key(&id) {
                    return Err(CommandError::DuplicateToken(id));
                }
                self.access_mut().grants.insert(id, grant);
                Ok(vec![Event::AccessChanged])
            }
            AccessCommand::Admit { node, token, digest, address, certificate, fingerprint, key, at } => {
                let newcomer = Newcomer { token, digest, address, certificate, fingerprint, key, at };
                self.admit(node, newcomer)
            }
            AccessCommand::Relocate { node, address } => self.relocate(&node, address),
            AccessCommand::IssueToken { id, token } => {
                if self.access.tokens.contains_key(&id) {
                    return Err(CommandError::DuplicateToken(id));
                }
                self.access_mut().tokens.insert(id, token);
                Ok(vec![Event::AccessChanged])
            }
            AccessCommand::RevokeToken { id } => {
                if !self.access.tokens.contains_key(&id) {
                    return Err(CommandError::UnknownToken(id));
                }
                self.access_mut().tokens.remove(&id);
                Ok(vec![Event::AccessChanged])
            }
            AccessCommand::StoreSecret { namespace, name, version, contents, deployment } => {
                self.store_secret((namespace, name), version, contents, deployment)
            }
            AccessCommand::RemoveSecret { namespace, name } => self.remove_secret((namespace, name)),
            AccessCommand::UseKey { key } => {
                // Never back: what is sealed with an older key is on its way to be sealed anew.
                if key <= self.access.sealing_key() {
                    return Ok(Vec::new());
                }
                self.access_mut().sealing_key = Some(key);
                Ok(vec![Event::AccessChanged])
            }
            AccessCommand::Reseal { what, sealed } => Ok(self.reseal(&what, sealed)),
        }
    }

    fn store_secret(
        &mut self,
        key: (NamespaceName, SecretName),
        version: u64,
        contents: Sealed,
        deployment: Option<DeploymentName>,
    ) -> Result<Vec<Event>, CommandError> {
        // Whoever sealed it has not heard yet; the older key may be forgotten any moment.
        if contents.key < self.access.sealing_key() {
            return Err(CommandError::KeyOutdated(contents.key));
        }
        if let Some(deployment) = &deployment
            && self.secrets.contains_key(&key)
            && self.access.owners.get(&key) != Some(deployment)
        {
            return Err(CommandError::SecretNotYours { name: key.1, deployment: deployment.clone() });
        }
        let events = self.put_secret(key.0.clone(), key.1.clone(), version)?;
        // The same version twice is the same secret: what is in it does not change behind its number.
        if !events.is_empty() {
            let access = self.access_mut();
            access.owners.extend(deployment.map(|deployment| (key.clone(), deployment)));
            let kept = access.contents.entry(key).or_default();
            kept.insert(version, Arc::new(contents));
            while kept.len() > VERSIONS_KEPT {
                kept.pop_first();
            }
        }
        Ok(events)
    }

    fn remove_secret(&mut self, key: (NamespaceName, SecretName)) -> Result<Vec<Event>, CommandError> {
        if !self.secrets.contains_key(&key) {
            return Err(CommandError::UnknownSecret(key.1));
        }
        let user = self.users_of_secret(&key.0, &key.1).next().cloned();
        if let Some(group) = user {
            return Err(CommandError::SecretInUse { group, name: key.1 });
        }
        self.secrets.remove(&key);
        let access = self.access_mut();
        access.contents.remove(&key);
        access.owners.remove(&key);
        Ok(vec![Event::SecretGone { namespace: key.0, name: key.1 }])
    }

    fn reseal(&mut self, what: &SealedThing, sealed: Sealed) -> Vec<Event> {
        let newer = |kept: &Sealed| kept.key < sealed.key;
        match what {
            SealedThing::Authority => {
                if let Some(authority) = &mut self.access_mut().authority
                    && newer(&authority.key)
                {
                    authority.key = sealed;
                    return vec![Event::AccessChanged];
                }
            }
            SealedThing::Secret { namespace, name, version } => {
                let versions = self.access_mut().contents.get_mut(&(namespace.clone(), name.clone()));
                // One that was removed meanwhile stays removed.
                if let Some(kept) = versions.and_then(|versions| versions.get_mut(version))
                    && newer(kept)
                {
                    *kept = Arc::new(sealed);
                    return vec![Event::AccessChanged];
                }
            }
        }
        Vec::new()
    }

    /// Services that need a secret.
    pub fn users_of_secret(&self, namespace: &NamespaceName, name: &SecretName) -> impl Iterator<Item = &GroupKey> {
        let wanted = self.groups.iter().filter(|(_, group)| group.wanted == Wanted::Run);
        let users = wanted
            .filter(move |(key, group)| key.namespace == *namespace && group.spec.secrets_required.contains(name));
        users.map(|(key, _)| key)
    }

    /// Every secret and its version.
    pub fn secrets(&self) -> impl Iterator<Item = (&NamespaceName, &SecretName, u64)> {
        self.secrets.iter().map(|((namespace, name), version)| (namespace, name, *version))
    }

    fn access_mut(&mut self) -> &mut Access {
        Arc::make_mut(&mut self.access)
    }

    fn found(&mut self, authority: Authority, node: NodeName, seat: Seat) -> Result<Vec<Event>, CommandError> {
        if self.access.authority.is_some() {
            return Err(CommandError::AlreadyFounded);
        }
        let access = self.access_mut();
        access.members_given = access.members_given.max(seat.member.0);
        access.authority = Some(authority);
        access.seats.insert(node, Arc::new(seat));
        Ok(vec![Event::AccessChanged])
    }

    fn begin_again(&mut self, node: NodeName, seat: Seat) -> Vec<Event> {
        let servers = self.access.seats.iter().filter(|(name, known)| **name == node || known.part == SeatPart::Server);
        let gone: Vec<NodeName> = servers.map(|(name, _)| name.clone()).collect();
        for server in &gone {
            // A node that goes on with the certificate it has is not to be locked out by it.
            let goes_on = self.access.seats[server].fingerprint == seat.fingerprint;
            if goes_on {
                self.access_mut().seats.remove(server);
            } else {
                self.unseat(server);
            }
        }
        let access = self.access_mut();
        access.incarnation += 1;
        access.members_given = access.members_given.max(seat.member.0);
        access.seats.insert(node, Arc::new(seat));
        vec![Event::AccessChanged]
    }

    fn admit(&mut self, node: NodeName, newcomer: Newcomer) -> Result<Vec<Event>, CommandError> {
        let Newcomer { token, digest, address, certificate, fingerprint, key, at } = newcomer;
        if let Some(seat) = self.access.seats.get(&node) {
            // The answer to the first request was lost on its way.
            let again = seat.token.as_ref() == Some(&token) && seat.proof.as_ref() == Some(&digest) && seat.key == key;
            return if again { Ok(Vec::new()) } else { Err(CommandError::DuplicateNode(node)) };
        }
        let grant = self.access.grants.get(&token).filter(|grant| grant.digest == digest);
        let grant = grant.ok_or(CommandError::JoinTokenInvalid)?;
        if grant.expires_at <= at {
            return Err(CommandError::JoinTokenExpired);
        }
        let part = grant.part;
        let access = self.access_mut();
        access.members_given += 1;
        let member = MemberId(access.members_given);
        access.grants.remove(&token);
        access.grants.retain(|_, grant| grant.expires_at > at);
        let (token, proof) = (Some(token), Some(digest));
        let seat = Seat { member, address, certificate, fingerprint, key, part, token, proof, since: at };
        access.seats.insert(node, Arc::new(seat));
        Ok(vec![Event::AccessChanged])
    }

    fn relocate(&mut self, node: &NodeName, address: String) -> Result<Vec<Event>, CommandError> {
        let Some(seat) = self.access.seats.get(node) else {
            return Err(CommandError::UnknownNode(node.clone()));
        };
        if seat.address == address {
            return Ok(Vec::new());
        }
        let seat = Seat { address, ..Seat::clone(seat) };
        self.access_mut().seats.insert(node.clone(), Arc::new(seat));
        Ok(vec![Event::AccessChanged])
    }

    /// Takes a node's seat, if it has one, and says whether it had.
    pub(crate) fn unseat(&mut self, node: &NodeName) -> bool {
        let Some(seat) = self.access.seats.get(node) else { return false };
        let fingerprint = seat.fingerprint.clone();
        let access = self.access_mut();
        access.seats.remove(node);
        access.unseated.insert(fingerprint);
        true
    }
}

/// Somebody who shows a token.
struct Newcomer {
    token: TokenId,
    digest: Digest,
    address: String,
    certificate: Vec<u8>,
    fingerprint: Digest,
    key: Digest,
    at: Time,
}

#[cfg(test)]
mod tests;
