//! The words for deployments, replicas and what may be asked of them.
//!
//! Owns: options, and which question of the client each word is.
//! Invariant: every word has an example in its help, and a test runs it.

use std::time::Duration;

use clap::Subcommand;
use longshore_api::{AuditEntry, Changed, Client, ClientError, Status};

use super::{Connection, Scoped, Shown, ask, beside, nodes, show, shown, tables, whatif};
use crate::{
    apply,
    exit::Exit,
    live::{Live, Screen, Side},
    manifest::Manifest,
    print::{self, Reader},
    wait::{self, Goal, Patience},
};

/// Between two looks of a view that follows along.
const LOOK: Duration = Duration::from_millis(500);

/// What can be asked.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what applying a manifest would change, where new replicas would land, and what would have no node.
    ///
    /// Worked out by the scheduler itself on a copy of the state, as if everything that is started starts. Nothing is
    /// changed.
    #[command(after_help = "Examples:\n  longshore plan -f compose.yaml\n  longshore plan -f compose.yaml -o json")]
    Plan {
        #[command(flatten)]
        manifest: Manifest,
        #[command(flatten)]
        scope: Scoped,
    },
    #[command(after_help = whatif::EXAMPLES)]
    Whatif(whatif::Options),
    /// Show deployments and their replicas.
    #[command(after_help = "Examples:\n  longshore status\n  longshore status shop -w\n  longshore status -o json")]
    Status {
        #[command(flatten)]
        scope: Scoped,
        /// Only this deployment.
        deployment: Option<String>,
        /// Follow along until Ctrl-C.
        #[arg(short, long)]
        watch: bool,
    },
    /// Say why a replica is where it is, or why replicas of a service have no node.
    #[command(after_help = "Examples:\n  longshore why shop-web-0\n  longshore why shop/web")]
    Why {
        #[command(flatten)]
        scope: Scoped,
        /// The replica as `status` prints it, or `DEPLOYMENT/SERVICE`.
        name: String,
    },
    #[command(after_help = beside::LOGS_EXAMPLES)]
    Logs(beside::Logs),
    #[command(after_help = beside::EXEC_EXAMPLES)]
    Exec(beside::Exec),
    /// Set how many replicas a service has.
    #[command(after_help = "Examples:\n  longshore scale shop web=5\n  longshore scale shop web=5 --wait")]
    Scale {
        #[command(flatten)]
        scope: Scoped,
        #[command(flatten)]
        patience: Patience,
        /// The deployment.
        deployment: String,
        /// The service and its count.
        #[arg(value_name = "SERVICE=COUNT", value_parser = count_of)]
        service: (String, u32),
    },
    /// Replace every replica of a service by another of the same, step by step.
    #[command(after_help = "Examples:\n  longshore restart shop web --wait")]
    Restart {
        #[command(flatten)]
        scope: Scoped,
        #[command(flatten)]
        patience: Patience,
        /// The deployment.
        deployment: String,
        /// The service.
        service: String,
    },
    /// Put an older manifest in force again.
    #[command(after_help = "Examples:\n  longshore rollback shop\n  longshore rollback shop --to 3 --wait")]
    Rollback {
        #[command(flatten)]
        scope: Scoped,
        #[command(flatten)]
        patience: Patience,
        /// The deployment.
        deployment: String,
        /// The revision; the one before unless given.
        #[arg(long, alias = "revision", value_name = "REVISION")]
        to: Option<u64>,
    },
    /// Let a change go on beyond its first replicas.
    #[command(after_help = "Examples:\n  longshore promote shop --wait")]
    Promote {
        #[command(flatten)]
        scope: Scoped,
        #[command(flatten)]
        patience: Patience,
        /// The deployment.
        deployment: String,
    },
    /// Hold a change where it is.
    #[command(after_help = "Examples:\n  longshore pause shop")]
    Pause {
        #[command(flatten)]
        scope: Scoped,
        /// The deployment.
        deployment: String,
    },
    /// Let a change that was held go on.
    #[command(after_help = "Examples:\n  longshore resume shop --wait")]
    Resume {
        #[command(flatten)]
        scope: Scoped,
        #[command(flatten)]
        patience: Patience,
        /// The deployment.
        deployment: String,
    },
    /// Remove a deployment and stop what it runs.
    #[command(after_help = "Examples:\n  longshore rm shop\n  longshore rm shop --wait")]
    Rm {
        #[command(flatten)]
        scope: Scoped,
        #[command(flatten)]
        patience: Patience,
        /// The deployment.
        deployment: String,
    },
    /// Show who did what.
    #[command(after_help = "Examples:\n  longshore audit --most 20\n  longshore audit --type node_intent_set -f")]
    Audit {
        #[command(flatten)]
        scope: Scoped,
        /// Records after this number; the newest ones unless given.
        #[arg(long, value_name = "NUMBER")]
        after: Option<u64>,
        /// At most so many.
        #[arg(long, default_value_t = 100)]
        most: usize,
        /// Only records of this kind, as `WHAT` says.
        #[arg(long = "type", value_name = "WHAT")]
        kind: Option<String>,
        /// Follow along until Ctrl-C.
        #[arg(short, long)]
        follow: bool,
    },
    /// Show nodes, and say what is wanted of them.
    Node {
        #[command(flatten)]
        connection: Connection,
        #[command(subcommand)]
        command: nodes::Command,
    },
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Plan { manifest, scope } => plan(manifest, &scope),
        Command::Whatif(options) => whatif::run(options),
        Command::Logs(options) => beside::logs(&options),
        Command::Exec(options) => beside::exec(&options),
        Command::Status { scope, deployment, watch } => ask(&scope.connection, async |client| {
            if watch {
                return follow(client, &scope, deployment.as_deref()).await;
            }
            show(&scope.connection, &status(client, &scope, deployment.as_deref()).await?, tables::status)
        }),
        Command::Why { scope, name } => ask(&scope.connection, async |client| {
            let name = if name.contains('/') { name } else { scope.printed(&name) };
            show(&scope.connection, &client.why(scope.namespace(), &name).await?, tables::why)
        }),
        Command::Audit { scope, after, most, kind, follow } => {
            let page = AuditPage { after, most, kind };
            ask(&scope.connection, async |client| {
                if follow {
                    return follow_audit(client, &scope, page).await;
                }
                show(&scope.connection, &page.read(client).await?.0, |entries| tables::audit(entries))
            })
        }
        Command::Node { connection, command } => nodes::run(&connection, command),
        Command::Scale { scope, patience, deployment, service: (service, count) } => {
            steer(&scope, Some(patience), &deployment, async |client, namespace| {
                client.scale(namespace, &deployment, &service, count).await
            })
        }
        Command::Restart { scope, patience, deployment, service } => {
            steer(&scope, Some(patience), &deployment, async |client, namespace| {
                client.restart(namespace, &deployment, &service).await
            })
        }
        Command::Rollback { scope, patience, deployment, to } => {
            steer(&scope, Some(patience), &deployment, async |client, namespace| {
                client.rollback(namespace, &deployment, to).await
            })
        }
        Command::Promote { scope, patience, deployment } => {
            steer(&scope, Some(patience), &deployment, async |client, namespace| {
                client.steer(namespace, &deployment, "promote").await
            })
        }
        Command::Pause { scope, deployment } => steer(&scope, None, &deployment, async |client, namespace| {
            client.steer(namespace, &deployment, "pause").await
        }),
        Command::Resume { scope, patience, deployment } => {
            steer(&scope, Some(patience), &deployment, async |client, namespace| {
                client.steer(namespace, &deployment, "resume").await
            })
        }
        Command::Rm { scope, patience, deployment } => remove(&scope, patience, deployment),
    }
}

