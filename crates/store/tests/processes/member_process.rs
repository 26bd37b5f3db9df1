//! One member in its own process, controlled by text commands.
//!
//! `put REGISTER VALUE WRITE_ID` sets a label with the idempotency key `WRITE_ID` and returns `done`. The audit log names
//! the write id, so a write applied twice would be found.

use std::{error::Error, path::PathBuf, process::ExitCode, sync::Arc};

use longshore_model::{Actor, Command, MemberId, Node, NodeName, Time, command::Quota};
use longshore_store::replicated::{
    CommitCertainty, IdempotencyKey, LeadershipRole, Member, Outcome, Proposal, ProposeError, Replicated,
    ReplicatedConfig,
};
use tokio::{
    io::AsyncWriteExt,
    net::{UnixListener, UnixStream},
};

use crate::socket::{Caller, Sockets, read_request, socket_path};

const NODE: &str = "worker";

/// `ROOT ID ENTRIES`: takes a snapshot after ENTRIES entries.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let [root, id, entries] = arguments else { panic!("member ROOT ID ENTRIES, not {arguments:?}") };
    match runtime.block_on(run(PathBuf::from(root), id.parse().unwrap(), entries.parse().unwrap())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("member {id}: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

async fn run(root: PathBuf, id: u64, entries: u64) -> Result<(), Box<dyn Error>> {
    let config = ReplicatedConfig {
        snapshot_after_entries: entries,
        ..ReplicatedConfig::new(root.join(id.to_string()), MemberId(id))
    };
    let sockets = Arc::new(Sockets { root: root.clone() });
    let member = Replicated::open(config, sockets).await?;
    let path = socket_path(&root, id);
    // Left by a killed process.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(path)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(answer(stream, member.clone()));
    }
}

async fn answer(mut stream: UnixStream, member: Replicated) {
    let Ok((caller, message)) = read_request(&mut stream).await else { return };
    let answer = match caller {
        Caller::Member => member.serve(&message).await,
        Caller::Client => run_command(&member, &String::from_utf8(message).unwrap()).await.into_bytes(),
    };
    // The caller may be gone.
    let _ = stream.write_all(&answer).await;
}

async fn run_command(member: &Replicated, words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    match words[..] {
        ["put", register, value, write_id] => put(member, register, value, write_id).await,
        ["get", register] => match member.read().await {
            Ok(reading) => {
                let node = reading.state.node(&NODE.into());
                let value = node.and_then(|node| node.labels.get(register).cloned());
                format!("value {}", value.unwrap_or_default())
            }
            Err(error) => format!("refused {}", error.code()),
        },
        ["fill", from, count] => fill(member, from.parse().unwrap(), count.parse().unwrap()).await,
        ["write_ids"] => write_ids(member),
        ["status"] => status(member),
        ["digest"] => digest(member),
        ["begin"] => {
            member.initialise(peer(1)).await.unwrap();
            member.leadership().wait_for(|leadership| leadership.role == LeadershipRole::Leading).await.unwrap();
            member.propose(Proposal::by_system(node(), Time(0))).await.unwrap();
            "done".to_owned()
        }
        ["add", id] => {
            let id: u64 = id.parse().unwrap();
            member.add_learner(peer(id)).await.unwrap();
            member.set_voters((1..=id).map(MemberId).collect()).await.unwrap();
            "done".to_owned()
        }
        _ => panic!("unknown command {words:?}"),
    }
}

fn peer(id: u64) -> Member {
    Member { id: MemberId(id), name: NodeName::new(format!("node-{id}")), address: String::new() }
}

async fn put(member: &Replicated, register: &str, value: &str, write_id: &str) -> String {
    let labels = [(register.to_owned(), value.to_owned())].into();
    let proposal = Proposal {
        command: Command::Label { node: NODE.into(), labels },
        key: Some(IdempotencyKey::new(write_id).unwrap()),
        request: None,
        actor: Actor::Operator(write_id.to_owned()),
        at: Time(0),
    };
    match member.propose(proposal).await {
        Ok(applied) if matches!(applied.outcome, Outcome::Changed | Outcome::Unchanged) => "done".to_owned(),
        Ok(applied) => format!("refused {:?}", applied.outcome),
        Err(error) => format!("refused {} {}", error.code(), commit_certainty(&error)),
    }
}

fn commit_certainty(error: &ProposeError) -> &'static str {
    match error.commit_certainty() {
        CommitCertainty::NotAppended => "not_appended",
        CommitCertainty::Unknown => "unknown",
    }
}

/// Sets `count` quotas with names that compress badly.
async fn fill(member: &Replicated, from: u64, count: u64) -> String {
    let proposals = (from..from + count).map(|number| {
        let noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let name = format!("{noise:016x}{:016x}", noise.wrapping_mul(0xA076_1D64_78BD_642F) ^ number);
        let quota = Quota { replicas: Some(noise), ..Quota::default() };
        Proposal::by_system(Command::SetQuota { namespace: name.as_str().into(), quota }, Time(0))
    });
    let answers = member.propose_all(proposals.collect()).await;
    match answers.into_iter().find_map(Result::err) {
        None => "done".to_owned(),
        Some(error) => format!("refused {} {}", error.code(), commit_certainty(&error)),
    }
}

fn write_ids(member: &Replicated) -> String {
    let write_ids = member.audit(0, usize::MAX).into_iter().filter_map(|event| match &event.actor {
        Actor::Operator(write_id) => Some(write_id.clone()),
        _ => None,
    });
    format!("write_ids {}", write_ids.collect::<Vec<_>>().join(" "))
}

fn status(member: &Replicated) -> String {
    let leading = match member.leadership().borrow().role {
        LeadershipRole::Leading => "leading",
        LeadershipRole::Following => "following",
        LeadershipRole::Stopped => "stopped",
    };
    let status = member.status();
    format!("{leading} {} {} {}", status.applied_entry, status.snapshot_entry, status.failure.unwrap_or_default())
}

fn digest(member: &Replicated) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let state = member.read_local().state;
    let mut hasher = DefaultHasher::new();
    format!("{state:?}").hash(&mut hasher);
    format!("{} {:x}", state.index().0, hasher.finish())
}

fn node() -> Command {
    Command::Join(Box::new(Node::new(NODE)))
}
