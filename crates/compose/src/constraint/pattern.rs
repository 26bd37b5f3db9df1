//! Regular expressions in constraints: whether the scheduler will be able to use one.
//!
//! Owns: the estimate of what a pattern takes once it is made ready.
//! Must not touch: the engine. Making each of the many patterns a hostile file can hold ready would take minutes.
//! Invariant: what is accepted here stays below [`PATTERN_LIMIT_BYTES`] in the scheduler's engine, so it can hold.

use longshore_model::constraint::PATTERN_LIMIT_BYTES;
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind};

/// One step of the engine. A literal is one step to a byte; all else is counted in these.
const STEP: usize = 32;
/// One way out of a step.
const WAY: usize = 8;

/// Longest pattern, in bytes. Beyond it a list of names was meant, for which there is `in`.
const MAX_LENGTH: usize = 4096;
/// Most classes such as `\w` in a pattern. Each takes tens of kilobytes only to be read, so that the limit on what is
/// made ready would come too late; twice as many would exceed it.
const MAX_CLASSES: usize = 32;

/// Why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    /// It breaks the grammar.
    #[error("not a regular expression: {0}")]
    Grammar(String),
    /// It is one, but more than a node should be asked.
    #[error("too large a regular expression: made ready it would take more than {} KiB", PATTERN_LIMIT_BYTES >> 10)]
    Large,
}

/// Whether a pattern is one, and small enough to be asked of every node.
pub(super) fn check(text: &str) -> Result<(), PatternError> {
    if text.len() > MAX_LENGTH || classes(text) > MAX_CLASSES {
        return Err(PatternError::Large);
    }
    let parsed = regex_syntax::parse(text).map_err(|error| {
        // The lines above the last one draw the pattern over several rows.
        let text = error.to_string();
        PatternError::Grammar(text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
    })?;
    // A sixteenth is kept back: the estimate follows the engine of today, which may come to need a little more.
    if bytes(&parsed) > PATTERN_LIMIT_BYTES / 16 * 15 { Err(PatternError::Large) } else { Ok(()) }
}

/// What judging a pattern takes, told from its text alone. A class without regard to case is looked up letter by letter.
pub(super) fn cost(text: &str) -> usize {
    let folded = text.contains("(?") && text.contains('i');
    1 + classes(text) * if folded { 4 } else { 1 }
}

/// How many classes of a pattern may be wide.
fn classes(text: &str) -> usize {
    let wide = |pair: &[u8]| pair[0] == b'[' || (pair[0] == b'\\' && b"wWpPDS".contains(&pair[1]));
    text.as_bytes().windows(2).filter(|pair| wide(pair)).count()
}

/// What a pattern takes with its repetitions written out, counted high.
fn bytes(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => STEP,
        HirKind::Literal(literal) => literal.0.len().saturating_mul(STEP),
        HirKind::Class(Class::Bytes(class)) => STEP + WAY * class.ranges().len(),
        HirKind::Class(Class::Unicode(class)) => class_bytes(class),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            let once = bytes(&repetition.sub).saturating_add(STEP + WAY);
            once.saturating_mul(usize::try_from(times).unwrap_or(usize::MAX)).saturating_add(3 * STEP)
        }
        HirKind::Capture(capture) => bytes(&capture.sub).saturating_add(2 * STEP),
        HirKind::Concat(parts) => parts.iter().map(bytes).fold(0, usize::saturating_add),
        HirKind::Alternation(parts) => {
            parts.iter().map(|part| bytes(part).saturating_add(WAY)).fold(2 * STEP, usize::saturating_add)
        }
    }
}

/// The engine reads UTF-8 byte by byte: characters that share their first bytes share the steps for them.
///
/// `\w` has several hundred ranges. A flat price per range was refused: it would have to be that of the dearest, and
/// `\w{1,30}` would be turned down although it fits.
fn class_bytes(class: &ClassUnicode) -> usize {
    // Blocks of 64, 4096 and 262144 characters: what the bytes before the last one tell apart, and from which
    // character on there are such bytes.
    const LEVELS: [(u32, u32); 3] = [(6, 0x80), (12, 0x800), (18, 0x1_0000)];
    let mut sum = 2 * STEP;
    let mut last = [None; 3];
    for range in class.ranges() {
        let (start, end) = (u32::from(range.start()), u32::from(range.end()));
        sum += WAY;
        for ((shift, from), last) in LEVELS.into_iter().zip(&mut last) {
            if end < from {
                continue;
            }
            let (first, final_) = (start >> shift, end >> shift);
            if *last != Some(first) {
                sum += STEP + WAY;
            }
            if first != final_ {
                // The rest of the first block, the whole blocks between, the beginning of the final one.
                sum += 2 * STEP + 3 * WAY;
            }
            *last = Some(final_);
        }
    }
    sum
}

#[cfg(test)]
mod tests;
