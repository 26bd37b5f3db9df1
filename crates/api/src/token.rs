//! Tokens as people pass them on: who to trust, and what to show them, in one word.
//!
//! ```text
//! longshore-join-1f6d0c2b9a4e7385-<secret, 32 digits>-<pin, 32 digits>
//! ```
//!
//! Owns: how a token is written and read.
//! Invariant: neither `Debug` nor an error ever shows the secret part.

use std::{fmt, str::FromStr};

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Lets one node in.
    Join,
    /// Lets an operator ask.
    Operator,
}

impl TokenKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Operator => "operator",
        }
    }
}

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// What it is for.
    pub kind: TokenKind,
    /// The part that may be seen.
    pub id: String,
    /// The part that may not.
    pub secret: String,
    /// Which authority the other side must show.
    pub pin: Pin,
}

/// The first half of the SHA-256 of an authority's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin(pub [u8; 16]);

impl Pin {
    /// The pin of a certificate, DER.
    pub fn of(certificate: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut pin = [0; 16];
        pin.copy_from_slice(&digest.as_ref()[..16]);
        Self(pin)
    }
}

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It does not look like one.
    #[error("this is not a token: it should read `longshore-join-…` or `longshore-operator-…`")]
    Malformed,
    /// It is for something else.
    #[error(
        "this token is for something else: to join takes one of `longshore cluster token`, to ask one of `longshore token create`"
    )]
    OtherKind,
}

impl Token {
    /// Reads a token that must be of a kind.
    pub fn of_kind(kind: TokenKind, text: &str) -> Result<Self, TokenError> {
        let token: Self = text.trim().parse()?;
        if token.kind == kind { Ok(token) } else { Err(TokenError::OtherKind) }
    }

    /// The whole token. Only for whoever is meant to have it.
    pub fn reveal(&self) -> String {
        format!("longshore-{}-{}-{}-{}", self.kind.as_str(), self.id, self.secret, hex(&self.pin.0))
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let parts: Vec<&str> = text.split('-').collect();
        let ["longshore", kind, id, secret, pin] = parts[..] else { return Err(TokenError::Malformed) };
        let kind = match kind {
            "join" => TokenKind::Join,
            "operator" => TokenKind::Operator,
            _ => return Err(TokenError::Malformed),
        };
        let plain = |part: &str| (8..=64).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !plain(id) || !plain(secret) {
            return Err(TokenError::Malformed);
        }
        let pin = Pin(unhex(pin).ok_or(TokenError::Malformed)?);
        Ok(Self { kind, id: id.to_owned(), secret: secret.to_owned(), pin })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} {})", self.kind.as_str(), self.id)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token {
            kind: TokenKind::Join,
            id: "1f6d0c2b9a4e7385".to_owned(),
            secret: "0123456789abcdef0123456789abcdef".to_owned(),
            pin: Pin::of(b"certificate"),
        }
    }

    #[test]
    fn a_token_reads_as_it_was_written_and_never_shows_itself() {
        let token = token();
        assert_eq!(Token::of_kind(TokenKind::Join, &format!(" {}\n", token.reveal())), Ok(token.clone()));
        assert_eq!(format!("{token:?}"), "Token(join 1f6d0c2b9a4e7385)");
        assert_eq!(Token::of_kind(TokenKind::Operator, &token.reveal()), Err(TokenError::OtherKind));
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_repeated() {
        let whole = token().reveal();
        let cut = &whole[..whole.len() - 1];
        for wrong in ["", "hunter2", "longshore-join-a-b-c", cut, "longshore-join-1f6d0c2b9a4e7385-ü-00"] {
            let error = wrong.parse::<Token>().unwrap_err();
            assert!(!error.to_string().contains("hunter2"));
            assert_eq!(error, TokenError::Malformed, "{wrong}");
        }
    }
}
