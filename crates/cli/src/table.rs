//! Tables for people: columns as wide as they need to be, nothing else.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _},
};

use crate::live::{cut, size, visible};

/// Draws rows under a heading.
pub(crate) fn draw(heading: &[&str], rows: &[Vec<String>]) -> String {
    let heading: Vec<String> = heading.iter().map(|word| (*word).to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&heading).chain(rows).collect();
    let width = |at: usize| all.iter().filter_map(|row| row.get(at)).map(|cell| visible(cell)).max();
    let widths: Vec<usize> = (0..heading.len()).map(|at| width(at).unwrap_or(0)).collect();
    all.iter().fold(String::new(), |mut out, row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let padding = width.saturating_sub(visible(cell));
            format!("{cell}{}", " ".repeat(padding))
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(out, "{}", line.trim_end());
        out
    })
}

/// Lines cut to the terminal's width, where there is a terminal: a row that wraps is no row.
pub(crate) fn fitted(text: &str) -> String {
    if !io::stdout().is_terminal() {
        return text.to_owned();
    }
    let (columns, _) = size();
    text.lines().fold(String::new(), |out, line| out + &cut(line, columns) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["n1".to_owned(), "ready".to_owned()], vec!["node-12".to_owned(), String::new()]];
        insta::assert_snapshot!(draw(&["NODE", "HEALTH"], &rows), @r"
        NODE     HEALTH
        n1       ready
        node-12
        ");
    }
}
