//! Rules for names that clients choose.
//!
//! Owns: what keeps a name from being mistaken for something else where it is printed, logged or put in a path.

/// Longest name in bytes.
pub(crate) const MAX_BYTES: usize = 128;

/// Whether a name is trimmed plain text without `/`, within the limit.
pub(crate) fn is_usable(name: &str) -> bool {
    let plain = |letter: char| !letter.is_control() && letter != '/' && letter != '\u{2028}' && letter != '\u{2029}';
    !name.is_empty() && name.len() <= MAX_BYTES && name.trim() == name && name.chars().all(plain)
}

/// Whether a name is one for a new namespace. Volumes and networks are called `longshore_<namespace>.<deployment>_…` in the
/// engine: a dot or an underscore would let one namespace spell the names of another.
pub(crate) fn is_namespace(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    !name.is_empty() && name.len() <= 63 && !name.starts_with('-') && name.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_cannot_spell_the_names_of_another() {
        assert!(is_namespace("team-7") && is_namespace("default"));
        for not in ["", "-team", "a.b", "a_b", "prod.bank", "Team", "größe"] {
            assert!(!is_namespace(not), "{not}");
        }
    }

    #[test]
    fn a_name_is_plain_text() {
        for usable in ["n1", "shop_floor 7", "größe", "[::1]:7474"] {
            assert!(is_usable(usable), "{usable}");
        }
        let long = "n".repeat(MAX_BYTES + 1);
        for not in ["", " n1", "a\nb", "a/b", "\u{1b}[2J", "a\0", long.as_str()] {
            assert!(!is_usable(not), "{not:?}");
        }
    }
}
