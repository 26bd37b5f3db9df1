//! Rules for names that clients choose.
//!
//! Owns: what keeps a name from being mistaken for something else where it is printed, logged or put in a path.

/// Longest name in bytes.
pub(crate) const MAX_BYTES: usize = 128;

/// Whether a name is trimmed plain text without `/`, within the limit.
pub(crate) fn is_usable(name: &str) -> bool {
    let plain = |letter: char| !letter.is_control() && letter != '/' && !is_invisible(letter);
    !name.is_empty()
        && name != "."
        && name != ".."
        && name.len() <= MAX_BYTES
        && name.trim() == name
        && name.chars().all(plain)
}

/// Characters that are not seen, or that change how others are shown: two names would look alike.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}')
}

/// Whether a joining node may have the name. It becomes part of paths, addresses and labels.
pub(crate) fn is_node(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    is_usable(name) && !name.starts_with(['.', '-']) && name.chars().all(allowed)
}

/// Whether a token may have the name. The others are how the audit record calls local users and the cluster itself.
pub(crate) fn is_token(name: &str) -> bool {
    let lower = name.to_lowercase();
    is_usable(name) && lower != "root" && lower != "system" && !lower.starts_with("uid-")
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
        for name in ["..", "n\u{200b}1", "a b", ".hidden", "größe"] {
            assert!(!is_node(name), "{name:?}");
        }
        assert!(is_node("n1.example-2_b"));
        for name in ["root", "Root", "system", "uid-0", "UID-1000"] {
            assert!(!is_token(name), "{name}");
        }
        assert!(is_token("ci") && is_token("rooted"));
        for not in ["", ".", "..", "n\u{200b}1", "\u{202e}1n", " n1", "a\nb", "a/b", "\u{1b}[2J", "a\0", long.as_str()]
        {
            assert!(!is_usable(not), "{not:?}");
        }
    }
}
