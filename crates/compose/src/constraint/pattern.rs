//! Regular expressions in constraints: whether the scheduler can compile one within its memory limit.
//!
//! Owns: the estimate of a pattern's compiled size.
//! Must not touch: the regex engine. Compiling all patterns of a hostile file would take minutes.
//! Invariant: an accepted pattern stays below [`PATTERN_LIMIT_BYTES`] in the scheduler's engine.

use longshore_model::constraint::PATTERN_LIMIT_BYTES;
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind};

/// Bytes of one engine state. A literal takes one state per byte; everything else is counted in states.
const STATE: usize = 32;
/// Bytes of one transition.
const TRANSITION: usize = 8;

/// Longest pattern, in bytes. A longer one is a list of names, for which there is the operator `in`.
const MAX_LENGTH: usize = 4096;
/// Most classes such as `\w` in a pattern. Parsing alone takes tens of kilobytes for each, before the limit on the
/// compiled size applies; twice as many would exceed it.
const MAX_CLASSES: usize = 32;

/// Why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    /// It does not parse.
    #[error("not a regular expression: {0}")]
    Grammar(String),
    /// Its compiled size exceeds the limit.
    #[error("too large a regular expression: compiled it would take more than {} KiB", PATTERN_LIMIT_BYTES >> 10)]
    Large,
}

/// Checks that a pattern parses and is small enough when compiled.
pub(super) fn check(text: &str) -> Result<(), PatternError> {
    if text.len() > MAX_LENGTH || classes(text) > MAX_CLASSES {
        return Err(PatternError::Large);
    }
    let parsed = regex_syntax::parse(text).map_err(|error| {
        // The lines above the last one only show the pattern.
        let text = error.to_string();
        PatternError::Grammar(text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
    })?;
    // A sixteenth is a reserve: later versions of the engine may need a little more.
    if bytes(&parsed) > PATTERN_LIMIT_BYTES / 16 * 15 { Err(PatternError::Large) } else { Ok(()) }
}

/// Relative cost of checking a pattern, from its text alone. A case-insensitive class is folded letter by letter.
pub(super) fn cost(text: &str) -> usize {
    let folded = text.contains("(?") && text.contains('i');
    1 + classes(text) * if folded { 4 } else { 1 }
}

/// Number of possibly wide classes.
fn classes(text: &str) -> usize {
    let wide = |pair: &[u8]| pair[0] == b'[' || (pair[0] == b'\\' && b"wWpPDS".contains(&pair[1]));
    text.as_bytes().windows(2).filter(|pair| wide(pair)).count()
}

/// Upper estimate of the compiled size, repetitions expanded.
fn bytes(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => STATE,
        HirKind::Literal(literal) => literal.0.len().saturating_mul(STATE),
        HirKind::Class(Class::Bytes(class)) => STATE + TRANSITION * class.ranges().len(),
        HirKind::Class(Class::Unicode(class)) => class_bytes(class),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            let once = bytes(&repetition.sub).saturating_add(STATE + TRANSITION);
            once.saturating_mul(usize::try_from(times).unwrap_or(usize::MAX)).saturating_add(3 * STATE)
        }
        HirKind::Capture(capture) => bytes(&capture.sub).saturating_add(2 * STATE),
        HirKind::Concat(parts) => parts.iter().map(bytes).fold(0, usize::saturating_add),
        HirKind::Alternation(parts) => {
            parts.iter().map(|part| bytes(part).saturating_add(TRANSITION)).fold(2 * STATE, usize::saturating_add)
        }
    }
}

/// Compiled size of a class. The engine matches UTF-8 byte by byte: characters that share their first bytes share states.
///
/// `\w` has several hundred ranges. A fixed size per range was rejected: it would have to be the largest one, and
/// `\w{1,30}` would be refused although it fits.
fn class_bytes(class: &ClassUnicode) -> usize {
    // Blocks of 64, 4096 and 262144 characters, which the bytes before the last one distinguish, each with the first
    // character that has such a byte.
    const LEVELS: [(u32, u32); 3] = [(6, 0x80), (12, 0x800), (18, 0x1_0000)];
    let mut sum = 2 * STATE;
    let mut last = [None; 3];
    for range in class.ranges() {
        let (start, end) = (u32::from(range.start()), u32::from(range.end()));
        sum += TRANSITION;
        for ((shift, from), last) in LEVELS.into_iter().zip(&mut last) {
            if end < from {
                continue;
            }
            let (first, final_) = (start >> shift, end >> shift);
            if *last != Some(first) {
                sum += STATE + TRANSITION;
            }
            if first != final_ {
                // The rest of the first block, the blocks between, and the beginning of the last one.
                sum += 2 * STATE + 3 * TRANSITION;
            }
            *last = Some(final_);
        }
    }
    sum
}

#[cfg(test)]
mod tests;
