//! Prints `docs/compose.md`.

fn main() {
    print!("{}", longshore_compose::key_table_doc());
}
