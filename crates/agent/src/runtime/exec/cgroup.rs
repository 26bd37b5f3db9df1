//! Limits and accounting of a process by control groups, where this machine has them.
//!
//! Owns: one group per attempt, of the second kind or, where that has no controllers, of the first.
//! Invariant: without them a process still runs: unlimited, and measured by itself alone. That is said once, in the log.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Once,
};

use longshore_model::ServiceSpec;
use rustix::process::Pid;

use crate::runtime::Spent;

/// Where a machine has them.
pub(super) const ROOT: &str = "/sys/fs/cgroup";
/// Processor time is dealt out in tenths of a second.
const PERIOD_MICROS: u64 = 100_000;
/// What processes are limited in.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

enum Kind {
    Second,
    First,
    Absent,
}

fn kind(root: &Path) -> Kind {
    if controllers(root).iter().any(|name| name == "memory") {
        Kind::Second
    } else if root.join("memory/cgroup.procs").exists() {
        Kind::First
    } else {
        Kind::Absent
    }
}

/// What a folder of the second kind can limit below itself.
fn controllers(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// The groups a process of the spec is to join: none where the machine has none, or does not let us.
pub(super) fn make(root: &Path, name: &str, spec: &ServiceSpec) -> Vec<PathBuf> {
    let made = match kind(root) {
        Kind::Second => make_second(root, name, spec),
        Kind::First => make_first(root, name, spec),
        Kind::Absent => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    made.unwrap_or_else(|error| {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::warn!(%error, "no control groups here: processes run without limits"));
        Vec::new()
    })
}

fn make_second(root: &Path, name: &str, spec: &ServiceSpec) -> io::Result<Vec<PathBuf>> {
    let parent = root.join("longshore");
    fs::create_dir_all(&parent)?;
    for folder in [root, &parent] {
        let there = controllers(root);
        // One by one: a controller the machine lacks must not take the others along.
        for controller in CONTROLLERS.iter().filter(|name| there.iter().any(|it| it == *name)) {
            fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"))?;
        }
    }
    let group = parent.join(name);
    fs::create_dir_all(&group)?;
    let (resources, limits) = (&spec.resources, &spec.container.limits);
    set(&group, "memory.max", resources.memory_limit_bytes);
    set(&group, "memory.low", resources.memory_reservation_bytes);
    set(&group, "cpu.max", resources.cpu_limit_millis.map(|millis| format!("{} {PERIOD_MICROS}", quota(millis))));
    set(&group, "cpu.weight", limits.cpu_shares.map(weight));
    set(&group, "pids.max", limits.pids.filter(|pids| *pids > 0));
    Ok(vec![group])
}

fn make_first(root: &Path, name: &str, spec: &ServiceSpec) -> io::Result<Vec<PathBuf>> {
    let group = |controller: &str| root.join(controller).join("longshore").join(name);
    let mut groups = Vec::new();
    for controller in ["memory", "cpu", "cpuacct", "pids"] {
        if root.join(controller).join("cgroup.procs").exists() {
            fs::create_dir_all(group(controller))?;
            groups.push(group(controller));
        }
    }
    let (resources, limits) = (&spec.resources, &spec.container.limits);
    set(&group("memory"), "memory.limit_in_bytes", resources.memory_limit_bytes);
    set(&group("memory"), "memory.soft_limit_in_bytes", resources.memory_reservation_bytes);
    set(&group("cpu"), "cpu.cfs_quota_us", resources.cpu_limit_millis.map(quota));
    set(&group("cpu"), "cpu.shares", limits.cpu_shares);
    set(&group("pids"), "pids.max", limits.pids.filter(|pids| *pids > 0));
    Ok(groups)
}

/// Sets a limit that is wanted. One that cannot be set is said, and the others hold all the same.
fn set(group: &Path, file: &str, value: Option<impl ToString>) {
    let Some(value) = value else { return };
    if let Err(error) = fs::write(group.join(file), value.to_string()) {
        tracing::warn!(group = %group.display(), file, %error, "a limit could not be set");
    }
}

/// The same share of a core in the other kind's measure: 2 to 262,144 becomes 1 to 10,000, as engines convert it.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// The kernel refuses less than a millisecond.
fn quota(cpu_millis: u64) -> u64 {
    (cpu_millis * PERIOD_MICROS / 1000).max(1000)
}

pub(super) fn remove(groups: &[PathBuf]) {
    for group in groups {
        // One that still has a process cannot be removed, and is not ours to force.
        let _ = fs::remove_dir(group);
    }
}

pub(super) fn ran_out_of_memory(groups: &[PathBuf]) -> bool {
    let killed = |group: &PathBuf| {
        ["memory.events", "memory.oom_control"].iter().any(|file| count(&group.join(file), "oom_kill ") > Some(0))
    };
    groups.iter().any(killed)
}

pub(super) fn spent(groups: &[PathBuf]) -> Option<Spent> {
    let number = |file: &str| {
        groups.iter().find_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok())
    };
    let named = |file: &str, name: &str| groups.iter().find_map(|group| count(&group.join(file), name));
    let cpu_micros = named("cpu.stat", "usage_usec ").or_else(|| Some(number("cpuacct.usage")? / 1000))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let cache = named("memory.stat", "total_inactive_file ").or_else(|| named("memory.stat", "inactive_file "));
    Some(Spent { cpu_micros, memory_bytes: used.saturating_sub(cache.unwrap_or_default()) })
}

