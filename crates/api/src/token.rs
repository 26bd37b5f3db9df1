//! The text form of tokens: credential and pinned authority in one word.
//!
//! ```text
//! longshore-join-1f6d0c2b9a4e7385-<secret, 32 digits>-<pin, 32 digits>
//! ```
//!
//! Owns: how a token is written and read.
//! Invariant: neither `Debug` nor an error ever shows the secret part.

use std::{fmt, str::FromStr};

use longshore_model::hex;

/// Purpose of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Admits one node.
    Join,
    /// Authenticates an operator.
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
    /// Its purpose.
    pub kind: TokenKind,
    /// The public part.
    pub id: String,
    /// The secret part.
    pub secret: String,
    /// The authority that the server must prove.
    pub pin: Pin,
}

/// The first half of the SHA-256 of the authority's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin(pub [u8; 16]);

impl Pin {
    /// The pin of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut pin = [0; 16];
        pin.copy_from_slice(&digest.as_ref()[..16]);
        Self(pin)
    }
}

/// Why a text is not a usable token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It does not have the form of a token.
    #[error("this is not a token: a token starts with `longshore-join-` or `longshore-operator-`")]
    Malformed,
    /// It has another purpose.
    #[error(
        "this token has another purpose: joining needs one of `longshore cluster token`, requests need one of `longshore token create`"
    )]
    OtherKind,
}

impl Token {
    /// Parses a token that must have this purpose.
    pub fn of_kind(kind: TokenKind, text: &str) -> Result<Self, TokenError> {
        let token: Self = text.trim().parse()?;
        if token.kind == kind { Ok(token) } else { Err(TokenError::OtherKind) }
    }

    /// The whole token, secret part included.
    pub fn reveal(&self) -> String {
        format!("longshore-{}-{}-{}-{}", self.kind.as_str(), self.id, self.secret, hex::encode(&self.pin.0))
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
        let pin = hex::decode(pin).and_then(|bytes| bytes.try_into().ok()).ok_or(TokenError::Malformed)?;
        Ok(Self { kind, id: id.to_owned(), secret: secret.to_owned(), pin: Pin(pin) })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} {})", self.kind.as_str(), self.id)
    }
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
    fn a_token_survives_the_round_trip_and_debug_hides_the_secret() {
        let token = token();
        assert_eq!(Token::of_kind(TokenKind::Join, &format!(" {}\n", token.reveal())), Ok(token.clone()));
        assert_eq!(format!("{token:?}"), "Token(join 1f6d0c2b9a4e7385)");
        assert_eq!(Token::of_kind(TokenKind::Operator, &token.reveal()), Err(TokenError::OtherKind));
    }

    #[test]
    fn text_that_is_no_token_is_refused_without_being_repeated() {
        let whole = token().reveal();
        let cut = &whole[..whole.len() - 1];
        for wrong in ["", "hunter2", "longshore-join-a-b-c", cut, "longshore-join-1f6d0c2b9a4e7385-ü-00"] {
            let error = wrong.parse::<Token>().unwrap_err();
            assert!(!error.to_string().contains("hunter2"));
            assert_eq!(error, TokenError::Malformed, "{wrong}");
        }
    }
}
