//! Security: authentication, authorisation, rate limits, certificates, TLS, and the cluster's keys.
//!
//! Owns: who a caller is, what it may do, and how secrets are sealed.
//! Must not touch: what an allowed request does.
//! Invariant: no request is served before its caller is authenticated; a secret is stored sealed.

pub(crate) mod auth;
pub(crate) mod identity;
pub(crate) mod key_rotation;
pub(crate) mod keyring;
pub(crate) mod rate_limit;
pub(crate) mod socket_group;
pub(crate) mod tls;
