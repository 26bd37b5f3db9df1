//! The name somebody probably meant, where the daemon knows none like the one that was given.
//!
//! Owns: which names are looked at. Must not touch: how near is near enough; that is the manifest reader's word.
//! Invariant: what was given is never suggested; where it is the namespace that is wrong, that is said.

use longshore_api::{Client, Envelope};
use longshore_compose::suggest::nearest as nearest_word;

/// A name, and the namespace it is in where it has one.
struct Known {
    name: String,
    namespace: Option<String>,
}

/// A hint for a refusal about a name that is not there.
pub(crate) async fn nearest(client: &Client, refused: &Envelope) -> Option<String> {
    if !matches!(refused.code.as_str(), "not_found" | "unknown_node" | "unknown_deployment" | "unknown_service") {
        return None;
    }
    // Every refusal of the kind names what it does not know in backticks, last.
    let given = refused.message.rsplit('`').nth(1)?;
    meant(given, &known(client, refused).await?)
}

async fn known(client: &Client, refused: &Envelope) -> Option<Vec<Known>> {
    if refused.message.contains("node") {
        let nodes = client.nodes().await.ok()?.into_iter();
        return Some(nodes.map(|node| Known { name: node.name, namespace: None }).collect());
    }
    let mut known = Vec::new();
    for deployment in client.deployments().await.ok()? {
        let namespace = Some(deployment.namespace);
        let services = deployment.services.iter();
        let names = services.flat_map(|it| [format!("{}/{}", deployment.name, it.name), it.name.clone()]);
        let names = names.chain([deployment.name.clone()]);
        known.extend(names.map(|name| Known { name, namespace: namespace.clone() }));
    }
    let replicas = client.replicas().await.ok()?.into_iter();
    known.extend(replicas.map(|replica| Known { name: replica.id, namespace: None }));
    Some(known)
}

fn meant(given: &str, known: &[Known]) -> Option<String> {
    let elsewhere = |it: &&Known| {
        it.namespace.as_ref().is_some_and(|namespace| it.name == given || format!("{namespace}.{}", it.name) == given)
    };
    if let Some(Known { name, namespace: Some(namespace) }) = known.iter().find(elsewhere) {
        return Some(format!("`{name}` is in the namespace `{namespace}`: use `-n {namespace}`"));
    }
    let others = known.iter().map(|it| it.name.as_str()).filter(|name| *name != given);
    let meant = nearest_word(given, others)?;
    Some(format!("did you mean `{meant}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_not_suggested_and_a_namespace_is_named() {
        let name = |name: &str, namespace: Option<&str>| Known {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        let known = [name("shop", None), name("shop/web", None), name("blog", Some("team"))];
        assert_eq!(meant("shoq", &known).as_deref(), Some("did you mean `shop`?"));
        assert_eq!(meant("shop", &known[..1]), None);
        let elsewhere = Some("`blog` is in the namespace `team`: use `-n team`");
        assert_eq!(meant("blog", &known).as_deref(), elsewhere);
        assert_eq!(meant("team.blog", &known).as_deref(), elsewhere);
    }
}
