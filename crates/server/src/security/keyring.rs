//! The keyring: the cluster's keys, which seal the secrets in the replicated state and are never replicated themselves.
//!
//! Owns: sealing, opening, hashing, and randomness.
//! Must not touch: what is sealed. Invariant: what was sealed for one purpose does not open for another.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use longshore_model::{
    access::{Digest, Sealed},
    hex,
};
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest::{SHA256, digest},
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use serde::{Deserialize, Serialize};

/// Why sealing or opening failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyringError {
    /// The system has no randomness.
    #[error("the system has no randomness")]
    NoRandomness,
    /// There are two keys with the same number.
    #[error("there is a different key {0} of the cluster")]
    ConflictingKey(u32),
    /// It was sealed with a key that is not in the keyring.
    #[error("key {0} of the cluster is not on this node")]
    NoKey(u32),
    /// It is damaged, or was sealed for something else.
    #[error("a sealed value cannot be opened")]
    Damaged,
}

/// Keys by number. The number of the sealing key is replicated, so that no server seals what another cannot open.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keyring {
    keys: BTreeMap<u32, String>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({} keys)", self.keys.len())
    }
}

impl Keyring {
    /// A keyring with one new key, number 1.
    pub(crate) fn new() -> Result<Self, KeyringError> {
        Ok(Self { keys: BTreeMap::from([(1, random_hex(32)?)]) })
    }

    /// A keyring with one new key.
    pub(crate) fn with_key(number: u32) -> Result<Self, KeyringError> {
        Ok(Self { keys: BTreeMap::from([(number, random_hex(32)?)]) })
    }

    /// A keyring without keys.
    pub(crate) const fn empty() -> Self {
        Self { keys: BTreeMap::new() }
    }

    /// Numbers of the keys in it.
    pub(crate) fn numbers(&self) -> BTreeSet<u32> {
        self.keys.keys().copied().collect()
    }

    /// The union of two keyrings. A number never stands for two keys.
    pub(crate) fn with(&self, other: &Self) -> Result<Self, KeyringError> {
        let mut keys = self.keys.clone();
        for (number, key) in &other.keys {
            let kept = keys.entry(*number).or_insert_with(|| key.clone());
            if !constant_time_eq(kept.as_bytes(), key.as_bytes()) {
                return Err(KeyringError::ConflictingKey(*number));
            }
        }
        Ok(Self { keys })
    }

    /// This keyring without some of its keys.
    pub(crate) fn without(&self, dropped: &BTreeSet<u32>) -> Self {
        let keys = self.keys.iter().filter(|(number, _)| !dropped.contains(number));
        Self { keys: keys.map(|(number, key)| (*number, key.clone())).collect() }
    }

    /// Seals bytes with a key, for a purpose that must be given again to open them.
    pub(crate) fn seal(&self, number: u32, purpose: &str, plain: &[u8]) -> Result<Sealed, KeyringError> {
        let key = self.keys.get(&number).ok_or(KeyringError::NoKey(number))?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| KeyringError::NoRandomness)?;
        let mut bytes = plain.to_vec();
        let sealed = key_of(key).map(|key| {
            key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(purpose), &mut bytes)
        });
        sealed.ok_or(KeyringError::Damaged)?.map_err(|_| KeyringError::Damaged)?;
        Ok(Sealed { key: number, bytes: [&nonce[..], &bytes].concat() })
    }

    /// Opens what was sealed for this purpose.
    pub(crate) fn open(&self, purpose: &str, sealed: &Sealed) -> Result<Vec<u8>, KeyringError> {
        let key = self.keys.get(&sealed.key).ok_or(KeyringError::NoKey(sealed.key))?;
        let key = key_of(key).ok_or(KeyringError::Damaged)?;
        let (nonce, bytes) = sealed.bytes.split_at_checked(NONCE_LEN).ok_or(KeyringError::Damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| KeyringError::Damaged)?;
        let mut bytes = bytes.to_vec();
        let plain = key.open_in_place(nonce, Aad::from(purpose), &mut bytes).map_err(|_| KeyringError::Damaged)?;
        Ok(plain.to_vec())
    }
}

fn key_of(digits: &str) -> Option<LessSafeKey> {
    UnboundKey::new(&CHACHA20_POLY1305, &hex::decode(digits)?).ok().map(LessSafeKey::new)
}

/// HMAC-SHA-256 over the purpose and the parts, each with its length.
pub(crate) fn keyed_hash(secret: &[u8], purpose: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    for part in [purpose.as_bytes()].iter().chain(parts) {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    context.sign().as_ref().to_vec()
}

/// That many random bytes, in hexadecimal.
pub(crate) fn random_hex(bytes: usize) -> Result<String, KeyringError> {
    let mut random = vec![0; bytes];
    SystemRandom::new().fill(&mut random).map_err(|_| KeyringError::NoRandomness)?;
    Ok(hex::encode(&random))
}

/// SHA-256, in hex.
pub(crate) fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from(hex::encode(digest(&SHA256, bytes).as_ref()).as_str())
}

/// Compares in constant time, so that timing does not reveal where the difference is.
pub(crate) fn constant_time_eq(given: &[u8], expected: &[u8]) -> bool {
    let differs = given.iter().zip(expected).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == expected.len() && std::hint::black_box(differs) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_for_its_own_purpose_only() {
        let keyring = Keyring::new().unwrap();
        let sealed = keyring.seal(1, "secret/default/db-pass/1", b"hunter2").unwrap();
        assert_eq!(keyring.open("secret/default/db-pass/1", &sealed), Ok(b"hunter2".to_vec()));
        assert_eq!(keyring.open("secret/default/db-pass/2", &sealed), Err(KeyringError::Damaged));
        assert_eq!(Keyring::new().unwrap().open("secret/default/db-pass/1", &sealed), Err(KeyringError::Damaged));
        assert!(!sealed.bytes.windows(7).any(|window| window == b"hunter2"));
        let elsewhere = Sealed { key: 9, ..sealed.clone() };
        assert_eq!(keyring.open("secret/default/db-pass/1", &elsewhere), Err(KeyringError::NoKey(9)));
        for at in 0..sealed.bytes.len() {
            let mut damaged = sealed.clone();
            damaged.bytes[at] ^= 1;
            assert_eq!(keyring.open("secret/default/db-pass/1", &damaged), Err(KeyringError::Damaged));
        }
    }

    #[test]
    fn a_truncated_value_is_damaged_and_debug_prints_no_keys() {
        let keyring = Keyring::new().unwrap();
        assert_eq!(keyring.open("x", &Sealed { key: 1, bytes: vec![1, 2] }), Err(KeyringError::Damaged));
        assert_eq!(format!("{keyring:?}"), "Keyring(1 keys)");
    }

    #[test]
    fn a_key_number_never_stands_for_two_keys() {
        let (first, second) = (Keyring::new().unwrap(), Keyring::with_key(2).unwrap());
        let both = first.with(&second).unwrap();
        assert_eq!(both.numbers(), [1, 2].into());
        assert_eq!(both.with(&Keyring::with_key(2).unwrap()), Err(KeyringError::ConflictingKey(2)));
        assert_eq!(both.without(&[1].into()), second);
        let sealed = both.seal(2, "x", b"hunter2").unwrap();
        assert_eq!(second.open("x", &sealed), Ok(b"hunter2".to_vec()));
        assert_eq!(first.open("x", &sealed), Err(KeyringError::NoKey(2)));
        assert_eq!(first.seal(2, "x", b"hunter2").unwrap_err(), KeyringError::NoKey(2));
    }
}
