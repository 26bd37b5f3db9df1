//! Times of the API, which are milliseconds since 1970, as text.
//!
//! Owns: the two formats. Invariant: always UTC and marked with `Z`, so that a moment reads the same on every machine.

use std::time::Duration;

use time::UtcDateTime;

/// A time to the second: `2026-01-31 23:59:59Z`.
pub(crate) fn second(at_ms: u64) -> String {
    let at = utc(at_ms);
    let (hour, minute, second) = at.time().as_hms();
    format!("{} {hour:02}:{minute:02}:{second:02}Z", date(at))
}

/// A time to the millisecond in RFC 3339: `2026-01-31T23:59:59.123Z`.
pub(crate) fn millisecond(at_ms: u64) -> String {
    let at = utc(at_ms);
    let (hour, minute, second, millisecond) = at.time().as_hms_milli();
    format!("{}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z", date(at))
}

fn date(at: UtcDateTime) -> String {
    format!("{:04}-{:02}-{:02}", at.year(), u8::from(at.month()), at.day())
}

/// A time beyond year 9999, which only a wrong clock sends, becomes the last one that can be written.
fn utc(at_ms: u64) -> UtcDateTime {
    let since_1970 = time::Duration::try_from(Duration::from_millis(at_ms)).unwrap_or(time::Duration::MAX);
    UtcDateTime::UNIX_EPOCH.saturating_add(since_1970)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_in_utc() {
        assert_eq!(millisecond(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(millisecond(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(millisecond(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(millisecond(1_798_761_599_123), "2026-12-31T23:59:59.123Z");
        assert_eq!(second(1_798_761_599_123), "2026-12-31 23:59:59Z");
        assert_eq!(second(u64::MAX), "9999-12-31 23:59:59Z");
    }
}
