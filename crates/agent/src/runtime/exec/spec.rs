//! Translates a work's spec into the spec of a plain process.
//!
//! Owns: which settings of a manifest apply to a process without a container.
//! Invariant: a setting that cannot be applied is refused by name. No setting is ignored silently.

use std::{fs, os::unix::fs::chown, path::Path};

use longshore_model::{
    PolicyRule, ServiceSpec, Work,
    container::{ContainerSpec, Switch},
    service::MountSource,
    tenant_policy,
};

use super::ports;
use crate::{
    runtime::{PreparedFile, RuntimeError, StopSpec, identity_env},
    shim::{
        process_input::AttachMode,
        protocol::{LogLimits, ProcessPort, ProcessSpec, rlimit_resource},
    },
};

/// Output that is kept if the manifest sets no log options.
const DEFAULT_LOG: LogLimits = LogLimits { file_bytes: 10 << 20, files: 3 };

pub(super) fn process_spec(work: &Work, files: &[PreparedFile]) -> Result<ProcessSpec, RuntimeError> {
    if let Some(what) = unsupported(&work.spec) {
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
    ensure_user_allowed(work, uid, gid)?;
    chown_files(files, uid, gid)
        .map_err(|error| RuntimeError::Refused(format!("the owner of its files could not be changed: {error}")))?;
    let ports = ports::assign(&work.spec.ports)
        .map_err(|error| RuntimeError::Refused(format!("no free port was found for it: {error}")))?;
    let stop = StopSpec::of(container, None);
    Ok(ProcessSpec {
        key: work.key.clone(),
        attempt: work.attempt,
        spec_hash: work.assignment.reservation.spec_hash.to_string(),
        placed_at: Some(work.assignment.placed_at),
        argv,
        environment: environment(work, files, &ports),
        working_dir: container.working_dir.clone(),
        uid,
        gid,
        cgroups: Vec::new(),
        ulimits: container.limits.ulimits.iter().map(|(name, limit)| (name.clone(), limit.soft, limit.hard)).collect(),
        oom_score_adj: container.limits.oom_score_adj.unwrap_or_default(),
        log: log_limits(container),
        healthcheck: container.healthcheck.clone(),
        stop_signal: stop.signal,
        stop_grace_millis: u64::try_from(stop.grace.as_millis()).unwrap_or(u64::MAX),
        ports,
        attach: attach_mode(work),
    })
}

/// A one-off job whose input is open is attached to by whoever started it.
fn attach_mode(work: &Work) -> Option<AttachMode> {
    let on = |switch: Switch| work.spec.container.switches.contains(&switch);
    let mode = if on(Switch::Tty) { AttachMode::Terminal } else { AttachMode::Piped };
    (work.spec.one_off.is_some() && on(Switch::StdinOpen)).then_some(mode)
}

/// The first setting that needs a container.
fn unsupported(spec: &ServiceSpec) -> Option<String> {
    let container = &spec.container;
    let namespaces = &container.namespaces;
    let modes = [&namespaces.network, &namespaces.ipc, &namespaces.pid, &namespaces.uts, &namespaces.user];
    let own = modes.into_iter().flatten().find(|mode| *mode != "host");
    let mount =
        spec.mounts.iter().find(|mount| !matches!(&mount.source, MountSource::Bind(path) if *path == mount.target));
    let switch = container.switches.iter().find(|switch| match switch {
        // Only the process of a one-off job has somebody to attach to it.
        Switch::Tty | Switch::StdinOpen => spec.one_off.is_none(),
        Switch::ReadOnly | Switch::OomKillDisable => true,
        Switch::Init | Switch::Privileged => false,
    });
    let first =
        |names: &std::collections::BTreeSet<String>, what: &str| names.first().map(|name| format!("{what} `{name}`"));
    let limits = &container.limits;
    mount
        .map(|mount| format!("`{}` mounted: it sees host paths only, each at its own path", mount.target))
        .or_else(|| switch.map(|switch| format!("{switch:?} switched on")))
        .or_else(|| own.map(|mode| format!("the namespace `{mode}`")))
        .or_else(|| first(&container.security.cap_add, "the capability"))
        .or_else(|| first(&container.security.cap_drop, "dropped the capability"))
        .or_else(|| first(&container.groups, "the additional group"))
        .or_else(|| limits.sysctls.keys().next().map(|name| format!("the kernel parameter `{name}` of its own")))
        .or_else(|| limits.cpuset.as_ref().map(|cores| format!("the cpuset `{cores}`")))
        .or_else(|| {
            limits.ulimits.keys().find(|name| rlimit_resource(name).is_none()).map(|name| format!("the limit `{name}`"))
        })
}

/// `PATH`, `LANG` and `TZ` of the agent, the identity variables, ports, the paths of files, then the manifest's
/// variables. Later ones override earlier ones.
fn environment(work: &Work, files: &[PreparedFile], ports: &[ProcessPort]) -> Vec<(String, String)> {
    let inherited = ["LANG", "TZ"].into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
    let path = ("PATH".to_owned(), search_path(std::env::var("PATH").ok(), std::env::current_exe().ok().as_deref()));
    let from_manifest = work
        .spec
        .container
        .environment
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), value.clone().or_else(|| std::env::var(name).ok())?)));
    // A file cannot be mounted at its target, so a variable holds its path.
    let file_paths = files.iter().map(|file| (file_variable(&file.target), file.path.to_string_lossy().into_owned()));
    let terminal = attach_mode(work).filter(|mode| *mode == AttachMode::Terminal);
    let terminal = terminal.map(|_| ("TERM".to_owned(), "xterm".to_owned()));
    let own = identity_env::variables(work).into_iter().chain(terminal).chain(ports::variables(ports));
    inherited.chain([path]).chain(own).chain(file_paths).chain(from_manifest).collect()
}

