//! The overlay: `longshore.yaml`, accepted too as `jaco.yaml`.
//!
//! Owns: its closed schema and its errors. Its settings of a service are resolved with the service.
//! Invariant: an unknown key is an error; nothing in an overlay is ignored silently.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    NodeName, ServiceName,
    service::{Route, RouteTls},
};

use crate::{
    deployment::Decoded,
    diagnostic::{Diagnostics, Location},
    keys::{self, Rule},
    paths,
    service::{Located, Override, longshore::read_strategy},
    suggest,
    yaml::{Key, Node},
};

/// A parsed overlay.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    /// Name of the deployment.
    pub(crate) deployment: Option<Located<String>>,
    /// Its env file, then the only source of variables.
    pub(crate) environment: Option<Located<String>>,
    /// Overrides by service.
    pub(crate) services: BTreeMap<String, (Override, Location)>,
    routes: Vec<RawRoute>,
    plain: bool,
}

#[derive(Debug, Default)]
pub(crate) struct RawRoute {
    domain: Option<Located<String>>,
    path: Option<Located<String>>,
    service: Option<Located<String>>,
    port: Option<u16>,
    tls: Option<RouteTls>,
    strip_path: bool,
}

/// Whether a file is an overlay, by its name.
pub(crate) fn is_overlay(path: &str) -> bool {
    matches!(paths::last(path), "longshore.yaml" | "longshore.yml" | "jaco.yaml" | "jaco.yml")
}

pub(crate) struct OverlayReader<'p> {
    overlay: Overlay,
    problems: &'p mut Diagnostics,
}

