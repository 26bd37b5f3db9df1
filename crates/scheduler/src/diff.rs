//! The difference between two manifests: per service, with the fields under their manifest names, and the effect.
//!
//! ```text
//! service ─▶ table of `field: value`, each field fixed at the creation of a replica or changeable in place
//!            a fixed field differs ─▶ destructive     only others differ ─▶ in place     none ─▶ unchanged
//! ```
//!
//! Owns: the comparison. Must not touch: the cluster. Whether a replica must move because other nodes are allowed is
//! known only to a plan.
//! Invariant: a change is destructive if and only if the spec hash or the kind differs; a test checks it.

mod container;
mod field_table;
mod service;

use longshore_model::{
    DeploymentSpec, RevisionDiff, ServiceDiff, ServiceSpec,
    service::{NetworkSpec, Route, VolumeSpec},
};

use self::field_table::{FieldTable, changed_fields, snake_case};

/// Compares two manifests of a deployment.
pub fn diff(old: &DeploymentSpec, new: &DeploymentSpec) -> RevisionDiff {
    let names = old.services.keys().chain(new.services.keys());
    let services = names.filter_map(|name| {
        let change = match (old.services.get(name), new.services.get(name)) {
            (None, None) => return None,
            (None, Some(_)) => ServiceDiff::Added,
            (Some(_), None) => ServiceDiff::Removed,
            (Some(old), Some(new)) => service_diff(old, new),
        };
        Some((name.clone(), change))
    });
    RevisionDiff { services: services.collect(), shared: changed_fields(&shared(old), &shared(new)) }
}

fn service_diff(old: &ServiceSpec, new: &ServiceSpec) -> ServiceDiff {
    let fields = changed_fields(&service::fields(old), &service::fields(new));
    if !old.is_same_program(new) {
        ServiceDiff::Destructive(fields)
    } else if fields.is_empty() {
        ServiceDiff::Unchanged
    } else {
        ServiceDiff::InPlace(fields)
    }
}

/// The fields of a deployment outside of its services.
fn shared(spec: &DeploymentSpec) -> FieldTable {
    let DeploymentSpec { services: _, networks, volumes, routes, granted: _ } = spec;
    let mut table = FieldTable::in_place();
    for (key, network) in networks {
        let NetworkSpec { name, driver, options, labels, reach, enable_ipv6 } = network;
        table.under(&format!("networks.{key}"), |table| {
            table.put("name", name).put_some("driver", driver.as_ref()).put_map("driver_opts", options);
            table.put_map("labels", labels).put("reach", snake_case(reach));
            table.put_unless(false, "enable_ipv6", *enable_ipv6);
        });
    }
    for (key, volume) in volumes {
        let VolumeSpec { driver, options, labels, external, engine_name, adopted_on } = volume;
        table.under(&format!("volumes.{key}"), |table| {
            table.put_some("driver", driver.as_ref()).put_map("driver_opts", options).put_map("labels", labels);
            table.put("external", external).put_some("name", engine_name.as_ref());
            table.put_some("adopted_on", adopted_on.as_ref());
        });
    }
    for route in routes {
        let Route { domain, path, service, port, tls, strip_path } = route;
        let tls = snake_case(tls);
        let strip = if *strip_path { ", path stripped" } else { "" };
        table.put(&format!("routes.{domain}{path}"), format!("{service}:{port}, tls {tls}{strip}"));
    }
    table
}
