//! The wall clock. Nothing else in the daemon reads it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longshore_model::Time;

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> Time {
    Time(u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX))
}

/// Now, in nanoseconds since 1970.
pub(crate) fn nanos() -> u64 {
    u64::try_from(since_1970().as_nanos()).unwrap_or(u64::MAX)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
