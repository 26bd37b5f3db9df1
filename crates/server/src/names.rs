//! Which names strangers may give to things.
//!
//! Owns: what keeps a name from being mistaken for something else where it is printed, logged or put in a path.

/// Bytes of a name at most.
pub(crate) const LONGEST: usize = 128;

/// Whether a name is plain text of a sensible length.
pub(crate) fn is_usable(name: &str) -> bool {
    let plain = |letter: char| !letter.is_control() && letter != '/' && letter != '\u{2028}' && letter != '\u{2029}';
    !name.is_empty() && name.len() <= LONGEST && name.trim() == name && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_text() {
        for usable in ["n1", "shop_floor 7", "größe", "[::1]:7474"] {
            assert!(is_usable(usable), "{usable}");
        }
        let long = "n".repeat(LONGEST + 1);
        for not in ["", " n1", "a\nb", "a/b", "\u{1b}[2J", "a\0", long.as_str()] {
            assert!(!is_usable(not), "{not:?}");
        }
    }
}
