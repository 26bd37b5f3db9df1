//! Beginning again from what is left: a backup, or the disk of one member.
//!
//! Owns: making a directory from which a cluster of one goes on.
//! Must not touch: a running member. Both ways work on a directory that nobody has open.
//! Invariant: a directory that holds anything is never overwritten by a restore; a recovery loses nothing this member has.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use longshore_model::StateIndex;

use super::{
    Member, OpenError, SnapshotError, WalError, claim,
    encoding::{self, EncodingError},
    machine::{Batch, Machine},
    record::{Body, EntryRecord, MembersRecord, Position, Record, Standing, VoteRecord},
    snapshot::{self, Head},
    wal::{Demand, Recovered, Wal},
};
use crate::State;

/// Why a cluster could not begin again.
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
        /// Which.
        entry: u64,
        /// Why not.
        source: EncodingError,
    },
}

/// What a cluster begins again with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The state.
    pub index: StateIndex,
    /// The last entry of the old log in it.
    pub entry: u64,
}

/// Fills an empty directory from a backup, for a new cluster whose only voter is `me`.
pub fn restore(dir: &Path, me: &Member, backup: &[u8]) -> Result<Recovery, RecoveryError> {
    if holds_something(&dir.join("log")) || holds_something(&dir.join("snapshots")) {
        return Err(RecoveryError::NotEmpty { dir: dir.to_owned() });
    }
    let (head, machine) = snapshot::parse(backup, Path::new("backup"))?;
    claim(dir, me.id)?;
    let (wal, _) = Wal::open(&dir.join("log"), Demand::Everything)?;
    begin_alone(dir, wal, me, head.at.unwrap_or_default(), &machine, 0)
}

/// What a backup holds, without making anything of it.
pub fn peek(backup: &[u8]) -> Result<State, RecoveryError> {
    let (_, machine) = snapshot::parse(backup, Path::new("backup"))?;
    Ok(machine.state)
}

/// Makes the member in `dir` the only voter, with everything its log holds, when too many others are gone for good.
///
/// Entries that were never confirmed by a quorum come into force: some of them may have been acknowledged by members
/// that are gone, and losing those would be worse. Every other member of the old cluster must stay off for ever.
pub fn recover_as_single_voter(dir: &Path, me: &Member) -> Result<Recovery, RecoveryError> {
    if !holds_something(&dir.join("log")) {
        return Err(RecoveryError::Nothing { dir: dir.to_owned() });
    }
    claim(dir, me.id)?;
    // Whoever recovers has nowhere else to look: a log that lost its end is still the best there is.
    let (wal, recovered) = Wal::open(&dir.join("log"), Demand::WhatIsLeft)?;
    let (head, mut machine) = match snapshot::newest(&dir.join("snapshots"))? {
        Some((_, head, machine)) => (head, machine),
        None => (Head::default(), Machine::default()),
    };
    let term = recovered.vote.map_or(0, |vote| vote.term);
    let at = replay(&mut machine, head.at, recovered)?;
    begin_alone(dir, wal, me, at, &machine, term)
}

fn replay(machine: &mut Machine, from: Option<Position>, recovered: Recovered) -> Result<Position, RecoveryError> {
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

fn apply(machine: &mut Machine, entry: EntryRecord) -> Result<(), RecoveryError> {
    let failed = |source| RecoveryError::Entry { entry: entry.at.index, source };
    match entry.body {
        Body::Blank | Body::Members(_) => Ok(()),
        Body::Batch(payload) => {
            let batch: Batch = encoding::decode(&payload.0).map_err(failed)?;
            machine.apply(&batch, &mut Vec::new()).map_err(failed).map(drop)
        }
    }
}

/// Snapshot first, then the log: whoever is interrupted between the two can do the same once more.
fn begin_alone(
    dir: &Path,
    mut wal: Wal,
    me: &Member,
    at: Position,
    machine: &Machine,
    term: u64,
) -> Result<Recovery, RecoveryError> {
    let members =
        MembersRecord { voters: vec![BTreeSet::from([me.id.0])], members: BTreeMap::from([(me.id.0, me.clone())]) };
    snapshot::write(&dir.join("snapshots"), &Head { at: Some(at), members_at: Some(at), members }, machine)?;
    // A term beyond any this member has heard of, so that what it appends comes after what it has.
    let vote = VoteRecord { term: term.max(at.term) + 1, candidate: me.id.0, standing: Standing::Asked };
    wal.write(&[Record::Vote(vote), Record::Committed(at), Record::Purge(at)])?;
    wal.sync()?;
    Ok(Recovery { index: machine.state.index(), entry: at.index })
}

fn holds_something(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut files| files.next().is_some())
}
