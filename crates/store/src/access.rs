//! Node memberships, tokens and sealed secrets.
//!
//! Owns: which nodes are members, which tokens are valid, and the sealed secrets.
//! Must not touch: keys and certificates. The server creates and verifies them.
//! Invariant: a join grant admits one node. A removed node has no membership, so its certificate is not accepted.

mod policies;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longshore_model::{
    DeploymentName, Event, GroupKey, MemberId, NamespaceName, NamespacePolicy, NodeName, SecretName, Time,
    access::{
        AccessCommand, AccessToken, Authority, Digest, JoinGrant, NodeMembership, NodeRole, Sealed, SealedItem, TokenId,
    },
    replica::DesiredState,
};
use serde::{Deserialize, Serialize};

use crate::{CommandError, State};

/// Versions kept of each secret. Replicas that run with an older version may have to restart.
const VERSIONS_KEPT: usize = 10;

/// Node memberships, tokens and sealed secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    authority: Option<Authority>,
    /// How often the cluster was recovered.
    incarnation: u64,
    #[serde(rename = "seats")]
    memberships: BTreeMap<NodeName, Arc<NodeMembership>>,
    /// Certificates of removed nodes. They are refused even by members that do not know every membership yet.
    #[serde(rename = "unseated")]
    revoked: BTreeSet<Digest>,
    /// The number of member ids ever assigned. It never decreases.
    members_given: u64,
    grants: BTreeMap<TokenId, JoinGrant>,
    tokens: BTreeMap<TokenId, AccessToken>,
    contents: BTreeMap<(NamespaceName, SecretName), BTreeMap<u64, Arc<Sealed>>>,
    /// Secrets that only one deployment may use.
    owners: BTreeMap<(NamespaceName, SecretName), DeploymentName>,
    /// The key that seals new secrets; `None` means the first.
    sealing_key: Option<u32>,
    /// The policies that were set.
    policies: BTreeMap<NamespaceName, NamespacePolicy>,
    /// Namespaces older than policies, which may ask everything until one is set; `None` while policies are not enforced.
    older_than_policies: Option<BTreeSet<NamespaceName>>,
}

/// The key a cluster is bootstrapped with.
const FIRST_KEY: u32 = 1;

impl Access {
    /// The cluster's certificate authority, once the cluster is bootstrapped.
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// How often the cluster was recovered, from a backup or from the disk of one member.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The next member id that was never assigned.
    pub fn next_member(&self) -> MemberId {
        MemberId(self.members_given + 1)
    }

    /// All memberships by node.
    pub fn memberships(&self) -> impl Iterator<Item = (&NodeName, &Arc<NodeMembership>)> {
        self.memberships.iter()
    }

    /// The membership of a node.
    pub fn membership(&self, node: &NodeName) -> Option<&Arc<NodeMembership>> {
        self.memberships.get(node)
    }

    /// Whether a certificate belongs to a removed node.
    pub fn is_revoked(&self, fingerprint: &Digest) -> bool {
        self.revoked.contains(fingerprint)
    }

    /// A join grant by its id.
    pub fn grant(&self, id: &TokenId) -> Option<&JoinGrant> {
        self.grants.get(id)
    }

    /// All operator tokens by id.
    pub fn tokens(&self) -> impl Iterator<Item = (&TokenId, &AccessToken)> {
        self.tokens.iter()
    }

    /// An operator token.
    pub fn token(&self, id: &TokenId) -> Option<&AccessToken> {
        self.tokens.get(id)
    }

    /// The sealed contents of one version of a secret.
    pub fn contents(&self, namespace: &NamespaceName, name: &SecretName, version: u64) -> Option<&Arc<Sealed>> {
        self.contents.get(&(namespace.clone(), name.clone()))?.get(&version)
    }

    /// The only deployment that may use a secret, or `None` if any may.
    pub fn owner(&self, namespace: &NamespaceName, name: &SecretName) -> Option<&DeploymentName> {
        self.owners.get(&(namespace.clone(), name.clone()))
    }

    /// Whether a deployment may use a secret.
    pub fn may_use(&self, namespace: &NamespaceName, deployment: &DeploymentName, name: &SecretName) -> bool {
        self.owner(namespace, name).is_none_or(|owner| owner == deployment)
    }

