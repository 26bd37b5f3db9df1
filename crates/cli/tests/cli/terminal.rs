//! `longshore` on a pseudo terminal.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

/// Time limit of every wait, generous for a loaded machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct Terminal {
    child: Child,
    keys: File,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs `longshore` with a terminal of 100 columns and 40 rows as its three standard streams.
    pub(crate) fn run(arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let slave = || Stdio::from(File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap());
        // `shim tty` makes it the controlling terminal, so that Ctrl-C sends a signal.
        let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
        command.args(["shim", "tty", env!("CARGO_BIN_EXE_longshore")]).args(arguments).env("TERM", "xterm");
        command.stdin(slave()).stdout(slave()).stderr(slave());
        prepare(&mut command);
        let child = command.spawn().unwrap();
        drop(command);
        let keys = File::from(master);
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let (mut screen, shared) = (keys.try_clone().unwrap(), Arc::clone(&seen));
        thread::spawn(move || {
            let mut part = [0; 4096];
            // The kernel returns EIO once the other end is closed.
            while let Ok(length @ 1..) = screen.read(&mut part) {
                shared.lock().unwrap().extend_from_slice(&part[..length]);
            }
        });
        Self { child, keys, seen }
    }

    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keys, size).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap(), signal).unwrap();
    }

    /// Everything written to it, without escape sequences.
    pub(crate) fn text(&self) -> String {
        let seen = String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned();
        let mut out = String::new();
        let mut rest = seen.chars();
        while let Some(letter) = rest.next() {
            match letter {
                '\u{1b}' => _ = rest.by_ref().find(char::is_ascii_alphabetic),
                '\r' => {}
                _ => out.push(letter),
            }
        }
        out
    }

    /// Waits until a text was written, and returns everything written.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let until = Instant::now() + TIMEOUT;
        loop {
            let seen = self.text();
            if seen.contains(text) {
                return seen;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "it ended before it said `{text}`:\n{}", self.text());
            assert!(Instant::now() < until, "it never said `{text}`:\n{seen}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn wait_until_it_ends(&mut self) -> ExitStatus {
        let until = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it does not end:\n{}", self.text());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
