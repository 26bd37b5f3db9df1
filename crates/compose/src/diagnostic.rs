//! What is wrong with a file, and where.
//!
//! Owns: places, severities, and how a problem is put before a person or a program.
//! Must not touch: what counts as a problem; the readers decide that.
//! Invariant: a rendered diagnostic starts with `file:line:column:`, so that editors can jump to it.

use std::{collections::BTreeMap, fmt, fmt::Write as _, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Problems kept per run. Past it a file is not being repaired line by line but is another kind of file.
const MAX_KEPT: usize = 500;

/// Longest part of a source line shown; a line of megabytes helps nobody.
const MAX_EXCERPT: usize = 160;

/// A piece of text in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file's name as the user gave it.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1, in characters.
    pub column: u32,
    /// Characters on that line; 0 where nothing can be underlined.
    pub length: u32,
}

impl Place {
    /// The beginning of a file.
    pub fn start_of(file: &str) -> Self {
        Self { file: file.into(), line: 1, column: 1, length: 0 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing comes of the file.
    Error,
    /// Worth knowing.
    Warning,
}

impl Severity {
    /// The word printed.
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
    /// How bad it is.
    pub severity: Severity,
    /// Where it is.
    pub place: Place,
    /// What it is, without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The source line, once [`Diagnostics::quote`] has seen the file.
    pub excerpt: Option<String>,
}

impl Diagnostic {
    /// Says what to do about it.
    pub fn hint(&mut self, hint: impl Into<String>) {
        self.hint = Some(hint.into());
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.severity.as_str(), self.message)?;
        if let Some(excerpt) = &self.excerpt {
            let number = self.place.line.to_string();
            let margin = " ".repeat(number.len());
            write!(f, "\n{margin} |\n{number} | {excerpt}")?;
            if let Some(underline) = underline(excerpt, &self.place) {
                write!(f, "\n{margin} | {underline}")?;
            }
        }
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Carets below the offending text, or nothing where it lies past the shown part.
fn underline(excerpt: &str, place: &Place) -> Option<String> {
    let width = excerpt.chars().count();
    let before = usize::try_from(place.column).ok()?.saturating_sub(1);
    let room = width.checked_sub(before).filter(|room| *room > 0)?;
    let carets = usize::try_from(place.length).ok()?.clamp(1, room);
    // Tabs are kept, so that the carets line up whatever width the terminal gives them.
    let pad: String = excerpt.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    Some(pad + &"^".repeat(carets))
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Diagnostic", 8)?;
        out.serialize_field("severity", &self.severity)?;
        out.serialize_field("file", &*self.place.file)?;
        out.serialize_field("line", &self.place.line)?;
        out.serialize_field("column", &self.place.column)?;
        out.serialize_field("length", &self.place.length)?;
        out.serialize_field("message", &self.message)?;
        out.serialize_field("hint", &self.hint)?;
        out.serialize_field("excerpt", &self.excerpt)?;
        out.end()
    }
}

/// All problems found so far. Reading goes on after one, so that a file is repaired in one round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records an error; the result takes a hint.
    pub fn error(&mut self, place: &Place, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Error, place, message.into())
    }

    /// Records a warning; the result takes a hint.
    pub fn warn(&mut self, place: &Place, message: impl Into<String>) -> &mut Diagnostic {
        self.add(Severity::Warning, place, message.into())
    }

    fn add(&mut self, severity: Severity, place: &Place, message: String) -> &mut Diagnostic {
        let diagnostic = Diagnostic { severity, place: place.clone(), message, hint: None, excerpt: None };
        self.make_room(1);
        self.list.push(diagnostic);
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// Lets go of the last warnings, and of errors only once there are no others: a file with an error must never pass
    /// because it has many warnings as well.
    fn make_room(&mut self, wanted: usize) {
        while self.list.len() + wanted > MAX_KEPT {
            let warning = self.list.iter().rposition(|found| found.severity == Severity::Warning);
            match warning.or(self.list.len().checked_sub(1)) {
                Some(at) => drop(self.list.remove(at)),
                None => return,
            }
        }
    }

    /// Whether more errors would not be kept, so that costly searching can stop.
    pub fn is_full(&self) -> bool {
        self.list.len() >= MAX_KEPT && self.error_count() >= MAX_KEPT
    }

    /// Whether anything was found.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether any of them is an error.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|found| found.severity == Severity::Error)
    }

    /// How many errors there are; comparing two counts tells whether a step went well.
    pub fn error_count(&self) -> usize {
        self.list.iter().filter(|found| found.severity == Severity::Error).count()
    }

    /// In the order found, or by place after [`Self::sort`].
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.list.iter()
    }

    /// Takes over another run's findings.
    pub fn append(&mut self, other: Self) {
        self.list.extend(other.list);
        self.make_room(0);
    }

    /// By file, line and column; what was said of one place stays in order, what was said twice is said once.
    pub fn sort(&mut self) {
        self.list.sort_by(|a, b| a.place.cmp(&b.place).then(a.severity.cmp(&b.severity)));
        self.list.dedup();
    }

    /// Adds the source line to each, from the files that were read.
    pub fn quote(&mut self, sources: &Sources) {
        let mut lines: BTreeMap<Arc<str>, Vec<&str>> = BTreeMap::new();
        for found in &mut self.list {
            let file = found.place.file.clone();
            let Some(text) = sources.texts.get(&file) else { continue };
            let lines = lines.entry(file).or_insert_with(|| text.lines().collect());
            let at = usize::try_from(found.place.line).unwrap_or(usize::MAX).wrapping_sub(1);
            found.excerpt = lines.get(at).map(|line| shown(line));
        }
    }

    /// The findings alone.
    pub fn into_vec(self) -> Vec<Diagnostic> {
        self.list
    }

    /// `value` with the warnings, or all findings if one of them is an error.
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
            if at > 0 {
                f.write_str("\n\n")?;
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

/// The texts that were read, by the name used in places.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    texts: BTreeMap<Arc<str>, Arc<str>>,
}

impl Sources {
    /// Remembers a file.
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
    // Control characters of a hostile file must not reach a terminal.
    shown.replace(|c: char| c.is_control() && c != '\t', "\u{fffd}")
}

/// Words as a person lists them: `a`, `b` or `c`.
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
