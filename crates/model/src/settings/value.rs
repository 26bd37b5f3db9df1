//! The kinds of settings: how a value is parsed, printed and limited.
//!
//! Owns: one type per kind. Must not touch: names and defaults of settings.
//! Invariant: [`SettingValue::print`] gives what [`SettingValue::parse`] reads as the same value.

use std::{net::Ipv6Addr, time::Duration};

use ipnet::Ipv4Net;

use super::SettingProblem;
use crate::{
    MeshMode,
    address_plan::{LARGEST_POOL, SMALLEST_POOL},
    settings::Preemption,
    units::{GIB, MIB, UnitError, parse_bytes, parse_duration, parse_millionths, print_duration},
};

/// How a setting's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// An amount of bytes, as `512MiB`.
    Bytes,
    /// A duration, as `1m30s`.
    Duration,
    /// A whole number.
    Count,
    /// A decimal number, as `1.5`.
    Ratio,
    /// `on` or `off`.
    Switch,
    /// An IPv6 prefix of 48 bits, as `fd4c:6f6e:6773::/48`.
    Prefix,
    /// An IPv4 network, as `10.128.0.0/10`.
    Pool,
    /// What joins the machines: `auto`, `wireguard`, `vxlan` or `off`.
    Mesh,
}

/// Longest text that is repeated in an error message.
const LONGEST_QUOTED: usize = 64;

/// The values of a type that a setting allows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Allowed<T> {
    /// All of them.
    Any,
    /// This one and larger ones.
    AtLeast(T),
    /// Larger ones than this.
    MoreThan(T),
    /// Those from the first to the second, both included.
    Between(T, T),
}

impl<T: PartialOrd> Allowed<T> {
    fn contains(&self, value: &T) -> bool {
        match self {
            Self::Any => true,
            Self::AtLeast(least) => value >= least,
            Self::MoreThan(bound) => value > bound,
            Self::Between(least, most) => value >= least && value <= most,
        }
    }

    /// For example `at least 10ms`; `None` where every value is allowed.
    pub(super) fn describe(&self, print: impl Fn(&T) -> String) -> Option<String> {
        match self {
            Self::Any => None,
            Self::AtLeast(least) => Some(format!("at least {}", print(least))),
            Self::MoreThan(bound) => Some(format!("more than {}", print(bound))),
            Self::Between(least, most) => Some(format!("from {} to {}", print(least), print(most))),
        }
    }
}

/// A kind of setting: parses and prints values of one Rust type.
pub(super) trait SettingValue {
    type Type: PartialOrd;
    const KIND: SettingKind;

    fn parse(text: &str) -> Result<Self::Type, SettingProblem>;
    fn print(value: &Self::Type) -> String;
}

/// Parses a value and refuses one that is not allowed.
pub(super) fn parse<K: SettingValue>(text: &str, allowed: &Allowed<K::Type>) -> Result<K::Type, SettingProblem> {
    let value = K::parse(text.trim())?;
    match allowed.describe(K::print) {
        Some(range) if !allowed.contains(&value) => Err(SettingProblem::NotAllowed { allowed: range }),
        Some(_) | None => Ok(value),
    }
}

fn wrong_unit(text: &str) -> impl Fn(UnitError) -> SettingProblem {
    let quoted = text.len() <= LONGEST_QUOTED;
    move |error| {
        let message = if quoted { format!(": {error}") } else { " is not an amount".to_owned() };
        SettingProblem::Malformed { message, hint: None }
    }
}

fn wrong_text(text: &str, expected: &str) -> SettingProblem {
    let found = if text.len() <= LONGEST_QUOTED { format!(", not `{text}`") } else { String::new() };
    SettingProblem::Malformed { message: format!(" must be {expected}{found}"), hint: None }
}

pub(super) struct Bytes;

impl SettingValue for Bytes {
    type Type = u64;
    const KIND: SettingKind = SettingKind::Bytes;

    fn parse(text: &str) -> Result<u64, SettingProblem> {
        parse_bytes(text).map_err(wrong_unit(text))
    }

    /// In the largest unit without a fraction.
    fn print(bytes: &u64) -> String {
        let units = [("GiB", GIB), ("MiB", MIB)];
        let exact = units.into_iter().find(|(_, size)| *bytes > 0 && bytes.is_multiple_of(*size));
        exact.map_or_else(|| bytes.to_string(), |(unit, size)| format!("{}{unit}", bytes / size))
    }
}

