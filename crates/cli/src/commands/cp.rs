//! `longshore cp`: copies files between this machine and a replica, through `tar` on both sides.
//!
//! Owns: which side is the replica's, and the two pipes. Must not touch: the contents.
//! Invariant: a destination that is a directory receives the source under its own name; any other is the new name, as
//! with `docker cp`.

use std::{
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use clap::Args;
use longshore_api::{Client, ExecRequest, Frame};

use crate::{
    daemon_client::{NamespaceArgs, with_client, workload},
    exit::Exit,
    output::print,
};

const EXAMPLES: &str = "\
Examples:
  longshore cp web:/etc/hostname .
  longshore cp compose.yaml shop-web-0:/tmp/

The replica needs `tar` and `sh`. Of a service, a running replica is picked.";

/// Bytes of one frame.
const CHUNK: usize = 64 * 1024;

/// Unpacks standard input at `$1`; `$2` is the name of what is packed.
const UNPACK: &str = r#"if [ -d "$1" ]; then exec tar -C "$1" -xf -; fi
d=$(mktemp -d) && tar -C "$d" -xf - && mv "$d/$2" "$1" && rmdir "$d""#;

/// Copy files between this machine and a replica.
#[derive(Debug, Args)]
// Nothing is printed but errors.
#[command(after_help = EXAMPLES, mut_arg("output", |output| output.hide(true)))]
pub(crate) struct CpArgs {
    #[command(flatten)]
    scope: NamespaceArgs,
    /// A path of this machine, or `NAME:PATH` with a replica or service.
    #[arg(value_name = "[NAME:]SOURCE")]
    source: String,
    /// A path of this machine, or `NAME:PATH` with a replica or service.
    #[arg(value_name = "[NAME:]DESTINATION")]
    destination: String,
}

/// `NAME:PATH`; a name has no slash, so `./a:b` is a local path.
fn in_replica(text: &str) -> Option<(&str, &str)> {
    let (name, path) = text.split_once(':')?;
    (!name.is_empty() && !name.starts_with('.') && !name.starts_with('/') && !path.is_empty()).then_some((name, path))
}

pub(crate) fn run(args: &CpArgs) -> anyhow::Result<Exit> {
    let (from, to) = (in_replica(&args.source), in_replica(&args.destination));
    with_client(&args.scope.connection, async |client| match (from, to) {
        (Some((name, path)), None) => {
            let replica = replica_of(client, &args.scope, name).await?;
            download(client, &replica, path, Path::new(&args.destination)).await
        }
        (None, Some((name, path))) => {
            let replica = replica_of(client, &args.scope, name).await?;
            upload(client, &replica, Path::new(&args.source), path).await
        }
        (None, None) | (Some(_), Some(_)) => {
            print::stderr(
                "error: exactly one side is in a replica\n\nhint: write it like `longshore cp web:/etc/hosts .`",
            );
            Ok(Exit::BadInput)
        }
    })
}

async fn replica_of(client: &Client, scope: &NamespaceArgs, name: &str) -> anyhow::Result<String> {
    match workload::find(client, scope, Some(name)).await? {
        Some((found, status)) => workload::running_replica(&found, &status),
        None => Ok(scope.replica_id(name)),
    }
}

/// The folder and the last part of a path.
fn split(path: &Path) -> anyhow::Result<(PathBuf, String)> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("`{}` names no file or directory", path.display()))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    Ok((folder.to_owned(), name.to_owned()))
}

fn request(command: &[&str]) -> ExecRequest {
    ExecRequest {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        environment: Vec::new(),
        user: None,
        working_dir: None,
        terminal: None,
        attach: false,
    }
}

/// A directory on the disk of the destination, so that what arrived is moved in one step. Removed when dropped.
struct Staging(PathBuf);

