//! Tables for people, never wider than the terminal.
//!
//! ```text
//! fits? ─ no ─▶ break cells at spaces ─ no ─▶ and inside codes and paths ─ no ─▶ one block of lines per row
//! ```
//!
//! Owns: that order. Invariant: no text is cut off at any width, and the cell that names a row is never broken inside a
//! word.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _},
};

use crate::output::live_region::{size, visible_width};

/// Between two columns.
const GAP: &str = "  ";

/// Draws rows under a heading.
pub(crate) fn draw(heading: &[&str], rows: &[Vec<String>]) -> String {
    let columns = io::stdout().is_terminal().then(|| size().0);
    laid_out(heading, rows, columns)
}

fn laid_out(heading: &[&str], rows: &[Vec<String>], columns: Option<usize>) -> String {
    let heading: Vec<String> = heading.iter().map(|word| (*word).to_owned()).collect();
    let all: Vec<&[String]> = std::iter::once(heading.as_slice()).chain(rows.iter().map(Vec::as_slice)).collect();
    let name = heading.iter().position(|word| !word.is_empty()).unwrap_or(0);
    let fits = [Break::Nowhere, Break::Spaces, Break::Words].into_iter().find_map(|most| {
        let breaks = |at: usize| if at == name { most.min(Break::Spaces) } else { most };
        Some((widths(&all, breaks, columns)?, most))
    });
    let Some((widths, most)) = fits else { return blocks(&heading, rows) };
    let breaks = |at: usize| if at == name { most.min(Break::Spaces) } else { most };
    all.iter().fold(String::new(), |out, row| out + &line(row, &widths, breaks))
}

/// Where a cell may be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Break {
    Nowhere,
    Spaces,
    /// Also inside a code, a path or a list; never at a dash, as names are made of those.
    Words,
}

/// The width of each column, narrowing the widest first; `None` if they do not fit into `columns`.
fn widths(all: &[&[String]], breaks: impl Fn(usize) -> Break, columns: Option<usize>) -> Option<Vec<usize>> {
    let count = all.first().map_or(0, |heading| heading.len());
    let needed = |at: usize, width: usize| {
        let cells = all.iter().filter_map(|row| row.get(at));
        let lines = cells.flat_map(|cell| broken(cell, width, breaks(at)));
        lines.map(|line| visible_width(&line)).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..count).map(|at| needed(at, usize::MAX)).collect();
    let Some(columns) = columns else { return Some(widths) };
    let gaps = GAP.len() * count.saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > columns {
        let narrower = (0..count).filter_map(|at| {
            let less = needed(at, widths[at].checked_sub(1)?);
            (less < widths[at]).then_some((at, less))
        });
        let (at, less) = narrower.max_by_key(|(at, _)| widths[*at])?;
        widths[at] = less;
    }
    Some(widths)
}

/// A cell as lines of at most `width` characters; a line is longer only where it cannot be broken.
fn broken(cell: &str, width: usize, breaks: Break) -> Vec<String> {
    // A coloured cell is one word: breaking it would separate the colour codes.
    if visible_width(cell) <= width || breaks == Break::Nowhere || cell.contains('\u{1b}') {
        return vec![cell.to_owned()];
    }
    let ends =
        |letter: char| letter == ' ' || (breaks == Break::Words && matches!(letter, '_' | '/' | ':' | ',' | '.'));
    let (mut lines, mut last) = (Vec::new(), String::new());
    for piece in cell.split_inclusive(ends) {
        if !last.is_empty() && visible_width(&last) + visible_width(piece.trim_end()) > width {
            lines.push(std::mem::take(&mut last).trim_end().to_owned());
        }
        last.push_str(piece);
    }
    lines.push(last.trim_end().to_owned());
    lines
}

/// One row, on as many lines as its longest cell has.
fn line(row: &[String], widths: &[usize], breaks: impl Fn(usize) -> Break) -> String {
    let cells: Vec<Vec<String>> =
        row.iter().zip(widths).enumerate().map(|(at, (cell, width))| broken(cell, *width, breaks(at))).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(1);
    (0..height).fold(String::new(), |mut out, at| {
        let parts = cells.iter().zip(widths).map(|(cell, width)| {
            let part = cell.get(at).map_or("", String::as_str);
            format!("{part}{}", " ".repeat(width.saturating_sub(visible_width(part))))
        });
        let _ = writeln!(out, "{}", parts.collect::<Vec<_>>().join(GAP).trim_end());
        out
    })
}

