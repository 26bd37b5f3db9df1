//! `longshore dashboard`: a link that logs a browser in.
//!
//! Owns: its options. Must not touch: authentication; the daemon creates the link and accepts it once.

use clap::Args;

use crate::{
    daemon_client::{ConnectionArgs, with_client},
    exit::Exit,
    output::print,
};

/// What to do about a daemon that listens at its socket only.
const NO_LISTENER_HINT: &str = "start it with `--http 127.0.0.1:7475`, for the systemd unit in `LONGSHORE_OPTIONS`; from another \
                                machine, `ssh -L 7475:127.0.0.1:7475 HOST` reaches it";
/// What a browser says about the TLS listener.
const TLS_HINT: &str = "hint: the certificate is the cluster's own, which a browser does not know; `--http 127.0.0.1:7475` makes a \
                        listener for browsers of the daemon's machine";

/// Print a link that opens the dashboard. It is valid once, for one minute.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore dashboard")]
pub(crate) struct DashboardArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) fn run(args: &DashboardArgs) -> anyhow::Result<Exit> {
    with_client(&args.connection, async |client| {
        let link = client.login_link().await?;
        let Some(url) = link.url.clone() else {
            print::stderr(&format!(
                "error: the daemon has no address that a browser can open\n\nhint: {NO_LISTENER_HINT}"
            ));
            return Ok(Exit::Error);
        };
        if url.starts_with("https://") {
            print::stderr(TLS_HINT);
        }
        args.connection.print(&link, |_| format!("{url}\n"))
    })
}
