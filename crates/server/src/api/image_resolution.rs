//! Resolves the image references of a manifest when it is applied, so that every node runs the same bytes.
//!
//! ```text
//! reference ─▶ on an engine, from no registry? ─ yes ─▶ the image's id
//!                  │ no
//!                  └─▶ the registry's digest, else the one of the revision in force, else the engine's, else none
//! ```
//!
//! Owns: which source decides, by pull policy. Must not touch: pulling; agents do that.
//! Invariant: a registry that does not answer never refuses an apply, and never changes an image that was resolved.

use std::collections::{BTreeMap, BTreeSet};

use longshore_agent::{EngineAnswer, EngineQuery, RegistryLogin};
use longshore_api::PullChoice;
use longshore_model::{
    DeploymentName, DeploymentSpec, Driver, NamespaceName, ResolvedImage, ServiceName, ServiceSpec,
    container::{PullPolicy, registry_of},
};
use longshore_store::State;

use crate::{
    lifecycle::node_context::NodeContext,
    node_rpc::{
        engine_query::{self, EngineAnswers},
        service,
    },
};

/// The deployment whose images are resolved.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) namespace: &'a NamespaceName,
    pub(crate) deployment: &'a DeploymentName,
}

impl Target<'_> {
    /// The service in the revision in force, if it names the same image.
    fn previous<'s>(&self, state: &'s State, name: &ServiceName, spec: &ServiceSpec) -> Option<&'s ResolvedImage> {
        let known = state.deployment(self.namespace, self.deployment)?;
        let before = known.current().spec.services.get(name)?;
        before.resolved_image.as_ref().filter(|_| before.container.image == spec.container.image)
    }
}

/// Takes over what the revision in force was resolved to, and asks nobody: for a manifest that is only considered.
pub(crate) fn carry_over(state: &State, target: Target<'_>, spec: &mut DeploymentSpec) {
    for (name, service) in &mut spec.services {
        if let Some(image) = target.previous(state, name, service).cloned() {
            std::sync::Arc::make_mut(service).resolved_image = Some(image);
        }
    }
}

/// Resolves the images of all services, and returns warnings.
pub(crate) async fn resolve(
    ctx: &NodeContext,
    state: &State,
    target: Target<'_>,
    answers: &EngineAnswers,
    spec: &mut DeploymentSpec,
    choice: Option<PullChoice>,
) -> Vec<String> {
    let several_engines = engine_query::has_other_engines(ctx, state);
    let images: Vec<Image<'_>> = spec
        .services
        .iter()
        .filter(|(_, service)| is_resolvable(service))
        .map(|(name, service)| Image {
            service: name.clone(),
            reference: service.container.image.clone(),
            policy: Policy::of(service, choice),
            local: Local::of(&service.container.image, answers),
            previous: target.previous(state, name, service),
            several_engines,
        })
        .collect();
    let registry: BTreeSet<String> =
        images.iter().filter(|image| image.asks_registry()).map(|image| image.reference.clone()).collect();
    let said = ask_registries(ctx, state, registry).await;
    let (mut warnings, mut chosen) = (Vec::new(), BTreeMap::new());
    for image in &images {
        let resolved = image.choose(&said);
        warnings.extend(image.warning(resolved, &said));
        chosen.insert(image.service.clone(), resolved.cloned());
    }
    for (name, resolved) in chosen {
        if let Some(service) = spec.services.get_mut(&name) {
            std::sync::Arc::make_mut(service).resolved_image = resolved;
        }
    }
    warnings
}

/// The images to look up on the engines.
pub(crate) fn references(spec: &DeploymentSpec) -> BTreeSet<String> {
    let resolvable = spec.services.values().filter(|service| is_resolvable(service));
    resolvable.map(|service| service.container.image.clone()).collect()
}

/// A reference with a digest says exactly what runs already.
fn is_resolvable(service: &ServiceSpec) -> bool {
    let image = &service.container.image;
    service.driver == Driver::Docker && !image.is_empty() && !image.contains('@')
}

/// Which source decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// The registry, wherever the image comes from.
    Registry,
    /// The registry, unless the image was built or loaded on a machine.
    RegistryUnlessBuilt,
    /// The engine, and the registry only for what no engine has.
    Engine,
    /// The engine alone.
    EngineOnly,
}