    /// The key that seals new secrets.
    pub fn sealing_key(&self) -> u32 {
        self.sealing_key.unwrap_or(FIRST_KEY)
    }

    /// Everything that is sealed, with the key it is sealed with.
    pub fn sealed(&self) -> impl Iterator<Item = (SealedItem, &Sealed)> {
        let authority = self.authority.iter().map(|authority| (SealedItem::Authority, &authority.key));
        let secrets = self.contents.iter().flat_map(|((namespace, name), versions)| {
            versions.iter().map(|(version, sealed)| {
                let (namespace, name) = (namespace.clone(), name.clone());
                (SealedItem::Secret { namespace, name, version: *version }, &**sealed)
            })
        });
        authority.chain(secrets)
    }
}

impl State {
    pub(crate) fn change_access(&mut self, command: AccessCommand) -> Result<Vec<Event>, CommandError> {
        match command {
            AccessCommand::Bootstrap { authority, node, membership } => self.bootstrap(authority, node, membership),
            AccessCommand::Recover { node, membership } => Ok(self.restart_cluster(node, membership)),
            AccessCommand::GrantJoin { id, grant } => {
                if self.access.grants.contains_key(&id) {
                    return Err(CommandError::DuplicateToken(id));
                }
                self.access_mut().grants.insert(id, grant);
                Ok(vec![Event::AccessChanged])
            }
            AccessCommand::Admit { node, token, digest, address, certificate, fingerprint, key, at } => {
                let request = JoinRequest { token, digest, address, certificate, fingerprint, key, at };
                self.admit(node, request)
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
            AccessCommand::StoreSecret { namespace, name, version, contents, deployment, by_operator } => {
                let key = (namespace, name);
                // An operator would hand the contents to a deployment that took the name first.
                if by_operator
                    && let Some(owner) = self.access.owners.get(&key)
                    && deployment.as_ref() != Some(owner)
                {
                    return Err(CommandError::SecretOwned { name: key.1, deployment: owner.clone() });
                }
                self.store_secret(key, version, contents, deployment)
            }
            AccessCommand::RemoveSecret { namespace, name } => self.remove_secret((namespace, name)),
            AccessCommand::UseKey { key } => {
                // The key never goes back: items sealed with an older key are being sealed again.
                if key <= self.access.sealing_key() {
                    return Ok(Vec::new());
                }
                self.access_mut().sealing_key = Some(key);
                Ok(vec![Event::AccessChanged])
            }
            AccessCommand::Reseal { what, sealed } => Ok(self.reseal(&what, sealed)),
            AccessCommand::SetPolicy { namespace, policy } => Ok(self.set_policy(namespace, *policy)),
            AccessCommand::EnforcePolicies => Ok(self.enforce_policies()),
        }
    }

    fn store_secret(
        &mut self,
        key: (NamespaceName, SecretName),
        version: u64,
        contents: Sealed,
        deployment: Option<DeploymentName>,
    ) -> Result<Vec<Event>, CommandError> {
        // The sender does not know the new key yet. The older key may be deleted at any time.
        if contents.key < self.access.sealing_key() {
            return Err(CommandError::KeyOutdated(contents.key));
        }
        if let Some(deployment) = &deployment
            && self.secrets.contains_key(&key)
            && self.access.owners.get(&key) != Some(deployment)
        {
            return Err(CommandError::SecretOutOfScope { name: key.1, deployment: deployment.clone() });
        }
        let events = self.put_secret(key.0.clone(), key.1.clone(), version)?;
        // A version's contents never change, so storing the same version again is ignored.
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

    fn reseal(&mut self, what: &SealedItem, sealed: Sealed) -> Vec<Event> {
        let newer = |kept: &Sealed| kept.key < sealed.key;
        match what {
            SealedItem::Authority => {
                if let Some(authority) = &mut self.access_mut().authority
                    && newer(&authority.key)
                {
                    authority.key = sealed;
                    return vec![Event::AccessChanged];
                }
            }
            SealedItem::Secret { namespace, name, version } => {
                let versions = self.access_mut().contents.get_mut(&(namespace.clone(), name.clone()));
                // A secret removed in the meantime stays removed.
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

    /// The running services that require a secret.
    pub fn users_of_secret(&self, namespace: &NamespaceName, name: &SecretName) -> impl Iterator<Item = &GroupKey> {
        let running = self.groups.iter().filter(|(_, group)| group.desired == DesiredState::Run);
        let users = running
            .filter(move |(key, group)| key.namespace == *namespace && group.spec.secrets_required.contains(name));
        users.map(|(key, _)| key)
    }

    /// Every secret with its current version.
    pub fn secrets(&self) -> impl Iterator<Item = (&NamespaceName, &SecretName, u64)> {
        self.secrets.iter().map(|((namespace, name), version)| (namespace, name, *version))
    }

    fn access_mut(&mut self) -> &mut Access {
        Arc::make_mut(&mut self.access)
    }

    fn bootstrap(
        &mut self,
        authority: Authority,
        node: NodeName,
        membership: NodeMembership,
    ) -> Result<Vec<Event>, CommandError> {
        if self.access.authority.is_some() {
            return Err(CommandError::AlreadyBootstrapped);
        }
        let access = self.access_mut();
        access.members_given = access.members_given.max(membership.member.0);
        access.authority = Some(authority);
        access.memberships.insert(node, Arc::new(membership));
        Ok(vec![Event::AccessChanged])
    }

    fn restart_cluster(&mut self, node: NodeName, membership: NodeMembership) -> Vec<Event> {
        let servers =
            self.access.memberships.iter().filter(|(name, known)| **name == node || known.role == NodeRole::Server);
        let gone: Vec<NodeName> = servers.map(|(name, _)| name.clone()).collect();
        for server in &gone {
            // A node that keeps its certificate must not have it revoked.
            let goes_on = self.access.memberships[server].fingerprint == membership.fingerprint;
            if goes_on {
                self.access_mut().memberships.remove(server);
            } else {
                self.revoke_membership(server);
            }
        }
        let access = self.access_mut();
        access.incarnation += 1;
        access.members_given = access.members_given.max(membership.member.0);
        access.memberships.insert(node, Arc::new(membership));
        vec![Event::AccessChanged]
    }

    fn admit(&mut self, node: NodeName, request: JoinRequest) -> Result<Vec<Event>, CommandError> {
        let JoinRequest { token, digest, address, certificate, fingerprint, key, at } = request;
        if let Some(membership) = self.access.memberships.get(&node) {
            // The same request again: the first answer was lost.
            let again = membership.token.as_ref() == Some(&token)
                && membership.token_digest.as_ref() == Some(&digest)
                && membership.key == key;
            return if again { Ok(Vec::new()) } else { Err(CommandError::DuplicateNode(node)) };
        }
        let grant = self.access.grants.get(&token).filter(|grant| grant.digest == digest);
        let grant = grant.ok_or(CommandError::JoinTokenInvalid)?;
        if grant.expires_at <= at {
            return Err(CommandError::JoinTokenExpired);
        }
        let role = grant.role;
        let access = self.access_mut();
        access.members_given += 1;
        let member = MemberId(access.members_given);
        access.grants.remove(&token);
        access.grants.retain(|_, grant| grant.expires_at > at);
        let (token, token_digest) = (Some(token), Some(digest));
        let membership =
            NodeMembership { member, address, certificate, fingerprint, key, role, token, token_digest, since: at };
        access.memberships.insert(node, Arc::new(membership));
        Ok(vec![Event::AccessChanged])
    }

    fn relocate(&mut self, node: &NodeName, address: String) -> Result<Vec<Event>, CommandError> {
        let Some(membership) = self.access.memberships.get(node) else {
            return Err(CommandError::UnknownNode(node.clone()));
        };
        if membership.address == address {
            return Ok(Vec::new());
        }
        let membership = NodeMembership { address, ..NodeMembership::clone(membership) };
        self.access_mut().memberships.insert(node.clone(), Arc::new(membership));
        Ok(vec![Event::AccessChanged])
    }

    /// Revokes a node's membership. Returns whether it had one.
    pub(crate) fn revoke_membership(&mut self, node: &NodeName) -> bool {
        let Some(membership) = self.access.memberships.get(node) else { return false };
        let fingerprint = membership.fingerprint.clone();
        let access = self.access_mut();
        access.memberships.remove(node);
        access.revoked.insert(fingerprint);
        true
    }
}

/// A node that asks to join with a token.
struct JoinRequest {
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
