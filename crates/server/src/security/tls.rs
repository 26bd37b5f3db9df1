//! TLS settings for connections between nodes, and what a certificate proves.
//!
//! Owns: the settings of both ends.
//! Invariant: a certificate that is shown was issued by this cluster's authority, or there is no connection.

use std::sync::Arc;

use longshore_model::{NodeName, access::NodeRole};
use rustls::{
    ClientConfig, Error, RootCertStore, ServerConfig,
    client::verify_server_name,
    crypto::ring,
    pki_types::CertificateDer,
    server::{ParsedCertificate, WebPkiClientVerifier},
    version::TLS13,
};

use crate::security::identity::{Identity, SERVER_NAME, node_dns, server_name};

/// Settings of the listening side. Clients may show no certificate; few routes are open to them then.
pub(crate) fn accepting(identity: &Identity) -> Result<ServerConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(identity)?), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        // The authority's certificate is sent along for clients that know only its pin.
        .with_single_cert(vec![identity.certificate.clone(), identity.authority.clone()], identity.key())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Settings of the calling side.
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

/// The role that a verified certificate proves for this node; `None` if it is another node's.
pub(crate) fn proves(certificate: &CertificateDer<'_>, node: &NodeName) -> Option<NodeRole> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let is_for = |dns: String| server_name(dns).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok());
    if !is_for(node_dns(node)) {
        return None;
    }
    Some(if is_for(SERVER_NAME.to_owned()) { NodeRole::Server } else { NodeRole::Worker })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::identity::{NodeKey, SigningAuthority};

    fn certificate(node: &str, role: NodeRole) -> CertificateDer<'static> {
        let authority = SigningAuthority::new("c1").unwrap();
        let again = SigningAuthority::open("c1", authority.certificate(), authority.key()).unwrap();
        let key = NodeKey::new().unwrap();
        again.sign(&node.into(), role, key.public()).unwrap().into()
    }

    #[test]
    fn a_certificate_proves_its_own_node_and_role() {
        let worker = certificate("shop_floor 7", NodeRole::Worker);
        assert_eq!(proves(&worker, &"shop_floor 7".into()), Some(NodeRole::Worker));
        assert_eq!(proves(&worker, &"n1".into()), None);
        assert_eq!(proves(&certificate("n1", NodeRole::Server), &"n1".into()), Some(NodeRole::Server));
        assert_eq!(proves(&CertificateDer::from(vec![1, 2, 3]), &"n1".into()), None);
    }

    #[test]
    fn nothing_but_a_public_key_is_signed() {
        let authority = SigningAuthority::new("c1").unwrap();
        for wrong in [&[][..], &[4; 64], &[5; 65]] {
            assert!(authority.sign(&"n1".into(), NodeRole::Server, wrong).is_err());
        }
    }
}
