//! Real daemons, and everybody who has no business with them: each is refused with a code, learns nothing, and is in
//! nobody's way.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by ending")]

mod again;
mod beside;
mod described;
mod doors;
mod joins;
mod limits;
mod planted;
mod rig;
mod secrets;
mod tokens;
mod wire;
