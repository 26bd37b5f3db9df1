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

const ROOT: &str = "/sys/fs/cgroup";
/// Processor time is dealt out in tenths of a second.
const PERIOD_MICROS: u64 = 100_000;

enum Kind {
    Second,
    First,
    Absent,
}

fn kind() -> Kind {
    let controllers = fs::read_to_string(format!("{ROOT}/cgroup.controllers")).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "memory") {
        Kind::Second
    } else if Path::new(ROOT).join("memory/cgroup.procs").exists() {
        Kind::First
    } else {
        Kind::Absent
    }
}

/// The groups a process of the spec is to join: none where the machine has none, or does not let us.
pub(super) fn make(name: &str, spec: &ServiceSpec) -> Vec<PathBuf> {
    let made = match kind() {
        Kind::Second => make_second(name, spec),
        Kind::First => make_first(name, spec),
        Kind::Absent => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    made.unwrap_or_else(|error| {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::warn!(%error, "no control groups here: processes run without limits"));
        Vec::new()
    })
}

fn make_second(name: &str, spec: &ServiceSpec) -> io::Result<Vec<PathBuf>> {
    let parent = Path::new(ROOT).join("longshore");
    fs::create_dir_all(&parent)?;
    for folder in [Path::new(ROOT), &parent] {
        fs::write(folder.join("cgroup.subtree_control"), "+memory +cpu +pids")?;
    }
    let group = parent.join(name);
    fs::create_dir_all(&group)?;
    let set = |file: &str, value: Option<String>| value.map_or(Ok(()), |value| fs::write(group.join(file), value));
    let resources = &spec.resources;
    set("memory.max", resources.memory_limit_bytes.map(|bytes| bytes.to_string()))?;
    set("memory.low", resources.memory_reservation_bytes.map(|bytes| bytes.to_string()))?;
    set("cpu.max", resources.cpu_limit_millis.map(|millis| format!("{} {PERIOD_MICROS}", quota(millis))))?;
    set("pids.max", spec.container.limits.pids.filter(|pids| *pids > 0).map(|pids| pids.to_string()))?;
    Ok(vec![group])
}

fn make_first(name: &str, spec: &ServiceSpec) -> io::Result<Vec<PathBuf>> {
    let group = |controller: &str| Path::new(ROOT).join(controller).join("longshore").join(name);
    let mut groups = Vec::new();
    for controller in ["memory", "cpu", "cpuacct", "pids"] {
        if Path::new(ROOT).join(controller).join("cgroup.procs").exists() {
            fs::create_dir_all(group(controller))?;
            groups.push(group(controller));
        }
    }
    let set = |controller: &str, file: &str, value: Option<String>| {
        value.map_or(Ok(()), |value| fs::write(group(controller).join(file), value))
    };
    let (resources, limits) = (&spec.resources, &spec.container.limits);
    set("memory", "memory.limit_in_bytes", resources.memory_limit_bytes.map(|bytes| bytes.to_string()))?;
    set("cpu", "cpu.cfs_quota_us", resources.cpu_limit_millis.map(|millis| quota(millis).to_string()))?;
    set("cpu", "cpu.shares", limits.cpu_shares.map(|shares| shares.to_string()))?;
    set("pids", "pids.max", limits.pids.filter(|pids| *pids > 0).map(|pids| pids.to_string()))?;
    Ok(groups)
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