type OverlayRead = fn(&mut OverlayReader<'_>, &Key, &Node);

/// Keys of an overlay.
pub(crate) static OVERLAY_KEYS: &[Rule<OverlayRead>] = &[
    Rule::honoured("acme", |r, _, n| r.acme(n), "`on` or `off`: whether routes get certificates unless they say so"),
    Rule::warned("acme_email", "the certificate account is the cluster's; remove the key"),
    Rule::honoured("deployment", |r, k, n| r.overlay.deployment = r.text(k, n), "name of the deployment; required"),
    Rule::honoured(
        "environment",
        |r, k, n| r.overlay.environment = r.text(k, n),
        "file of variables, instead of `.env` and the caller's",
    ),
    Rule::honoured("routes", |r, k, n| r.routes(k, n), "list of routes"),
    Rule::honoured("services", |r, k, n| r.services(k, n), "list of overrides"),
];

type OverrideRead = fn(&mut Override, &mut OverlayReader<'_>, &Key, &Node);

/// Keys of a service in an overlay.
pub(crate) static OVERRIDE_KEYS: &[Rule<OverrideRead>] = &[
    Rule::refused("compose_service", "`name` is the service's name in the Compose file"),
    Rule::honoured("hosts", |o, r, k, n| o.hosts = Some(r.hosts(k, n)), "nodes for `placement: hosts`"),
    Rule::honoured("name", |_, _, _, _| {}, "service of the Compose file"),
    Rule::honoured("networks", |o, r, k, n| o.networks = Some(r.networks(k, n)), "replaces the service's networks"),
    Rule::honoured("placement", |o, r, k, n| o.strategy = r.strategy(k, n), "as in `x-longshore`"),
    Rule::honoured("replicas", |o, r, k, n| o.replicas = r.replicas(k, n), "0 is allowed and keeps the routes"),
];

type RouteRead = fn(&mut RawRoute, &mut OverlayReader<'_>, &Key, &Node);

/// Keys of a route.
pub(crate) static ROUTE_KEYS: &[Rule<RouteRead>] = &[
    Rule::honoured("domain", |o, r, k, n| o.domain = r.text(k, n), "host name of the requests; required"),
    Rule::honoured("path", |o, r, k, n| o.path = r.text(k, n), "prefix; the longest wins, none is all"),
    Rule::honoured("port", |o, r, k, n| o.port = r.port(k, n), "port of the service; required"),
    Rule::honoured("service", |o, r, k, n| o.service = r.text(k, n), "service that answers; required"),
    Rule::honoured("strip_path", |o, r, k, n| o.strip_path = r.flag(k, n), "takes the prefix off"),
    Rule::honoured("tls", |o, r, k, n| o.tls = r.tls(k, n), "`auto` unless said, or `off`"),
];

/// Reads an overlay.
pub(crate) fn read(root: &Node, problems: &mut Diagnostics) -> Overlay {
    let mut reader = OverlayReader { overlay: Overlay::default(), problems };
    let Some(mapping) = reader.problems.mapping(root, "an overlay") else { return reader.overlay };
    reader.refuse_extensions(root, "the overlay");
    for (read, key, node) in keys::dispatch(OVERLAY_KEYS, mapping, "the overlay", reader.problems) {
        read(&mut reader, key, node);
    }
    if reader.overlay.deployment.as_ref().is_none_or(|given| given.value.is_empty()) {
        reader.problems.error(&root.location, "the overlay needs the key `deployment`").hint("name the deployment");
    }
    reader.overlay
}

impl OverlayReader<'_> {
    fn refuse_extensions(&mut self, node: &Node, what: &str) {
        let Some(mapping) = node.as_mapping() else { return };
        for (key, _) in mapping.iter().filter(|(key, _)| key.name.starts_with("x-")) {
            self.problems.error(&key.location, format!("unknown key `{}` in {what}", key.name));
        }
    }

    fn text(&mut self, key: &Key, node: &Node) -> Option<Located<String>> {
        let value = self.problems.text(node, format_args!("`{}`", key.name))?.to_owned();
        Some(Located { value, location: node.location.clone() })
    }

    fn flag(&mut self, key: &Key, node: &Node) -> bool {
        self.problems.boolean(node, format_args!("`{}` of a route", key.name)) == Some(true)
    }

    fn acme(&mut self, node: &Node) {
        self.overlay.plain = self.problems.boolean(node, "`acme`") == Some(false);
    }

    fn services(&mut self, key: &Key, node: &Node) {
        let Some(items) = self.problems.sequence(node, format_args!("`{}`", key.name)) else { return };
        for item in items {
            let what = "a service of the overlay";
            let Some(mapping) = self.problems.mapping(item, what) else { continue };
            self.refuse_extensions(item, what);
            let mut over = Override::default();
            for (read, key, node) in keys::dispatch(OVERRIDE_KEYS, mapping, what, self.problems) {
                read(&mut over, self, key, node);
            }
            let Some(name) = self.problems.required(item, "name", what) else { continue };
            let Some(text) = self.problems.text(name, "`name`") else { continue };
            if self.overlay.services.insert(text.to_owned(), (over, name.location.clone())).is_some() {
                self.problems
                    .error(&name.location, format!("service `{text}` is given twice"))
                    .hint("put all of it into one entry");
            }
        }
    }

    fn replicas(&mut self, key: &Key, node: &Node) -> Option<Located<u32>> {
        let value = self.problems.replicas(node, format_args!("`{}`", key.name))?;
        Some(Located { value, location: node.location.clone() })
    }

    fn strategy(&mut self, key: &Key, node: &Node) -> Option<Located<longshore_model::Strategy>> {
        let value = read_strategy(self.problems, node, format_args!("`{}`", key.name))?;
        Some(Located { value, location: node.location.clone() })
    }

    fn hosts(&mut self, key: &Key, node: &Node) -> Located<BTreeSet<NodeName>> {
        let names = self.problems.texts(node, format_args!("`{}`", key.name));
        Located { value: names.into_iter().map(NodeName::new).collect(), location: node.location.clone() }
    }

    fn networks(&mut self, key: &Key, node: &Node) -> Vec<Located<String>> {
        let Some(items) = self.problems.sequence(node, format_args!("`{}`", key.name)) else { return Vec::new() };
        items.iter().filter_map(|item| self.text(key, item)).collect()
    }

    fn routes(&mut self, key: &Key, node: &Node) {
        let Some(items) = self.problems.sequence(node, format_args!("`{}`", key.name)) else { return };
        for item in items {
            let Some(mapping) = self.problems.mapping(item, "a route") else { continue };
            self.refuse_extensions(item, "a route");
            let mut route = RawRoute::default();
            for (read, key, node) in keys::dispatch(ROUTE_KEYS, mapping, "a route", self.problems) {
                read(&mut route, self, key, node);
            }
            for required in ["domain", "service", "port"] {
                self.problems.required(item, required, "a route");
            }
            self.overlay.routes.push(route);
        }
    }

    fn port(&mut self, _: &Key, node: &Node) -> Option<u16> {
        let port = self.problems.signed(node, "`port` of a route")?;
        let fits = u16::try_from(port).ok().filter(|port| *port > 0);
        if fits.is_none() {
            self.problems.error(&node.location, format!("`port` of a route must be from 1 to 65535, not {port}"));
        }
        fits
    }

    fn tls(&mut self, _: &Key, node: &Node) -> Option<RouteTls> {
        // YAML 1.1 tools turn `off` into a boolean.
        if node.as_text() == Some("false") {
            return Some(RouteTls::Off);
        }
        self.problems.choice(node, "`tls` of a route", &[("auto", RouteTls::Auto), ("off", RouteTls::Off)])
    }
}

impl Overlay {
    /// Overrides by service, without locations.
    pub(crate) fn overrides(&self) -> BTreeMap<String, Override> {
        self.services.iter().map(|(name, (over, _))| (name.clone(), over.clone())).collect()
    }

    /// Adds the routes to the deployment, and refuses references to services that do not exist.
    pub(crate) fn finish(self, decoded: &mut Decoded, problems: &mut Diagnostics) {
        for (name, (_, location)) in &self.services {
            unknown_service(name, location, "the overlay", decoded, problems);
        }
        let default = if self.plain { RouteTls::Off } else { RouteTls::Auto };
        let mut modes: BTreeMap<String, RouteTls> = BTreeMap::new();
        let mut known = BTreeSet::new();
        for raw in self.routes {
            let Some((route, location)) = resolve_route(raw, default, decoded, problems) else { continue };
            if *modes.entry(route.domain.clone()).or_insert(route.tls) != route.tls {
                problems
                    .error(&location, format!("the routes of `{}` mix `tls: auto` and `tls: off`", route.domain))
                    .hint("a domain is served in one way; give all of its routes the same `tls`");
            }
            if !known.insert((route.domain.clone(), route.path.clone())) {
                problems.error(&location, format!("the route `{}{}` is given twice", route.domain, route.path));
            }
            decoded.spec.routes.push(route);
        }
        decoded.spec.routes.sort();
    }
}

fn resolve_route(
    raw: RawRoute,
    default: RouteTls,
    decoded: &Decoded,
    problems: &mut Diagnostics,
) -> Option<(Route, Location)> {
    let (domain, service, port) = (raw.domain?, raw.service?, raw.port?);
    if domain.value.is_empty() || domain.value.contains(['/', ' ', ':']) {
        problems.error(&domain.location, format!("`{}` is not a host name", domain.value));
    }
    if let Some(path) = raw.path.as_ref().filter(|path| !path.value.starts_with('/')) {
        problems.error(&path.location, format!("the path `{}` of a route must begin with `/`", path.value));
    }
    unknown_service(&service.value, &service.location, "a route", decoded, problems);
    let name = ServiceName::from(service.value.as_str());
    let mode = decoded.spec.services.get(&name).and_then(|spec| spec.container.namespaces.network.as_deref());
    if let Some(mode) = mode.filter(|mode| *mode == "none" || mode.starts_with("service:")) {
        problems
            .error(
                &service.location,
                format!("a route cannot reach service `{name}`, which has `network_mode: {mode}`"),
            )
            .hint("remove `network_mode`, or route to the service whose network it shares");
    }
    let path = raw.path.map(|path| path.value).unwrap_or_default();
    let path = if path == "/" { String::new() } else { path };
    let route = Route {
        domain: domain.value,
        path,
        service: name,
        port,
        tls: raw.tls.unwrap_or(default),
        strip_path: raw.strip_path,
    };
    Some((route, domain.location))
}

fn unknown_service(name: &str, location: &Location, what: &str, decoded: &Decoded, problems: &mut Diagnostics) {
    if decoded.spec.services.contains_key(name) {
        return;
    }
    let problem =
        problems.error(location, format!("{what} names the service `{name}`, which the Compose file does not have"));
    if let Some(near) = suggest::nearest(name, decoded.spec.services.keys().map(ServiceName::as_str)) {
        problem.hint(format!("did you mean `{near}`?"));
    }
}
