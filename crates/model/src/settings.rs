//! The cluster settings, each declared once: name, type, default, allowed values and description.
//!
//! Owns: the list [`SETTINGS`] and the struct [`ClusterConfig`] made from it; reading and changing a setting by its name,
//! as the API, `cluster settings` and the `config` block of a scenario do.
//! Must not touch: where the text comes from, and when a change takes effect.
//! Invariant: every field of [`ClusterConfig`] is a setting, and a printed value parses as the same value.

mod error;
mod value;

use std::{collections::BTreeMap, net::Ipv6Addr, time::Duration};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

pub use self::{
    error::{SettingError, SettingProblem},
    value::SettingKind,
};

use self::value::{Allowed, Bytes, Count, Mesh, Pool, Prefix48, Ratio, SettingValue, Span, Switch};
use crate::{
    AddressPlan, MeshMode, address_plan, suggest,
    units::{GIB, MIB},
};

/// Whether a service may displace replicas of services of lower priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preemption {
    /// Never.
    #[default]
    Off,
    /// When nothing else fits.
    On,
}

/// Declares [`ClusterConfig`], its defaults and [`SETTINGS`]. A line of the list reads
/// `/// description` `"name" => field: type as Kind = default, allowed values`.
macro_rules! settings {
    ($(
        #[doc = $description:literal]
        $name:literal => $field:ident: $type:ty as $kind:ident $([$when:ident])? = $default:expr $(, $allowed:expr)?;
    )*) => {
        /// Settings of the whole cluster.
        // A setting that was added after a log or snapshot was written has its default there.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct ClusterConfig {
            $(#[doc = $description] pub $field: $type,)*
        }

        impl Default for ClusterConfig {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        /// Every setting, in the order of the declaration.
        pub const SETTINGS: &[Setting] = &[$(
            Setting {
                name: $name,
                kind: <$kind as SettingValue>::KIND,
                description: $description.trim_ascii_start(),
                mutability: settings!(@mutability $($when)?),
                allowed: || settings!(@allowed $($allowed)?).describe(<$kind as SettingValue>::print),
                get: |config| <$kind as SettingValue>::print(&config.$field),
                set: |config, text| {
                    let allowed: Allowed<$type> = settings!(@allowed $($allowed)?);
                    config.$field = value::parse::<$kind>(text, &allowed)?;
                    Ok(())
                },
            },
        )*];
    };
    (@mutability) => { Mutability::AtAnyTime };
    (@mutability $when:ident) => { Mutability::$when };
    (@allowed) => { Allowed::Any };
    (@allowed $allowed:expr) => { $allowed };
}

settings! {
    /// CPU that can be assigned, as a multiple of the physical cores; stored in millionths
    "cpu_overcommit_ratio" => cpu_overcommit_millionths: u64 as Ratio = 4_000_000, Allowed::MoreThan(0);
    /// Memory accounted for a replica that declares none
    "default_memory" => default_memory_bytes: u64 as Bytes = 0;
    /// Disk accounted for a replica, on nodes that report their disk
    "default_ephemeral_disk" => default_ephemeral_disk_bytes: u64 as Bytes = 4 * GIB;
    /// Memory a micro virtual machine costs on top of its replica
    "microvm_overhead" => microvm_overhead_bytes: u64 as Bytes = 64 * MIB;
    /// Memory a container costs on top of its replica
    "container_overhead" => container_overhead_bytes: u64 as Bytes = 0;
    /// Missed heartbeats after which a node is suspect and gets no new replicas
    "suspect_after_missed" => suspect_after_missed: u32 as Count = 3, Allowed::AtLeast(1);
    /// Missed heartbeats after which a node is down and its replicas are replaced
    "down_after_missed" => down_after_missed: u32 as Count = 10;
    /// Time between two heartbeats of a node
    // With shorter intervals a cluster does nothing but send heartbeats.
    "heartbeat_interval" => heartbeat_interval: Duration as Span = Duration::from_secs(1),
        Allowed::AtLeast(Duration::from_millis(10));
    /// First 48 bits of every overlay address
    "cluster_prefix" => cluster_prefix: Ipv6Addr as Prefix48 [AtCreation] =
        Ipv6Addr::new(0xfd4c, 0x6f6e, 0x6773, 0, 0, 0, 0, 0);
    /// Where the IPv4 addresses of replicas and services come from
    "ipv4_pool" => ipv4_pool: Ipv4Net as Pool [AtCreation] = address_plan::DEFAULT_IPV4_POOL;
    /// What joins the machines: `auto` is WireGuard, of the kernel or in user space; `vxlan` is not encrypted
    "mesh" => mesh: MeshMode as Mesh = MeshMode::Auto;
    /// UDP port of the mesh; a machine on which it is taken uses the next free one
    "mesh_port" => mesh_port: u32 as Count = 51820, Allowed::Between(1, 65535);
    /// How long a released address is not given to another replica
    "address_cooldown" => address_cooldown: Duration as Span = Duration::from_hours(1);
    /// Failures of a service on a node, within `faulty_window`, after which the node is its last choice
    "faulty_after_failures" => faulty_after_failures: u32 as Count = 5;
    /// Time within which the failures of `faulty_after_failures` are counted
    "faulty_window" => faulty_window: Duration as Span = Duration::from_mins(5);
    /// How long a finished replica of a job stays visible
    "gc_finished" => gc_finished: Duration as Span = Duration::from_hours(1);
    /// How long a removed node stays visible
    "gc_nodes" => gc_nodes: Duration as Span = Duration::from_hours(24);
    /// Whether services of higher priority may displace those of lower priority
    "preemption" => preemption: Preemption as Switch = Preemption::Off;
    /// Time a replica has to leave a draining node
    "drain_timeout" => drain_timeout: Duration as Span = Duration::from_mins(5);
    /// Time between two samples of the load of a node and its replicas
    // Shorter samples are noise; with longer ones pressure is noticed too late.
    "node_status_interval" => node_status_interval: Duration as Span = Duration::from_secs(30),
        Allowed::Between(Duration::from_secs(5), Duration::from_mins(5));
}

impl ClusterConfig {
    /// Where the addresses of the overlay come from.
    pub const fn address_plan(&self) -> AddressPlan {
        AddressPlan { prefix: self.cluster_prefix, pool: self.ipv4_pool }
    }
}

/// One setting of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in the API, on the command line and in scenarios.
    pub name: &'static str,
    /// How its value is written.
    pub kind: SettingKind,
    /// What it does, in one line.
    pub description: &'static str,
    /// When it can be set.
    pub mutability: Mutability,
    allowed: fn() -> Option<String>,
    get: fn(&ClusterConfig) -> String,
    set: fn(&mut ClusterConfig, &str) -> Result<(), SettingProblem>,
}

