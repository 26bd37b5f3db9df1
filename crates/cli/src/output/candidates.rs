//! The comparison of nodes behind a placement, as `why` and `sim run --why` show it.
//!
//! ```text
//!    NODE  SCORE     BEST FIT
//! >  b     0.312500  0.312500
//!    a     0.187500  0.187500
//! ```
//!
//! Owns: the headings and the units. Must not touch: what is compared; the scheduler decides that.

use crate::output::table;

/// A node and the values it was ranked by, most important first.
pub(crate) struct RankedNode<'a> {
    pub(crate) node: &'a str,
    pub(crate) keys: &'a [(String, i64)],
}

/// The nodes best first, the chosen one marked. A key that a node does not have leaves its cell empty.
pub(crate) fn table(chosen: &str, ranked: &[RankedNode<'_>]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in ranked.iter().flat_map(|candidate| candidate.keys) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    // Only `binpack` scores, in billionths; every other strategy compares counts.
    let cell: fn(&str, i64) -> String = if names.contains(&"score") { |_, value| score(value) } else { count };
    let rows = ranked.iter().map(|candidate| {
        let mark = if candidate.node == chosen { ">" } else { "" };
        let value = |name: &&str| {
            let found = candidate.keys.iter().find(|(key, _)| key == name);
            found.map_or_else(String::new, |(_, value)| cell(name, *value))
        };
        [mark.to_owned(), candidate.node.to_owned()].into_iter().chain(names.iter().map(value)).collect()
    });
    let heading: Vec<String> = names.iter().map(|name| heading(name)).collect();
    let heading: Vec<&str> = ["", "NODE"].into_iter().chain(heading.iter().map(String::as_str)).collect();
    table::draw(&heading, &rows.collect::<Vec<_>>())
}

/// A key of the API in an operator's words.
fn heading(key: &str) -> String {
    match key {
        "faulty" => "RECENT FAILURES".to_owned(),
        "here" => "SAME SERVICE".to_owned(),
        "disliked" => "AFFINITY PENALTY".to_owned(),
        "cpu_millionths" => "CPU RESERVED".to_owned(),
        "replicas" => "ALL REPLICAS".to_owned(),
        other => other.replace('_', " ").to_uppercase(),
    }
}

fn count(key: &str, value: i64) -> String {
    match key {
        "faulty" => if value == 0 { "no" } else { "yes" }.to_owned(),
        "cpu_millionths" => format!("{}%", (value + 5_000) / 10_000),
        _ => value.to_string(),
    }
}

/// Billionths as a decimal fraction with six digits.
fn score(billionths: i64) -> String {
    let sign = if billionths < 0 { "-" } else { "" };
    let millionths = billionths.unsigned_abs() / 1000;
    format!("{sign}{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[(&str, i64)]) -> Vec<(String, i64)> {
        keys.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn keys_are_printed_in_words_and_units() {
        let a = keys(&[("faulty", 0), ("here", 1), ("disliked", 0), ("cpu_millionths", 375_000), ("replicas", 4)]);
        let b = keys(&[("faulty", 1), ("here", 0), ("disliked", -2), ("cpu_millionths", 0), ("replicas", 0)]);
        let ranked = [RankedNode { node: "a", keys: &a }, RankedNode { node: "b", keys: &b }];
        insta::assert_snapshot!(table("a", &ranked), @r"
           NODE  RECENT FAILURES  SAME SERVICE  AFFINITY PENALTY  CPU RESERVED  ALL REPLICAS
        >  a     no               1             0                 38%           4
           b     yes              0             -2                0%            0
        ");
    }

    #[test]
    fn scores_are_decimal_fractions_and_a_missing_one_is_empty() {
        let a = keys(&[("score", 379_873_000), ("best_fit", 379_873_000)]);
        let b = keys(&[("score", -310_063_000), ("best_fit", 379_873_000), ("anti_affinity", -1_000_000_000)]);
        let ranked = [RankedNode { node: "a", keys: &a }, RankedNode { node: "b", keys: &b }];
        insta::assert_snapshot!(table("a", &ranked), @r"
           NODE  SCORE      BEST FIT  ANTI AFFINITY
        >  a     0.379873   0.379873
           b     -0.310063  0.379873  -1.000000
        ");
    }
}
