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
    let columns = io::stdout().is_terminal().then(|| size().0);
    all.iter().fold(String::new(), |mut out, row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let padding = width.saturating_sub(visible(cell));
            format!("{cell}{}", " ".repeat(padding))
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(out, "{}", fitted(line.trim_end(), columns));
        out
    })
}

/// A row cut to the terminal's width, where there is a terminal: a row that wraps is no row. Sentences around a table wrap.
fn fitted(row: &str, columns: Option<usize>) -> String {
    columns.map_or_else(|| row.to_owned(), |columns| cut(row, columns))
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
