//! Text that is drawn over itself while something goes on.
//!
//! Owns: the part of the terminal below what was said. Must not touch: what is drawn there.
//! Invariant: one write a drawing, so that nothing flickers; where there is no terminal nothing is drawn, and what must
//! be known is told line by line.

use std::io::{self, IsTerminal as _, Write as _};

/// A drawing, and where it is.
#[derive(Debug)]
pub(crate) struct Live {
    side: Side,
    screen: Screen,
    drawn: usize,
    last: String,
}

/// Which output is drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The drawing is the answer.
    Out,
    /// The drawing is progress, and the answer stays alone on standard output.
    Err,
}

impl Side {
    fn is_terminal(self) -> bool {
        match self {
            Self::Out => io::stdout().is_terminal(),
            Self::Err => io::stderr().is_terminal(),
        }
    }

    fn write(self, text: &str) {
        let written = match self {
            Self::Out => io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()),
            Self::Err => io::stderr().write_all(text.as_bytes()),
        };
        // Nobody is left to be told when what is drawn on is closed.
        drop(written);
    }
}

/// What is on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    /// A terminal that takes cursor movements.
    Terminal,
    /// A file, a pipe, or a terminal that can do nothing.
    Plain,
}

impl Live {
    pub(crate) fn new(side: Side) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let screen = if side.is_terminal() && !dumb { Screen::Terminal } else { Screen::Plain };
        Self { side, screen, drawn: 0, last: String::new() }
    }

    pub(crate) const fn screen(&self) -> Screen {
        self.screen
    }

    /// Draws a text in place of the one before.
    pub(crate) fn draw(&mut self, text: &str) {
        if self.screen == Screen::Plain || text == self.last {
            return;
        }
        let text_now = fitted(text, size());
        let painted = over(self.drawn, &text_now);
        self.drawn = text_now.lines().count();
        text.clone_into(&mut self.last);
        self.side.write(&painted);
    }

    /// Says a line for good, above the drawing.
    pub(crate) fn tell(&mut self, line: &str) {
        match self.screen {
            Screen::Plain => self.side.write(&format!("{line}\n")),
            Screen::Terminal => {
                let again = std::mem::take(&mut self.last);
                let cleared = over(self.drawn, "");
                self.drawn = 0;
                self.side.write(&format!("{cleared}{line}\n"));
                self.draw(&again);
            }
        }
    }

    /// Leaves the last drawing where it is; the next begins below it.
    pub(crate) fn keep(&mut self) {
        self.drawn = 0;
        self.last.clear();
    }

    /// Takes the drawing away.
    pub(crate) fn clear(&mut self) {
        if self.drawn > 0 {
            self.side.write(&over(self.drawn, ""));
        }
        self.keep();
    }
}

/// Up to where the last drawing began, line after line over the old ones, and nothing left below.
fn over(drawn: usize, text: &str) -> String {
    let mut out = if drawn > 0 { format!("\u{1b}[{drawn}A") } else { String::new() };
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
    // Whichever of the two is a terminal, it is the one that is looked at.
    let asked = rustix::termios::tcgetwinsize(io::stdout()).or_else(|_| rustix::termios::tcgetwinsize(io::stderr()));
    let size = asked.ok().filter(|size| size.ws_col > 0 && size.ws_row > 1);
    size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
}

/// What fits: a line that wraps, or a drawing higher than the screen, could not be drawn over.
fn fitted(text: &str, (columns, rows): (usize, usize)) -> String {
    let most = rows - 1;
    let lines: Vec<&str> = text.lines().collect();
    let hidden = lines.len().saturating_sub(most);
    let shown = if hidden > 0 { most.saturating_sub(1) } else { lines.len() };
    let mut out: Vec<String> = lines[..shown].iter().map(|line| cut(line, columns)).collect();
    if hidden > 0 {
        out.push(format!("… {} more lines", hidden + 1));
    }
    out.iter().fold(String::new(), |text, line| text + line + "\n")
}

/// The beginning of a line that is so many characters wide; colours take no room, and are always ended.
pub(crate) fn cut(line: &str, columns: usize) -> String {
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
        if width + 1 == columns && visible(rest.as_str()) > 0 {
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

/// Characters that take room.
pub(crate) fn visible(text: &str) -> usize {
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
    fn a_drawing_is_drawn_over_the_one_before() {
        assert_eq!(over(0, "a\n"), "\ra\u{1b}[K\n\u{1b}[J");
        assert_eq!(over(2, "a\nb\n"), "\u{1b}[2A\ra\u{1b}[K\nb\u{1b}[K\n\u{1b}[J");
    }

    #[test]
    fn a_line_is_cut_where_the_terminal_ends() {
        assert_eq!(cut("12345", 5), "12345");
        assert_eq!(cut("123456", 5), "1234…");
        assert_eq!(cut("\u{1b}[32m123456\u{1b}[0m", 5), "\u{1b}[32m1234…\u{1b}[0m");
        assert_eq!(visible("\u{1b}[32m123\u{1b}[0m4"), 4);
    }

    #[test]
    fn a_drawing_is_never_higher_than_the_screen() {
        assert_eq!(fitted("a\nb\nc\nd\n", (80, 4)), "a\nb\n… 2 more lines\n");
        assert_eq!(fitted("a\nb\nc\n", (80, 4)), "a\nb\nc\n");
    }
}
