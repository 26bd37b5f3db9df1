//! Generates `docs/compose.md` from the key tables.
//!
//! Owns: the order and the headings of the page. The rows are those that the readers use.

use std::fmt::Write as _;

use crate::{declarations, deployment, keys, keys::Row, overlay, service};

const INTRODUCTION: &str = "\
# Compose files

How every key is treated. `longshore config -f FILE` prints a file as it was resolved, `longshore validate -f FILE` only
checks it. This page is generated from the tables that the reader uses; do not edit it, run
`cargo run -p longshore-compose --example key_table_doc > docs/compose.md`.

- **honoured**: it does what Compose says.
- **accepted**: it is allowed and has no effect.
- **ignored with a warning**: it has no effect on a cluster.
- **refused**: an error that says what to write instead.

Keys that begin with `x-` are yours everywhere, `x-longshore` excepted. An unknown key is an error.

Also honoured: `${V}`, `$V`, `${V:-d}`, `${V-d}`, `${V:?m}`, `${V?m}`, `${V:+a}`, `${V+a}`, nested, and `$$`; `.env`;
`env_file` with `required` and `format`; `extends` in the same or another file; `include`; several `-f` files laid over
each other; `!reset` and `!override`; anchors and merge keys; profiles. Sizes are binary (`1g` is 1024³ bytes). The files of a
deployment are together at most 4 MiB and 200,000 values large, aliases counted in full, and 64 levels deep.

Precedence: overlay, then `x-longshore`, then `deploy`.
";

/// The text of `docs/compose.md`.
pub fn key_table_doc() -> String {
    let mut out = INTRODUCTION.to_owned();
    for (title, rows) in sections() {
        let _ = write!(out, "\n## {title}\n\n| key | treatment | meaning | since |\n| --- | --- | --- | --- |\n");
        for (key, treatment, explanation, since) in rows {
            let explanation = explanation.replace('|', "\\|");
            let _ = writeln!(out, "| `{key}` | {treatment} | {explanation} | {since} |");
        }
    }
    out
}

fn sections() -> Vec<(&'static str, Vec<Row>)> {
    vec![
        ("Top level", keys::rows(deployment::TOP_KEYS)),
        ("Service", keys::rows(service::SERVICE_KEYS)),
        ("Service: `build`", keys::rows(service::build::BUILD_KEYS)),
        ("Service: `healthcheck`", keys::rows(service::health::HEALTH_KEYS)),
        ("Service: `ports`, long syntax", keys::rows(service::ports::PORT_KEYS)),
        ("Service: `volumes`, long syntax", keys::rows(service::mounts::MOUNT_KEYS)),
        ("Service: `secrets` and `configs`, long syntax", keys::rows(service::files::FILE_MOUNT_KEYS)),
        ("Service: `networks`", keys::rows(service::networks::ATTACHMENT_KEYS)),
        ("Service: `deploy`", keys::rows(service::deploy::DEPLOY_KEYS)),
        ("`deploy.placement`", keys::rows(service::deploy::PLACEMENT_KEYS)),
        ("`deploy.resources`", keys::rows(service::deploy::RESOURCE_KEYS)),
        ("`deploy.resources.limits`", keys::rows(service::deploy::LIMIT_KEYS)),
        ("`deploy.resources.reservations`", keys::rows(service::deploy::RESERVATION_KEYS)),
        ("`deploy.resources.reservations.devices` and `gpus`", keys::rows(service::devices::DEVICE_KEYS)),
        ("`deploy.update_config` and `deploy.rollback_config`", keys::rows(service::deploy::UPDATE_KEYS)),
        ("`deploy.restart_policy`", keys::rows(service::deploy::RESTART_KEYS)),
        ("Service: `x-longshore`", keys::rows(service::longshore::LONGSHORE_KEYS)),
        ("Volume", keys::rows(declarations::VOLUME_KEYS)),
        ("Network", keys::rows(declarations::NETWORK_KEYS)),
        ("Secret and config", keys::rows(declarations::FILE_KEYS)),
        ("Overlay (`longshore.yaml`, also `jaco.yaml`)", keys::rows(overlay::OVERLAY_KEYS)),
        ("Overlay: `services`", keys::rows(overlay::OVERRIDE_KEYS)),
        ("Overlay: `routes`", keys::rows(overlay::ROUTE_KEYS)),
    ]
}
