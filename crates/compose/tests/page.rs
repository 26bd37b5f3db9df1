//! The page of keys and the table in the code are one thing.

use std::{fs, path::Path};

#[test]
fn the_page_of_keys_is_the_one_the_table_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compose.md");
    let kept = fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == longshore_compose::page(),
        "docs/compose.md is not current\n\nhint: cargo run -p longshore-compose --example page > docs/compose.md"
    );
}