/// The number after a name in a file of `name number` lines.
fn count(file: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(file).ok()?.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// What one process has used, where it has no group.
pub(super) fn spent_by(pid: Pid) -> Option<Spent> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    // The 14th, 15th and 24th fields of the line, of which the first two are cut off.
    Some(Spent {
        cpu_micros: (number(11)? + number(12)?) * 10_000,
        memory_bytes: number(21)? * rustix::param::page_size() as u64,
    })
}

#[cfg(test)]
mod tests {
    use longshore_model::{container::Limits, service::Resources};

    use super::*;

    /// A tree as the kernel shows it, of plain files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn limited() -> ServiceSpec {
        let resources = Resources {
            memory_limit_bytes: Some(64 << 20),
            memory_reservation_bytes: Some(32 << 20),
            cpu_limit_millis: Some(1500),
            ..Resources::default()
        };
        let mut spec = ServiceSpec { resources, ..ServiceSpec::default() };
        spec.container.limits = Limits { pids: Some(50), cpu_shares: Some(1024), ..Limits::default() };
        spec
    }

    fn text(group: &Path, file: &str) -> String {
        fs::read_to_string(group.join(file)).unwrap_or_default()
    }

    #[test]
    fn a_machine_of_the_second_kind_limits_by_one_group() {
        let root = tree(&[("cgroup.controllers", "cpuset cpu io memory hugetlb pids\n")]);
        let groups = make(root.path(), "c-web-0", &limited());
        assert_eq!(groups, [root.path().join("longshore/c-web-0")]);
        assert_eq!(text(&groups[0], "memory.max"), (64 << 20).to_string());
        assert_eq!(text(&groups[0], "memory.low"), (32 << 20).to_string());
        assert_eq!(text(&groups[0], "cpu.max"), "150000 100000");
        assert_eq!(text(&groups[0], "cpu.weight"), "39");
        assert_eq!(text(&groups[0], "pids.max"), "50");
        // The last of three writes; the kernel adds them up.
        for folder in [root.path(), &root.path().join("longshore")] {
            assert_eq!(text(folder, "cgroup.subtree_control"), "+pids");
        }
        let free = make(root.path(), "c-free-0", &ServiceSpec::default());
        assert_eq!(fs::read_dir(&free[0]).unwrap().count(), 0, "what is not limited is left as the kernel has it");
    }

    #[test]
    fn a_limit_that_cannot_be_set_takes_no_other_along() {
        let root = tree(&[("cgroup.controllers", "memory pids\n"), ("longshore/w/cpu.max/nobody-can-write", "")]);
        let groups = make(root.path(), "w", &limited());
        assert_eq!(text(&groups[0], "memory.max"), (64 << 20).to_string());
        assert_eq!(text(&groups[0], "pids.max"), "50");
    }

    #[test]
    fn a_machine_of_the_first_kind_has_a_group_for_each_controller() {
        let root = tree(&[
            ("memory/cgroup.procs", ""),
            ("cpu/cgroup.procs", ""),
            ("cpuacct/cgroup.procs", ""),
            ("unified/cgroup.controllers", ""),
        ]);
        let groups = make(root.path(), "w", &limited());
        let names: Vec<_> = ["memory", "cpu", "cpuacct"].map(|it| root.path().join(it).join("longshore/w")).into();
        assert_eq!(groups, names, "pids is not there");
        assert_eq!(text(&groups[0], "memory.limit_in_bytes"), (64 << 20).to_string());
        assert_eq!(text(&groups[1], "cpu.cfs_quota_us"), "150000");
    }

    #[test]
    fn a_machine_without_any_runs_things_all_the_same() {
        assert_eq!(make(tree(&[]).path(), "w", &limited()), Vec::<PathBuf>::new());
        let bare = tree(&[("cgroup.controllers", "cpuset\n")]);
        assert_eq!(make(bare.path(), "w", &limited()), Vec::<PathBuf>::new());
    }

    #[test]
    fn both_kinds_say_what_was_spent_and_who_was_killed() {
        let second = tree(&[
            ("cpu.stat", "usage_usec 2500\nuser_usec 2000\nsystem_usec 500\n"),
            ("memory.current", "9000\n"),
            ("memory.stat", "anon 1000\nfile 4000\ninactive_file 3000\n"),
            ("memory.events", "low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n"),
        ]);
        let first = tree(&[
            ("cpuacct.usage", "2500000\n"),
            ("memory.usage_in_bytes", "9000\n"),
            ("memory.stat", "cache 4000\ninactive_file 1\ntotal_inactive_file 3000\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
        ]);
        let of = |root: &tempfile::TempDir| vec![root.path().to_owned()];
        let expected = Some(Spent { cpu_micros: 2500, memory_bytes: 6000 });
        assert_eq!((spent(&of(&second)), spent(&of(&first))), (expected, expected));
        assert!(ran_out_of_memory(&of(&second)) && !ran_out_of_memory(&of(&first)));
        assert_eq!(spent(&[]), None);
    }

    #[test]
    fn shares_become_weights_from_end_to_end() {
        assert_eq!([0, 2, 1024, 262_144, 1_000_000].map(weight), [1, 1, 39, 10_000, 10_000]);
    }
}
