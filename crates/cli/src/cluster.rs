//! `longshore cluster`, `token`, `secret` and `backup`: who belongs to the cluster, and who may ask it for something.
//!
//! Owns: their options, and that a secret is never taken from the command line, where others could read it.

use std::{
    fs::OpenOptions,
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use longshore_api::{
    ClusterStatus, JoinTokenRequest, SecretRequest, SecretRow, Token, TokenKind, TokenRequest, TokenRow,
};
use longshore_model::access::Power;
use longshore_server::{BegunAgain, JoinConfig, Joined};

use crate::{
    exit::Exit,
    place, print,
    remote::{self, Connection},
    server::node_name,
    table,
};

/// Who makes up the cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show who keeps the log, who votes and who leads.
    ///
    /// Example: longshore cluster status
    Status {
        #[command(flatten)]
        connection: Connection,
    },
    /// Make a token that lets one node in, once.
    ///
    /// Example: longshore cluster token --worker --valid 10m
    Token {
        #[command(flatten)]
        connection: Connection,
        /// The node shall run work and never vote.
        #[arg(long)]
        worker: bool,
        /// How long the token is good for: a number and s, m, h or d.
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
        valid: Duration,
    },
    /// Make a new cluster, with this machine as its first server. `longshore server` does the rest.
    ///
    /// Example: longshore cluster init --advertise 10.0.0.1:7474
    Init {
        /// Where this node is reached by the others; nowhere unless given.
        #[arg(long, value_name = "ADDRESS")]
        advertise: Option<String>,
        /// Name of this node; the machine's name unless given.
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
        /// Where the daemon keeps everything; as for `longshore server` unless given.
        #[arg(long, value_name = "DIRECTORY")]
        data_dir: Option<PathBuf>,
    },
    /// Have another key seal all secrets, and forget the one before. Do so after a server was removed.
    ///
    /// Example: longshore cluster rotate-key
    RotateKey {
        #[command(flatten)]
        connection: Connection,
    },
    /// Join a cluster: the token becomes this node's place in it. `longshore server` does the rest.
    ///
    /// Example: longshore cluster join 10.0.0.1:7474 --advertise 10.0.0.2:7474 --token-file token
    Join(JoinOptions),
    /// Go on with this server alone, when too many others are gone for good for a majority to be left.
    ///
    /// The daemon must not run, and the other servers must never be started again. Nothing this server has is lost.
    ///
    /// Example: longshore cluster recover
    Recover {
        /// Where the daemon keeps everything; as for `longshore server` unless given.
        #[arg(long, value_name = "DIRECTORY")]
        data_dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct JoinOptions {
    /// A server of the cluster.
    #[arg(value_name = "ADDRESS")]
    server: String,
    /// Where this node is reached by the others.
    #[arg(long, value_name = "ADDRESS")]
    advertise: String,
    /// The file that holds the token; standard input unless given.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Name of this node; the machine's name unless given.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Where the daemon keeps everything; `/var/lib/longshore` for root, else `longshore` in the user's data folder.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Status { connection } => {
            remote::ask(&connection, async |client| remote::show(&connection, &client.cluster().await?, draw_status))
        }
        Command::Token { connection, worker, valid } => remote::ask(&connection, async |client| {
            let request = JoinTokenRequest { worker, valid_secs: Some(valid.as_secs()) };
            let made = client.join_token(&request).await?;
            remote::show(&connection, &made, |made| format!("{}\n", made.token))
        }),
        Command::Init { advertise, node, data_dir } => {
            let node = node_name(node)?;
            let folder = data_dir.unwrap_or_else(place::data_dir);
            let cluster = longshore_server::init(&folder, &node, advertise)?;
            print::print(&format!("made cluster {cluster} with {node} as its first server\n"))?;
            print::note(
                "hint: start `longshore server --listen ADDRESS`, then `longshore cluster token` lets others in",
            );
            Ok(Exit::Success)
        }
        Command::RotateKey { connection } => remote::ask(&connection, async |client| {
            let rotated = client.rotate_key().await?;
            remote::show(&connection, &rotated, |rotated| format!("key {} seals from now on\n", rotated.key))
        }),
        Command::Join(options) => join(options),
        Command::Recover { data_dir } => {
            let folder = data_dir.unwrap_or_else(place::data_dir);
            begun(runtime()?.block_on(longshore_server::recover(folder))?)
        }
    }
}

