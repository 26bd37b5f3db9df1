//! Quantities in the units people read.
//!
//! Owns: how bytes and cores are printed.
//! Must not touch: parsing, which belongs to the room that knows the place of the text.

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

/// The same for people: of amounts that are no whole MiB, the whole MiB below.
pub fn about(amount: u64) -> String {
    bytes(if amount > MIB { amount - amount % MIB } else { amount })
}

/// Two amounts of which one is too small, for people; exact where they would read the same.
pub fn compared(needed: u64, free: u64) -> (String, String) {
    let rough = (about(needed), about(free));
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
    fn amounts_are_rounded_for_people_unless_that_hides_what_is_missing() {
        assert_eq!(compared(900 * GIB, 24_684_112 << 10), ("900 GiB".to_owned(), "24105 MiB".to_owned()));
        assert_eq!(compared(MIB + 2, MIB + 1), ("1048578 bytes".to_owned(), "1048577 bytes".to_owned()));
        assert_eq!(about(1023), "1023 bytes");
    }

    #[test]
    fn cores_have_as_many_places_as_they_need() {
        let said: Vec<String> = [0, 1, 50, 250, 1000, 1500, 12_000].into_iter().map(cores).collect();
        assert_eq!(said, ["0 cores", "0.001 cores", "0.05 cores", "0.25 cores", "1 core", "1.5 cores", "12 cores"]);
    }
}