/// The agent's `PATH` with the folder of its own program last, so that a process can call that program by name.
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

/// Parses `user` or `user:group`, each a number or a name of this machine, into uid and gid.
fn user(given: Option<&str>) -> Result<(Option<u32>, Option<u32>), RuntimeError> {
    let Some(given) = given else { return Ok((None, None)) };
    let (user, group) = given.split_once(':').map_or((given, None), |(user, group)| (user, Some(group)));
    let unknown = |name: &str| RuntimeError::Refused(format!("`{name}` is not known on this node"));
    let entry = look_up("/etc/passwd", user);
    let uid = user.parse().ok().or_else(|| entry.as_ref()?.get(2)?.parse().ok()).ok_or_else(|| unknown(user))?;
    let gid = match group {
        Some(group) => {
            let entry = look_up("/etc/group", group);
            Some(group.parse().ok().or_else(|| entry?.get(2)?.parse().ok()).ok_or_else(|| unknown(group))?)
        }
        // A number that no user has is its own group: without one it would keep the group of the daemon, which is root's.
        None => entry.or_else(|| user_with_id(uid)).and_then(|entry| entry.get(3)?.parse().ok()).or(Some(uid)),
    };
    Ok((Some(uid), gid))
}

/// A policy that does not name root is checked by the number of the user: a machine may have several names for it. The
/// daemon's own user counts as root, because it owns the daemon's keys.
fn ensure_user_allowed(work: &Work, uid: Option<u32>, gid: Option<u32>) -> Result<(), RuntimeError> {
    let Some(policy) = &work.granted else { return Ok(()) };
    let own = rustix::process::geteuid().as_raw();
    let is_root = uid.is_none_or(|uid| uid == 0 || uid == own) || gid == Some(0);
    if !is_root || policy.allows(PolicyRule::ExecUsers, tenant_policy::ROOT) {
        return Ok(());
    }
    let namespace = &work.key.group.namespace;
    Err(RuntimeError::Refused(format!(
        "policy_denied: the policy of namespace `{namespace}` does not allow a plain process with the rights of root"
    )))
}

fn user_with_id(uid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<String>>();
    text.lines().map(fields).find(|fields| fields.get(2).is_some_and(|id| id.parse() == Ok(uid)))
}

fn look_up(file: &str, name: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    Some(line.split(':').map(str::to_owned).collect())
}

/// Makes the process's user the owner of its files and of the two folders above each.
fn chown_files(files: &[PreparedFile], uid: Option<u32>, gid: Option<u32>) -> std::io::Result<()> {
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
    use crate::desired_work::tests::work;

    fn translate(change: impl FnOnce(&mut ServiceSpec)) -> Result<ProcessSpec, RuntimeError> {
        let mut work = work(0, 1);
        let mut spec = ServiceSpec::default();
        spec.container.command = Some(vec!["sleep".to_owned(), "1".to_owned()]);
        change(&mut spec);
        work.spec = Arc::new(spec);
        process_spec(&work, &[])
    }

    fn refusal(change: impl FnOnce(&mut ServiceSpec)) -> String {
        translate(change).unwrap_err().to_string()
    }

    #[test]
    fn a_setting_that_needs_a_container_is_refused_by_name() {
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
            |user: &str| translate(|spec| spec.container.user = Some(user.to_owned())).map(|spec| (spec.uid, spec.gid));
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
