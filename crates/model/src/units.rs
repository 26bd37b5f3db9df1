//! Amounts of bytes and cores, durations and ratios as text.
//!
//! Owns: how amounts are printed for people, and, in `parse`, how they are read from manifests, settings and arguments.
//! Must not touch: where a text came from; callers add the file and line.

mod parse;

pub use self::parse::{UnitError, parse_bytes, parse_cpus, parse_duration, parse_millionths, print_duration};

/// One binary mebibyte.
pub const MIB: u64 = 1 << 20;
/// One binary gibibyte.
pub const GIB: u64 = 1 << 30;
/// Thousandths of a core in one core.
pub const MILLIS_PER_CORE: u64 = 1000;

/// `512 MiB`, `16 GiB`, or plain bytes where neither is exact.
pub fn bytes(amount: u64) -> String {
    const KIB: u64 = 1 << 10;
    if amount == 0 {
        "0 MiB".to_owned()
    } else if amount.is_multiple_of(GIB) {
        format!("{} GiB", amount / GIB)
    } else if amount.is_multiple_of(MIB) {
        format!("{} MiB", amount / MIB)
    } else if amount.is_multiple_of(KIB) {
        format!("{} KiB", amount / KIB)
    } else {
        format!("{amount} bytes")
    }
}

/// Like [`bytes`], rounded down to a whole MiB.
pub fn rounded_bytes(amount: u64) -> String {
    bytes(if amount > MIB { amount - amount % MIB } else { amount })
}

/// A needed and a free amount, rounded like [`rounded_bytes`]; exact where both would print the same.
pub fn needed_and_free(needed: u64, free: u64) -> (String, String) {
    let rough = (rounded_bytes(needed), rounded_bytes(free));
    if rough.0 == rough.1 { (bytes(needed), bytes(free)) } else { rough }
}

/// `1 core`, `1.5 cores`, `0.25 cores`, from thousandths of a core.
pub fn cores(millis: u64) -> String {
    let (whole, rest) = (millis / MILLIS_PER_CORE, millis % MILLIS_PER_CORE);
    let fraction = format!(".{rest:03}");
    let fraction = if rest == 0 { "" } else { fraction.trim_end_matches('0') };
    let noun = if millis == MILLIS_PER_CORE { "core" } else { "cores" };
    format!("{whole}{fraction} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_unless_that_hides_the_difference() {
        assert_eq!(needed_and_free(900 * GIB, 24_684_112 << 10), ("900 GiB".to_owned(), "24105 MiB".to_owned()));
        assert_eq!(needed_and_free(MIB + 2, MIB + 1), ("1048578 bytes".to_owned(), "1048577 bytes".to_owned()));
        assert_eq!(rounded_bytes(1023), "1023 bytes");
    }

    #[test]
    fn cores_have_as_many_decimal_places_as_needed() {
        let printed: Vec<String> = [0, 1, 50, 250, 1000, 1500, 12_000].into_iter().map(cores).collect();
        assert_eq!(printed, ["0 cores", "0.001 cores", "0.05 cores", "0.25 cores", "1 core", "1.5 cores", "12 cores"]);
    }
}