fn plan(manifest: Manifest, scope: &Scoped) -> anyhow::Result<Exit> {
    let Some(judged) = apply::judge(manifest, scope.namespace())? else { return Ok(Exit::BadInput) };
    ask(&scope.connection, async |client| {
        let plan = client.plan(&judged.request).await?;
        plan.warnings.iter().for_each(|warning| print::note(warning));
        show(&scope.connection, &plan, tables::plan)
    })
}

/// Says a word about a deployment, and waits for what comes of it where that was asked for.
fn steer(
    scope: &Scoped,
    patience: Option<Patience>,
    deployment: &str,
    word: impl AsyncFnOnce(&Client, &str) -> Result<Changed, ClientError>,
) -> anyhow::Result<Exit> {
    let limit = patience.and_then(Patience::limit);
    ask(&scope.connection, async |client| {
        let changed = word(client, scope.namespace()).await?;
        let exit = match limit {
            Some(limit) => settle(client, scope, deployment, limit).await?,
            None => Exit::Success,
        };
        show(&scope.connection, &changed, tables::changed)?;
        Ok(exit)
    })
}

/// Waits until the manifest in force is what runs.
async fn settle(client: &Client, scope: &Scoped, deployment: &str, limit: Duration) -> anyhow::Result<Exit> {
    let namespace = scope.namespace().to_owned();
    let revision = client.deployment(&namespace, deployment).await?.revision;
    let goal = Goal { namespace, deployment: deployment.to_owned(), revision };
    Ok(wait::settle(client, &goal, limit, &mut Live::new(Side::Err)).await?.told(&goal))
}

