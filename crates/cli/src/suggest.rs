//! The name somebody probably meant, where the daemon knows none like the one that was given.
//!
//! Owns: which names are looked at. Must not touch: how near is near enough; that is the manifest reader's word.

use longshore_api::{Client, Envelope};
use longshore_compose::suggest::nearest as nearest_word;

/// A hint for a refusal about a name that is not there.
pub(crate) async fn nearest(client: &Client, refused: &Envelope) -> Option<String> {
    if !matches!(refused.code.as_str(), "not_found" | "unknown_node" | "unknown_deployment" | "unknown_service") {
        return None;
    }
    // Every refusal of the kind names what it does not know in backticks, last.
    let given = refused.message.rsplit('`').nth(1)?;
    let mut known: Vec<String> = Vec::new();
    if refused.message.contains("node") {
        known.extend(client.nodes().await.ok()?.into_iter().map(|node| node.name));
    } else {
        for deployment in client.deployments().await.ok()? {
            let services = deployment.services.iter();
            known.extend(services.map(|service| format!("{}/{}", deployment.name, service.name)));
            known.extend(deployment.services.iter().map(|service| service.name.clone()));
            known.push(deployment.name);
        }
        known.extend(client.replicas().await.ok()?.into_iter().map(|replica| replica.id));
    }
    let meant = nearest_word(given, known.iter().map(String::as_str))?;
    Some(format!("did you mean `{meant}`?"))
}
