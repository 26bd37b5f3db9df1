//! The estimate against the engine itself, with the scheduler's settings.

use proptest::prelude::*;

use super::*;

/// What the engine really takes, to the next power of two.
fn taken(text: &str) -> usize {
    let fits = |limit: &usize| regex::RegexBuilder::new(text).size_limit(*limit).build().is_ok();
    (6..40).map(|power| 1_usize << power).find(fits).expect("some limit suffices")
}

fn holds(text: &str) -> bool {
    let limit = PATTERN_LIMIT_BYTES;
    regex::RegexBuilder::new(text).size_limit(limit).dfa_size_limit(limit).build().is_ok()
}

#[test]
fn typical_patterns_are_accepted() {
    let long = "ab|".repeat(1000) + "b";
    let names = (0..400).map(|at| format!("node-{at}")).collect::<Vec<_>>().join("|");
    let written =
        ["^web-[0-9]+$", r"^\w{1,30}(-[a-z0-9]+)*$", "(?i)^(berlin|paris)", r"\p{L}+\s\p{N}", "[^.]+[.]{3}", ".*"];
    for text in written.into_iter().chain([long.as_str(), &names]) {
        assert_eq!(check(text), Ok(()), "{text} {}", bytes(&regex_syntax::parse(text).unwrap()));
        assert!(holds(text), "{text}");
    }
}

#[test]
fn patterns_the_scheduler_could_not_compile_are_refused() {
    for text in ["(a{1000}){1000}", r"\w{100}", r"(?:\pL|\d){60}", &"a?".repeat(1 << 15)] {
        assert_eq!(check(text), Err(PatternError::Large), "{}", text.len());
        assert!(!holds(text));
    }
    // What would be large long before it is made ready.
    for text in [r"\w?".repeat(50), format!("[{}]", r"\w".repeat(1000))] {
        assert_eq!(check(&text), Err(PatternError::Large));
    }
    assert_eq!(check("a("), Err(PatternError::Grammar("unclosed group".to_owned())));
}

fn any_class() -> impl Strategy<Value = String> {
    let letter = |code: u32| char::from_u32(code).unwrap_or('\u{fffd}');
    let range = (0_u32..0x11_0000, 0_u32..12, any::<u32>()).prop_map(move |(start, bits, more)| {
        let end = (start + (more & ((1 << bits) - 1))).min(0x10_ffff);
        let (start, end) = (letter(start), letter(end));
        format!("\\x{{{:x}}}-\\x{{{:x}}}", u32::from(start.min(end)), u32::from(start.max(end)))
    });
    prop::collection::vec(range, 1..60).prop_map(|ranges| format!("[{}]", ranges.concat()))
}

fn any_pattern() -> impl Strategy<Value = String> {
    let fixed =
        prop::sample::select(vec!["a", "(?i)straße", r"\w", r"\d", ".", "^", "", "[^a-z]", r"\b", "(?s-u:[a-c])"]);
    let leaf = prop_oneof![fixed.prop_map(str::to_owned), any_class()];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let several = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            several().prop_map(|parts| format!("({})", parts.join("|"))),
            several().prop_map(|parts| format!("(?:{})", parts.concat())),
            (inner.clone(), 0..9, 0..9).prop_map(|(part, min, more)| format!("({part}){{{min},{}}}", min + more)),
            (inner.clone(), 0..9).prop_map(|(part, min)| format!("(?:{part}){{{min},}}")),
            inner.clone().prop_map(|part| format!("(?:{part})*?")),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_accepted_holds(text in any_pattern()) {
        prop_assert!(check(&text).is_err() || holds(&text), "{text}");
        let estimate = bytes(&regex_syntax::parse(&text).expect("a pattern"));
        // The engine keeps a few steps of its own around every pattern.
        prop_assert!(taken(&text) / 2 <= estimate + 12 * STATE, "{estimate} for {text}");
    }
}
