//! Problems of a manifest with their locations.
//!
//! Owns: locations, severities, and the text and JSON form of a problem.
//! Must not touch: what counts as a problem; the readers decide that.
//! Invariant: a rendered diagnostic starts with `file:line:column:`, so that editors can jump to it; a warning is one line.

use std::{collections::BTreeMap, fmt, fmt::Write as _, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Most problems kept per run. A file with more is not a manifest.
const MAX_KEPT: usize = 500;

/// Longest part of a source line that is shown.
const MAX_EXCERPT: usize = 160;

/// A location in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The file's name as the user gave it.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1, in characters.
    pub column: u32,
    /// Characters on that line; 0 where nothing can be underlined.
    pub length: u32,
}

impl Location {
    /// The beginning of a file.
    pub fn start_of(file: &str) -> Self {
        Self { file: file.into(), line: 1, column: 1, length: 0 }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The manifest is refused.
    Error,
    /// The manifest is accepted.
    Warning,
}

impl Severity {
    /// The name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its severity.
    pub severity: Severity,
    /// Its location.
    pub location: Location,
    /// The message, without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The source line, set by [`Diagnostics::quote`].
    pub excerpt: Option<String>,
}

impl Diagnostic {
    /// Sets what to do about it.
    pub fn hint(&mut self, hint: impl Into<String>) {
        self.hint = Some(hint.into());
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.location, self.severity.as_str(), self.message)?;
        // What still works takes one line, so that the warnings of a long file can be read at a glance.
        if self.severity == Severity::Warning {
            return self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"));
        }
        if let Some(excerpt) = &self.excerpt {
            let number = self.location.line.to_string();
            let margin = " ".repeat(number.len());
            write!(f, "\n{margin} |\n{number} | {excerpt}")?;
            if let Some(underline) = underline(excerpt, &self.location) {
                write!(f, "\n{margin} | {underline}")?;
            }
        }
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Carets below the text, or `None` where it lies past the shown part.
fn underline(excerpt: &str, location: &Location) -> Option<String> {
    let width = excerpt.chars().count();
    let before = usize::try_from(location.column).ok()?.saturating_sub(1);
    let room = width.checked_sub(before).filter(|room| *room > 0)?;
    let carets = usize::try_from(location.length).ok()?.clamp(1, room);
    // Tabs are kept, so that the carets line up whatever width the terminal gives them.
    let pad: String = excerpt.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    Some(pad + &"^".repeat(carets))
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Diagnostic", 8)?;
        out.serialize_field("severity", &self.severity)?;
        out.serialize_field("file", &*self.location.file)?;
        out.serialize_field("line", &self.location.line)?;
        out.serialize_field("column", &self.location.column)?;
        out.serialize_field("length", &self.location.length)?;
        out.serialize_field("message", &self.message)?;
        out.serialize_field("hint", &self.hint)?;
        out.serialize_field("excerpt", &self.excerpt)?;
        out.end()
    }
}

/// All problems found so far. Reading continues after an error, so that all of them are reported at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an error; a hint can be set on the result.
    pub fn error(&mut self, location: &Location, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Error, location, message.into())
    }

    /// Adds a warning; a hint can be set on the result.
    pub fn warn(&mut self, location: &Location, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Warning, location, message.into())
    }

    fn add(&mut self, severity: Severity, location: &Location, message: String) -> &mut Diagnostic {
        let diagnostic = Diagnostic { severity, location: location.clone(), message, hint: None, excerpt: None };
        self.make_room(1);
        self.list.push(diagnostic);
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// Drops the last warnings, and errors only when no warnings are left: a file with an error must not pass because it
    /// has many warnings.
    fn make_room(&mut self, wanted: usize) {
        while self.list.len() + wanted > MAX_KEPT {
            let warning = self.list.iter().rposition(|found| found.severity == Severity::Warning);
            match warning.or(self.list.len().checked_sub(1)) {
                Some(at) => drop(self.list.remove(at)),
                None => return,
            }
        }
    }

    /// Whether further errors would be dropped, so that costly checks can stop.
    pub fn is_full(&self) -> bool {
        self.list.len() >= MAX_KEPT && self.error_count() >= MAX_KEPT
    }

    /// Whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether any of them is an error.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|found| found.severity == Severity::Error)
    }

    /// Number of errors; equal counts before and after a step mean that it succeeded.
    pub fn error_count(&self) -> usize {
        self.list.iter().filter(|found| found.severity == Severity::Error).count()
    }

    /// In the order found, or by location after [`Self::sort`].
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.list.iter()
    }

    /// Adds the problems of another list.
    pub fn append(&mut self, other: Self) {
        self.list.extend(other.list);
        self.make_room(0);
    }

    /// Sorts by file, line and column, and removes duplicates; problems of one location stay in order.
    pub fn sort(&mut self) {
        self.list.sort_by(|a, b| a.location.cmp(&b.location).then(a.severity.cmp(&b.severity)));
        self.list.dedup();
    }

    /// Sets the excerpt of each problem from the files that were read.
    pub fn quote(&mut self, sources: &Sources) {
        let mut lines: BTreeMap<Arc<str>, Vec<&str>> = BTreeMap::new();
        for found in &mut self.list {
            let file = found.location.file.clone();
            let Some(text) = sources.texts.get(&file) else { continue };
            let lines = lines.entry(file).or_insert_with(|| text.lines().collect());
            let at = usize::try_from(found.location.line).unwrap_or(usize::MAX).wrapping_sub(1);
            found.excerpt = lines.get(at).map(|line| shown(line));
        }
    }

    /// The list of problems.
    pub fn into_vec(self) -> Vec<Diagnostic> {
        self.list
    }

    /// Returns `value` with the warnings, or all problems if one of them is an error.
    pub fn judge<T>(self, value: Option<T>) -> Result<(T, Vec<Diagnostic>), Self> {
        match value {
            Some(value) if !self.has_errors() => Ok((value, self.list)),
            Some(_) | None => Err(self),
        }
    }

    /// As a JSON array.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&self.list).unwrap_or_else(|_| "[]".to_owned())
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, found) in self.list.iter().enumerate() {
            let one_line = |at: usize| self.list.get(at).is_some_and(|found| found.severity == Severity::Warning);
            match at {
                0 => {}
                _ if one_line(at - 1) && one_line(at) => f.write_str("\n")?,
                _ => f.write_str("\n\n")?,
            }
            found.fmt(f)?;
        }
        if self.list.len() >= MAX_KEPT { f.write_str("\n\nfurther problems are not shown") } else { Ok(()) }
    }
}

impl std::error::Error for Diagnostics {}

impl From<Vec<Diagnostic>> for Diagnostics {
    fn from(list: Vec<Diagnostic>) -> Self {
        Self { list }
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

/// The texts that were read, by the file name in locations.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    texts: BTreeMap<Arc<str>, Arc<str>>,
}

impl Sources {
    /// Adds a file.
    pub fn insert(&mut self, file: &str, text: &str) {
        self.texts.insert(file.into(), text.into());
    }
}

/// A source line, cut where it is too long to show.
fn shown(line: &str) -> String {
    let line = line.trim_end();
    let mut shown: String = line.chars().take(MAX_EXCERPT).collect();
    if line.chars().nth(MAX_EXCERPT).is_some() {
        shown.push('…');
    }
    // Control characters of a hostile file must not reach the terminal.
    shown.replace(|c: char| c.is_control() && c != '\t', "\u{fffd}")
}

/// Joins words to a list: `a`, `b` or `c`.
pub fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    let mut out = String::new();
    for (at, word) in words.iter().enumerate() {
        let joint = match at {
            0 => "",
            _ if at + 1 == words.len() => " or ",
            _ => ", ",
        };
        let _ = write!(out, "{joint}`{word}`");
    }
    out
}
