//! The machine's key of the mesh and the identity that other machines know it by.
//!
//! Owns: the key file, its creation, and the text forms of keys.
//! Must not touch: which peers exist. Invariant: the private half leaves this machine in no form; it is written once, in
//! a file that only its owner can read, and a damaged file is an error instead of a new identity.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use boringtun::x25519::{PublicKey, StaticSecret};
use longshore_durable_file::{Durability, replace};
use ring::rand::{SecureRandom, SystemRandom};

/// Name of the key file in the data folder.
pub const KEY_FILE: &str = "mesh.key";

/// A private key of the mesh.
#[derive(Clone)]
pub struct MeshKey(StaticSecret);

/// Not even a part of it is printed.
impl fmt::Debug for MeshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MeshKey(of {})", self.public())
    }
}

/// A public key of the mesh, printed in base64 as WireGuard writes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeshPublicKey(pub [u8; 32]);

impl MeshPublicKey {
    /// Reads the base64 form; `None` if it is not a key of 32 bytes.
    pub fn parse(text: &str) -> Option<Self> {
        BASE64_STANDARD.decode(text.trim()).ok()?.try_into().ok().map(Self)
    }
}

impl fmt::Display for MeshPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Debug for MeshPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why the key file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum MeshKeyError {
    /// The file system refused.
    #[error("could not read or write the mesh key `{}`", path.display())]
    File {
        /// The key file.
        path: PathBuf,
        /// What the file system said.
        #[source]
        cause: io::Error,
    },
    /// It holds something else than a key.
    #[error("`{}` does not hold a mesh key: 32 bytes in base64 are expected", path.display())]
    Damaged {
        /// The key file.
        path: PathBuf,
    },
    /// The system gave no random bytes.
    #[error("the system gave no random bytes for a mesh key")]
    NoRandomness,
}

impl MeshKey {
    /// The key of this data folder, which is made at the first call.
    pub fn load_or_create(data_dir: &Path) -> Result<Self, MeshKeyError> {
        let path = data_dir.join(KEY_FILE);
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).ok_or(MeshKeyError::Damaged { path }),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                let key = Self::generate()?;
                let text = format!("{}\n", BASE64_STANDARD.encode(key.bytes()));
                replace(&path, text.as_bytes(), Durability::Synced)
                    .map_err(|cause| MeshKeyError::File { path, cause })?;
                Ok(key)
            }
            Err(cause) => Err(MeshKeyError::File { path, cause }),
        }
    }

    /// A new key.
    pub fn generate() -> Result<Self, MeshKeyError> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| MeshKeyError::NoRandomness)?;
        Ok(Self(StaticSecret::from(bytes)))
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 32] = BASE64_STANDARD.decode(text.trim()).ok()?.try_into().ok()?;
        Some(Self(StaticSecret::from(bytes)))
    }

    /// Its public half.
    pub fn public(&self) -> MeshPublicKey {
        MeshPublicKey(*PublicKey::from(&self.0).as_bytes())
    }

    /// The private half, for the kernel.
    pub(super) fn bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The private half, for our own implementation.
    pub(super) fn secret(&self) -> StaticSecret {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = MeshKey::load_or_create(folder.path()).unwrap();
        let again = MeshKey::load_or_create(folder.path()).unwrap();
        assert_eq!(first.public(), again.public());
        let mode = fs::metadata(folder.path().join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_ne!(first.public(), MeshKey::generate().unwrap().public());
    }

    #[test]
    fn a_damaged_key_file_is_an_error_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(KEY_FILE);
        fs::write(&path, "not a key").unwrap();
        let error = MeshKey::load_or_create(folder.path()).unwrap_err();
        assert!(matches!(error, MeshKeyError::Damaged { .. }));
        assert_eq!(fs::read_to_string(path).unwrap(), "not a key");
    }

    #[test]
    fn a_public_key_is_read_as_it_is_printed_and_a_private_one_is_never_printed() {
        let key = MeshKey::generate().unwrap();
        assert_eq!(MeshPublicKey::parse(&key.public().to_string()), Some(key.public()));
        assert_eq!(MeshPublicKey::parse("c2hvcnQ="), None);
        assert!(!format!("{key:?}").contains(&BASE64_STANDARD.encode(key.bytes())));
    }
}
