//! Values as bytes that a later version can still read.
//!
//! Owns: the version in front and the encoding behind it: `MessagePack` with named fields.
//! Must not touch: checksums; files and records have their own, over these bytes.
//! Invariant: bytes written by any earlier version decode; bytes of a later version are refused by name, not misread.

use serde::{Serialize, de::DeserializeOwned};

/// Raised only when named fields with defaults can no longer bridge a change.
const VERSION: u8 = 1;

/// Why bytes could not become a value, or a value bytes.
#[derive(Debug, thiserror::Error)]
pub enum EncodingError {
    /// Nothing there.
    #[error("there is nothing to decode")]
    Empty,
    /// Written by a later version of Longshore.
    #[error("it is in format {found}, and this version reads up to {VERSION}")]
    Newer {
        /// The format in front.
        found: u8,
    },
    /// The right format, and not what was expected.
    #[error("the contents do not decode")]
    Malformed(#[source] rmp_serde::decode::Error),
    /// A value that has no encoding.
    #[error("the value does not encode")]
    Unencodable(#[source] rmp_serde::encode::Error),
}

/// Why a value could not be written somewhere.
pub(crate) enum IntoError {
    /// The place took no more.
    Io(std::io::Error),
    /// The value has no encoding.
    Encoding(EncodingError),
}

/// Encodes a large value without holding all of its bytes.
pub(crate) fn encode_into<T: Serialize>(out: &mut impl std::io::Write, value: &T) -> Result<(), IntoError> {
    use rmp_serde::encode::Error;
    out.write_all(&[VERSION]).map_err(IntoError::Io)?;
    rmp_serde::encode::write_named(out, value).map_err(|error| match error {
        Error::InvalidValueWrite(error) => IntoError::Io(error.into()),
        Error::UnknownLength | Error::InvalidDataModel(_) | Error::DepthLimitExceeded | Error::Syntax(_) => {
            IntoError::Encoding(EncodingError::Unencodable(error))
        }
    })
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, EncodingError> {
    let mut bytes = vec![VERSION];
    rmp_serde::encode::write_named(&mut bytes, value).map_err(EncodingError::Unencodable)?;
    Ok(bytes)
}

/// Bytes a value takes.
pub(crate) fn size<T: Serialize>(value: &T) -> Result<usize, EncodingError> {
    let mut counted = Counted { bytes: 0, most: usize::MAX };
    match encode_into(&mut counted, value) {
        Ok(()) | Err(IntoError::Io(_)) => Ok(counted.bytes),
        Err(IntoError::Encoding(error)) => Err(error),
    }
}

/// Whether a value takes at most so many bytes. One that does not is not encoded to its end.
pub(crate) fn fits<T: Serialize>(value: &T, most: usize) -> Result<bool, EncodingError> {
    match encode_into(&mut Counted { bytes: 0, most }, value) {
        Ok(()) => Ok(true),
        Err(IntoError::Io(_)) => Ok(false),
        Err(IntoError::Encoding(error)) => Err(error),
    }
}

/// Counts bytes, and takes no more than so many.
struct Counted {
    bytes: usize,
    most: usize,
}

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > self.most { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, EncodingError> {
    match bytes.split_first() {
        None => Err(EncodingError::Empty),
        Some((&VERSION, body)) => rmp_serde::from_slice(body).map_err(EncodingError::Malformed),
        Some((&found, _)) => Err(EncodingError::Newer { found }),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Serialize)]
    struct Yesterday {
        name: &'static str,
        gone_since: u32,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Today {
        #[serde(default)]
        added: Option<u64>,
        name: String,
        #[serde(default)]
        also_added: Vec<String>,
    }

    #[test]
    fn fields_come_and_go_and_what_was_written_before_is_still_read() {
        let written = encode(&vec![Yesterday { name: "a", gone_since: 1 }, Yesterday { name: "b", gone_since: 2 }]);
        let read: Vec<Today> = decode(&written.unwrap()).unwrap();
        let today = |name: &str| Today { added: None, name: name.to_owned(), also_added: Vec::new() };
        assert_eq!(read, [today("a"), today("b")]);
    }

    #[test]
    fn every_cut_of_a_value_is_refused_and_none_is_misread() {
        let bytes = encode(&vec![Yesterday { name: "a", gone_since: 1 }; 3]).unwrap();
        assert!((0..bytes.len()).all(|cut| decode::<Vec<Today>>(&bytes[..cut]).is_err()));
    }

    #[test]
    fn a_later_format_is_refused_by_its_number() {
        let mut bytes = encode(&7_u64).unwrap();
        bytes[0] = 9;
        assert_eq!(decode::<u64>(&bytes).unwrap_err().to_string(), "it is in format 9, and this version reads up to 1");
    }
}
