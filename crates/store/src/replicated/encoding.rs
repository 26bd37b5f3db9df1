//! The versioned encoding of values.
//!
//! Owns: the version byte in front and the encoding after it: `MessagePack` with named fields.
//! Must not touch: checksums. Files and records have their own, over these bytes.
//! Invariant: bytes written by an earlier version decode; bytes of a later version are refused with its number.

use serde::{Serialize, de::DeserializeOwned};

/// Increased only when named fields with defaults cannot express a change.
const VERSION: u8 = 1;

/// Why a value could not be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodingError {
    /// There are no bytes.
    #[error("there is nothing to decode")]
    Empty,
    /// Written by a later version of Longshore.
    #[error("it is in format {found}, and this version reads up to {VERSION}")]
    Newer {
        /// The version byte.
        found: u8,
    },
    /// The version is supported, but the contents do not match the type.
    #[error("the contents do not decode")]
    Malformed(#[source] rmp_serde::decode::Error),
    /// The value cannot be encoded.
    #[error("the value does not encode")]
    Unencodable(#[source] rmp_serde::encode::Error),
}

/// Why a value could not be written to a stream.
pub(crate) enum EncodeIntoError {
    /// The stream failed.
    Io(std::io::Error),
    /// The value cannot be encoded.
    Encoding(EncodingError),
}

/// Encodes a value into a stream, without holding all of its bytes in memory.
pub(crate) fn encode_into<T: Serialize>(out: &mut impl std::io::Write, value: &T) -> Result<(), EncodeIntoError> {
    use rmp_serde::encode::Error;
    out.write_all(&[VERSION]).map_err(EncodeIntoError::Io)?;
    rmp_serde::encode::write_named(out, value).map_err(|error| match error {
        Error::InvalidValueWrite(error) => EncodeIntoError::Io(error.into()),
        Error::UnknownLength | Error::InvalidDataModel(_) | Error::DepthLimitExceeded | Error::Syntax(_) => {
            EncodeIntoError::Encoding(EncodingError::Unencodable(error))
        }
    })
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, EncodingError> {
    let mut bytes = vec![VERSION];
    rmp_serde::encode::write_named(&mut bytes, value).map_err(EncodingError::Unencodable)?;
    Ok(bytes)
}

/// The encoded size of a value in bytes.
pub(crate) fn size<T: Serialize>(value: &T) -> Result<usize, EncodingError> {
    let mut counted = ByteCounter { bytes: 0, most: usize::MAX };
    match encode_into(&mut counted, value) {
        Ok(()) | Err(EncodeIntoError::Io(_)) => Ok(counted.bytes),
        Err(EncodeIntoError::Encoding(error)) => Err(error),
    }
}

/// Whether a value takes at most `most` bytes. Encoding stops as soon as it takes more.
pub(crate) fn fits<T: Serialize>(value: &T, most: usize) -> Result<bool, EncodingError> {
    match encode_into(&mut ByteCounter { bytes: 0, most }, value) {
        Ok(()) => Ok(true),
        Err(EncodeIntoError::Io(_)) => Ok(false),
        Err(EncodeIntoError::Encoding(error)) => Err(error),
    }
}

/// A writer that counts bytes and fails after `most` bytes.
struct ByteCounter {
    bytes: usize,
    most: usize,
}

impl std::io::Write for ByteCounter {
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
    struct OldShape {
        name: &'static str,
        gone_since: u32,
    }

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct NewShape {
        #[serde(default)]
        added: Option<u64>,
        name: String,
        #[serde(default)]
        also_added: Vec<String>,
    }

    #[test]
    fn fields_can_be_added_and_removed_and_old_bytes_still_decode() {
        let written = encode(&vec![OldShape { name: "a", gone_since: 1 }, OldShape { name: "b", gone_since: 2 }]);
        let read: Vec<NewShape> = decode(&written.unwrap()).unwrap();
        let new_shape = |name: &str| NewShape { added: None, name: name.to_owned(), also_added: Vec::new() };
        assert_eq!(read, [new_shape("a"), new_shape("b")]);
    }

    #[test]
    fn every_truncated_value_is_refused() {
        let bytes = encode(&vec![OldShape { name: "a", gone_since: 1 }; 3]).unwrap();
        assert!((0..bytes.len()).all(|cut| decode::<Vec<NewShape>>(&bytes[..cut]).is_err()));
    }

    #[test]
    fn a_later_format_is_refused_with_its_number() {
        let mut bytes = encode(&7_u64).unwrap();
        bytes[0] = 9;
        assert_eq!(decode::<u64>(&bytes).unwrap_err().to_string(), "it is in format 9, and this version reads up to 1");
    }
}