impl Policy {
    fn of(service: &ServiceSpec, choice: Option<PullChoice>) -> Self {
        match (service.container.pull_policy, choice) {
            (Some(PullPolicy::Never), _)
            | (Some(PullPolicy::Missing | PullPolicy::Always) | None, Some(PullChoice::Never)) => Self::EngineOnly,
            (Some(PullPolicy::Missing | PullPolicy::Always) | None, Some(PullChoice::Always))
            | (Some(PullPolicy::Always), Some(PullChoice::Missing) | None) => Self::Registry,
            (Some(PullPolicy::Build), _)
            | (Some(PullPolicy::Missing), Some(PullChoice::Missing) | None)
            | (None, Some(PullChoice::Missing)) => Self::Engine,
            (None, None) => Self::RegistryUnlessBuilt,
        }
    }
}

/// What the engines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Local<'a> {
    Absent,
    /// From a registry: the digest of the engine asked first.
    Pulled(&'a ResolvedImage),
    /// Built or loaded, and the same wherever it is.
    Built(&'a ResolvedImage),
    /// Built or loaded on several machines, each of which has an image of its own. Pinning one would stop the others.
    Differs,
}

impl<'a> Local<'a> {
    fn of(reference: &str, answers: &'a EngineAnswers) -> Self {
        let found = || answers.all().filter_map(|(_, answer)| answer.images.get(reference));
        match (found().find(|image| image.is_pullable()), found().next()) {
            (Some(pulled), _) => Self::Pulled(pulled),
            (None, None) => Self::Absent,
            (None, Some(first)) if found().all(|image| image == first) => Self::Built(first),
            (None, Some(_)) => Self::Differs,
        }
    }

    const fn image(self) -> Option<&'a ResolvedImage> {
        match self {
            Self::Pulled(image) | Self::Built(image) => Some(image),
            Self::Absent | Self::Differs => None,
        }
    }
}

/// One reference, and what is known of it.
struct Image<'a> {
    service: ServiceName,
    reference: String,
    policy: Policy,
    local: Local<'a>,
    previous: Option<&'a ResolvedImage>,
    several_engines: bool,
}

impl<'a> Image<'a> {
    fn is_built(&self) -> bool {
        matches!(self.local, Local::Built(_) | Local::Differs)
    }

    fn asks_registry(&self) -> bool {
        match self.policy {
            Policy::Registry => true,
            Policy::RegistryUnlessBuilt => !self.is_built(),
            Policy::Engine => self.local == Local::Absent && self.previous.is_none(),
            Policy::EngineOnly => false,
        }
    }

    fn choose<'s>(&self, said: &'s EngineAnswer) -> Option<&'s ResolvedImage>
    where
        'a: 's,
    {
        let (registry, previous, local) = (said.registry.get(&self.reference), self.previous, self.local.image());
        // What was built is newer than what ran before.
        if self.is_built() {
            return registry.or(local);
        }
        match self.policy {
            Policy::Registry | Policy::RegistryUnlessBuilt => registry.or(previous).or(local),
            // With one engine its tag is what everything runs. With several, the engine asked may have an older image
            // than the nodes that run the service.
            Policy::Engine | Policy::EngineOnly if self.several_engines => previous.or(local).or(registry),
            Policy::Engine | Policy::EngineOnly => local.or(previous).or(registry),
        }
    }

    fn warning(&self, resolved: Option<&ResolvedImage>, said: &EngineAnswer) -> Option<String> {
        let (service, image) = (&self.service, &self.reference);
        match resolved {
            None if self.local == Local::Differs => Some(format!(
                "warning: service `{service}`: nodes have different images under `{image}`, from no registry, so each runs its \
                 own; push one to a registry that the nodes reach, and name it there"
            )),
            Some(resolved) if !resolved.is_pullable() && self.several_engines => Some(format!(
                "warning: service `{service}`: the image `{image}` comes from no registry, so only nodes that have it can \
                 start it; push it to a registry that the nodes reach, and name it there"
            )),
            Some(_) if self.policy == Policy::Registry => said.registry_errors.get(image).map(|reason| {
                format!(
                    "warning: service `{service}`: the registry of `{image}` was asked and did not say what it has, so the \
                     image known before is used: {reason}"
                )
            }),
            Some(_) | None => None,
        }
    }
}

