//! A block of text at the bottom of the terminal that is redrawn in place.
//!
//! Owns: cursor movements and clipping. Must not touch: what the text says.
//! Invariant: one write per redraw, so that nothing flickers; without a terminal nothing is drawn, and
//! [`LiveRegion::print_above`] prints plain lines.

use std::io::{self, IsTerminal as _, Write as _};

#[derive(Debug)]
pub(crate) struct LiveRegion {
    stream: Stream,
    redraws: bool,
    lines_drawn: usize,
    text: String,
}

/// Which output is drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// For text that is the answer.
    Stdout,
    /// For progress, so that standard output holds the answer alone.
    Stderr,
}

impl Stream {
    fn is_terminal(self) -> bool {
        match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        }
    }

    fn write(self, text: &str) {
        let written = match self {
            Self::Stdout => io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()),
            Self::Stderr => io::stderr().write_all(text.as_bytes()),
        };
        // A closed stream has no reader to report the error to.
        drop(written);
    }
}

impl LiveRegion {
    pub(crate) fn new(stream: Stream) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { stream, redraws: stream.is_terminal() && !dumb, lines_drawn: 0, text: String::new() }
    }

    /// Whether the stream is a terminal that understands cursor movements.
    pub(crate) const fn redraws(&self) -> bool {
        self.redraws
    }

    /// Replaces the text of the region.
    pub(crate) fn draw(&mut self, text: &str) {
        if !self.redraws || text == self.text {
            return;
        }
        let clipped = clip(text, size());
        let bytes = redraw(self.lines_drawn, &clipped);
        self.lines_drawn = clipped.lines().count();
        text.clone_into(&mut self.text);
        self.stream.write(&bytes);
    }

    /// Prints a line that stays, above the region.
    pub(crate) fn print_above(&mut self, line: &str) {
        if !self.redraws {
            return self.stream.write(&format!("{line}\n"));
        }
        let text = std::mem::take(&mut self.text);
        let cleared = redraw(self.lines_drawn, "");
        self.lines_drawn = 0;
        self.stream.write(&format!("{cleared}{line}\n"));
        self.draw(&text);
    }

    /// Leaves the text on the terminal; the next draw begins below it.
    pub(crate) fn keep(&mut self) {
        self.lines_drawn = 0;
        self.text.clear();
    }

    /// Removes the text from the terminal.
    pub(crate) fn clear(&mut self) {
        if self.lines_drawn > 0 {
            self.stream.write(&redraw(self.lines_drawn, ""));
        }
        self.keep();
    }
}

/// Moves the cursor up to the first drawn line, overwrites line by line, and erases what is left below.
fn redraw(lines_drawn: usize, text: &str) -> String {
    let mut out = if lines_drawn > 0 { format!("\u{1b}[{lines_drawn}A") } else { String::new() };
    out.push('\r');
    for line in text.lines() {
        out.push_str(line);
        out.push_str("\u{1b}[K\n");
    }
    out.push_str("\u{1b}[J");
    out
}

/// Columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    // One of the two may be redirected; the other is the terminal.
    let found = rustix::termios::tcgetwinsize(io::stdout()).or_else(|_| rustix::termios::tcgetwinsize(io::stderr()));
    let size = found.ok().filter(|size| size.ws_col > 0 && size.ws_row > 1);
    size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
}

/// Clips to the screen: a line that wraps, or more lines than the screen has, could not be overwritten.
fn clip(text: &str, (columns, rows): (usize, usize)) -> String {
    let most = rows - 1;
    let lines: Vec<&str> = text.lines().collect();
    let hidden = lines.len().saturating_sub(most);
    let shown = if hidden > 0 { most.saturating_sub(1) } else { lines.len() };
    let mut out: Vec<String> = lines[..shown].iter().map(|line| cut_line(line, columns)).collect();
    if hidden > 0 {
        out.push(format!("… {} more lines", hidden + 1));
    }
    out.iter().fold(String::new(), |text, line| text + line + "\n")
}

/// The first `columns` characters of a line; colour codes take no width and are always closed.
fn cut_line(line: &str, columns: usize) -> String {
    let (mut out, mut width, mut coloured) = (String::new(), 0, false);
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        if letter == '\u{1b}' {
            out.push(letter);
            out.extend(rest.by_ref().take_while(|&part| part != 'm'));
            out.push('m');
            coloured = true;
            continue;
        }
        if width + 1 == columns && visible_width(rest.as_str()) > 0 {
            out.push('…');
            break;
        }
        out.push(letter);
        width += 1;
    }
    if coloured {
        out.push_str("\u{1b}[0m");
    }
    out
}

/// Number of characters without colour codes.
pub(crate) fn visible_width(text: &str) -> usize {
    let (mut count, mut rest) = (0, text.chars());
    while let Some(letter) = rest.next() {
        if letter == '\u{1b}' {
            let _ = rest.by_ref().take_while(|&part| part != 'm').count();
        } else {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redraw_overwrites_the_lines_before() {
        assert_eq!(redraw(0, "a\n"), "\ra\u{1b}[K\n\u{1b}[J");
        assert_eq!(redraw(2, "a\nb\n"), "\u{1b}[2A\ra\u{1b}[K\nb\u{1b}[K\n\u{1b}[J");
    }

    #[test]
    fn a_line_is_cut_at_the_width_of_the_terminal() {
        assert_eq!(cut_line("12345", 5), "12345");
        assert_eq!(cut_line("123456", 5), "1234…");
        assert_eq!(cut_line("\u{1b}[32m123456\u{1b}[0m", 5), "\u{1b}[32m1234…\u{1b}[0m");
        assert_eq!(visible_width("\u{1b}[32m123\u{1b}[0m4"), 4);
    }

    #[test]
    fn the_region_is_never_higher_than_the_screen() {
        assert_eq!(clip("a\nb\nc\nd\n", (80, 4)), "a\nb\n… 2 more lines\n");
        assert_eq!(clip("a\nb\nc\n", (80, 4)), "a\nb\nc\n");
    }
}
