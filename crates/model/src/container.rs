//! Everything fixed when a container or process is created: what the spec hash covers besides resources and mounts.
//!
//! Owns: the resolved Compose keys that reach the driver unchanged.
//! Must not touch: placement, counts, update policy: those are in [`crate::service`].

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

/// What to run and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Image reference.
    pub image: String,
    /// Arguments, replacing the image's.
    pub command: Option<Vec<String>>,
    /// Program, replacing the image's.
    pub entrypoint: Option<Vec<String>>,
    /// Environment; a missing value is taken from the host.
    pub environment: BTreeMap<String, Option<String>>,
    /// Labels on the container.
    pub labels: BTreeMap<String, String>,
    /// Probe that decides health.
    pub healthcheck: Option<Healthcheck>,
    /// Signal that asks it to end.
    pub stop_signal: Option<String>,
    /// Time it has to do so.
    pub stop_grace_period: Option<Duration>,
    /// Log driver, where one is named.
    pub log_driver: Option<String>,
}

/// How health is probed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Healthcheck {
    /// The probe as Compose writes it, `CMD`, `CMD-SHELL` or `NONE` first.
    pub test: Vec<String>,
    /// Time between probes.
    pub interval: Duration,
    /// Time one probe may take.
    pub timeout: Duration,
    /// Failures in a row that make it unhealthy.
    pub retries: u32,
    /// Time after the start in which failures do not count.
    pub start_period: Duration,
    /// Time between probes in the start period.
    pub start_interval: Duration,
}
