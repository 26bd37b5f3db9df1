//! A spec as an order for a plain process.
//!
//! Owns: what of a manifest a process without a container can keep.
//! Invariant: what it cannot keep is refused with its name. Nothing the manifest says is passed over in silence.

use std::{fs, os::unix::fs::chown, path::Path};

use longshore_model::{
    ServiceSpec, Work,
    container::{ContainerSpec, Switch},
    service::MountSource,
};

use crate::{
    runtime::{Ending, PlacedFile, RuntimeError, identity},
    shim::order::{LogLimits, Order, resource},
};

/// What is kept of a process that says nothing about its output.
const DEFAULT_LOG: LogLimits = LogLimits { file_bytes: 10 << 20, files: 3 };

pub(super) fn order(work: &Work, files: &[PlacedFile]) -> Result<Order, RuntimeError> {
    if let Some(what) = impossible(&work.spec) {
        return Err(RuntimeError::Refused(format!("a plain process cannot have {what}")));
    }
    let container = &work.spec.container;
    let argv: Vec<String> = container.entrypoint.iter().chain(&container.command).flatten().cloned().collect();
    if argv.is_empty() {
        return Err(RuntimeError::Refused(
            "there is no command, and a plain process has no image to take it from".to_owned(),
        ));
    }
    let (uid, gid) = user(container.user.as_deref())?;
    give(files, uid, gid)
        .map_err(|error| RuntimeError::Refused(format!("its files could not be given to it: {error}")))?;
    let ending = Ending::of(container, None);
    Ok(Order {
        key: work.key.clone(),
        attempt: work.attempt,
        spec_hash: work.assignment.terms.spec_hash.to_string(),
        placed_at: Some(work.assignment.placed_at),
        argv,
        environment: environment(work, files),
        working_dir: container.working_dir.clone(),
        uid,
        gid,
        cgroups: Vec::new(),
        ulimits: container.limits.ulimits.iter().map(|(name, limit)| (name.clone(), limit.soft, limit.hard)).collect(),
        oom_score_adj: container.limits.oom_score_adj.unwrap_or_default(),
        log: log_limits(container),
        healthcheck: container.healthcheck.clone(),
        stop_signal: ending.signal,
        stop_grace_millis: u64::try_from(ending.grace.as_millis()).unwrap_or(u64::MAX),
    })
}

/// The first thing asked for that only a container can have.
fn impossible(spec: &ServiceSpec) -> Option<String> {
    let container = &spec.container;
    let namespaces = &container.namespaces;
    let shared = [&namespaces.network, &namespaces.ipc, &namespaces.pid, &namespaces.uts, &namespaces.user];
    let own = shared.into_iter().flatten().find(|mode| *mode != "host");
    let mount =
        spec.mounts.iter().find(|mount| !matches!(&mount.source, MountSource::Bind(path) if *path == mount.target));
    let switch = container.switches.iter().find(|switch| match switch {
        Switch::ReadOnly | Switch::Tty | Switch::StdinOpen | Switch::OomKillDisable => true,
        Switch::Init | Switch::Privileged => false,
    });
    let first =
        |names: &std::collections::BTreeSet<String>, what: &str| names.first().map(|name| format!("{what} `{name}`"));
    let limits = &container.limits;
    mount
        .map(|mount| format!("`{}` mounted: only a path of the host at its own place is there", mount.target))
        .or_else(|| switch.map(|switch| format!("{switch:?} switched on")))
        .or_else(|| own.map(|mode| format!("the namespace `{mode}`")))
        .or_else(|| first(&container.security.cap_add, "the capability"))
        .or_else(|| first(&container.security.cap_drop, "less than the capability"))
        .or_else(|| first(&container.groups, "the further group"))
        .or_else(|| limits.sysctls.keys().next().map(|name| format!("the kernel parameter `{name}` of its own")))
        .or_else(|| limits.cpuset.as_ref().map(|cores| format!("the cores `{cores}`")))
        .or_else(|| {
            limits.ulimits.keys().find(|name| resource(name).is_none()).map(|name| format!("the limit `{name}`"))
        })
}

/// The manifest's, on top of the few variables without which no program is at home.
fn environment(work: &Work, files: &[PlacedFile]) -> Vec<(String, String)> {
    let inherited = ["LANG", "TZ"].into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
    let path = ("PATH".to_owned(), search_path(std::env::var("PATH").ok(), std::env::current_exe().ok().as_deref()));
    let given = work
        .spec
        .container
        .environment
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), value.clone().or_else(|| std::env::var(name).ok())?)));
    // A file cannot be mounted where the manifest wants it, so the process is told where it is instead.
    let told = files.iter().map(|file| (file_variable(&file.target), file.path.to_string_lossy().into_owned()));
    inherited.chain([path]).chain(identity::variables(work)).chain(told).chain(given).collect()
}

