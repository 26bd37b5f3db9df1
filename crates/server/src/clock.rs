//! The wall clock, read in one place.

use std::time::{SystemTime, UNIX_EPOCH};

use longshore_model::Time;

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
