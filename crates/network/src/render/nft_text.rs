//! The text of the table for `nft -f`, whole or as the difference of two.
//!
//! Our base chains run before other programs' (priority −5) with the policy accept, and only ever drop: an accept of ours
//! ends our own chain and nothing else, so other programs' rules keep their effect.
//!
//! Owns: syntax and order of the text. Must not touch: which addresses are in a set.
//! Invariant: a text is one transaction; the difference of two rulesets applied to the first gives the second.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{DeviceNames, Ruleset, TRANSPARENT_MARK, ruleset::ElementSet};
use crate::NetworkSettings;

impl Ruleset {
    /// The whole table; replaces the table of that name if there is one.
    pub fn whole(&self) -> String {
        let table = &self.table;
        // Declaring the table first makes deleting it valid whether or not it existed.
        let mut text = format!("table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n");
        for (name, set) in &self.sets {
            let _ = writeln!(text, "\t{} {name} {{", set.keyword);
            let _ = writeln!(text, "\t\ttype {}", set.element_type);
            if !set.elements.is_empty() {
                let _ = writeln!(text, "\t\telements = {{ {} }}", joined(&set.elements));
            }
            text.push_str("\t}\n");
        }
        for (name, rules) in &self.chains {
            let _ = writeln!(text, "\tchain {name} {{");
            for rule in rules {
                let _ = writeln!(text, "\t\t{rule}");
            }
            text.push_str("\t}\n");
        }
        text.push_str(&self.base);
        text.push_str("}\n");
        text
    }

    /// The changes that make this table out of `old`; `None` if the whole table has to be loaded.
    pub fn delta(&self, old: &Self) -> Option<String> {
        if self.table != old.table || self.base != old.base {
            return None;
        }
        let table = &self.table;
        let mut text = String::new();
        for (name, set) in self.sets.iter().filter(|(name, _)| !old.sets.contains_key(*name)) {
            let _ = writeln!(text, "add {} inet {table} {name} {{ type {}; }}", set.keyword, set.element_type);
        }
        for name in self.chains.keys().filter(|name| !old.chains.contains_key(*name)) {
            let _ = writeln!(text, "add chain inet {table} {name}");
        }
        self.changed_elements(old, &mut text);
        self.changed_chains(old, &mut text);
        for name in old.sets.keys().filter(|name| !self.sets.contains_key(*name)) {
            let _ = writeln!(text, "delete set inet {table} {name}");
        }
        Some(text)
    }

    /// A key of a map may have got another value, so what goes is deleted before what comes is added.
    fn changed_elements(&self, old: &Self, text: &mut String) {
        let table = &self.table;
        let empty = BTreeSet::new();
        let of = |ruleset: &Self, name: &str| -> BTreeSet<String> {
            ruleset.sets.get(name).map_or(&empty, |set: &ElementSet| &set.elements).clone()
        };
        let mut added = String::new();
        for name in self.sets.keys() {
            let (before, after) = (of(old, name), of(self, name));
            let gone: BTreeSet<String> = before.difference(&after).cloned().collect();
            let new: BTreeSet<String> = after.difference(&before).cloned().collect();
            if !gone.is_empty() {
                let _ = writeln!(text, "delete element inet {table} {name} {{ {} }}", joined(&gone));
            }
            if !new.is_empty() {
                let _ = writeln!(added, "add element inet {table} {name} {{ {} }}", joined(&new));
            }
        }
        text.push_str(&added);
    }

    fn changed_chains(&self, old: &Self, text: &mut String) {
        let table = &self.table;
        for (name, rules) in &self.chains {
            if old.chains.get(name) == Some(rules) {
                continue;
            }
            if old.chains.contains_key(name) {
                let _ = writeln!(text, "flush chain inet {table} {name}");
            }
            for rule in rules {
                let _ = writeln!(text, "add rule inet {table} {name} {rule}");
            }
        }
        let gone: Vec<&String> = old.chains.keys().filter(|name| !self.chains.contains_key(*name)).collect();
        // Emptied first: a chain that others refer to cannot be deleted.
        for verb in ["flush", "delete"] {
            for name in &gone {
                let _ = writeln!(text, "{verb} chain inet {table} {name}");
            }
        }
    }
}