/// The folder of the program that runs it comes last: wherever that was started from, a process can call it by its name.
fn search_path(inherited: Option<String>, program: Option<&Path>) -> String {
    let own = program.and_then(Path::parent).map(|folder| folder.to_string_lossy().into_owned());
    inherited.into_iter().chain(own).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(":")
}

/// `LONGSHORE_FILE_DB_PASS` for a file that would be mounted at `/run/secrets/db_pass`.
fn file_variable(target: &str) -> String {
    let name = target.rsplit('/').next().unwrap_or(target);
    let plain =
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' });
    format!("LONGSHORE_FILE_{}", plain.collect::<String>())
}

/// A number or a name, and after a colon a group; names are looked up on this machine.
fn user(wanted: Option<&str>) -> Result<(Option<u32>, Option<u32>), RuntimeError> {
    let Some(wanted) = wanted else { return Ok((None, None)) };
    let (user, group) = wanted.split_once(':').map_or((wanted, None), |(user, group)| (user, Some(group)));
    let unknown = |name: &str| RuntimeError::Refused(format!("`{name}` is not known on this node"));
    let entry = look_up("/etc/passwd", user);
    let uid = user.parse().ok().or_else(|| entry.as_ref()?.get(2)?.parse().ok()).ok_or_else(|| unknown(user))?;
    let gid = match group {
        Some(group) => {
            let entry = look_up("/etc/group", group);
            Some(group.parse().ok().or_else(|| entry?.get(2)?.parse().ok()).ok_or_else(|| unknown(group))?)
        }
        None => entry.and_then(|entry| entry.get(3)?.parse().ok()),
    };
    Ok((Some(uid), gid))
}

fn look_up(file: &str, name: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    Some(line.split(':').map(str::to_owned).collect())
}

/// Lets the process's user into the folders its files are in.
fn give(files: &[PlacedFile], uid: Option<u32>, gid: Option<u32>) -> std::io::Result<()> {
    if uid.is_none() {
        return Ok(());
    }
    for file in files {
        for path in file.path.ancestors().take(3).collect::<Vec<&Path>>() {
            chown(path, uid, gid)?;
        }
    }
    Ok(())
}

fn log_limits(container: &ContainerSpec) -> LogLimits {
    let option = |name: &str| container.log_options.get(name);
    LogLimits {
        file_bytes: option("max-size").and_then(|size| bytes(size)).unwrap_or(DEFAULT_LOG.file_bytes),
        files: option("max-file").and_then(|count| count.parse().ok()).unwrap_or(DEFAULT_LOG.files).max(1),
    }
}

/// `10m`, as Docker's log drivers write sizes.
fn bytes(size: &str) -> Option<u64> {
    let number = size.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match size[number.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::book::tests::work;

    fn asked(change: impl FnOnce(&mut ServiceSpec)) -> Result<Order, RuntimeError> {
        let mut work = work(0, 1);
        let mut spec = ServiceSpec::default();
        spec.container.command = Some(vec!["sleep".to_owned(), "1".to_owned()]);
        change(&mut spec);
        work.spec = Arc::new(spec);
        order(&work, &[])
    }

    fn refusal(change: impl FnOnce(&mut ServiceSpec)) -> String {
        asked(change).unwrap_err().to_string()
    }

    #[test]
    fn what_only_a_container_can_have_is_refused_by_name() {
        assert_eq!(
            refusal(|spec| spec.container.security.cap_add.extend(["NET_ADMIN".to_owned()])),
            "a plain process cannot have the capability `NET_ADMIN`"
        );
        assert_eq!(
            refusal(|spec| spec.container.switches.extend([Switch::ReadOnly])),
            "a plain process cannot have ReadOnly switched on"
        );
        assert_eq!(
            refusal(|spec| spec.container.command = None),
            "there is no command, and a plain process has no image to take it from"
        );
        assert_eq!(
            refusal(|spec| spec.container.user = Some("nobody-here".to_owned())),
            "`nobody-here` is not known on this node"
        );
    }

    #[test]
    fn users_are_numbers_or_names() {
        let ids =
            |user: &str| asked(|spec| spec.container.user = Some(user.to_owned())).map(|order| (order.uid, order.gid));
        assert_eq!(ids("1000:1001"), Ok((Some(1000), Some(1001))));
        assert_eq!(ids("root"), Ok((Some(0), Some(0))));
    }

    #[test]
    fn sizes_are_read_as_dockers_log_drivers_read_them() {
        assert_eq!(
            [bytes("10m"), bytes("1k"), bytes("7"), bytes("0"), bytes("x")],
            [Some(10 << 20), Some(1024), Some(7), None, None]
        );
    }

    #[test]
    fn a_secret_has_a_variable_of_its_own() {
        assert_eq!(file_variable("/run/secrets/db-pass"), "LONGSHORE_FILE_DB_PASS");
    }
}
