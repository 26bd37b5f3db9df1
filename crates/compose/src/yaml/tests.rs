//! Examples of the tree, and attacks on its limits.

use std::fmt::Write as _;

use super::*;

fn tree(text: &str) -> Node {
    parse("f.yaml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn refused(text: &str) -> String {
    parse("f.yaml", text).map_or_else(|problems| problems.to_string(), |_| panic!("accepted"))
}

fn at(node: &Node) -> (u32, u32, u32) {
    (node.location.line, node.location.column, node.location.length)
}

#[test]
fn scalars_keep_their_text_and_location() {
    let root = tree("a: 8080:80\nb: 1.10\nc: \"yes\"\nd:\n  - ~\n  - 010\n");
    assert_eq!(root.get("a").and_then(Node::as_text), Some("8080:80"));
    assert_eq!(root.get("b").and_then(Node::as_text), Some("1.10"));
    assert_eq!(root.get("b").map(at), Some((2, 4, 4)));
    let Value::Scalar(quoted) = &root.get("c").unwrap().value else { panic!("a text") };
    assert_eq!((&*quoted.text, quoted.style), ("yes", Style::Quoted));
    let items = root.get("d").unwrap().as_sequence().unwrap();
    assert!(items[0].is_null());
    assert_eq!(items[1].as_text(), Some("010"));
    assert_eq!(at(&items[1]), (6, 5, 3));
    assert_eq!(root.as_mapping().unwrap().entry("d").unwrap().0.location.line, 4);
}

#[test]
fn aliases_and_merge_keys_are_resolved_and_written_keys_win() {
    let root = tree(
        "x: &base {image: a, user: b}\ny: &more {user: c, tty: d}\nz:\n  <<: [*base, *more]\n  image: e\nw: *base\n",
    );
    let merged = root.get("z").unwrap();
    let text = |key: &str| merged.get(key).and_then(Node::as_text);
    assert_eq!((text("image"), text("user"), text("tty"), text("<<")), (Some("e"), Some("b"), Some("d"), None));
    assert_eq!(root.get("w"), root.get("x"));
}

#[test]
fn an_empty_file_is_a_null() {
    assert!(tree("").is_null());
    assert!(tree("# nothing\n").is_null());
    assert!(tree("\u{feff}").is_null());
}

#[test]
fn a_duplicate_key_is_refused_with_both_locations() {
    let text = refused("a: 1\nb: 2\na: 3\nb: 4\n");
    assert!(
        text.starts_with("f.yaml:3:1: error: the key `a` is given twice\n\nhint: it was first given on line 1"),
        "{text}"
    );
    assert!(text.contains("f.yaml:4:1: error: the key `b` is given twice"), "both are reported: {text}");
}

#[test]
fn broken_yaml_is_refused_with_its_location() {
    assert!(refused("a: [1, 2\nb: 3\n").contains("not readable as YAML"));
    assert!(refused("a: *nobody\n").starts_with("f.yaml:1:4: error:"));
    assert!(refused("? [a, b]\n: c\n").contains("a key must be a text, not a list"));
    assert!(refused("a: !!binary aGk=\n").contains("the tag `!!binary` is not known"));
    assert!(refused("a: 1\n---\nb: 2\n").contains("a second one"));
    assert!(refused("<<: 3\n").contains("`<<` takes a mapping"));
}

#[test]
fn compose_tags_are_kept_and_str_gives_a_text() {
    let root = tree("a: !reset null\nb: !override [x]\nc: !!str\nd: !!str null\n");
    assert_eq!(root.get("a").unwrap().tag.as_deref(), Some("!reset"));
    assert_eq!(root.get("b").unwrap().tag.as_deref(), Some("!override"));
    assert_eq!(root.get("d").unwrap().as_text(), Some("null"));
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        let _ = writeln!(text, "a{level}: &a{level} [{}]", [below.as_str(); 10].join(", "));
    }
    assert!(refused(&text).contains("expands to more than 200000 values"));
}

#[test]
fn a_text_bomb_is_refused() {
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), ["*a"; 100].join(", "));
    assert!(refused(&text).contains("bytes of text"));
}

#[test]
fn an_alias_inside_its_own_anchor_is_refused() {
    assert!(refused("a: &a [*a]\n").contains("would never end"));
    assert!(refused("a: &a\n  b: *a\n").contains("would never end"));
}

#[test]
fn deep_nesting_is_refused_written_or_by_aliases() {
    assert!(!refused(&"[".repeat(100_000)).is_empty());
    assert!(!refused(&"- ".repeat(100_000)).is_empty());
    assert!(!refused(&"{a: ".repeat(100_000)).is_empty());
    let mut text = format!("a0: &a0 {}{}\n", "[".repeat(20), "]".repeat(20));
    for level in 1..10 {
        let _ = writeln!(text, "a{level}: &a{level} {}*a{}{}", "[".repeat(20), level - 1, "]".repeat(20));
    }
    assert!(refused(&text).contains("nested more than 64 levels deep"));
}

#[test]
fn brackets_in_brackets_are_refused_with_a_remedy_however_many() {
    for depth in [65, 100_000] {
        let text = refused(&format!("a: {}{}\n", "[".repeat(depth), "]".repeat(depth)));
        assert!(text.contains("error: nested more than 64 levels deep"), "{text}");
        assert!(text.contains("\n\nhint: "), "{text}");
    }
}

#[test]
fn a_file_too_large_is_refused_before_it_is_read() {
    assert!(refused(&"a".repeat(MAX_BYTES + 1)).contains("at most 4194304 are read"));
}

#[test]
fn locations_inside_a_literal_block_are_exact() {
    let outer = tree("deployments:\n  shop: |\n    services:\n      web: 1\n");
    let block = outer.get("deployments").unwrap().get("shop").unwrap();
    let inner = parse_at(&Origin::inside(block), block.as_text().unwrap()).unwrap();
    assert_eq!(
        inner.get("services").unwrap().get("web").map(|node| (node.location.line, node.location.column)),
        Some((4, 12))
    );
}

/// Reported location of the second key of a manifest that is embedded as `value` after `a: `.
fn place_within(value: &str) -> (u32, u32, u32) {
    let outer = parse("s.yaml", &format!("a: {value}\nz: 1\n")).unwrap();
    let node = outer.get("a").unwrap();
    let inner = parse_at(&Origin::inside(node), node.as_text().unwrap()).unwrap();
    let location = &inner.as_mapping().unwrap().entries[1].0.location;
    (location.line, location.column, location.length)
}

#[test]
fn locations_inside_a_verbatim_quoted_text_are_exact() {
    assert_eq!(place_within("'{é: 1, b: 2}'"), (1, 12, 1));
    assert_eq!(place_within("\"{é: 1, b: 2}\""), (1, 12, 1));
    assert_eq!(place_within("|\n  é: 1\n  b: 2"), (3, 3, 1));
}

#[test]
fn an_escaped_or_folded_text_has_one_location() {
    assert_eq!(place_within("\"{a: '\\u00e9', b: 2}\""), (1, 4, 21));
    assert_eq!(place_within("\"a: 1\\nb: 2\""), (1, 4, 12));
    assert_eq!(place_within("'{it: '''', b: 2}'"), (1, 4, 18));
    assert_eq!(place_within(">\n  a: 1\n\n  b: 2"), (2, 3, 1));
}