pub(super) struct Span;

impl SettingValue for Span {
    type Type = Duration;
    const KIND: SettingKind = SettingKind::Duration;

    fn parse(text: &str) -> Result<Duration, SettingProblem> {
        parse_duration(text).map_err(wrong_unit(text))
    }

    fn print(duration: &Duration) -> String {
        print_duration(*duration)
    }
}

pub(super) struct Count;

impl SettingValue for Count {
    type Type = u32;
    const KIND: SettingKind = SettingKind::Count;

    fn parse(text: &str) -> Result<u32, SettingProblem> {
        text.parse().map_err(|_| wrong_text(text, "a whole number, zero or more"))
    }

    fn print(count: &u32) -> String {
        count.to_string()
    }
}

pub(super) struct Ratio;

impl SettingValue for Ratio {
    type Type = u64;
    const KIND: SettingKind = SettingKind::Ratio;

    fn parse(text: &str) -> Result<u64, SettingProblem> {
        parse_millionths(text).ok_or_else(|| wrong_text(text, "a number such as `0.5`"))
    }

    /// With as many digits as needed, and at least one after the point.
    fn print(millionths: &u64) -> String {
        let fraction = format!("{:06}", millionths % 1_000_000);
        let fraction = fraction.trim_end_matches('0');
        format!("{}.{}", millionths / 1_000_000, if fraction.is_empty() { "0" } else { fraction })
    }
}

pub(super) struct Switch;

impl SettingValue for Switch {
    type Type = Preemption;
    const KIND: SettingKind = SettingKind::Switch;

    fn parse(text: &str) -> Result<Preemption, SettingProblem> {
        match text {
            "on" => Ok(Preemption::On),
            "off" => Ok(Preemption::Off),
            other => Err(wrong_text(other, "`on` or `off`")),
        }
    }

    fn print(value: &Preemption) -> String {
        match value {
            Preemption::On => "on".to_owned(),
            Preemption::Off => "off".to_owned(),
        }
    }
}

pub(super) struct Prefix48;

impl SettingValue for Prefix48 {
    type Type = Ipv6Addr;
    const KIND: SettingKind = SettingKind::Prefix;

    fn parse(text: &str) -> Result<Ipv6Addr, SettingProblem> {
        let address = text.strip_suffix("/48").unwrap_or(text).parse::<Ipv6Addr>().ok();
        address.filter(|address| u128::from(*address) << 48 == 0).ok_or_else(|| SettingProblem::Malformed {
            message: " must be an IPv6 prefix of 48 bits".to_owned(),
            hint: Some("write it like `fd4c:6f6e:6773::/48`"),
        })
    }

    fn print(prefix: &Ipv6Addr) -> String {
        format!("{prefix}/48")
    }
}

pub(super) struct Pool;

impl SettingValue for Pool {
    type Type = Ipv4Net;
    const KIND: SettingKind = SettingKind::Pool;

    fn parse(text: &str) -> Result<Ipv4Net, SettingProblem> {
        let pool = text.parse::<Ipv4Net>().ok().filter(|pool| pool.trunc() == *pool);
        let fits = |pool: &Ipv4Net| (LARGEST_POOL..=SMALLEST_POOL).contains(&pool.prefix_len());
        pool.filter(fits).ok_or_else(|| SettingProblem::Malformed {
            message: format!(" must be an IPv4 network from /{LARGEST_POOL} to /{SMALLEST_POOL}"),
            hint: Some("write it like `10.128.0.0/10`"),
        })
    }

    fn print(pool: &Ipv4Net) -> String {
        pool.to_string()
    }
}

pub(super) struct Mesh;

impl SettingValue for Mesh {
    type Type = MeshMode;
    const KIND: SettingKind = SettingKind::Mesh;

    fn parse(text: &str) -> Result<MeshMode, SettingProblem> {
        let mode = MeshMode::ALL.into_iter().find(|mode| mode.as_str() == text);
        mode.ok_or_else(|| wrong_text(text, "`auto`, `wireguard`, `vxlan` or `off`"))
    }

    fn print(mode: &MeshMode) -> String {
        mode.as_str().to_owned()
    }
}
