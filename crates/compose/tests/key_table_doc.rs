//! `docs/compose.md` is generated from the key tables.

use std::{fs, path::Path};

#[test]
fn the_committed_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compose.md");
    let kept = fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == longshore_compose::key_table_doc(),
        "docs/compose.md is not current\n\nhint: cargo run -p longshore-compose --example key_table_doc > docs/compose.md"
    );
}
