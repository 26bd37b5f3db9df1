//! Prints `docs/compose.md`.

fn main() {
    print!("{}", longshore_compose::page());
}