impl Staging {
    fn beside(parent: &Path) -> std::io::Result<Self> {
        let folder = parent.join(format!(".longshore-cp-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed is empty or was not copied; the error of the copy is what counts.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn download(client: &Client, replica: &str, path: &str, to: &Path) -> anyhow::Result<Exit> {
    let (folder, name) = split(Path::new(path))?;
    let folder = folder.to_string_lossy();
    let (mut input, mut output) = client.exec(replica, &request(&["tar", "-C", &folder, "-cf", "-", &name])).await?;
    // A command that has ended already says so in its output.
    let _ = input.send(&Frame::EndOfInput).await;
    let (parent, renamed) =
        if to.is_dir() { (to.to_owned(), None) } else { split(to).map(|(at, new)| (at, Some(new)))? };
    let staging = Staging::beside(&parent).with_context(|| format!("`{}` cannot be written", parent.display()))?;
    let mut tar = Command::new("tar").arg("-C").arg(&staging.0).args(["-xf", "-"]).stdin(Stdio::piped()).spawn()?;
    let mut pipe = tar.stdin.take().context("`tar` has no standard input")?;
    let code = loop {
        match output.next().await? {
            Some(Frame::Output(bytes)) => pipe.write_all(&bytes).context("`tar` on this machine failed")?,
            Some(Frame::Errors(bytes)) => print::stderr(String::from_utf8_lossy(&bytes).trim_end()),
            Some(Frame::Exit(code)) => break code,
            None => bail!("the connection to `{replica}` ended before the copy was complete"),
            Some(Frame::Input(_) | Frame::EndOfInput | Frame::Resize(_)) => {}
        }
    };
    drop(pipe);
    let unpacked = tar.wait()?.success();
    if code != Some(0) || !unpacked {
        bail!("`{path}` of `{replica}` was not copied");
    }
    let arrives = parent.join(renamed.unwrap_or_else(|| name.clone()));
    std::fs::rename(staging.0.join(&name), &arrives)
        .with_context(|| format!("`{}` cannot be written", arrives.display()))?;
    Ok(Exit::Success)
}

async fn upload(client: &Client, replica: &str, from: &Path, path: &str) -> anyhow::Result<Exit> {
    let from = from.canonicalize().with_context(|| format!("`{}` cannot be read", from.display()))?;
    let (folder, name) = split(&from)?;
    let (mut input, mut output) = client.exec(replica, &request(&["sh", "-c", UNPACK, "sh", path, &name])).await?;
    let mut tar = Command::new("tar").arg("-C").arg(folder).args(["-cf", "-", &name]).stdout(Stdio::piped()).spawn()?;
    let mut packed = tar.stdout.take().context("`tar` has no standard output")?;
    let mut chunk = vec![0; CHUNK];
    while let length @ 1.. = packed.read(&mut chunk)? {
        // A command that has ended already says so in its output.
        if input.send(&Frame::Input(chunk[..length].to_vec().into())).await.is_err() {
            break;
        }
    }
    drop(packed);
    let _ = input.send(&Frame::EndOfInput).await;
    let packed = tar.wait()?.success();
    loop {
        match output.next().await? {
            Some(Frame::Exit(Some(0))) if packed => return Ok(Exit::Success),
            Some(Frame::Errors(bytes)) => print::stderr(String::from_utf8_lossy(&bytes).trim_end()),
            Some(Frame::Exit(_)) | None => bail!("`{}` was not copied to `{replica}`", from.display()),
            Some(Frame::Output(_) | Frame::Input(_) | Frame::EndOfInput | Frame::Resize(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_before_a_colon_is_a_replica_and_a_path_is_not() {
        assert_eq!(in_replica("web:/etc/hosts"), Some(("web", "/etc/hosts")));
        assert_eq!(in_replica("shop/web:data"), Some(("shop/web", "data")));
        for local in ["./a:b", "/a:b", "a", "web:", ":x"] {
            assert_eq!(in_replica(local), None, "{local}");
        }
    }
}
