//! The cluster's key: what is secret in the replicated state is readable with it, and it is never replicated itself.
//!
//! Owns: sealing, opening, and randomness.
//! Must not touch: what is sealed. Invariant: what was sealed for one thing does not open as another.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use longshore_model::access::{Digest, Sealed};
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest::{SHA256, digest},
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use serde::{Deserialize, Serialize};

/// Why something does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VaultError {
    /// The system gave no randomness.
    #[error("the system gives no randomness")]
    NoRandomness,
    /// Two keys have the same number.
    #[error("there is another key {0} of the cluster")]
    OtherKey(u32),
    /// It was sealed with a key that is not here.
    #[error("key {0} of the cluster is not on this node")]
    NoKey(u32),
    /// It is damaged, or was sealed for something else.
    #[error("a sealed value does not open")]
    Damaged,
}

/// Keys by number. Which of them seals is replicated, so that nobody seals what another could not open.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vault {
    keys: BTreeMap<u32, String>,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vault({} keys)", self.keys.len())
    }
}

impl Vault {
    /// A vault with a key of its own.
    pub(crate) fn new() -> Result<Self, VaultError> {
        Ok(Self { keys: BTreeMap::from([(1, random_hex(32)?)]) })
    }

    /// A vault with one new key.
    pub(crate) fn with_key(number: u32) -> Result<Self, VaultError> {
        Ok(Self { keys: BTreeMap::from([(number, random_hex(32)?)]) })
    }

    /// A vault without keys.
    pub(crate) const fn empty() -> Self {
        Self { keys: BTreeMap::new() }
    }

    /// Numbers of the keys that are here.
    pub(crate) fn numbers(&self) -> BTreeSet<u32> {
        self.keys.keys().copied().collect()
    }

    /// This vault with the keys of another. A number is one key for ever.
    pub(crate) fn with(&self, other: &Self) -> Result<Self, VaultError> {
        let mut keys = self.keys.clone();
        for (number, key) in &other.keys {
            let kept = keys.entry(*number).or_insert_with(|| key.clone());
            if !same(kept.as_bytes(), key.as_bytes()) {
                return Err(VaultError::OtherKey(*number));
            }
        }
        Ok(Self { keys })
    }

    /// This vault without some of its keys.
    pub(crate) fn without(&self, dropped: &BTreeSet<u32>) -> Self {
        let keys = self.keys.iter().filter(|(number, _)| !dropped.contains(number));
        Self { keys: keys.map(|(number, key)| (*number, key.clone())).collect() }
    }

    /// Seals something with a key, for a purpose that must be named again to open it.
    pub(crate) fn seal(&self, number: u32, purpose: &str, plain: &[u8]) -> Result<Sealed, VaultError> {
        let key = self.keys.get(&number).ok_or(VaultError::NoKey(number))?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| VaultError::NoRandomness)?;
        let mut bytes = plain.to_vec();
        let sealed = key_of(key).map(|key| {
            key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(purpose), &mut bytes)
        });
        sealed.ok_or(VaultError::Damaged)?.map_err(|_| VaultError::Damaged)?;
        Ok(Sealed { key: number, bytes: [&nonce[..], &bytes].concat() })
    }

    /// Opens what was sealed for this purpose.
    pub(crate) fn open(&self, purpose: &str, sealed: &Sealed) -> Result<Vec<u8>, VaultError> {
        let key = self.keys.get(&sealed.key).ok_or(VaultError::NoKey(sealed.key))?;
        let key = key_of(key).ok_or(VaultError::Damaged)?;
        let (nonce, bytes) = sealed.bytes.split_at_checked(NONCE_LEN).ok_or(VaultError::Damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| VaultError::Damaged)?;
        let mut bytes = bytes.to_vec();
        let plain = key.open_in_place(nonce, Aad::from(purpose), &mut bytes).map_err(|_| VaultError::Damaged)?;
        Ok(plain.to_vec())
    }
}

fn key_of(hex: &str) -> Option<LessSafeKey> {
    let bytes: Option<Vec<u8>> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect();
    UnboundKey::new(&CHACHA20_POLY1305, &bytes?).ok().map(LessSafeKey::new)
}

/// What some bytes come to, for nobody to guess who has not the secret: the same bytes for the same purpose, the same mark.
pub(crate) fn mark(secret: &[u8], purpose: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    for part in [purpose.as_bytes()].iter().chain(parts) {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    context.sign().as_ref().to_vec()
}

/// That many random bytes, in hexadecimal.
pub(crate) fn random_hex(bytes: usize) -> Result<String, VaultError> {
    let mut random = vec![0; bytes];
    SystemRandom::new().fill(&mut random).map_err(|_| VaultError::NoRandomness)?;
    Ok(hex(&random))
}

/// SHA-256.
pub(crate) fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from(hex(digest(&SHA256, bytes).as_ref()).as_str())
}

/// Compares without telling by its time where the difference is.
pub(crate) fn same(given: &[u8], expected: &[u8]) -> bool {
    let differs = given.iter().zip(expected).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == expected.len() && std::hint::black_box(differs) == 0
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_for_its_own_purpose_only() {
        let vault = Vault::new().unwrap();
        let sealed = vault.seal(1, "secret/default/db-pass/1", b"hunter2").unwrap();
        assert_eq!(vault.open("secret/default/db-pass/1", &sealed), Ok(b"hunter2".to_vec()));
        assert_eq!(vault.open("secret/default/db-pass/2", &sealed), Err(VaultError::Damaged));
        assert_eq!(Vault::new().unwrap().open("secret/default/db-pass/1", &sealed), Err(VaultError::Damaged));
        assert!(!sealed.bytes.windows(7).any(|window| window == b"hunter2"));
        let elsewhere = Sealed { key: 9, ..sealed.clone() };
        assert_eq!(vault.open("secret/default/db-pass/1", &elsewhere), Err(VaultError::NoKey(9)));
        for at in 0..sealed.bytes.len() {
            let mut damaged = sealed.clone();
            damaged.bytes[at] ^= 1;
            assert_eq!(vault.open("secret/default/db-pass/1", &damaged), Err(VaultError::Damaged));
        }
    }

    #[test]
    fn a_cut_value_is_damaged_and_a_vault_shows_nothing() {
        let vault = Vault::new().unwrap();
        assert_eq!(vault.open("x", &Sealed { key: 1, bytes: vec![1, 2] }), Err(VaultError::Damaged));
        assert_eq!(format!("{vault:?}"), "Vault(1 keys)");
    }

    #[test]
    fn a_number_is_one_key_for_ever() {
        let (first, second) = (Vault::new().unwrap(), Vault::with_key(2).unwrap());
        let both = first.with(&second).unwrap();
        assert_eq!(both.numbers(), [1, 2].into());
        assert_eq!(both.with(&Vault::with_key(2).unwrap()), Err(VaultError::OtherKey(2)));
        assert_eq!(both.without(&[1].into()), second);
        let sealed = both.seal(2, "x", b"hunter2").unwrap();
        assert_eq!(second.open("x", &sealed), Ok(b"hunter2".to_vec()));
        assert_eq!(first.open("x", &sealed), Err(VaultError::NoKey(2)));
        assert_eq!(first.seal(2, "x", b"hunter2").unwrap_err(), VaultError::NoKey(2));
    }
}
