//! The `OpenAPI` 3.1 description of the public API.
//!
//! Owns: turning the lists of routes and schemas into that format. Tests compare the lists with the routes and with
//! real answers, so that neither changes without the other.
//! Must not touch: requests.

mod routes;
mod schemas;

use axum::Json;
use serde_json::{Map, Value, json};

use crate::api::openapi::{
    routes::{ROUTES, Route},
    schemas::SCHEMAS,
};

pub(crate) async fn describe() -> Json<Value> {
    Json(document())
}

fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = operation(route);
    }
    let schemas: Map<String, Value> = SCHEMAS.iter().map(|(name, shape)| ((*name).to_owned(), object(shape))).collect();
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Longshore", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let Route { path, who, does, query, takes, gives, .. } = route;
    let media = if gives.is_empty() { "text/plain" } else { "application/json" };
    let schema = if gives.is_empty() { json!({ "type": "string" }) } else { kind(gives) };
    let refused = json!({ "application/json": { "schema": kind("Envelope") } });
    let mut operation = json!({
        "summary": does,
        "description": format!("For {who}."),
        "security": if *who == "anyone" { json!([]) } else { json!([{ "token": [] }]) },
        "parameters": parameters(path, query),
        "responses": {
            "200": { "description": "Done.", "content": { media: { "schema": schema } } },
            "default": { "description": "Refused.", "content": refused },
        },
    });
    if !takes.is_empty() {
        operation["requestBody"] = json!({ "content": { "application/json": { "schema": kind(takes) } } });
    }
    operation
}

fn parameters(path: &str, query: &[&str]) -> Vec<Value> {
    let one = |place: &str, name: &str| {
        let required = place == "path";
        json!({ "name": name, "in": place, "required": required, "schema": { "type": "string" } })
    };
    let named = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    named.map(|name| one("path", name)).chain(query.iter().map(|name| one("query", name))).collect()
}

/// A schema from `name: type, name: type`; a question mark after the type means optional.
fn object(shape: &str) -> Value {
    if let Some(words) = shape.strip_prefix("one of ") {
        return json!({ "type": "string", "enum": words.split(' ').collect::<Vec<_>>() });
    }
    let fields = || shape.split(", ").filter_map(|field| field.split_once(": "));
    let properties: Map<String, Value> = fields().map(|(name, what)| (name.to_owned(), kind(what))).collect();
    let required: Vec<&str> = fields().filter(|(_, what)| !what.ends_with('?')).map(|(name, _)| name).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

fn kind(what: &str) -> Value {
    if let Some(what) = what.strip_suffix('?') {
        return json!({ "anyOf": [kind(what), { "type": "null" }] });
    }
    let inside = |open, close| what.strip_prefix(open).and_then(|what: &str| what.strip_suffix(close));
    if let Some(item) = inside('[', ']') {
        return json!({ "type": "array", "items": kind(item) });
    }
    if let Some(value) = inside('{', '}') {
        return json!({ "type": "object", "additionalProperties": kind(value) });
    }
    match what {
        "string" | "integer" | "boolean" => json!({ "type": what }),
        "anything" => json!({}),
        shape => json!({ "$ref": format!("#/components/schemas/{shape}") }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The routes in the router's source: a router cannot be asked for its routes.
    fn routed() -> BTreeSet<(String, String)> {
        let source: String = include_str!("../api.rs").split_whitespace().collect();
        let methods = ["get(", "post(", "put(", "delete("];
        let mut found = BTreeSet::new();
        for route in source.split(".route(\"").skip(1) {
            let (path, rest) = route.split_once('"').unwrap();
            let handlers = rest.split(".route_layer").next().unwrap();
            for method in methods {
                if handlers.contains(&format!(",{method}")) || handlers.contains(&format!(").{method}")) {
                    found.insert((method.trim_end_matches('(').to_uppercase(), path.to_owned()));
                }
            }
        }
        found
    }

    #[test]
    fn every_route_is_described_and_nothing_else_is() {
        let described: BTreeSet<(String, String)> =
            ROUTES.iter().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
        assert_eq!(routed(), described);
        assert_eq!(described.len(), ROUTES.len(), "a route is described twice");
    }

    #[test]
    fn every_referenced_schema_is_described() {
        let known: BTreeSet<&str> = SCHEMAS.iter().map(|(name, _)| *name).collect();
        assert_eq!(known.len(), SCHEMAS.len());
        let text = document().to_string();
        for referred in text.split("#/components/schemas/").skip(1) {
            let name = referred.split('"').next().unwrap();
            assert!(known.contains(name), "`{name}` is not described");
        }
    }
}
