//! How far the log was synced, beside the log.
//!
//! ```text
//! synced:  number u64 │ crc32 u32 │ zero u32  │  the same of the sync before     little-endian
//! ```
//!
//! A log that lost its end looks like one that was cut short in its last write. This file tells them apart. It is written
//! after each sync and never synced itself: after a power cut it may lag, and then less is noticed; it cannot lead.
//!
//! Owns: that one number.
//! Invariant: every record up to the number was synced. The file is made once, at its full size, so that writing it needs
//! no space.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{WalError, io};

const SLOT: usize = 16;

pub(super) struct Mark {
    path: PathBuf,
    file: File,
    /// Written in turns: a crash may spoil the one under way.
    turn: u64,
}

impl Mark {
    /// The mark of a log, and the number it holds; 0 where there is none, or none that can be read.
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
        // The one that holds less is the next to be written.
        let turn = u64::from(number(first) == synced);
        Ok((Self { path, file, turn }, synced))
    }

    /// Forgets the number, where somebody goes on with less.
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