async fn ask_registries(ctx: &NodeContext, state: &State, registry: BTreeSet<String>) -> EngineAnswer {
    if registry.is_empty() {
        return EngineAnswer::default();
    }
    let hosts: BTreeSet<&str> = registry.iter().map(|reference| registry_of(reference)).collect();
    let logins = hosts.into_iter().filter_map(|host| match service::stored_registry_login(ctx, state, host) {
        Ok(login) => login.map(|(username, password)| (host.to_owned(), RegistryLogin { username, password })),
        Err(error) => {
            tracing::warn!(registry = host, %error, "the login of a registry could not be read");
            None
        }
    });
    let logins: BTreeMap<String, RegistryLogin> = logins.collect();
    let query = EngineQuery { registry, ..EngineQuery::default() };
    engine_query::ask_registries(ctx, state, &query, &logins).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> ResolvedImage {
        ResolvedImage(text.into())
    }

    fn chosen(policy: Policy, local: Option<&str>, previous: Option<&str>, registry: Option<&str>) -> Option<String> {
        let (local, previous) = (local.map(resolved), previous.map(resolved));
        let mut said = EngineAnswer::default();
        said.registry.extend(registry.map(|image| ("web:1".to_owned(), resolved(image))));
        let image = Image {
            service: "web".into(),
            reference: "web:1".to_owned(),
            policy,
            local: match &local {
                Some(image) if image.is_pullable() => Local::Pulled(image),
                Some(image) => Local::Built(image),
                None => Local::Absent,
            },
            previous: previous.as_ref(),
            several_engines: false,
        };
        let said = if image.asks_registry() { said } else { EngineAnswer::default() };
        image.choose(&said).map(ToString::to_string)
    }

    const OLD: Option<&str> = Some("web@sha256:01");
    const NEW: Option<&str> = Some("web@sha256:02");
    const BUILT: Option<&str> = Some("sha256:0b");

    #[test]
    fn a_tag_that_was_pushed_anew_is_noticed_where_the_registry_answers() {
        let policy = Policy::RegistryUnlessBuilt;
        assert_eq!(chosen(policy, OLD, OLD, NEW).as_deref(), NEW);
        assert_eq!(chosen(policy, OLD, OLD, None).as_deref(), OLD);
        assert_eq!(chosen(policy, None, OLD, None).as_deref(), OLD);
        assert_eq!(chosen(policy, None, None, None), None);
    }

    #[test]
    fn a_built_image_needs_no_registry() {
        assert_eq!(chosen(Policy::RegistryUnlessBuilt, BUILT, OLD, NEW).as_deref(), BUILT);
        assert_eq!(chosen(Policy::Engine, BUILT, OLD, NEW).as_deref(), BUILT);
    }

    #[test]
    fn images_that_were_built_on_each_machine_stay_unpinned() {
        let answer = |image: &str| EngineAnswer {
            images: [("web:1".to_owned(), resolved(image))].into(),
            ..EngineAnswer::default()
        };
        let answers = |own: &str, other: &str| EngineAnswers {
            own: Some(("n1".into(), answer(own))),
            others: [("n2".into(), answer(other))].into(),
            silent: Vec::new(),
        };
        let local = |answers: &EngineAnswers| Local::of("web:1", answers).image().map(ToString::to_string);
        assert_eq!(Local::of("web:1", &answers("sha256:0a", "sha256:0b")), Local::Differs);
        assert_eq!(local(&answers("sha256:0a", "sha256:0a")).as_deref(), Some("sha256:0a"));
        assert_eq!(local(&answers("sha256:0a", "web@sha256:01")).as_deref(), OLD);
    }

    #[test]
    fn each_pull_policy_asks_whom_compose_asks() {
        assert_eq!(chosen(Policy::Registry, BUILT, None, NEW).as_deref(), NEW);
        assert_eq!(chosen(Policy::Engine, OLD, None, NEW).as_deref(), OLD);
        assert_eq!(chosen(Policy::Engine, None, None, NEW).as_deref(), NEW);
        assert_eq!(chosen(Policy::EngineOnly, None, None, NEW), None);
    }
}
