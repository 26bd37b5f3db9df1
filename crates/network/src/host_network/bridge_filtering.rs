//! Keeps `br_netfilter` away from our bridges, and as it was for all others.
//!
//! With `bridge-nf-call-iptables` on, the kernel runs the IP hooks on frames while they are still being bridged. A packet
//! whose destination is translated there is bridged to the neighbour instead of being routed, and an isolated port never
//! gets it: VIPs of replicas on the same machine would time out. The kernel has a switch for the namespace and one per
//! bridge, and either is enough to turn it on. So the namespace's is turned off, and each foreign bridge's is turned on.
//!
//! Owns: the two parameters, and that flag of foreign bridges. Must not touch: other settings of foreign bridges.
//! Invariant: a foreign bridge is filtered as before, also one that is made later.

use std::{collections::BTreeMap, fs};

use rtnetlink::LinkBridge;

use super::{
    ApplyError,
    kernel::{Kernel, Link, failed},
};

const SWITCHES: [&str; 2] =
    ["/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"];

/// Turns the filtering of bridged frames off for our bridges only. Returns what was on.
pub(super) async fn ensure_off(
    kernel: &Kernel,
    links: &BTreeMap<String, Link>,
    is_ours: impl Fn(&Link) -> bool,
) -> Result<Vec<String>, ApplyError> {
    let is_on = |path: &&str| fs::read_to_string(path).is_ok_and(|value| value.trim() == "1");
    let on: Vec<&str> = SWITCHES.into_iter().filter(is_on).collect();
    let foreign = || links.values().filter(|link| link.filters_bridged.is_some() && !is_ours(link));
    let was_on = !on.is_empty() || foreign().any(|link| link.filters_bridged == Some(true));
    for link in foreign().filter(|link| was_on && link.filters_bridged == Some(false)) {
        let filter = LinkBridge::new(&link.name).index(link.index).nf_call_iptables(true).nf_call_ip6tables(true);
        let changed = kernel.handle.link().change(filter.build()).execute().await;
        // One that is gone already needs no filter.
        if let Err(error) = changed.map_err(failed(&format!("keeping the filter of the bridge {}", link.name))) {
            tracing::debug!(%error, "a foreign bridge was not changed");
        }
    }
    for path in &on {
        fs::write(path, "0").map_err(|cause| ApplyError::Parameter { path: (*path).to_owned(), cause })?;
    }
    Ok(on.into_iter().map(|path| format!("{path} was 1")).collect())
}

/// Turns the filtering on again for the namespace, if foreign bridges are filtered.
pub(super) fn restore(links: &BTreeMap<String, Link>) {
    if links.values().any(|link| link.filters_bridged == Some(true)) {
        for path in SWITCHES {
            let _ = fs::write(path, "1");
        }
    }
}
