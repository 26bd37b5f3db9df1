//! One member in a process of its own, asked in words.
//!
//! `put REGISTER VALUE DEED` writes a label under the idempotency key DEED and is acknowledged with `done`; the audit
//! record names the deed, so that one carried out twice would be seen.

use std::{error::Error, path::PathBuf, process::ExitCode, sync::Arc};

use longshore_model::{
    Actor, Command, MemberId, Node, NodeName, NodeNumber, Platform, PoolName, Role, Time,
    command::Quota,
    node::{Health, Intent, Overlay, UseDegraded},
};
use longshore_store::replicated::{
    Fate, IdempotencyKey, Member, Outcome, Part, Proposal, ProposeError, Replicated, ReplicatedConfig,
};
use tokio::{
    io::AsyncWriteExt,
    net::{UnixListener, UnixStream},
};

use crate::line::{Asker, Sockets, question, socket};

const NODE: &str = "worker";

/// `ROOT ID ENTRIES`: a snapshot after so many entries.
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
    let path = socket(&root, id);
    // Left by the process that was killed.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(path)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(answer(stream, member.clone()));
    }
}

async fn answer(mut stream: UnixStream, member: Replicated) {
    let Ok((asker, message)) = question(&mut stream).await else { return };
    let answer = match asker {
        Asker::Member => member.serve(&message).await,
        Asker::Client => in_words(&member, &String::from_utf8(message).unwrap()).await.into_bytes(),
    };
    // Whoever asked may be gone.
    let _ = stream.write_all(&answer).await;
}

async fn in_words(member: &Replicated, words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    match words[..] {
        ["put", register, value, deed] => put(member, register, value, deed).await,
        ["get", register] => match member.read().await {
            Ok(reading) => {
                let node = reading.state.node(&NODE.into());
                let value = node.and_then(|node| node.labels.get(register).cloned());
                format!("value {}", value.unwrap_or_default())
            }
            Err(error) => format!("refused {}", error.code()),
        },
        ["fill", from, count] => fill(member, from.parse().unwrap(), count.parse().unwrap()).await,
        ["deeds"] => deeds(member),
        ["standing"] => standing(member),
        ["digest"] => digest(member),
        ["begin"] => {
            member.initialise(peer(1)).await.unwrap();
            member.leadership().wait_for(|leadership| leadership.part == Part::Leading).await.unwrap();
            member.propose(Proposal::by_system(node(), Time(0))).await.unwrap();
            "done".to_owned()
        }
        ["add", id] => {
            let id: u64 = id.parse().unwrap();
            member.add_learner(peer(id)).await.unwrap();
            member.set_voters((1..=id).map(MemberId).collect()).await.unwrap();
            "done".to_owned()
        }
        _ => panic!("what does {words:?} mean?"),
    }
}

fn peer(id: u64) -> Member {
    Member { id: MemberId(id), name: NodeName::new(format!("node-{id}")), address: String::new() }
}

async fn put(member: &Replicated, register: &str, value: &str, deed: &str) -> String {
    let labels = [(register.to_owned(), value.to_owned())].into();
    let proposal = Proposal {
        command: Command::Label { node: NODE.into(), labels },
        key: Some(IdempotencyKey::new(deed).unwrap()),
        asked: None,
        actor: Actor::Operator(deed.to_owned()),
        at: Time(0),
    };
    match member.propose(proposal).await {
        Ok(applied) if matches!(applied.outcome, Outcome::Changed | Outcome::Unchanged) => "done".to_owned(),
        Ok(applied) => format!("refused {:?}", applied.outcome),
        Err(error) => format!("refused {} {}", error.code(), fate(&error)),
    }
}

fn fate(error: &ProposeError) -> &'static str {
    match error.fate() {
        Fate::NotAppended => "not_appended",
        Fate::Unknown => "unknown",
    }
}

/// So many quotas with names that do not pack well.
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
        Some(error) => format!("refused {} {}", error.code(), fate(&error)),
    }
}

fn deeds(member: &Replicated) -> String {
    let deeds = member.audit(0, usize::MAX).into_iter().filter_map(|event| match &event.actor {
        Actor::Operator(deed) => Some(deed.clone()),
        _ => None,
    });
    format!("deeds {}", deeds.collect::<Vec<_>>().join(" "))
}

fn standing(member: &Replicated) -> String {
    let leading = match member.leadership().borrow().part {
        Part::Leading => "leading",
        Part::Following => "following",
        Part::Stopped => "stopped",
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
    Command::Join(Box::new(Node {
        name: NODE.into(),
        number: NodeNumber(0),
        ip: None,
        labels: std::collections::BTreeMap::new(),
        engine_labels: std::collections::BTreeMap::new(),
        role: Role::Worker,
        pool: PoolName::from("default"),
        platform: Platform::new("linux", "amd64"),
        drivers: std::collections::BTreeSet::new(),
        plugins: std::collections::BTreeSet::new(),
        capacity: longshore_model::Capacity::default(),
        reserved: longshore_model::Capacity::default(),
        intent: Intent::Active,
        health: Health::Ready,
        use_degraded: UseDegraded::No,
        overlay: Overlay::Reachable,
        health_since: Time(0),
        confirmed_lost: None,
        drain: None,
        removed_at: None,
    }))
}
