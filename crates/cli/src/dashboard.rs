//! `longshore dashboard`: the way in for browsers.
//!
//! Owns: its options. Must not touch: who is let in; the daemon makes the link, and takes it once.

use clap::Args;

use crate::{
    exit::Exit,
    print,
    remote::{self, Connection},
};

/// Print a link to the dashboard that logs in once, within a minute.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  longshore dashboard")]
pub(crate) struct Options {
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    remote::ask(&options.connection, async |client| {
        let link = client.login_link().await?;
        if link.url.is_none() {
            print::note("hint: the daemon listens for no browsers; start it with `--http 127.0.0.1:7475`");
        }
        remote::show(&options.connection, &link, |link| format!("{}\n", link.url.as_ref().unwrap_or(&link.path)))
    })
}
