//! A hint for a name that the daemon does not know: the nearest name that exists.
//!
//! Owns: which names are compared. Must not touch: how near is near enough; `longshore_compose::suggest` decides that.
//! Invariant: the kind and the name come from `details` of the error, never from its message. A daemon that does not
//! send them gets no suggestion. The name that was given is never suggested; if it exists in another namespace, the
//! hint says so.

use longshore_api::{Client, Envelope};
use longshore_compose::suggest::nearest;
use serde_json::Value;

/// What a name belongs to, as `details.kind` spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Node,
    Deployment,
    Service,
    Replica,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Node, Self::Deployment, Self::Service, Self::Replica];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Deployment => "deployment",
            Self::Service => "service",
            Self::Replica => "replica",
        }
    }
}

/// The name that was not found.
struct UnknownName<'a> {
    /// `None` if any kind but a node was asked for, as by `logs`.
    kind: Option<Kind>,
    name: &'a str,
}

impl<'a> UnknownName<'a> {
    fn of(refusal: &'a Envelope) -> Option<Self> {
        let text = |key: &str| refusal.details.get(key).and_then(Value::as_str);
        let (kind, name) = (text("kind")?, text("name")?);
        Some(Self { kind: Kind::ALL.into_iter().find(|known| known.as_str() == kind), name })
    }
}

/// A name that exists, and its namespace if it has one.
struct ExistingName {
    kind: Kind,
    name: String,
    namespace: Option<String>,
}

/// The hint for a refusal; `None` if the refusal names nothing that was not found, or nothing is near it.
pub(crate) async fn suggestion(client: &Client, refusal: &Envelope) -> Option<String> {
    if !matches!(refusal.code.as_str(), "not_found" | "unknown_node" | "unknown_deployment" | "unknown_service") {
        return None;
    }
    let unknown = UnknownName::of(refusal)?;
    let existing = match unknown.kind {
        Some(Kind::Node) => nodes(client).await?,
        Some(Kind::Deployment | Kind::Service | Kind::Replica) | None => workloads(client).await?,
    };
    hint(&unknown, &existing)
}

async fn nodes(client: &Client) -> Option<Vec<ExistingName>> {
    let nodes = client.nodes().await.ok()?.into_iter();
    Some(nodes.map(|node| ExistingName { kind: Kind::Node, name: node.name, namespace: None }).collect())
}

/// Deployments, services (as `SERVICE` and as `DEPLOYMENT/SERVICE`) and replicas.
async fn workloads(client: &Client) -> Option<Vec<ExistingName>> {
    let mut existing = Vec::new();
    for deployment in client.deployments().await.ok()? {
        let namespace = Some(deployment.namespace);
        for service in deployment.services {
            let path = format!("{}/{}", deployment.name, service.name);
            let names = [path, service.name].into_iter();
            existing.extend(names.map(|name| ExistingName { kind: Kind::Service, name, namespace: namespace.clone() }));
        }
        existing.push(ExistingName { kind: Kind::Deployment, name: deployment.name, namespace });
    }
    let replicas = client.replicas().await.ok()?.into_iter();
    existing.extend(replicas.map(|replica| ExistingName { kind: Kind::Replica, name: replica.id, namespace: None }));
    Some(existing)
}

fn hint(unknown: &UnknownName<'_>, existing: &[ExistingName]) -> Option<String> {
    let given = unknown.name;
    let in_other_namespace = |it: &&ExistingName| {
        let qualified = it.namespace.as_ref().map(|namespace| format!("{namespace}.{}", it.name));
        unknown.kind.is_none_or(|kind| kind == it.kind)
            && it.namespace.is_some()
            && (it.name == given || qualified.as_deref() == Some(given))
    };
    if let Some(ExistingName { name, namespace: Some(namespace), .. }) = existing.iter().find(in_other_namespace) {
        return Some(format!("`{name}` is in the namespace `{namespace}`: use `-n {namespace}`"));
    }
    if let Some(other) = existing.iter().find(|it| it.name == given) {
        let example = existing.iter().find(|it| it.kind == Kind::Service && it.name.starts_with(&format!("{given}/")));
        let example = example.map_or_else(String::new, |it| format!(", for instance `{}`", it.name));
        return Some(format!("`{given}` is a {}: name a service or a replica of it{example}", other.kind.as_str()));
    }
    let names = existing.iter().map(|it| it.name.as_str());
    Some(format!("did you mean `{}`?", nearest(given, names)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn existing() -> [ExistingName; 3] {
        let name = |kind: Kind, name: &str, namespace: &str| ExistingName {
            kind,
            name: name.to_owned(),
            namespace: Some(namespace.to_owned()),
        };
        [
            name(Kind::Deployment, "shop", "default"),
            name(Kind::Service, "shop/web", "default"),
            name(Kind::Deployment, "blog", "team"),
        ]
    }

    #[test]
    fn the_nearest_name_is_suggested_and_another_namespace_is_named() {
        let of = |kind: Kind, name: &str| hint(&UnknownName { kind: Some(kind), name }, &existing());
        assert_eq!(of(Kind::Deployment, "shoq").as_deref(), Some("did you mean `shop`?"));
        let elsewhere = Some("`blog` is in the namespace `team`: use `-n team`");
        assert_eq!(of(Kind::Deployment, "blog").as_deref(), elsewhere);
        assert_eq!(of(Kind::Deployment, "team.blog").as_deref(), elsewhere);
        let part = Some("`shop` is a deployment: name a service or a replica of it, for instance `shop/web`");
        assert_eq!(of(Kind::Replica, "shop").as_deref(), part);
        assert_eq!(of(Kind::Replica, "nothing-like-it"), None);
    }

    #[test]
    fn the_kind_and_the_name_are_read_from_the_details_and_never_from_the_message() {
        let bare = Envelope::new("not_found", "there is no deployment `shoq`");
        assert!(UnknownName::of(&bare).is_none());
        let detailed = bare.with("kind", "deployment").with("name", "shoq");
        let unknown = UnknownName::of(&detailed).unwrap();
        assert_eq!((unknown.kind, unknown.name), (Some(Kind::Deployment), "shoq"));
        let any = Envelope::new("not_found", "").with("kind", "workload").with("name", "shoq");
        assert_eq!(UnknownName::of(&any).unwrap().kind, None, "a kind this version does not know");
    }
}
