//! Disaster recovery: a new single-voter cluster from a backup or from the disk of one member.
//!
//! Owns: preparing a directory from which a single-member cluster starts.
//! Must not touch: a running member. Both functions require a directory that no process has open.
//! Invariant: a restore never overwrites a directory that is not empty; a recovery loses nothing that this member has.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use longshore_model::StateIndex;

use super::{
    Member, OpenError, SnapshotError, WalError, claim,
    encoding::{self, EncodingError},
    record::{Body, EntryRecord, MembersRecord, Position, Record, VoteRecord, VoteState},
    snapshot::{self, SnapshotHeader},
    state_machine::{Batch, StateMachine},
    wal::{Recovered, RecoveryMode, Wal},
};
use crate::State;

/// Why a restore or a recovery failed.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// A restore needs an empty directory.
    #[error("`{}` already holds a member's log or snapshots", .dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// A recovery needs a member that has been part of a cluster.
    #[error("`{}` holds nothing to recover", .dir.display())]
    Nothing {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory could not be used.
    #[error("the directory could not be used")]
    Open(#[from] OpenError),
    /// The backup or the snapshot could not be read or written.
    #[error("the snapshot could not be used")]
    Snapshot(#[from] SnapshotError),
    /// The log could not be read or written.
    #[error("the log could not be used")]
    Log(#[from] WalError),
    /// An entry of the log could not be applied.
    #[error("entry {entry} of the log cannot be applied")]
    Entry {
        /// The index of the entry.
        entry: u64,
        /// The cause.
        source: EncodingError,
    },
}

/// What the new cluster starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The state index.
    pub index: StateIndex,
    /// The last entry of the old log that is included.
    pub entry: u64,
}

/// Fills an empty directory from a backup, for a new cluster whose only voter is `me`.
pub fn restore(dir: &Path, me: &Member, backup: &[u8]) -> Result<Recovery, RecoveryError> {
    if is_not_empty(&dir.join("log")) || is_not_empty(&dir.join("snapshots")) {
        return Err(RecoveryError::NotEmpty { dir: dir.to_owned() });
    }
    let (header, machine) = snapshot::parse(backup, Path::new("backup"))?;
    claim(dir, me.id)?;
    let (wal, _) = Wal::open(&dir.join("log"), RecoveryMode::Strict)?;
    write_single_voter(dir, wal, me, header.at.unwrap_or_default(), &machine, 0)
}

/// Decodes the state in a backup.
pub fn read_backup(backup: &[u8]) -> Result<State, RecoveryError> {
    let (_, machine) = snapshot::parse(backup, Path::new("backup"))?;
    Ok(machine.state)
}

/// Makes the member in `dir` the only voter, with everything in its log, when too many other members are lost.
///
/// Entries that no quorum confirmed take effect: lost members may have acknowledged some of them. No other member of
/// the old cluster may ever be started again.
pub fn recover_as_single_voter(dir: &Path, me: &Member) -> Result<Recovery, RecoveryError> {
    if !is_not_empty(&dir.join("log")) {
        return Err(RecoveryError::Nothing { dir: dir.to_owned() });
    }
    claim(dir, me.id)?;
    // There is no better copy: a log that lost its end is still recovered.
    let (wal, recovered) = Wal::open(&dir.join("log"), RecoveryMode::Salvage)?;
    let (header, mut machine) = match snapshot::newest(&dir.join("snapshots"))? {
        Some((_, header, machine)) => (header, machine),
        None => (SnapshotHeader::default(), StateMachine::default()),
    };
    let term = recovered.vote.map_or(0, |vote| vote.term);
    let at = replay(&mut machine, header.at, recovered)?;
    write_single_voter(dir, wal, me, at, &machine, term)
}

fn replay(machine: &mut StateMachine, from: Option<Position>, recovered: Recovered) -> Result<Position, RecoveryError> {
    let mut at = from;
    for entry in recovered.entries {
        if at.is_some_and(|at| entry.at.index <= at.index) {
            continue;
        }
        at = Some(entry.at);
        apply(machine, entry)?;
    }
    Ok(at.unwrap_or_default())
}

fn apply(machine: &mut StateMachine, entry: EntryRecord) -> Result<(), RecoveryError> {
    let failed = |source| RecoveryError::Entry { entry: entry.at.index, source };
    match entry.body {
        Body::Blank | Body::Members(_) => Ok(()),
        Body::Batch(payload) => {
            let batch: Batch = encoding::decode(&payload.0).map_err(failed)?;
            machine.apply(&batch, &mut Vec::new()).map_err(failed).map(drop)
        }
    }
}

/// Writes the snapshot first, then the log, so that an interrupted recovery can be repeated.
fn write_single_voter(
    dir: &Path,
    mut wal: Wal,
    me: &Member,
    at: Position,
    machine: &StateMachine,
    term: u64,
) -> Result<Recovery, RecoveryError> {
    let members =
        MembersRecord { voters: vec![BTreeSet::from([me.id.0])], members: BTreeMap::from([(me.id.0, me.clone())]) };
    snapshot::write(&dir.join("snapshots"), &SnapshotHeader { at: Some(at), members_at: Some(at), members }, machine)?;
    // A term higher than any this member has seen, so that new entries come after the existing ones.
    let vote = VoteRecord { term: term.max(at.term) + 1, candidate: me.id.0, state: VoteState::Requested };
    wal.write(&[Record::Vote(vote), Record::Committed(at), Record::Purge(at)])?;
    wal.sync()?;
    Ok(Recovery { index: machine.state.index(), entry: at.index })
}

pub(super) fn is_not_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut files| files.next().is_some())
}
