//! A pseudo-terminal for a plain process.
//!
//! Owns: opening one. Must not touch: its size, and who uses it.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt as _},
};

use rustix::{
    fs::OFlags,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

/// The controlling side of a new pseudo-terminal, and the side for the process.
pub(crate) fn open() -> io::Result<(File, OwnedFd)> {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&controller)?;
    unlockpt(&controller)?;
    let name = ptsname(&controller, Vec::new())?;
    let path = name.to_str().map_err(io::Error::other)?;
    // Not for this process: a session leader would otherwise take it as its own controlling terminal.
    let flags = i32::try_from(OFlags::NOCTTY.bits()).unwrap_or_default();
    let terminal = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    Ok((File::from(controller), terminal.into()))
}
