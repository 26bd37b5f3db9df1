//! Tables for people: columns as wide as they need to be, nothing else.

use std::fmt::Write as _;

/// Draws rows under a heading.
pub(crate) fn draw(heading: &[&str], rows: &[Vec<String>]) -> String {
    let heading: Vec<String> = heading.iter().map(|word| (*word).to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&heading).chain(rows).collect();
    let width = |at: usize| all.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..heading.len()).map(|at| width(at).unwrap_or(0)).collect();
    all.iter().fold(String::new(), |mut out, row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(out, "{}", line.trim_end());
        out
    })
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
