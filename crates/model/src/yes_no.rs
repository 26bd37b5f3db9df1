//! Serialisation of a `bool` as `"yes"` or `"no"`.
//!
//! Owns: the stored form of fields that were two-valued enums in older versions.
//! Invariant: it writes the old form, and reads that form as well as a plain boolean.

use std::fmt;

use serde::{Deserializer, Serializer, de};

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(crate) fn serialize<S: Serializer>(value: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *value { "yes" } else { "no" })
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    deserializer.deserialize_any(YesNo)
}

struct YesNo;

impl de::Visitor<'_> for YesNo {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`yes`, `no` or a boolean")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<bool, E> {
        Ok(value)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<bool, E> {
        match value {
            "yes" => Ok(true),
            "no" => Ok(false),
            other => Err(E::unknown_variant(other, &["yes", "no"])),
        }
    }
}
