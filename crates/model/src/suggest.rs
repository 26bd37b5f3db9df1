//! Suggestion of the known name that is most similar to a misspelt one.
//!
//! Owns: the edit distance of two words, and the largest one that is suggested.
//! Invariant: ties go to the first name listed, so that a hint never changes between runs.

/// Candidates compared. A table of keys has a hundred; service names may be many more, and a hint is optional.
const MAX_CANDIDATES: usize = 500;

/// The most similar of `known`, if it is similar enough for a typing error.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Long words are rarely misspelt names, and the distance below is quadratic.
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase();
    let mut best: Option<(usize, &str)> = None;
    for candidate in known.into_iter().take(MAX_CANDIDATES) {
        let found = distance(&lower, &candidate.to_lowercase());
        if best.is_none_or(|(least, _)| found < least) {
            best = Some((found, candidate));
        }
    }
    best.filter(|(found, candidate)| *found <= (candidate.len().max(3)) / 3).map(|(_, candidate)| candidate)
}

/// Number of edits that turn one word into the other; swapping two neighbours is one edit.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    const KEYS: [&str; 4] = ["healthcheck", "image", "ports", "environment"];

    #[test]
    fn a_typing_error_is_recognised() {
        assert_eq!(nearest("helthcheck", KEYS), Some("healthcheck"));
        assert_eq!(nearest("prots", KEYS), Some("ports"));
        assert_eq!(nearest("enviroment", KEYS), Some("environment"));
        assert_eq!(nearest("Image", KEYS), Some("image"));
    }

    #[test]
    fn an_unrelated_word_suggests_nothing() {
        assert_eq!(nearest("zebra", KEYS), None);
        assert_eq!(nearest("", KEYS), None);
    }
}