fn joined(elements: &BTreeSet<String>) -> String {
    elements.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// A hardware address in its usual form.
pub(super) fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// A rule that sends each new connection to one of the addresses at random; `None` without an address.
pub(super) fn spread(family: &str, addresses: &[String]) -> Option<String> {
    match addresses {
        [] => None,
        [only] => Some(format!("dnat {family} to {only}")),
        several => {
            let numbered: Vec<String> =
                several.iter().enumerate().map(|(number, address)| format!("{number} : {address}")).collect();
            let count = several.len();
            Some(format!("dnat {family} to numgen random mod {count} map {{ {} }}", numbered.join(", ")))
        }
    }
}

/// The chains that do not depend on services.
pub(super) fn base(settings: &NetworkSettings, names: &DeviceNames) -> String {
    let plan = &settings.addresses;
    BASE.replace("$MESH", &format!("\"{}\"", names.mesh))
        .replace("$MARK", &format!("{TRANSPARENT_MARK:#x}"))
        .replace("$POOL4", &plan.pool.to_string())
        .replace("$POOL6", &plan.ipv6_network().to_string())
        .replace("$VIPS4", &plan.vip_ipv4_range().to_string())
        .replace("$VIPS6", &plan.vip_ipv6_range().to_string())
}

const BASE: &str = "\
	# A source address of the overlay comes from where it belongs, or not at all.
	chain antispoof {
		type filter hook prerouting priority -300; policy accept;
		iifname @bridges goto from_bridge
		iifname { \"lo\", $MESH } accept
		ip saddr $POOL4 drop
		ip6 saddr $POOL6 drop
	}
	chain from_bridge {
		ether saddr . ip saddr @bound4 accept
		ether saddr . ip6 saddr @bound6 accept
		ip6 saddr { ::, fe80::/10 } accept
		drop
	}

	# VIPs of replicas, then of the machine's own processes.
	chain vip_forwarded {
		type nat hook prerouting priority -105; policy accept;
		iifname @bridges ip daddr vmap @vip4
		iifname @bridges ip6 daddr vmap @vip6
	}
	chain vip_own {
		type nat hook output priority -105; policy accept;
		ip daddr vmap @vip4
		ip6 daddr vmap @vip6
	}

	# Answers to connections that were made from a client's address come back to whoever made them.
	chain transparent_replies {
		type filter hook prerouting priority -150; policy accept;
		iifname @bridges meta l4proto tcp socket transparent 1 meta mark set $MARK
	}

	chain forward {
		type filter hook forward priority -5; policy accept;
		ct state established,related accept
		ct status dnat ct original ip daddr != $POOL4 accept
		ct status dnat ct original ip6 daddr != $POOL6 accept
		ip daddr $VIPS4 goto nobody_serves
		ip6 daddr $VIPS6 goto nobody_serves
		ip daddr $POOL4 goto to_overlay
		ip6 daddr $POOL6 goto to_overlay
		iifname @bridges goto to_outside
	}
	chain to_overlay {
		iifname != @inside drop
		oifname != @inside drop
		iifname $MESH ip saddr @nodes4 accept
		iifname $MESH ip6 saddr @nodes6 accept
		ip saddr vmap @class4
		ip6 saddr vmap @class6
		drop
	}
	chain to_outside {
		ip saddr @outside4 accept
		ip6 saddr @outside6 accept
		drop
	}
	chain nobody_serves {
		meta l4proto tcp reject with tcp reset
		reject with icmpx type port-unreachable
	}

	# Members of internal scopes only reach the name server of this machine.
	chain input {
		type filter hook input priority -5; policy accept;
		ct state established,related accept
		iifname @bridges ip saddr @internal4 goto from_internal
		iifname @bridges ip6 saddr @internal6 goto from_internal
		iifname \"lo\" accept
		iifname @inside accept
		ip daddr $POOL4 drop
		ip6 daddr $POOL6 drop
	}
	chain from_internal {
		meta l4proto { icmp, ipv6-icmp } accept
		udp dport 53 accept
		tcp dport 53 accept
		drop
	}

	chain output {
		type filter hook output priority -5; policy accept;
		oifname @bridges icmp type redirect drop
		oifname @bridges icmpv6 type nd-redirect drop
		ip daddr $VIPS4 goto nobody_serves
		ip6 daddr $VIPS6 goto nobody_serves
	}

	chain clamp_mss {
		type filter hook forward priority -150; policy accept;
		oifname @inside tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu
		iifname @inside tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu
	}

	chain masquerade_out {
		type nat hook postrouting priority 95; policy accept;
		ip saddr . ip daddr @hairpin4 masquerade
		ip6 saddr . ip6 daddr @hairpin6 masquerade
		ip saddr $POOL4 ip daddr != $POOL4 oifname != @inside masquerade
		ip6 saddr $POOL6 ip6 daddr != $POOL6 oifname != @inside masquerade
	}
";
