//! Amounts as Compose writes them.
//!
//! Owns: bytes, cores and durations from text.
//! Must not touch: floating point; `0.1` of a core is exactly 100 thousandths.
//! Invariant: what cannot be represented is refused, never clamped.

use std::time::Duration;

/// Why a text is no amount. The sentence names the text and says what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitError(String);

/// An unsigned decimal: digits, and perhaps a point with further digits.
struct Decimal {
    whole: u128,
    /// The digits after the point as a number, and ten to the power of how many there are.
    part: u128,
    scale: u128,
}

impl Decimal {
    /// Reads the leading number and returns the rest.
    fn split(text: &str) -> Option<(Self, &str)> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        // More digits than these say nothing about a byte, a thousandth of a core or a nanosecond.
        let part = &part[..part.len().min(18)];
        if (whole.is_empty() && part.is_empty()) || whole.len() > 20 || part.contains('.') {
            return None;
        }
        let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
        let scale = 10_u128.pow(u32::try_from(part.len()).ok()?);
        Some((Self { whole: digits(whole)?, part: digits(part)?, scale }, rest))
    }

    /// The number times `unit`, rounded down.
    fn times(&self, unit: u128) -> Option<u128> {
        self.whole.checked_mul(unit)?.checked_add(self.part.checked_mul(unit)? / self.scale)
    }

    /// The number times `unit`, rounded up.
    fn times_up(&self, unit: u128) -> Option<u128> {
        self.whole.checked_mul(unit)?.checked_add(self.part.checked_mul(unit)?.div_ceil(self.scale))
    }
}

/// `8GiB`, `512m`, `1.5g`, `1024`: every unit is binary, a bare number is bytes.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let refuse = || UnitError(format!("`{text}` is not an amount of bytes; write it like `512m`, `1.5g` or `8GiB`"));
    let (number, unit) = Decimal::split(text.trim()).ok_or_else(refuse)?;
    let unit: u128 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        "p" | "pb" | "pib" => 1 << 50,
        _ => return Err(refuse()),
    };
    let bytes = number.times(unit).ok_or_else(refuse)?;
    u64::try_from(bytes).map_err(|_| UnitError(format!("`{text}` is more bytes than there can be")))
}

/// `0.5`, `2`, `1.25`: cores, in thousandths, rounded up so that a little is never nothing.
pub fn parse_cpus(text: &str) -> Result<u64, UnitError> {
    let refuse = || UnitError(format!("`{text}` is not a number of cores; write it like `0.5` or `2`"));
    let (number, rest) = Decimal::split(text.trim()).ok_or_else(refuse)?;
    let millis = number.times_up(1000).filter(|_| rest.is_empty()).ok_or_else(refuse)?;
    u64::try_from(millis).map_err(|_| refuse())
}

/// `30s`, `1m30s`, `500ms`, `1.5h`, `2d`: each number has its unit; only `0` may stand alone.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let refuse = || UnitError(format!("`{text}` is not a duration; write it like `30s`, `1m30s` or `500ms`"));
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(refuse());
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = Decimal::split(rest).ok_or_else(refuse)?;
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit: u128 = match unit.trim() {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60 * 1_000_000_000,
            "h" => 3_600 * 1_000_000_000,
            "d" => 86_400 * 1_000_000_000,
            "w" => 7 * 86_400 * 1_000_000_000,
            _ => return Err(refuse()),
        };
        nanos = number.times(unit).and_then(|step| nanos.checked_add(step)).ok_or_else(refuse)?;
        rest = after;
    }
    // 292 years, as Go's durations; a longer one is a slip.
    match u64::try_from(nanos) {
        Ok(nanos) if i64::try_from(nanos).is_ok() => Ok(Duration::from_nanos(nanos)),
        Ok(_) | Err(_) => Err(UnitError(format!("`{text}` is longer than any duration can be"))),
    }
}

/// As [`parse_duration`] reads it, in the fewest parts.
pub fn print_duration(duration: Duration) -> String {
    use std::fmt::Write as _;
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let units: [(&str, u128); 6] = [
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let mut rest = nanos;
    let mut out = String::new();
    for (unit, size) in units {
        if rest >= size {
            let _ = write!(out, "{}{unit}", rest / size);
            rest %= size;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_bytes_is_binary() {
        for (text, bytes) in [
            ("0", 0),
            ("1024", 1024),
            ("10b", 10),
            ("1k", 1024),
            ("512m", 512 << 20),
            ("512MB", 512 << 20),
            ("8GiB", 8 << 30),
            ("1.5g", 3 << 29),
            ("1.5 g", 3 << 29),
            ("2t", 2 << 40),
            (".5k", 512),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused_with_its_text() {
        for text in ["", "-1", "1x", "g", "1.2.3g", "1 2", "99999999999999999999g", "0x10", "1e3", "∞"] {
            assert!(parse_bytes(text).is_err(), "{text}");
            assert!(parse_duration(text).is_err(), "{text}");
            assert!(parse_cpus(text).is_err(), "{text}");
        }
        assert_eq!(
            parse_bytes("-1").map_err(|error| error.to_string()),
            Err("`-1` is not an amount of bytes; write it like `512m`, `1.5g` or `8GiB`".to_owned())
        );
    }

    #[test]
    fn cores_are_exact_thousandths() {
        for (text, millis) in [("0.1", 100), ("2", 2000), ("1.25", 1250), ("0.50", 500), ("0.0001", 1), ("0", 0)] {
            assert_eq!(parse_cpus(text), Ok(millis), "{text}");
        }
    }

    #[test]
    fn durations_read_and_print_alike() {
        for (text, millis, printed) in [
            ("30s", 30_000, "30s"),
            ("1m30s", 90_000, "1m30s"),
            ("90s", 90_000, "1m30s"),
            ("500ms", 500, "500ms"),
            ("1.5h", 5_400_000, "1h30m"),
            ("2d", 172_800_000, "48h"),
            ("0", 0, "0s"),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(print_duration(Duration::from_millis(millis)), printed);
        }
        assert!(parse_duration("30").is_err(), "a bare number has no unit");
        assert!(parse_duration("400000h400000000h").is_err());
    }
}
