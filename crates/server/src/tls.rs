//! Encrypted connections between nodes, and judging who is at the other end.
//!
//! Owns: the settings of both ends, and what a certificate proves.
//! Invariant: whoever shows a certificate shows one of this cluster's authority, or there is no connection.

use std::sync::Arc;

use longshore_model::{NodeName, access::SeatPart};
use rustls::{
    ClientConfig, Error, RootCertStore, ServerConfig,
    client::verify_server_name,
    crypto::ring,
    pki_types::CertificateDer,
    server::{ParsedCertificate, WebPkiClientVerifier},
    version::TLS13,
};

use crate::identity::{Identity, SERVER_NAME, node_dns, server_name};

/// Settings for whoever is called. Callers may show no certificate; what they may ask for then is little.
pub(crate) fn accepting(identity: &Identity) -> Result<ServerConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(identity)?), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        // The authority goes along for callers that know only its digest.
        .with_single_cert(vec![identity.certificate.clone(), identity.authority.clone()], identity.key())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Settings for a node that calls another.
pub(crate) fn calling(identity: &Identity) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots(identity)?)
        .with_client_auth_cert(vec![identity.certificate.clone(), identity.authority.clone()], identity.key())
}

fn roots(identity: &Identity) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.authority.clone())?;
    Ok(roots)
}

/// Whether a certificate that was accepted is this node's, and of which part.
pub(crate) fn proves(certificate: &CertificateDer<'_>, node: &NodeName) -> Option<SeatPart> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let is_for = |dns: String| server_name(dns).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok());
    if !is_for(node_dns(node)) {
        return None;
    }
    Some(if is_for(SERVER_NAME.to_owned()) { SeatPart::Server } else { SeatPart::Worker })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{NodeKey, SigningAuthority};

    fn certificate(node: &str, part: SeatPart) -> CertificateDer<'static> {
        let authority = SigningAuthority::new("c1").unwrap();
        let again = SigningAuthority::open("c1", authority.certificate(), authority.key()).unwrap();
        let key = NodeKey::new().unwrap();
        again.sign(&node.into(), part, key.public()).unwrap().into()
    }

    #[test]
    fn a_certificate_proves_its_own_node_and_its_own_part() {
        let worker = certificate("shop_floor 7", SeatPart::Worker);
        assert_eq!(proves(&worker, &"shop_floor 7".into()), Some(SeatPart::Worker));
        assert_eq!(proves(&worker, &"n1".into()), None);
        assert_eq!(proves(&certificate("n1", SeatPart::Server), &"n1".into()), Some(SeatPart::Server));
        assert_eq!(proves(&CertificateDer::from(vec![1, 2, 3]), &"n1".into()), None);
    }

    #[test]
    fn nothing_but_a_public_key_is_signed() {
        let authority = SigningAuthority::new("c1").unwrap();
        for wrong in [&[][..], &[4; 64], &[5; 65]] {
            assert!(authority.sign(&"n1".into(), SeatPart::Server, wrong).is_err());
        }
    }
}
