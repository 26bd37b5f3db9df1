//! Parsing of amounts, in Compose's notation.
//!
//! Owns: bytes, cores, durations and ratios from text, and durations back to text.
//! Must not touch: floating point; `0.1` of a core is exactly 100 thousandths.
//! Invariant: what cannot be represented is refused, never clamped.

use std::{fmt, time::Duration};

/// A text that is no amount. The message quotes the text and gives examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError(String);

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnitError {}

/// An unsigned decimal number.
struct Decimal {
    whole: u128,
    /// The digits after the point as a number, over `scale`, a power of ten.
    part: u128,
    scale: u128,
}

impl Decimal {
    /// Reads the leading number and returns the rest.
    fn split(text: &str) -> Option<(Self, &str)> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        // Further digits are below a byte, a thousandth of a core or a nanosecond.
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

/// Parses `8GiB`, `512m`, `1.5g` or `1024`: every unit is binary, a bare number is bytes.
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

/// Parses `0.5`, `2` or `1.25` cores into thousandths, rounded up so that a small amount is never zero.
pub fn parse_cpus(text: &str) -> Result<u64, UnitError> {
    let refuse = || UnitError(format!("`{text}` is not a number of cores; write it like `0.5` or `2`"));
    let (number, rest) = Decimal::split(text.trim()).ok_or_else(refuse)?;
    let millis = number.times_up(1000).filter(|_| rest.is_empty()).ok_or_else(refuse)?;
    u64::try_from(millis).map_err(|_| refuse())
}

/// Parses `30s`, `1m30s`, `500ms`, `1.5h` or `2d`: each number needs a unit, except `0`.
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
    // The limit is 292 years, as of Go's durations; a longer one is a typing error.
    match u64::try_from(nanos) {
        Ok(nanos) if i64::try_from(nanos).is_ok() => Ok(Duration::from_nanos(nanos)),
        Ok(_) | Err(_) => Err(UnitError(format!("`{text}` is longer than any duration can be"))),
    }
}

/// Parses a decimal number such as `0.5` into millionths; further digits are cut off.
pub fn parse_millionths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || (whole.is_empty() && part.is_empty()) {
        return None;
    }
    let part: String = part.chars().chain("000000".chars()).take(6).collect();
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    whole.checked_mul(1_000_000)?.checked_add(part.parse().ok()?)
}

/// Prints a duration as [`parse_duration`] reads it, in the largest units.
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
    fn a_text_that_is_no_amount_is_refused_and_quoted() {
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
    fn a_printed_duration_parses_as_the_same() {
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