fn remove(scope: &Scoped, patience: Patience, deployment: String) -> anyhow::Result<Exit> {
    ask(&scope.connection, async |client| {
        let changed = client.remove(scope.namespace(), &deployment).await?;
        let goal = Goal { namespace: scope.namespace().to_owned(), deployment, revision: 0 };
        let exit = match patience.limit() {
            Some(limit) => wait::gone(client, &goal, limit, &mut Live::new(Side::Err)).await?.told(&goal),
            None => Exit::Success,
        };
        show(&scope.connection, &changed, tables::changed)?;
        Ok(exit)
    })
}

async fn status(client: &Client, scope: &Scoped, only: Option<&str>) -> Result<Status, ClientError> {
    let mut status = client.status(scope.namespace(), only).await?;
    if let Some(namespace) = scope.named().filter(|_| only.is_none()) {
        status.deployments.retain(|deployment| deployment.namespace == namespace);
        status.replicas.retain(|replica| replica.namespace == namespace);
    }
    Ok(status)
}

/// Draws the status over itself; where there is no terminal, or for a program, each state that differs is printed whole.
async fn follow(client: &Client, scope: &Scoped, only: Option<&str>) -> anyhow::Result<Exit> {
    let (mut live, mut last) = (Live::new(Side::Out), String::new());
    loop {
        let status = status(client, scope, only).await?;
        let mut text = shown(scope.connection.output(), &status, tables::status)?;
        if scope.connection.output() == Shown::Yaml {
            // One document after the other, which nothing else would tell apart.
            text.insert_str(0, "---\n");
        }
        if scope.connection.output() == Shown::Text && live.screen() == Screen::Terminal {
            live.draw(&text);
        } else if text != last && print::offer(text.as_bytes())? == Reader::Gone {
            return Ok(Exit::Success);
        }
        last = text;
        if pause().await == Pause::Last {
            return Ok(Exit::Success);
        }
    }
}

/// Which records are meant.
struct AuditPage {
    after: Option<u64>,
    most: usize,
    kind: Option<String>,
}

impl AuditPage {
    /// The records, and the number after which the next page begins.
    async fn read(&self, client: &Client) -> Result<(Vec<AuditEntry>, Option<u64>), ClientError> {
        // Those of one kind are looked for among all that are answered at once, not among as many as are wanted.
        let asked = if self.kind.is_some() { usize::MAX } else { self.most };
        let mut entries = client.audit(self.after, asked).await?;
        let mut last = entries.last().map(|last| last.number).or(self.after);
        entries.retain(|entry| self.kind.as_ref().is_none_or(|kind| entry.action == *kind));
        let surplus = entries.len().saturating_sub(self.most);
        if self.after.is_none() {
            entries.drain(..surplus);
        } else if surplus > 0 {
            entries.truncate(self.most);
            last = entries.last().map(|last| last.number).or(self.after);
        }
        Ok((entries, last))
    }
}

async fn follow_audit(client: &Client, scope: &Scoped, mut page: AuditPage) -> anyhow::Result<Exit> {
    loop {
        let (entries, last) = page.read(client).await?;
        if !entries.is_empty() {
            show(&scope.connection, &entries, |entries| tables::audit(entries))?;
        }
        page.after = last;
        if pause().await == Pause::Last {
            return Ok(Exit::Success);
        }
    }
}

/// Whether another look follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    Over,
    Last,
}

/// Waits for the next look, or for the end of who looks.
async fn pause() -> Pause {
    tokio::select! {
        () = tokio::time::sleep(LOOK) => Pause::Over,
        _ = tokio::signal::ctrl_c() => Pause::Last,
        () = print::reader_gone() => Pause::Last,
    }
}

/// A name, `=` and a value.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("a name, `=` and a value")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn count_of(text: &str) -> Result<(String, u32), String> {
    let (name, count) = pair(text).map_err(|_| "a service, `=` and a number")?;
    let count = count.parse().map_err(|_| format!("`{count}` is no count"))?;
    Ok((name, count))
}
