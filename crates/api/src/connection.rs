//! Connections that last: lines that are followed, a command that is talked to, one node's word for another.
//!
//! Owns: when an end counts as gone. Must not touch: what is said on them.
//! Invariant: an end that vanishes without a word, its cable torn or its machine off, is noticed, also where nothing is
//! being said.

use std::{io, time::Duration};

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use tokio::net::TcpStream;

/// Silence after which the other end is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(15);
/// Time between two such questions.
const BETWEEN: Duration = Duration::from_secs(5);
/// Questions without an answer after which nobody is there: half a minute of silence in all, which is longer than a
/// switch takes to restart a port, and short enough that a forgotten command does not pile up.
const UNANSWERED: u32 = 3;

/// Makes a connection one that lasts. The kernel asks the other kernel, so one that reads slowly, or is paused in a
/// pager, stays. With bytes under way it is the kernel that gives up, a quarter of an hour later; to hasten that by
/// `TCP_USER_TIMEOUT` was refused, because it would end slow readers as well.
pub fn tend(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    set_tcp_keepidle(stream, SILENCE)?;
    set_tcp_keepintvl(stream, BETWEEN)?;
    set_tcp_keepcnt(stream, UNANSWERED)?;
    Ok(set_socket_keepalive(stream, true)?)
}
