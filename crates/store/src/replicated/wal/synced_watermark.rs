//! The synced watermark: the number of the last synced record, in a file beside the log.
//!
//! ```text
//! synced:  number u64 │ crc32 u32 │ zero u32  │  the same for the previous sync     little-endian
//! ```
//!
//! A log that lost its end looks like one whose last write was interrupted; this file distinguishes the two. It is
//! written after each sync and never synced itself. After a power failure it may lag, and then less is detected; it
//! never runs ahead.
//!
//! Owns: that number.
//! Invariant: every record up to the number was synced. The file is created once at its full size, so that writing it
//! needs no disk space.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{WalError, io};

const SLOT: usize = 16;

pub(super) struct SyncedWatermark {
    path: PathBuf,
    file: File,
    /// The two slots are written alternately, because a crash may damage the one being written.
    turn: u64,
}

impl SyncedWatermark {
    /// Opens the watermark and returns its number, which is 0 if there is none or it is damaged.
    pub(super) fn open(dir: &Path) -> Result<(Self, u64), WalError> {
        let path = dir.join("synced");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(io("open", &path))?;
        let mut slots = [0; 2 * SLOT];
        let length = file.metadata().map_err(io("read the size of", &path))?.len();
        if length < slots.len() as u64 {
            file.write_all_at(&slots, 0).map_err(io("write to", &path))?;
        }
        file.read_exact_at(&mut slots, 0).map_err(io("read", &path))?;
        let (first, second) = slots.split_at(SLOT);
        let synced = number(first).max(number(second));
        // The slot with the lower number is written next.
        let turn = u64::from(number(first) == synced);
        Ok((Self { path, file, turn }, synced))
    }

    /// Resets the number, when the log is opened with less than was synced.
    pub(super) fn clear(&mut self) -> Result<(), WalError> {
        self.file.write_all_at(&[0; 2 * SLOT], 0).map_err(io("write to", &self.path))
    }

    pub(super) fn set(&mut self, number: u64) -> Result<(), WalError> {
        let mut slot = [0; SLOT];
        slot[..8].copy_from_slice(&number.to_le_bytes());
        slot[8..12].copy_from_slice(&crc32fast::hash(&number.to_le_bytes()).to_le_bytes());
        self.file.write_all_at(&slot, self.turn * SLOT as u64).map_err(io("write to", &self.path))?;
        self.turn = 1 - self.turn;
        Ok(())
    }
}

fn number(slot: &[u8]) -> u64 {
    let (number, rest) = slot.split_at(8);
    let sum = crc32fast::hash(number).to_le_bytes();
    let number = number.try_into().map_or(0, u64::from_le_bytes);
    if rest.starts_with(&sum) { number } else { 0 }
}
