//! `longshore dashboard`: a link that logs a browser in.
//!
//! Owns: its options. Must not touch: authentication; the daemon creates the link and accepts it once.

use clap::Args;

use crate::{
    daemon_client::{ConnectionArgs, with_client},
    exit::Exit,
    output::print,
};

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
        if link.url.is_none() {
            print::stderr("hint: the daemon has no HTTP listener for browsers; start it with `--http 127.0.0.1:7475`");
        }
        args.connection.print(&link, |link| format!("{}\n", link.url.as_ref().unwrap_or(&link.path)))
    })
}
