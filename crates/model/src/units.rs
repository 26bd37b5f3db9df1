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
