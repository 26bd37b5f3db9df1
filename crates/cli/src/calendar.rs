//! Times as people write them.
//!
//! Owns: the calendar. Invariant: always UTC and marked so, so that the same moment reads the same on every machine.

/// A moment to the second: `2026-01-31 23:59:59Z`.
pub(crate) fn second(at_ms: u64) -> String {
    let Parts { year, month, day, hour, minute, second, .. } = Parts::of(at_ms);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// A moment to the millisecond, as programs write it: `2026-01-31T23:59:59.123Z`.
pub(crate) fn millisecond(at_ms: u64) -> String {
    let Parts { year, month, day, hour, minute, second, millisecond } = Parts::of(at_ms);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

struct Parts {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    millisecond: u64,
}

impl Parts {
    const fn of(at_ms: u64) -> Self {
        let (days, rest) = (at_ms / 86_400_000, at_ms % 86_400_000);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
        Self { year, month, day, hour, minute, second, millisecond: rest % 1000 }
    }
}

/// Year, month and day of a day counted from 1970, by counting in eras of 400 years that begin in March, so that the leap
/// day is the last of its year.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (year + era * 400 + if month <= 2 { 1 } else { 0 }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(millisecond(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(millisecond(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(millisecond(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(millisecond(1_798_761_599_123), "2026-12-31T23:59:59.123Z");
        assert_eq!(second(1_798_761_599_123), "2026-12-31 23:59:59Z");
    }
}