/// Each row as a block with one line per cell. The mark column has no heading and goes before the cell it marks.
fn blocks(heading: &[String], rows: &[Vec<String>]) -> String {
    let widest = heading.iter().map(|word| visible_width(word)).max().unwrap_or(0);
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let mut mark = "";
        for (word, cell) in heading.iter().zip(row) {
            if word.is_empty() {
                mark = cell.trim();
            }
            if word.is_empty() || cell.is_empty() {
                continue;
            }
            let space = if mark.is_empty() { "" } else { " " };
            let _ = writeln!(out, "{}", format!("{word:widest$}{GAP}{mark}{space}{cell}").trim_end());
            mark = "";
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = rows(&[&["n1", "ready"], &["node-12", ""]]);
        insta::assert_snapshot!(draw(&["NODE", "HEALTH"], &rows), @r"
        NODE     HEALTH
        n1       ready
        node-12
        ");
    }

    const AUDIT: [&str; 5] = ["#", "AT", "WHO", "WHAT", "OUTCOME"];

    fn audit() -> Vec<Vec<String>> {
        rows(&[
            &["1", "2026-11-16 12:39:11Z", "node/box", "node_joined", "done"],
            &["2", "2026-11-16 12:39:15Z", "operator/root", "service_scaled", "refused: unknown_deployment"],
        ])
    }

    #[test]
    fn cells_that_do_not_fit_are_broken_at_spaces_first() {
        insta::assert_snapshot!(laid_out(&AUDIT, &audit(), Some(70)), @r"
        #  AT          WHO            WHAT            OUTCOME
        1  2026-11-16  node/box       node_joined     done
           12:39:11Z
        2  2026-11-16  operator/root  service_scaled  refused:
           12:39:15Z                                  unknown_deployment
        ");
    }

    #[test]
    fn then_inside_codes_and_paths() {
        insta::assert_snapshot!(laid_out(&AUDIT, &audit(), Some(50)), @r"
        #  AT          WHO        WHAT         OUTCOME
        1  2026-11-16  node/box   node_joined  done
           12:39:11Z
        2  2026-11-16  operator/  service_     refused:
           12:39:15Z   root       scaled       unknown_
                                               deployment
        ");
    }

    #[test]
    fn and_where_that_is_not_enough_each_row_is_a_block() {
        insta::assert_snapshot!(laid_out(&AUDIT, &audit(), Some(30)), @r"
        #        1
        AT       2026-11-16 12:39:11Z
        WHO      node/box
        WHAT     node_joined
        OUTCOME  done

        #        2
        AT       2026-11-16 12:39:15Z
        WHO      operator/root
        WHAT     service_scaled
        OUTCOME  refused: unknown_deployment
        ");
        let ranked = rows(&[&[">", "box", "0"], &["", "box-2", "1"]]);
        insta::assert_snapshot!(laid_out(&["", "NODE", "CPU RESERVED"], &ranked, Some(12)), @r"
        NODE          > box
        CPU RESERVED  0

        NODE          box-2
        CPU RESERVED  1
        ");
    }

    #[test]
    fn no_text_is_lost_at_any_width_and_the_first_cell_stays_whole() {
        let long = "a-node-with-a-very-long-name/and.dots_and:more";
        let rows = rows(&[&[long, "one two, three_four/five"], &["n2", ""]]);
        for columns in 1..90 {
            let drawn = laid_out(&["NODE", "WHAT"], &rows, Some(columns));
            assert!(drawn.contains(long), "{columns}: {drawn}");
            let letters: String = drawn.split_whitespace().skip(2).collect();
            for word in ["one", "two", "three", "four", "five"] {
                assert!(letters.contains(word), "{columns}: {drawn}");
            }
            let shortest = long.len() + 2 + "three_".len();
            let widest = drawn.lines().map(visible_width).max().unwrap();
            assert!(columns < shortest || widest <= columns, "{columns}: {drawn}");
        }
    }
}
