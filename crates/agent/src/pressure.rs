//! The pressure on this machine: shares of processor time and memory in use.
//!
//! Owns: reading the kernel's counters and computing the shares.
//! Invariant: no sample is better than a wrong one: a counter that went back, or a clock that did not move, gives none.

use std::{fs, time::Instant};

use longshore_model::rebalance::{Pressure, Share};

/// Processor time used since boot, summed over all cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTime {
    busy_micros: u64,
}

/// Takes samples of the time since the previous one.
#[derive(Debug)]
pub(crate) struct Sampler {
    cores: u64,
    previous: Option<(Instant, CpuTime)>,
}

impl Sampler {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        Self { cores, previous: cpu_time().map(|time| (Instant::now(), time)) }
    }

    pub(crate) fn sample(&mut self) -> Option<Pressure> {
        let (now, time) = (Instant::now(), cpu_time()?);
        let (then, earlier) = self.previous.replace((now, time))?;
        let busy = time.busy_micros.checked_sub(earlier.busy_micros)?;
        let elapsed = u64::try_from(now.duration_since(then).as_micros()).ok()?;
        let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
        Some(Pressure { cpu: share(busy, elapsed * self.cores)?, memory: memory(&meminfo)? })
    }
}

/// `part` of `whole` in millionths, at most 1,000,000. `None` if `whole` is zero.
fn share(part: u64, whole: u64) -> Option<Share> {
    let millionths = u128::from(part) * 1_000_000 / u128::from((whole > 0).then_some(whole)?);
    i64::try_from(millionths.min(1_000_000)).ok().map(Share)
}

/// The machine's counter: from the root of cgroup v2 if it is mounted, else from `/proc/stat`.
fn cpu_time() -> Option<CpuTime> {
    let from_cgroup = fs::read_to_string("/sys/fs/cgroup/cpu.stat").ok().and_then(|text| from_cpu_stat(&text));
    from_cgroup.or_else(|| from_proc_stat(&fs::read_to_string("/proc/stat").ok()?))
}

fn from_cpu_stat(text: &str) -> Option<CpuTime> {
    let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(CpuTime { busy_micros: usage.trim().parse().ok()? })
}

/// The kernel reports times to user space in hundredths of a second on every supported platform.
const MICROS_PER_TICK: u64 = 10_000;

fn from_proc_stat(text: &str) -> Option<CpuTime> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is part of user.
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else { return None };
    Some(CpuTime { busy_micros: (user + nice + system + irq + softirq) * MICROS_PER_TICK })
}

fn memory(meminfo: &str) -> Option<Share> {
    let (total, available) = (meminfo_kib(meminfo, "MemTotal")?, meminfo_kib(meminfo, "MemAvailable")?);
    share(total.saturating_sub(available), total)
}

/// A value of `/proc/meminfo`, in KiB.
pub(crate) fn meminfo_kib(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_from_cgroup_and_proc() {
        let cgroup = from_cpu_stat("usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\n");
        assert_eq!(cgroup, Some(CpuTime { busy_micros: 1_234_567 }));
        let stat = from_proc_stat("cpu  100 5 20 9000 30 1 4 7 0 0\ncpu0 100 5 20 9000 30 1 4 7 0 0\n");
        assert_eq!(stat, Some(CpuTime { busy_micros: 1_300_000 }));
        assert_eq!(from_proc_stat("cpu 1 2\n"), None);
    }

    #[test]
    fn reclaimable_memory_is_not_in_use() {
        let text = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    250 kB\n";
        assert_eq!(memory(text), Some(Share(750_000)));
        assert_eq!(memory("MemTotal: 1000 kB\n"), None);
    }

    #[test]
    fn a_share_is_at_most_one_million_and_none_of_zero() {
        assert_eq!((share(3, 2), share(1, 0), share(1, 4)), (Some(Share::WHOLE), None, Some(Share(250_000))));
    }

    #[test]
    fn a_pressure_is_sent_in_millionths_and_a_negative_one_is_refused() {
        let pressure = Pressure { cpu: Share(250_000), memory: Share(750_000) };
        let text = r#"{"cpu_millionths":250000,"memory_millionths":750000}"#;
        assert_eq!(serde_json::to_string(&pressure).unwrap(), text);
        assert_eq!(serde_json::from_str::<Pressure>(text).unwrap(), pressure);
        assert!(serde_json::from_str::<Pressure>(&text.replace("250000", "-1")).is_err());
    }

    #[test]
    fn a_busy_core_is_measured() {
        let mut sampler = Sampler::new();
        let began = Instant::now();
        while began.elapsed().as_millis() < 300 {
            std::hint::black_box(began);
        }
        let pressure = sampler.sample().expect("this machine has counters");
        let one_core = 1_000_000 / i64::try_from(sampler.cores).unwrap();
        assert!(pressure.cpu > Share(one_core / 2), "{pressure:?}");
        assert!(pressure.memory > Share::NONE && pressure.memory < Share::WHOLE, "{pressure:?}");
    }
}
