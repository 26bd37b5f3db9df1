//! Env files: `.env`, `env_file`, `label_file` and the overlay's `environment`.
//!
//! Owns: Compose's line format with quotes, comments, multi-line quoted values, and references to variables.
//! Must not touch: precedence among files; callers decide.

use std::collections::BTreeMap;

use crate::{
    diagnostic::{Diagnostics, Location},
    interpolate::Variables,
    reader::shorten,
};

/// Format of an env file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// With quotes, comments and variables.
    Dotenv,
    /// Each line is a verbatim `KEY=VALUE`.
    Raw,
}

/// The variables of a file, in order; one without a value is taken from the known variables, or left out.
pub(crate) fn parse(
    file: &str,
    text: &str,
    format: Format,
    known: &BTreeMap<String, String>,
    problems: &mut Diagnostics,
) -> Vec<(String, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parser =
        Parser { file, rest: text, line: 1, variables: Variables::new(known.clone()), found: Vec::new(), problems };
    match format {
        Format::Raw => parser.raw(),
        Format::Dotenv => while parser.entry() {},
    }
    parser.found
}

struct Parser<'t> {
    file: &'t str,
    rest: &'t str,
    line: u32,
    variables: Variables,
    found: Vec<(String, String)>,
    problems: &'t mut Diagnostics,
}

impl<'t> Parser<'t> {
    fn raw(&mut self) {
        for line in self.rest.lines() {
            if let Some((key, value)) = line.split_once('=').filter(|_| !line.trim_start().starts_with('#')) {
                self.found.push((key.trim().to_owned(), value.to_owned()));
            }
        }
    }

    /// Reads one entry; returns false at the end or after a syntax error.
    fn entry(&mut self) -> bool {
        self.skip_blank();
        if self.rest.is_empty() {
            return false;
        }
        let location = self.location();
        let end = self.rest.find(['=', ':', '\n']).unwrap_or(self.rest.len());
        let key = self.rest[..end].trim();
        let key = key.strip_prefix("export ").map_or(key, str::trim);
        let valued = !self.rest[end..].starts_with('\n') && end < self.rest.len();
        if key.is_empty() || key.contains(char::is_whitespace) || key.starts_with(['"', '\'']) {
            let message = format!("`{}` is not a variable; write `NAME=value`", shorten(self.this_line()));
            self.problems.error(&location, message);
            return false;
        }
        self.take(if valued { end + 1 } else { end });
        let value = if valued { self.value(&location) } else { Ok(self.variables.values().get(key).cloned()) };
        match value {
            Ok(Some(value)) => {
                self.variables.set(key, &value);
                self.found.push((key.to_owned(), value));
                true
            }
            Ok(None) => true,
            Err(Unreadable) => false,
        }
    }

    fn value(&mut self, location: &Location) -> Result<Option<String>, Unreadable> {
        let blanks = self.rest.len() - self.rest.trim_start_matches([' ', '\t']).len();
        self.take(blanks);
        let value = match self.rest.chars().next() {
            Some('\'') => self.quoted('\'', location)?,
            Some('"') => {
                let text = unescape(&self.quoted('"', location)?);
                self.expand(&text, location)?
            }
            Some(_) | None => {
                let line = self.this_line();
                let text = without_comment(line).trim_end();
                let value = self.expand(text, location)?;
                self.take(line.len());
                value
            }
        };
        Ok(Some(value))
    }

    fn quoted(&mut self, mark: char, location: &Location) -> Result<String, Unreadable> {
        let body = &self.rest[1..];
        let mut escaped = false;
        for (at, c) in body.char_indices() {
            if c == mark && !escaped {
                let value = body[..at].to_owned();
                self.take(at + 2);
                let line = self.this_line();
                self.take(line.len());
                return Ok(value);
            }
            escaped = c == '\\' && !escaped && mark == '"';
        }
        self.problems.error(location, "a quotation mark is opened and never closed");
        Err(Unreadable)
    }

    fn expand(&mut self, text: &str, location: &Location) -> Result<String, Unreadable> {
        self.variables.text(text, &mut Vec::new()).map_err(|error| {
            self.problems.error(location, error.to_string());
            Unreadable
        })
    }

    fn skip_blank(&mut self) {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.take(blanks);
            if !self.rest.starts_with('#') {
                return;
            }
            let line = self.this_line();
            self.take(line.len());
        }
    }

    fn this_line(&self) -> &'t str {
        &self.rest[..self.rest.find('\n').unwrap_or(self.rest.len())]
    }

    fn take(&mut self, bytes: usize) {
        let lines = self.rest[..bytes].bytes().filter(|byte| *byte == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.rest = &self.rest[bytes..];
    }

    fn location(&self) -> Location {
        Location { file: self.file.into(), line: self.line, column: 1, length: 0 }
    }
}

/// The rest of the file is not read; the problem is recorded.
struct Unreadable;

/// A `#` after a blank starts a comment.
fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        if c == '#' && before.is_whitespace() {
            return &line[..at];
        }
        before = c;
    }
    line
}

/// Resolves escapes inside double quotes; `\$` is a literal dollar sign.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('$') => out.push_str("$$"),
            Some(c @ ('"' | '\\')) => out.push(c),
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String)> {
        let known = [("HOST".to_owned(), "h".to_owned())].into_iter().collect();
        let mut problems = Diagnostics::new();
        let found = parse(".env", text, Format::Dotenv, &known, &mut problems);
        assert!(problems.is_empty(), "{problems}");
        found
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn plain_quoted_and_commented_lines_are_read() {
        let text = "# comment\n\nA=1\nexport B = two words # tail\nC='$A # kept'\nD=\"x\\ny $A\" # tail\nE=\nF: yaml\nG=a#b\r\n";
        assert_eq!(
            read(text),
            [
                pair("A", "1"),
                pair("B", "two words"),
                pair("C", "$A # kept"),
                pair("D", "x\ny 1"),
                pair("E", ""),
                pair("F", "yaml"),
                pair("G", "a#b"),
            ]
        );
    }

    #[test]
    fn values_can_refer_back_and_span_lines() {
        assert_eq!(
            read("A=1\nB=${A}2\nC=\"l1\nl2\"\nD=$HOST\nHOST\nNOBODY\nE=${U:-d}"),
            [pair("A", "1"), pair("B", "12"), pair("C", "l1\nl2"), pair("D", "h"), pair("HOST", "h"), pair("E", "d"),]
        );
    }

    #[test]
    fn invalid_lines_are_refused_with_their_location() {
        let mut problems = Diagnostics::new();
        parse(".env", "A=1\nnot a variable\n", Format::Dotenv, &BTreeMap::new(), &mut problems);
        assert_eq!(problems.to_string(), ".env:2:1: error: `not a variable` is not a variable; write `NAME=value`");
        let mut problems = Diagnostics::new();
        parse(".env", "A=1\nB='x\n\n", Format::Dotenv, &BTreeMap::new(), &mut problems);
        assert!(problems.to_string().starts_with(".env:2:1: error: a quotation mark"), "{problems}");
    }

    #[test]
    fn raw_files_are_verbatim() {
        let mut problems = Diagnostics::new();
        let found = parse("f", "A=\"$X\" # y\n# no\nB=\n", Format::Raw, &BTreeMap::new(), &mut problems);
        assert_eq!(found, [pair("A", "\"$X\" # y"), pair("B", "")]);
    }
}
