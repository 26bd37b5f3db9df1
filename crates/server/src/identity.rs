//! Who a node is, in a form that others can check.
//!
//! Owns: keys and certificates: the authority's, and every node's.
//! Must not touch: who has a seat; a certificate says who somebody is, the state says whether they still belong.
//! Invariant: a key is made where it is used and never leaves, the authority's aside, which is replicated sealed.

use std::fmt;

use longshore_api::tls::CLUSTER_NAME;
use longshore_model::{NodeName, access::SeatPart};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};
use ring::digest::{SHA256, digest};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};

/// What every node that may vote can prove, and no other.
pub(crate) const SERVER_NAME: &str = "server.longshore.internal";

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
#[error("a certificate could not be made: {0}")]
pub struct IdentityError(String);

impl From<rcgen::Error> for IdentityError {
    fn from(error: rcgen::Error) -> Self {
        Self(error.to_string())
    }
}

/// The authority of a cluster, able to sign.
pub(crate) struct SigningAuthority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

// Never the key.
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

    /// The authority whose certificate and key were kept.
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

    /// The certificate of a node for the key it has made.
    pub(crate) fn sign(&self, node: &NodeName, part: SeatPart, public_key: &[u8]) -> Result<Vec<u8>, IdentityError> {
        // An uncompressed point on the curve; anything else would be signed, and be of no use to anybody.
        if public_key.len() != 65 || public_key.first() != Some(&4) {
            return Err(IdentityError("the public key is not a point of P-256".to_owned()));
        }
        let mut names = vec![node_dns(node), CLUSTER_NAME.to_owned()];
        match part {
            SeatPart::Server => names.push(SERVER_NAME.to_owned()),
            SeatPart::Worker => {}
        }
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = called(node.as_str());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let signed = params.signed_by(&RawKey(public_key), &self.issuer)?;
        Ok(signed.der().to_vec())
    }
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

/// A key a node has made for itself.
pub(crate) struct NodeKey(KeyPair);

impl NodeKey {
    pub(crate) fn new() -> Result<Self, IdentityError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    /// The key that was kept.
    pub(crate) fn open(bytes: &[u8]) -> Result<Self, IdentityError> {
        let key = PrivatePkcs8KeyDer::from(bytes.to_vec());
        Ok(Self(KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256)?))
    }

    pub(crate) fn public(&self) -> &[u8] {
        self.0.public_key_raw()
    }

    /// To be kept where nobody else reads it.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.serialized_der()
    }
}

/// A node's key with the certificate that vouches for it.
pub(crate) struct Identity {
    pub(crate) authority: CertificateDer<'static>,
    pub(crate) certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    pub(crate) fn new(authority: Vec<u8>, certificate: Vec<u8>, key: &NodeKey) -> Self {
        Self { authority: authority.into(), certificate: certificate.into(), key: key.bytes().to_vec() }
    }

    /// The key's public half.
    pub(crate) fn public(&self) -> Result<Vec<u8>, IdentityError> {
        Ok(NodeKey::open(&self.key)?.public().to_vec())
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()))
    }
}

/// The name a node's certificate is for: its own may hold what such a name may not.
pub(crate) fn node_dns(node: &NodeName) -> String {
    use std::fmt::Write as _;
    let digest = digest(&SHA256, node.as_str().as_bytes());
    let label = digest.as_ref()[..28].iter().fold(String::new(), |mut label, byte| {
        let _ = write!(label, "{byte:02x}");
        label
    });
    format!("{label}.node.longshore.internal")
}

/// The same, for whoever calls the node.
pub(crate) fn server_name(dns: String) -> Result<ServerName<'static>, IdentityError> {
    ServerName::try_from(dns).map_err(|error| IdentityError(error.to_string()))
}
