//! What one manifest changes of another: per service, with the fields in a manifest's own words, and at what cost.
//!
//! ```text
//! service ─▶ two sheets of `field: value`: what is fixed when a replica is made, and the rest
//!            another line on the first ─▶ destructive     only on the second ─▶ in place     none ─▶ unchanged
//! ```
//!
//! Owns: the comparison. Must not touch: the cluster. Whether a replica has to move because other nodes are allowed now
//! only a plan can say.
//! Invariant: destructive is what has another spec hash, or is of another kind; a test holds the sheets to that.

mod container;
mod service;
mod sheet;

use longshore_model::{
    DeploymentSpec, RevisionDiff, ServiceDiff, ServiceSpec,
    service::{NetworkSpec, Route, VolumeSpec},
};

use self::sheet::{Sheet, compared, word};

/// Compares two manifests of a deployment.
pub fn diff(old: &DeploymentSpec, new: &DeploymentSpec) -> RevisionDiff {
    let names = old.services.keys().chain(new.services.keys());
    let services = names.filter_map(|name| {
        let fate = match (old.services.get(name), new.services.get(name)) {
            (None, None) => return None,
            (None, Some(_)) => ServiceDiff::Added,
            (Some(_), None) => ServiceDiff::Removed,
            (Some(old), Some(new)) => service_diff(old, new),
        };
        Some((name.clone(), fate))
    });
    RevisionDiff { services: services.collect(), shared: compared(&shared(old), &shared(new)) }
}

fn service_diff(old: &ServiceSpec, new: &ServiceSpec) -> ServiceDiff {
    let fields = compared(&service::sheet(old), &service::sheet(new));
    if !old.is_same_program(new) {
        ServiceDiff::Destructive(fields)
    } else if fields.is_empty() {
        ServiceDiff::Unchanged
    } else {
        ServiceDiff::InPlace(fields)
    }
}

/// What a deployment says outside of its services.
fn shared(spec: &DeploymentSpec) -> Sheet {
    let DeploymentSpec { services: _, networks, volumes, routes } = spec;
    let mut sheet = Sheet::in_place();
    for (key, network) in networks {
        let NetworkSpec { name, driver, options, labels, reach } = network;
        sheet.under(&format!("networks.{key}"), |sheet| {
            sheet.put("name", name).maybe("driver", driver.as_ref()).each("driver_opts", options);
            sheet.each("labels", labels).put("reach", word(reach));
        });
    }
    for (key, volume) in volumes {
        let VolumeSpec { driver, options, labels, external } = volume;
        sheet.under(&format!("volumes.{key}"), |sheet| {
            sheet.maybe("driver", driver.as_ref()).each("driver_opts", options).each("labels", labels);
            sheet.put("external", external);
        });
    }
    for route in routes {
        let Route { domain, path, service, port, tls, strip_path } = route;
        let tls = word(tls);
        let strip = if *strip_path { ", path stripped" } else { "" };
        sheet.put(&format!("routes.{domain}{path}"), format!("{service}:{port}, tls {tls}{strip}"));
    }
    sheet
}
