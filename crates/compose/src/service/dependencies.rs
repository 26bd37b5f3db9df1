//! `depends_on` and `links`: dependencies on other services.

use longshore_model::{
    ServiceName,
    service::{Dependency, DependencyCondition},
};

use super::ServiceReader;
use crate::{
    reader::Extensions,
    yaml::{Key, Node, Value},
};

const CONDITIONS: [(&str, DependencyCondition); 3] = [
    ("service_started", DependencyCondition::ServiceStarted),
    ("service_healthy", DependencyCondition::ServiceHealthy),
    ("service_completed_successfully", DependencyCondition::ServiceCompletedSuccessfully),
];

const PLAIN: Dependency = Dependency { condition: DependencyCondition::ServiceStarted, restart: false, required: true };

/// The dependency implied by sharing another service's network, as in Compose.
pub(super) const SHARED: Dependency =
    Dependency { condition: DependencyCondition::ServiceStarted, restart: true, required: true };

impl ServiceReader<'_> {
    pub(super) fn depends_on(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        match &node.value {
            Value::Sequence(items) => {
                for item in items {
                    if let Some(service) = self.problems.text(item, format_args!("an entry of {what}")) {
                        self.refer("depends_on", service, &item.location);
                        self.spec.depends_on.insert(service.into(), PLAIN);
                    }
                }
            }
            Value::Mapping(mapping) => {
                for (service, node) in mapping.iter() {
                    let dependency = self.dependency(node, &format!("`{}` in {what}", service.name));
                    if dependency.required {
                        self.refer("depends_on", &service.name, &service.location);
                    }
                    self.spec.depends_on.insert(ServiceName::new(service.name.clone()), dependency);
                }
            }
            Value::Scalar(scalar) if scalar.is_null() => {}
            Value::Scalar(_) => self.problems.wrong_shape(node, what, "a list or a mapping of services"),
        }
    }

    fn dependency(&mut self, node: &Node, what: &str) -> Dependency {
        let mut dependency = PLAIN;
        if node.is_null() {
            return dependency;
        }
        let Some(mapping) = self.problems.mapping(node, what) else { return dependency };
        self.problems.known_keys(mapping, what, &["condition", "restart", "required"], Extensions::Allowed);
        for (key, node) in mapping.iter() {
            let what = format!("`{}` of {what}", key.name);
            match &*key.name {
                "condition" => {
                    dependency.condition = self.problems.choice(node, what, &CONDITIONS).unwrap_or_default();
                }
                "restart" => dependency.restart = self.problems.boolean(node, what) == Some(true),
                "required" => dependency.required = self.problems.boolean(node, what) != Some(false),
                _ => {}
            }
        }
        dependency
    }

    /// A link implies `service_started`, unless `depends_on` names the service.
    pub(super) fn depends_on_link(&mut self, service: &str, item: &Node) {
        self.refer("links", service, &item.location);
        self.spec.depends_on.entry(service.into()).or_insert(PLAIN);
    }
}