fn join(options: JoinOptions) -> anyhow::Result<Exit> {
    let text = read(options.token_file.as_deref()).context("the token cannot be read")?;
    let token = match Token::of_kind(TokenKind::Join, &text) {
        Ok(token) => token,
        Err(error) => {
            print::note(&format!("error: {error}"));
            return Ok(Exit::BadInput);
        }
    };
    let config = JoinConfig {
        data_dir: options.data_dir.unwrap_or_else(place::data_dir),
        node: node_name(options.node)?,
        address: options.advertise,
        server: options.server,
        token,
    };
    let Joined { cluster, servers } = runtime()?.block_on(longshore_server::join(config))?;
    print::print(&format!("joined cluster {cluster}; its servers: {}\n", servers.join(", ")))?;
    print::note("hint: start `longshore server --listen ADDRESS` on this node");
    Ok(Exit::Success)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the runtime did not start")
}

fn begun(begun: BegunAgain) -> anyhow::Result<Exit> {
    let BegunAgain { cluster, node, index } = begun;
    print::print(&format!("cluster {cluster} goes on with {node} as its only server, index {index}\n"))?;
    print::note("hint: start `longshore server`, then let others join; old servers must stay off");
    Ok(Exit::Success)
}

fn draw_status(status: &ClusterStatus) -> String {
    let yes = |yes: bool| if yes { "yes" } else { "" }.to_owned();
    let rows = status.members.iter().map(|member| {
        let (log, votes, leads) = (yes(member.keeps_log), yes(member.votes), yes(member.leads));
        vec![member.node.clone(), member.part.clone(), member.address.clone(), log, votes, leads]
    });
    let heading = ["NODE", "PART", "ADDRESS", "LOG", "VOTES", "LEADS"];
    let table = table::draw(&heading, &rows.collect::<Vec<_>>());
    format!("cluster {}, term {}, index {}\n\n{table}", status.cluster, status.term, status.index)
}

/// What a token is good for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Role {
    View,
    Deploy,
    Admin,
}

impl From<Role> for Power {
    fn from(role: Role) -> Self {
        match role {
            Role::View => Self::View,
            Role::Deploy => Self::Deploy,
            Role::Admin => Self::Admin,
        }
    }
}

/// Tokens of operators.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token. It is shown this once.
    ///
    /// Example: longshore token create ci --role deploy --deployment shop --valid 30d
    Create {
        #[command(flatten)]
        connection: Connection,
        /// What to call it; the audit record does.
        name: String,
        /// What it is good for: to look, to change deployments, or everything.
        #[arg(long, value_enum)]
        role: Role,
        /// Only in this namespace.
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
        /// Only for this deployment.
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
        /// How long it is good for; for ever unless given.
        #[arg(long, value_name = "TIME", value_parser = time)]
        valid: Option<Duration>,
    },
    /// List tokens.
    ///
    /// Example: longshore token ls
    Ls {
        #[command(flatten)]
        connection: Connection,
    },
    /// Revoke a token: from now on it opens nothing.
    ///
    /// Example: longshore token rm 1f6d0c2b9a4e7385
    Rm {
        #[command(flatten)]
        connection: Connection,
        /// Its id.
        id: String,
    },
}

pub(crate) fn token(command: TokenCommand) -> anyhow::Result<Exit> {
    match command {
        TokenCommand::Create { connection, name, role, namespace, deployment, valid } => {
            let valid_secs = valid.map(|valid| valid.as_secs());
            let request = TokenRequest { name, role: role.into(), namespace, deployment, valid_secs };
            remote::ask(&connection, async |client| {
                let made = client.create_token(&request).await?;
                remote::show(&connection, &made, |made| format!("{}\n", made.token))
            })
        }
        TokenCommand::Ls { connection } => remote::ask(&connection, async |client| {
            remote::show(&connection, &client.tokens().await?, |rows| draw_tokens(rows))
        }),
        TokenCommand::Rm { connection, id } => {
            remote::change(&connection, async |client| client.revoke_token(&id).await)
        }
    }
}

fn draw_tokens(tokens: &[TokenRow]) -> String {
    let rows = tokens.iter().map(|token| {
        let scope = match (&token.namespace, &token.deployment) {
            (None, None) => "everywhere".to_owned(),
            (namespace, deployment) => {
                let any = "*".to_owned();
                format!("{}/{}", namespace.as_ref().unwrap_or(&any), deployment.as_ref().unwrap_or(&any))
            }
        };
        let expires = token.expires_ms.map_or_else(String::new, |at| at.to_string());
        vec![token.id.clone(), token.name.clone(), token.role.clone(), scope, expires]
    });
    table::draw(&["ID", "NAME", "ROLE", "SCOPE", "EXPIRES"], &rows.collect::<Vec<_>>())
}

/// Secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Store a secret, or another version of it, from a file or standard input.
    ///
    /// Example: longshore secret put db-pass --file password.txt
    Put {
        #[command(flatten)]
        connection: Connection,
        /// Its name.
        name: String,
        /// The file that holds it; standard input unless given.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Its namespace.
        #[arg(long, value_name = "NAME", default_value = "default")]
        namespace: String,
        /// The only deployment that may use it; every one of the namespace unless given.
        #[arg(long, value_name = "NAME")]
        deployment: Option<String>,
    },
    /// List secrets, and who needs them; never what is in them.
    ///
    /// Example: longshore secret ls
    Ls {
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove a secret that nothing needs.
    ///
    /// Example: longshore secret rm db-pass
    Rm {
        #[command(flatten)]
        connection: Connection,
        /// Its name.
        name: String,
        /// Its namespace.
        #[arg(long, value_name = "NAME", default_value = "default")]
        namespace: String,
    },
}

pub(crate) fn secret(command: SecretCommand) -> anyhow::Result<Exit> {
    match command {
        SecretCommand::Put { connection, name, file, namespace, deployment } => {
            let contents = read(file.as_deref()).context("the secret cannot be read")?;
            let request = SecretRequest { contents, deployment };
            remote::ask(&connection, async |client| {
                let stored = client.put_secret(&namespace, &name, &request).await?;
                remote::show(&connection, &stored, |stored| format!("{name} has version {}\n", stored.version))
            })
        }
        SecretCommand::Ls { connection } => remote::ask(&connection, async |client| {
            remote::show(&connection, &client.secrets().await?, |rows| draw_secrets(rows))
        }),
        SecretCommand::Rm { connection, name, namespace } => {
            remote::change(&connection, async |client| client.remove_secret(&namespace, &name).await)
        }
    }
}

fn draw_secrets(secrets: &[SecretRow]) -> String {
    let rows = secrets.iter().map(|secret| {
        let name = format!("{}/{}", secret.namespace, secret.name);
        let owner = secret.deployment.clone().unwrap_or_default();
        vec![name, secret.version.to_string(), owner, secret.used_by.join(", ")]
    });
    table::draw(&["SECRET", "VERSION", "ONLY FOR", "NEEDED BY"], &rows.collect::<Vec<_>>())
}

/// Write everything the cluster knows to a file.
///
/// Example: longshore backup cluster.backup
#[derive(Debug, Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    connection: Connection,
    /// Where to; a file that exists is not overwritten.
    file: PathBuf,
}

pub(crate) fn backup(options: &Backup) -> anyhow::Result<Exit> {
    remote::ask(&options.connection, async |client| {
        let bytes = client.backup().await?;
        write_new(&options.file, &bytes).with_context(|| format!("`{}` cannot be written", options.file.display()))?;
        print::print(&format!("wrote {} bytes to {}\n", bytes.len(), options.file.display()))?;
        Ok(Exit::Success)
    })
}

/// Print a link to the dashboard that logs in once, within a minute.
///
/// Example: longshore dashboard
#[derive(Debug, Args)]
pub(crate) struct Dashboard {
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn dashboard(options: &Dashboard) -> anyhow::Result<Exit> {
    remote::ask(&options.connection, async |client| {
        let link = client.login_link().await?;
        if link.url.is_none() {
            print::note("hint: the daemon listens for no browsers; start it with `--http 127.0.0.1:7475`");
        }
        remote::show(&options.connection, &link, |link| format!("{}\n", link.url.as_ref().unwrap_or(&link.path)))
    })
}

/// Make a cluster of one from a backup, in an empty folder.
///
/// Example: longshore restore cluster.backup --data-dir /var/lib/longshore
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup.
    file: PathBuf,
    /// Name of this node; the machine's name unless given.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Where this node is reached by the others.
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<String>,
    /// Where the daemon shall keep everything; as for `longshore server` unless given.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn restore(options: Restore) -> anyhow::Result<Exit> {
    let backup =
        std::fs::read(&options.file).with_context(|| format!("`{}` cannot be read", options.file.display()))?;
    let node = node_name(options.node)?;
    let folder = options.data_dir.unwrap_or_else(place::data_dir);
    let restored = longshore_server::restore(folder, node, options.advertise, &backup);
    begun(runtime()?.block_on(restored)?)
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

pub(crate) fn read(file: Option<&Path>) -> std::io::Result<String> {
    let mut text = String::new();
    match file {
        Some(file) => text = std::fs::read_to_string(file)?,
        None => drop(std::io::stdin().read_to_string(&mut text)?),
    }
    Ok(text)
}

/// A number and a unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; write a number and s, m, h or d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        assert_eq!(time("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(time("2d"), Ok(Duration::from_hours(48)));
        for wrong in ["", "m", "10", "-1s", "1.5h", "99999999999999999999d", "10ü"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
