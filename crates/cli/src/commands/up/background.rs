//! `longshore up -d`: a daemon in the background, for a machine that has none.
//!
//! Owns: how it is started, where it writes its log, and what is said about the next reboot.
//! Invariant: the daemon has a session of its own, so closing the terminal or Ctrl-C does not end it.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use longshore_api::Client;

use super::{UpArgs, http_port};
use crate::{output::print, paths::LocalNode};

/// Name of the log file in the data directory.
const LOG: &str = "daemon.log";
/// Time the daemon has to answer at its socket. Reading a large log back takes seconds.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two tries.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Lines of the log that are shown when the daemon does not start.
const SHOWN_LINES: usize = 10;
/// Where a systemd unit of the daemon would be.
const UNITS: [&str; 3] = [
    "/etc/systemd/system/longshore.service",
    "/usr/lib/systemd/system/longshore.service",
    "/lib/systemd/system/longshore.service",
];

/// Starts a daemon and waits until it answers.
pub(super) async fn start(client: &Client, args: &UpArgs, node: &LocalNode, socket: &Path) -> anyhow::Result<()> {
    let log = node.data_dir.join(LOG);
    let http = http_port::preferred(args.http, &node.data_dir);
    let mut daemon = spawn(args, node, socket, &log, http)?;
    let deadline = Instant::now() + START_TIMEOUT;
    while client.nodes().await.is_err() {
        let ended = daemon.try_wait().context("the daemon in the background cannot be watched")?;
        if let Some(status) = ended {
            bail!("the daemon in the background ended ({status})\n\n{}", last_lines(&log));
        }
        if Instant::now() > deadline {
            bail!("the daemon in the background does not answer at `{}`\n\n{}", socket.display(), last_lines(&log));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    http_port::remember(http, &node.data_dir);
    print::stderr(&format!(
        "the daemon runs in the background as process {}, its log is {}",
        daemon.id(),
        log.display()
    ));
    print::stderr(at_reboot());
    Ok(())
}

fn spawn(args: &UpArgs, node: &LocalNode, socket: &Path, log: &Path, http: SocketAddr) -> anyhow::Result<Child> {
    fs::create_dir_all(&node.data_dir)
        .with_context(|| format!("the data directory `{}` cannot be created", node.data_dir.display()))?;
    let file = fs::OpenOptions::new().create(true).append(true).open(log);
    let file = file.with_context(|| format!("the log `{}` cannot be written", log.display()))?;
    let program = std::env::current_exe().context("the path of this program is not known")?;
    let mut command = Command::new(program);
    command.args(["server", "--own-session", "--node", node.name.as_str(), "--nodes", &args.nodes.to_string()]);
    command.arg("--data-dir").arg(&node.data_dir).arg("--socket").arg(socket);
    command.args(["--http", &http.to_string()]);
    command.args(args.overlay.arguments());
    if let Some(disk) = args.disk {
        command.args(["--disk", &disk.to_string()]);
    }
    if let Some(engine) = &args.docker {
        command.arg("--docker").arg(engine);
    }
    let errors = file.try_clone().context("the log cannot be shared")?;
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    command.spawn().context("the daemon cannot be started in the background")
}

fn at_reboot() -> &'static str {
    if UNITS.iter().any(|unit| Path::new(unit).exists()) {
        "the unit longshore.service is installed but does not run: `systemctl enable --now longshore` starts the daemon it \
         describes, also after a reboot"
    } else {
        "nothing starts it after a reboot: run `longshore up -d` again then, or install the systemd unit of docs/install.md"
    }
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}
