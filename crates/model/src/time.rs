//! Points in time, in milliseconds since an epoch that the caller chooses.
//!
//! Owns: arithmetic that cannot overflow or go negative.
//! Must not touch: the clock. A [`Time`] is always passed in.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// A point in time, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The time `wait` after this one.
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Duration since `earlier`; zero if it is in the future, which happens when another leader's clock was ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}
