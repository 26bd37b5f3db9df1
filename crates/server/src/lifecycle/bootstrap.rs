//! Bootstrap: the first node creates the cluster.
//!
//! Owns: authority, keys and node record of a cluster of one, and committing them to the store.
//! Invariant: an interrupted bootstrap is completed by the next start; nothing that exists is created twice.

use std::{path::Path, time::Duration};

use ipnet::Ipv4Net;
use longshore_model::{
    Actor, ClusterConfig, Command, MemberId, NodeName,
    access::{AccessCommand, Authority, NodeRole},
};
use longshore_store::{
    CommandError,
    replicated::{LeadershipRole, Member, MembershipError, Replicated},
};

use crate::{
    lifecycle::{
        address_choice,
        daemon::StartError,
        data_folder::DataFolder,
        node_context::NodeContext,
        node_record::{NodeRecord, RaftMembership},
    },
    node_rpc::service::{self, AUTHORITY_PURPOSE, NodeRequestError},
    security::{
        identity::{Identity, NodeKey, SigningAuthority},
        keyring::{Keyring, random_hex},
    },
};

/// Member id of the first node; later members count up from it.
const FIRST_MEMBER: MemberId = MemberId(1);
/// Number of the key that a new cluster starts with.
const FIRST_KEY: u32 = 1;
/// Time a cluster of one has to elect itself.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(15);

/// What a node starts with.
pub(crate) struct LocalNode {
    pub(crate) record: NodeRecord,
    pub(crate) identity: Identity,
    pub(crate) keyring: Option<Keyring>,
}

/// Reads the folder, or bootstraps a cluster of one in an empty one.
pub(crate) fn open_or_bootstrap(
    folder: &DataFolder,
    node: &NodeName,
    address: Option<String>,
) -> Result<LocalNode, StartError> {
    let Some(mut record) = folder.record()? else { return bootstrap_cluster(folder, node, address, None) };
    if record.node != *node {
        return Err(StartError::OtherNode { folder: record.node, asked: node.clone() });
    }
    if address.is_some() && record.address != address {
        record.address = address;
        folder.save_record(&record)?;
    }
    let identity = folder.identity()?.ok_or_else(|| StartError::NoIdentity(node.clone()))?;
    Ok(LocalNode { record, identity, keyring: folder.keyring()? })
}

/// Bootstraps a cluster of one in an empty folder and returns the cluster's id. The daemon commits it when it starts. A
/// named IPv4 pool that clashes with a route of this machine is refused.
pub fn init(
    data_dir: &Path,
    node: &NodeName,
    address: Option<String>,
    ipv4_pool: Option<Ipv4Net>,
) -> Result<String, StartError> {
    let folder = DataFolder::take(data_dir)?;
    if let Some(NodeRecord { node, cluster, .. }) = folder.record()? {
        return Err(StartError::Taken { node, cluster });
    }
    Ok(bootstrap_cluster(&folder, node, address, ipv4_pool)?.record.cluster)
}

fn bootstrap_cluster(
    folder: &DataFolder,
    node: &NodeName,
    address: Option<String>,
    ipv4_pool: Option<Ipv4Net>,
) -> Result<LocalNode, StartError> {
    let new_addresses = Some(address_choice::choose(ipv4_pool)?);
    let cluster = random_hex(8)?;
    let (authority, key, keyring) = (SigningAuthority::new(&cluster)?, NodeKey::new()?, Keyring::new()?);
    let certificate = authority.sign(node, NodeRole::Server, key.public())?;
    folder.save_keyring(&keyring)?;
    folder.save_bootstrap_key(authority.key())?;
    folder.save_identity(authority.certificate(), &certificate, &key)?;
    let record = NodeRecord {
        cluster,
        node: node.clone(),
        member: FIRST_MEMBER,
        role: NodeRole::Server,
        address,
        raft: RaftMembership::Member,
        servers: Vec::new(),
        has_store: false,
        new_addresses,
    };
    // Written last: from now on the folder belongs to this cluster.
    folder.save_record(&record)?;
    let identity = Identity::new(authority.certificate().to_vec(), certificate, &key);
    Ok(LocalNode { record, identity, keyring: Some(keyring) })
}

/// Commits a new cluster to the store. Does nothing on a node that did not bootstrap it.
pub(crate) async fn commit_bootstrap(ctx: &NodeContext, store: &Replicated) -> Result<(), StartError> {
    let Some(authority_key) = ctx.folder.bootstrap_key()? else { return Ok(()) };
    let record = ctx.record();
    let address = record.address.clone().unwrap_or_default();
    let me = Member { id: record.member, name: record.node.clone(), address: address.clone() };
    // A store with a vote, an entry or a snapshot is already initialised.
    match store.initialise(me).await {
        Ok(()) | Err(MembershipError::AlreadyInitialised) => {}
        Err(error) => return Err(error.into()),
    }
    let mut leadership = store.leadership();
    let elected = leadership.wait_for(|leadership| leadership.role == LeadershipRole::Leading);
    if !tokio::time::timeout(ELECTION_TIMEOUT, elected).await.is_ok_and(|led| led.is_ok()) {
        return Err(StartError::NoLeader(ELECTION_TIMEOUT));
    }
    let identity = ctx.folder.identity()?.ok_or_else(|| StartError::NoIdentity(record.node.clone()))?;
    let keyring = ctx.keyring().ok_or_else(|| StartError::NoIdentity(record.node.clone()))?;
    let authority = Authority {
        certificate: identity.authority.to_vec(),
        key: keyring.seal(FIRST_KEY, AUTHORITY_PURPOSE, &authority_key)?,
    };
    commit_addresses(store, &record).await?;
    let membership = record.membership(address, &identity)?;
    let command =
        Command::Access(Box::new(AccessCommand::Bootstrap { authority, node: record.node.clone(), membership }));
    match service::propose(store, Actor::Node(record.node), command).await {
        Ok(()) | Err(NodeRequestError::Refused(CommandError::AlreadyBootstrapped)) => {}
        Err(error) => return Err(StartError::NotRecorded(error.to_string())),
    }
    // Before anybody can create a namespace.
    let enforce = Command::Access(Box::new(AccessCommand::EnforcePolicies));
    service::propose(store, Actor::System, enforce)
        .await
        .map_err(|error| StartError::NotRecorded(error.to_string()))?;
    // The key is now replicated, sealed.
    ctx.folder.delete_bootstrap_key()?;
    Ok(())
}

/// Sets where addresses come from, before any node has joined.
async fn commit_addresses(store: &Replicated, record: &NodeRecord) -> Result<(), StartError> {
    let state = store.read_local().state;
    let Some(plan) = record.new_addresses.filter(|_| state.nodes().next().is_none()) else { return Ok(()) };
    let expected = Box::new(state.config().clone());
    let config = Box::new(ClusterConfig {
        cluster_prefix: plan.prefix,
        ipv4_pool: plan.pool,
        ..ClusterConfig::clone(&expected)
    });
    let command = Command::ChangeSettings { expected, config };
    let proposed = service::propose(store, Actor::Node(record.node.clone()), command).await;
    proposed.map_err(|error| StartError::NotRecorded(error.to_string()))
}
