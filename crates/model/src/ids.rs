//! Newtype ids. A name or number of one kind cannot be passed where another is expected.
//!
//! Owns: representation, order and printing of ids.
//! Must not touch: what the id refers to.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! name_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Wraps a name; cloning it later is a reference count, not a copy.
            pub fn new(name: impl Into<std::sync::Arc<str>>) -> Self {
                Self(name.into())
            }

            /// The bare text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self(name.into())
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    )*};
}
pub(crate) use name_ids;

macro_rules! number_ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    )*};
}

name_ids! {
    /// A machine. Unique and immutable; the last tie-break of every decision.
    NodeName;
    /// Scopes names, tokens and quotas.
    NamespaceName;
    /// What one `apply` of one manifest makes.
    DeploymentName;
    /// One service of a deployment.
    ServiceName;
    /// A named volume, as the container engine knows it.
    VolumeName;
    /// A secret or config object of a namespace.
    SecretName;
    /// A set of nodes that only services naming it may use.
    PoolName;
}

number_ids! {
    /// Joining order of a node, never reused; determines its address range.
    NodeNumber(u32);
    /// Position of a replica in its service, from a counter that never goes back.
    SlotIndex(u32);
    /// One decision about a slot, counted from 1; 0 means never placed.
    Generation(u32);
    /// One start of a generation, counted from 0.
    Attempt(u32);
    /// One accepted manifest of a deployment, counted from 1.
    RevisionNumber(u64);
    /// One rollout of a deployment, counted from 1.
    RolloutNumber(u64);
    /// Number of commands the state machine has applied.
    StateIndex(u64);
    /// A member of the control plane, voter or learner; never reused, so that no vote can be cast twice.
    MemberId(u64);
}

impl NamespaceName {
    /// The namespace of everything that names none.
    pub fn default_namespace() -> Self {
        Self::from("default")
    }
}

impl PoolName {
    /// The pool of nodes and services that name none.
    pub fn default_pool() -> Self {
        Self::from("default")
    }
}

/// A service of a deployment of a namespace: the unit that is scaled, spread and rolled out together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupKey {
    /// Scope of the names below.
    pub namespace: NamespaceName,
    /// The deployment.
    pub deployment: DeploymentName,
    /// The service in it.
    pub service: ServiceName,
}

impl GroupKey {
    /// Another service of the same deployment.
    pub fn sibling(&self, service: &ServiceName) -> Self {
        Self { service: service.clone(), ..self.clone() }
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.as_str() != "default" {
            write!(f, "{}.", self.namespace)?;
        }
        write!(f, "{}-{}", self.deployment, self.service)
    }
}

/// Which replica of a group: by counter, or by node for a global service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotKey {
    /// By counter, never reused.
    Index(SlotIndex),
    /// By node, for a global service.
    Node(NodeName),
}

impl SlotKey {
    /// The replica's id in the API and in tables, `<deployment>-<service>-<index or node>`.
    pub fn replica_id(&self, group: &GroupKey) -> String {
        match self {
            Self::Index(index) => format!("{group}-{index}"),
            Self::Node(node) => format!("{group}-{node}"),
        }
    }
}

/// A volume of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeKey {
    /// Scope of the name.
    pub namespace: NamespaceName,
    /// `<deployment>_<key>`, or the explicit name.
    pub name: VolumeName,
}

impl VolumeKey {
    /// The name in the engine of a volume that the manifest does not name: `longshore_<deployment>_<key>`, with
    /// `<namespace>.` before the deployment unless it is `default`.
    pub fn generated_engine_name(&self) -> String {
        if self.namespace.as_str() == "default" {
            format!("longshore_{}", self.name)
        } else {
            format!("longshore_{}.{}", self.namespace, self.name)
        }
    }
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}
