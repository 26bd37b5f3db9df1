//! The name somebody probably meant, where the daemon knows none like the one that was given.
//!
//! Owns: which names are looked at. Must not touch: how near is near enough; that is the manifest reader's word.
//! Invariant: what was given is never suggested; where it is the namespace that is wrong, that is said.

use longshore_api::{Client, Envelope};
use longshore_compose::suggest::nearest as nearest_word;

/// What a name is the name of; the word is the one that refusals use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Node,
    Deployment,
    Service,
    Replica,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Deployment => "deployment",
            Self::Service => "service",
            Self::Replica => "replica",
        }
    }
}

/// A name, what of, and the namespace it is in where it has one.
struct Known {
    kind: Kind,
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
    meant(given, &refused.message, &known(client, refused).await?)
}

async fn known(client: &Client, refused: &Envelope) -> Option<Vec<Known>> {
    if refused.message.contains("node") {
        let nodes = client.nodes().await.ok()?.into_iter();
        return Some(nodes.map(|node| Known { kind: Kind::Node, name: node.name, namespace: None }).collect());
    }
    let mut known = Vec::new();
    for deployment in client.deployments().await.ok()? {
        let namespace = Some(deployment.namespace);
        for service in deployment.services {
            let path = format!("{}/{}", deployment.name, service.name);
            let names = [path, service.name].into_iter();
            known.extend(names.map(|name| Known { kind: Kind::Service, name, namespace: namespace.clone() }));
        }
        known.push(Known { kind: Kind::Deployment, name: deployment.name, namespace });
    }
    let replicas = client.replicas().await.ok()?.into_iter();
    known.extend(replicas.map(|replica| Known { kind: Kind::Replica, name: replica.id, namespace: None }));
    Some(known)
}

fn meant(given: &str, message: &str, known: &[Known]) -> Option<String> {
    let asked = |kind: Kind| message.contains(kind.word());
    let elsewhere = |it: &&Known| {
        let prefixed = it.namespace.as_ref().map(|namespace| format!("{namespace}.{}", it.name));
        asked(it.kind) && it.namespace.is_some() && (it.name == given || prefixed.as_deref() == Some(given))
    };
    if let Some(Known { name, namespace: Some(namespace), .. }) = known.iter().find(elsewhere) {
        return Some(format!("`{name}` is in the namespace `{namespace}`: use `-n {namespace}`"));
    }
    if let Some(other) = known.iter().find(|it| it.name == given) {
        let example = known.iter().find(|it| it.kind == Kind::Service && it.name.starts_with(&format!("{given}/")));
        let example = example.map_or_else(String::new, |it| format!(", for instance `{}`", it.name));
        return Some(format!("`{given}` is a {}: name one of its parts{example}", other.kind.word()));
    }
    let others = known.iter().map(|it| it.name.as_str());
    let meant = nearest_word(given, others)?;
    Some(format!("did you mean `{meant}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_not_suggested_and_a_namespace_is_named() {
        let name = |kind: Kind, name: &str, namespace: &str| Known {
            kind,
            name: name.to_owned(),
            namespace: Some(namespace.to_owned()),
        };
        let shop = name(Kind::Deployment, "shop", "default");
        let known = [shop, name(Kind::Service, "shop/web", "default"), name(Kind::Deployment, "blog", "team")];
        let of = |kind: &str, given: &str| meant(given, &format!("there is no {kind} `{given}`"), &known);
        assert_eq!(of("deployment", "shoq").as_deref(), Some("did you mean `shop`?"));
        let elsewhere = Some("`blog` is in the namespace `team`: use `-n team`");
        assert_eq!(of("deployment", "blog").as_deref(), elsewhere);
        assert_eq!(of("deployment", "team.blog").as_deref(), elsewhere);
        let part = Some("`shop` is a deployment: name one of its parts, for instance `shop/web`");
        assert_eq!(of("replica", "shop").as_deref(), part);
        assert_eq!(of("replica", "nothing-like-it"), None);
    }
}