/// When a setting can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutability {
    /// At any time.
    AtAnyTime,
    /// Only before the cluster runs.
    AtCreation,
}

impl Setting {
    /// The setting of a name. An unknown name is an error with the nearest known one.
    pub fn find(name: &str) -> Result<&'static Self, SettingError> {
        SETTINGS.iter().find(|setting| setting.name == name).ok_or_else(|| {
            let nearest = suggest::nearest(name, SETTINGS.iter().map(|setting| setting.name));
            SettingError { name: name.to_owned(), problem: SettingProblem::Unknown { nearest } }
        })
    }

    /// Its value, as [`Setting::set`] reads it.
    pub fn get(&self, config: &ClusterConfig) -> String {
        (self.get)(config)
    }

    /// Its default value.
    pub fn default_value(&self) -> String {
        self.get(&ClusterConfig::default())
    }

    /// The allowed values, for example `at least 10ms`; `None` where any value of the kind is.
    pub fn allowed(&self) -> Option<String> {
        (self.allowed)()
    }

    /// Parses the text and sets the value; the config is unchanged on an error.
    pub fn set(&self, config: &mut ClusterConfig, text: &str) -> Result<(), SettingError> {
        (self.set)(config, text).map_err(|problem| SettingError { name: self.name.to_owned(), problem })
    }
}

/// Every setting with its value, by name.
pub fn print(config: &ClusterConfig) -> BTreeMap<String, String> {
    SETTINGS.iter().map(|setting| (setting.name.to_owned(), setting.get(config))).collect()
}

/// The settings of a running cluster after a change of those that are named; all errors, in the order of the names,
/// otherwise.
pub fn changed(now: &ClusterConfig, changes: &BTreeMap<String, String>) -> Result<ClusterConfig, Vec<SettingError>> {
    let (mut config, mut errors) = (now.clone(), Vec::new());
    for (name, text) in changes {
        errors.extend(change(&mut config, name, text).err());
    }
    errors.extend(check(&config));
    if errors.is_empty() { Ok(config) } else { Err(errors) }
}

fn change(config: &mut ClusterConfig, name: &str, text: &str) -> Result<(), SettingError> {
    let setting = Setting::find(name)?;
    let before = setting.get(config);
    setting.set(config, text)?;
    match setting.mutability {
        Mutability::AtCreation if setting.get(config) != before => {
            Err(SettingError { name: name.to_owned(), problem: SettingProblem::Fixed })
        }
        Mutability::AtCreation | Mutability::AtAnyTime => Ok(()),
    }
}

/// The rules between settings, which no setting can check alone.
pub fn check(config: &ClusterConfig) -> Option<SettingError> {
    let ordered = config.down_after_missed > config.suspect_after_missed;
    let problem = SettingProblem::NotAbove {
        other: "suspect_after_missed",
        hint: "a node is suspect first and down later; the defaults are 3 and 10",
    };
    (!ordered).then(|| SettingError { name: "down_after_missed".to_owned(), problem })
}

#[cfg(test)]
mod tests;
