//! Keys and certificates of the cluster's authority and of every node.
//!
//! Owns: creating and signing them.
//! Must not touch: membership; a certificate says who a node is, the state says whether it still belongs.
//! Invariant: a private key is created where it is used and never leaves, except for the authority's, which is
//! replicated sealed.

use ring::agreement::{self, ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey};
use std::fmt;

use longshore_api::tls::CLUSTER_NAME;
use longshore_model::{NodeName, access::NodeRole, hex};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};
use ring::digest::{SHA256, digest};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};

/// DNS name in the certificate of every node that may vote, and of no other.
pub(crate) const SERVER_NAME: &str = "server.longshore.internal";

/// A key or certificate could not be created.
#[derive(Debug, thiserror::Error)]
#[error("a certificate could not be created: {0}")]
pub struct IdentityError(String);

impl From<rcgen::Error> for IdentityError {
    fn from(error: rcgen::Error) -> Self {
        Self(error.to_string())
    }
}

/// The authority of a cluster, with its key.
pub(crate) struct SigningAuthority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

// Never prints the key.
impl fmt::Debug for SigningAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningAuthority")
    }
}

impl SigningAuthority {
    /// A new authority for a new cluster.
    pub(crate) fn new(cluster: &str) -> Result<Self, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let params = authority_params(cluster);
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// The authority from its stored certificate and key.
    pub(crate) fn open(cluster: &str, certificate: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let key = PrivatePkcs8KeyDer::from(key.to_vec());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256)?;
        let certificate = CertificateDer::from(certificate.to_vec());
        Ok(Self { certificate, issuer: Issuer::new(authority_params(cluster), key) })
    }

    pub(crate) fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.issuer.key().serialized_der()
    }

    /// Signs a certificate for a node's public key.
    pub(crate) fn sign(&self, node: &NodeName, role: NodeRole, public_key: &[u8]) -> Result<Vec<u8>, IdentityError> {
        // Only an uncompressed point of the curve is signed; anything else would be useless.
        if public_key.len() != 65 || public_key.first() != Some(&4) {
            return Err(IdentityError("the public key is not a point of P-256".to_owned()));
        }
        ensure_on_curve(public_key)?;
        let mut names = vec![node_dns(node), CLUSTER_NAME.to_owned()];
        match role {
            NodeRole::Server => names.push(SERVER_NAME.to_owned()),
            NodeRole::Worker => {}
        }
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = called(node.as_str());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let signed = params.signed_by(&RawKey(public_key), &self.issuer)?;
        Ok(signed.der().to_vec())
    }
}

/// A point beside the curve would get a certificate that nobody can use, and use up the join token.
fn ensure_on_curve(public_key: &[u8]) -> Result<(), IdentityError> {
    let random = ring::rand::SystemRandom::new();
    let own = EphemeralPrivateKey::generate(&ECDH_P256, &random);
    let own = own.map_err(|_| IdentityError("no random numbers".to_owned()))?;
    // The library checks the point before it computes with it.
    let agreed = agreement::agree_ephemeral(own, &UnparsedPublicKey::new(&ECDH_P256, public_key), |_| ());
    agreed.map_err(|_| IdentityError("the public key is not a point of P-256".to_owned()))
}

fn authority_params(cluster: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = called(&format!("longshore cluster {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

struct RawKey<'a>(&'a [u8]);

impl PublicKeyData for RawKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// A node's private key.
pub(crate) struct NodeKey(KeyPair);

impl NodeKey {
    pub(crate) fn new() -> Result<Self, IdentityError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    /// The key from its stored bytes.
    pub(crate) fn open(bytes: &[u8]) -> Result<Self, IdentityError> {
        let key = PrivatePkcs8KeyDer::from(bytes.to_vec());
        Ok(Self(KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256)?))
    }

    pub(crate) fn public(&self) -> &[u8] {
        self.0.public_key_raw()
    }

    /// The private key, for storage.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.serialized_der()
    }
}

/// A node's key and certificate, and the authority's certificate.
pub(crate) struct Identity {
    pub(crate) authority: CertificateDer<'static>,
    pub(crate) certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    pub(crate) fn new(authority: Vec<u8>, certificate: Vec<u8>, key: &NodeKey) -> Self {
        Self { authority: authority.into(), certificate: certificate.into(), key: key.bytes().to_vec() }
    }

    /// The public key.
    pub(crate) fn public(&self) -> Result<Vec<u8>, IdentityError> {
        Ok(NodeKey::open(&self.key)?.public().to_vec())
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()))
    }
}

/// DNS name for a node's certificate: a hash, because a node name may hold any text.
pub(crate) fn node_dns(node: &NodeName) -> String {
    let digest = digest(&SHA256, node.as_str().as_bytes());
    format!("{}.node.longshore.internal", hex::encode(&digest.as_ref()[..28]))
}

/// The DNS name in the form that TLS clients take.
pub(crate) fn server_name(dns: String) -> Result<ServerName<'static>, IdentityError> {
    ServerName::try_from(dns).map_err(|error| IdentityError(error.to_string()))
}
