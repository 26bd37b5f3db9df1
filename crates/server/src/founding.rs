//! The first node makes the cluster.
//!
//! Owns: authority, keys and place of a cluster of one, and putting them on record.
//! Invariant: whatever is interrupted is finished by the next start; nothing that exists is made twice.

use std::{path::Path, time::Duration};

use longshore_model::{
    Actor, Command, MemberId, NodeName,
    access::{AccessCommand, Authority, SeatPart},
};
use longshore_store::{
    CommandError,
    replicated::{Member, MembershipError, Part, Replicated},
};

use crate::{
    daemon::StartError,
    folder::Folder,
    hub::Hub,
    identity::{Identity, NodeKey, SigningAuthority},
    place::{Place, Serving},
    reception::{self, AUTHORITY_PURPOSE, ReceptionError},
    vault::{Vault, random_hex},
};

/// The first member of a cluster; others are counted on from it.
const FIRST_MEMBER: MemberId = MemberId(1);
/// The key a cluster is founded with.
const FIRST_KEY: u32 = 1;
/// Time a cluster of one has to elect itself.
const ELECTION: Duration = Duration::from_secs(15);

/// What a node starts with.
pub(crate) struct Standing {
    pub(crate) place: Place,
    pub(crate) identity: Identity,
    pub(crate) vault: Option<Vault>,
}

/// What the folder holds, or a new cluster of one where it holds nothing.
pub(crate) fn found_or_go_on(
    folder: &Folder,
    node: &NodeName,
    address: Option<String>,
) -> Result<Standing, StartError> {
    let Some(mut place) = folder.place()? else { return found(folder, node, address) };
    if place.node != *node {
        return Err(StartError::OtherNode { folder: place.node, asked: node.clone() });
    }
    if address.is_some() && place.address != address {
        place.address = address;
        folder.keep_place(&place)?;
    }
    let identity = folder.identity()?.ok_or_else(|| StartError::NoIdentity(node.clone()))?;
    Ok(Standing { place, identity, vault: folder.vault()? })
}

/// Makes a cluster of one in an empty folder; the daemon puts it on record when it starts. Says the cluster's id.
pub fn init(data_dir: &Path, node: &NodeName, address: Option<String>) -> Result<String, StartError> {
    let folder = Folder::take(data_dir)?;
    if let Some(Place { node, cluster, .. }) = folder.place()? {
        return Err(StartError::Taken { node, cluster });
    }
    Ok(found(&folder, node, address)?.place.cluster)
}

fn found(folder: &Folder, node: &NodeName, address: Option<String>) -> Result<Standing, StartError> {
    let cluster = random_hex(8)?;
    let (authority, key, vault) = (SigningAuthority::new(&cluster)?, NodeKey::new()?, Vault::new()?);
    let certificate = authority.sign(node, SeatPart::Server, key.public())?;
    folder.keep_vault(&vault)?;
    folder.keep_founding_key(authority.key())?;
    folder.keep_identity(authority.certificate(), &certificate, &key)?;
    let place = Place {
        cluster,
        node: node.clone(),
        member: FIRST_MEMBER,
        part: SeatPart::Server,
        address,
        serving: Serving::Yes,
        servers: Vec::new(),
    };
    // Last: from now on the folder belongs to this cluster.
    folder.keep_place(&place)?;
    let identity = Identity::new(authority.certificate().to_vec(), certificate, &key);
    Ok(Standing { place, identity, vault: Some(vault) })
}

/// Puts a new cluster on record, on the node that makes it; on any other there is nothing to do.
pub(crate) async fn put_on_record(hub: &Hub, store: &Replicated) -> Result<(), StartError> {
    let Some(authority_key) = hub.folder.founding_key()? else { return Ok(()) };
    let place = hub.place();
    let address = place.address.clone().unwrap_or_default();
    let me = Member { id: place.member, name: place.node.clone(), address: address.clone() };
    // Whoever has a vote, an entry or a snapshot is part of a cluster, and is left as it is.
    match store.initialise(me).await {
        Ok(()) | Err(MembershipError::AlreadyInitialised) => {}
        Err(error) => return Err(error.into()),
    }
    let mut leadership = store.leadership();
    let elected = leadership.wait_for(|leadership| leadership.part == Part::Leading);
    if !tokio::time::timeout(ELECTION, elected).await.is_ok_and(|led| led.is_ok()) {
        return Err(StartError::NoLeader(ELECTION));
    }
    let identity = hub.folder.identity()?.ok_or_else(|| StartError::NoIdentity(place.node.clone()))?;
    let vault = hub.vault().ok_or_else(|| StartError::NoIdentity(place.node.clone()))?;
    let authority = Authority {
        certificate: identity.authority.to_vec(),
        key: vault.seal(FIRST_KEY, AUTHORITY_PURPOSE, &authority_key)?,
    };
    let seat = place.seat(address, &identity)?;
    let found = Command::Access(Box::new(AccessCommand::Found { authority, node: place.node.clone(), seat }));
    match reception::tell(store, Actor::Node(place.node), found).await {
        Ok(()) | Err(ReceptionError::Refused(CommandError::AlreadyFounded)) => {}
        Err(error) => return Err(StartError::NotRecorded(error.to_string())),
    }
    // From now on the key is replicated, sealed.
    hub.folder.forget_founding_key()?;
    Ok(())
}
