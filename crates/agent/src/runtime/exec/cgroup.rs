//! Limits and accounting of a process through cgroups, v2 or v1.
//!
//! Owns: one group per attempt, in v2 if it has the memory controller, else one per controller in v1.
//! Invariant: without cgroups a process still runs, unlimited and measured without its children; the log says so once.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Once,
};

use longshore_model::ServiceSpec;
use rustix::process::Pid;

use crate::runtime::ResourceUsage;

/// Where cgroups are mounted.
pub(super) const ROOT: &str = "/sys/fs/cgroup";
/// The period that a CPU quota refers to.
const PERIOD_MICROS: u64 = 100_000;
/// The v2 controllers that limit processes.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

enum CgroupVersion {
    V2,
    V1,
    None,
}

fn version(root: &Path) -> CgroupVersion {
    if controllers(root).iter().any(|name| name == "memory") {
        CgroupVersion::V2
    } else if root.join("memory/cgroup.procs").exists() {
        CgroupVersion::V1
    } else {
        CgroupVersion::None
    }
}

/// The controllers available in a v2 group.
fn controllers(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Creates the groups that a process of the spec joins. Empty if the machine has no cgroups or denies access to them.
pub(super) fn create(root: &Path, name: &str, spec: &ServiceSpec) -> Vec<PathBuf> {
    let created = match version(root) {
        CgroupVersion::V2 => create_v2(root, name, spec),
        CgroupVersion::V1 => create_v1(root, name, spec),
        CgroupVersion::None => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    created.unwrap_or_else(|error| {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::warn!(%error, "cgroups are not available; processes run without limits"));
        Vec::new()
    })
}

fn create_v2(root: &Path, name: &str, spec: &ServiceSpec) -> io::Result<Vec<PathBuf>> {
    let parent = root.join("longshore");
    fs::create_dir_all(&parent)?;
    for folder in [root, &parent] {
        let available = controllers(root);
        // One write per controller: one write for all fails if a single controller is missing.
        for controller in CONTROLLERS.iter().filter(|name| available.iter().any(|it| it == *name)) {
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

fn create_v1(root: &Path, name: &str, spec: &ServiceSpec) -> io::Result<Vec<PathBuf>> {
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

/// Writes a limit, if there is one. A failure is logged and does not affect the other limits.
fn set(group: &Path, file: &str, value: Option<impl ToString>) {
    let Some(value) = value else { return };
    if let Err(error) = fs::write(group.join(file), value.to_string()) {
        tracing::warn!(group = %group.display(), file, %error, "a limit could not be set");
    }
}

/// Converts v1 shares (2 to 262,144) to a v2 weight (1 to 10,000), by the formula of container engines.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// Microseconds per period. The kernel refuses less than a millisecond.
fn quota(cpu_millis: u64) -> u64 {
    (cpu_millis * PERIOD_MICROS / 1000).max(1000)
}

pub(super) fn remove(groups: &[PathBuf]) {
    for group in groups {
        // Fails while a process is in it, and that process is not ours to kill.
        let _ = fs::remove_dir(group);
    }
}

pub(super) fn was_oom_killed(groups: &[PathBuf]) -> bool {
    let killed = |group: &PathBuf| {
        ["memory.events", "memory.oom_control"].iter().any(|file| count(&group.join(file), "oom_kill ") > Some(0))
    };
    groups.iter().any(killed)
}

pub(super) fn usage(groups: &[PathBuf]) -> Option<ResourceUsage> {
    let number = |file: &str| {
        groups.iter().find_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok())
    };
    let named = |file: &str, name: &str| groups.iter().find_map(|group| count(&group.join(file), name));
    let cpu_micros = named("cpu.stat", "usage_usec ").or_else(|| Some(number("cpuacct.usage")? / 1000))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let cache = named("memory.stat", "total_inactive_file ").or_else(|| named("memory.stat", "inactive_file "));
    Some(ResourceUsage { cpu_micros, memory_bytes: used.saturating_sub(cache.unwrap_or_default()) })
}

/// The value of a name in a file of `name value` lines.
fn count(file: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(file).ok()?.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// The usage of one process that has no group, without its children.
pub(super) fn process_usage(pid: Pid) -> Option<ResourceUsage> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    // utime, stime and rss: fields 14, 15 and 24 of the line, of which the first two are cut off here.
    Some(ResourceUsage {
        cpu_micros: (number(11)? + number(12)?) * 10_000,
        memory_bytes: number(21)? * rustix::param::page_size() as u64,
    })
}

#[cfg(test)]
mod tests {
    use longshore_model::{container::Limits, service::Resources};

    use super::*;

    /// Plain files laid out like a cgroup file system.
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
    fn cgroup_v2_limits_are_written_to_one_group() {
        let root = tree(&[("cgroup.controllers", "cpuset cpu io memory hugetlb pids\n")]);
        let groups = create(root.path(), "c-web-0", &limited());
        assert_eq!(groups, [root.path().join("longshore/c-web-0")]);
        assert_eq!(text(&groups[0], "memory.max"), (64 << 20).to_string());
        assert_eq!(text(&groups[0], "memory.low"), (32 << 20).to_string());
        assert_eq!(text(&groups[0], "cpu.max"), "150000 100000");
        assert_eq!(text(&groups[0], "cpu.weight"), "39");
        assert_eq!(text(&groups[0], "pids.max"), "50");
        // The last of three writes; the kernel would accumulate them.
        for folder in [root.path(), &root.path().join("longshore")] {
            assert_eq!(text(folder, "cgroup.subtree_control"), "+pids");
        }
        let free = create(root.path(), "c-free-0", &ServiceSpec::default());
        assert_eq!(fs::read_dir(&free[0]).unwrap().count(), 0, "without limits nothing is written");
    }

    #[test]
    fn a_limit_that_cannot_be_written_does_not_affect_the_others() {
        let root = tree(&[("cgroup.controllers", "memory pids\n"), ("longshore/w/cpu.max/nobody-can-write", "")]);
        let groups = create(root.path(), "w", &limited());
        assert_eq!(text(&groups[0], "memory.max"), (64 << 20).to_string());
        assert_eq!(text(&groups[0], "pids.max"), "50");
    }

    #[test]
    fn cgroup_v1_has_one_group_per_controller() {
        let root = tree(&[
            ("memory/cgroup.procs", ""),
            ("cpu/cgroup.procs", ""),
            ("cpuacct/cgroup.procs", ""),
            ("unified/cgroup.controllers", ""),
        ]);
        let groups = create(root.path(), "w", &limited());
        let names: Vec<_> = ["memory", "cpu", "cpuacct"].map(|it| root.path().join(it).join("longshore/w")).into();
        assert_eq!(groups, names, "this machine has no pids controller");
        assert_eq!(text(&groups[0], "memory.limit_in_bytes"), (64 << 20).to_string());
        assert_eq!(text(&groups[1], "cpu.cfs_quota_us"), "150000");
    }

    #[test]
    fn without_cgroups_there_are_no_groups_and_no_error() {
        assert_eq!(create(tree(&[]).path(), "w", &limited()), Vec::<PathBuf>::new());
        let bare = tree(&[("cgroup.controllers", "cpuset\n")]);
        assert_eq!(create(bare.path(), "w", &limited()), Vec::<PathBuf>::new());
    }

    #[test]
    fn usage_and_oom_kills_are_read_from_both_cgroup_versions() {
        let v2 = tree(&[
            ("cpu.stat", "usage_usec 2500\nuser_usec 2000\nsystem_usec 500\n"),
            ("memory.current", "9000\n"),
            ("memory.stat", "anon 1000\nfile 4000\ninactive_file 3000\n"),
            ("memory.events", "low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n"),
        ]);
        let v1 = tree(&[
            ("cpuacct.usage", "2500000\n"),
            ("memory.usage_in_bytes", "9000\n"),
            ("memory.stat", "cache 4000\ninactive_file 1\ntotal_inactive_file 3000\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
        ]);
        let of = |root: &tempfile::TempDir| vec![root.path().to_owned()];
        let expected = Some(ResourceUsage { cpu_micros: 2500, memory_bytes: 6000 });
        assert_eq!((usage(&of(&v2)), usage(&of(&v1))), (expected, expected));
        assert!(was_oom_killed(&of(&v2)) && !was_oom_killed(&of(&v1)));
        assert_eq!(usage(&[]), None);
    }

    #[test]
    fn cpu_shares_are_converted_over_their_whole_range() {
        assert_eq!([0, 2, 1024, 262_144, 1_000_000].map(weight), [1, 1, 39, 10_000, 10_000]);
    }
}
