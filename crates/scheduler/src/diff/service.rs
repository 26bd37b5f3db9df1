//! A service as a table of `field: value`, under the fields' manifest names.
//!
//! Owns: which fields are fixed when a replica is created. Every field is destructured here, so a new one does not
//! compile until it has an entry.

use longshore_model::{
    Effect, PlacementSpec, ServiceKind, ServiceSpec,
    service::{
        Access, AfterExhaustion, Attachment, Batching, Canary, Companion, Dependency, DeviceAffinity, Disconnect,
        EndpointMode, Mount, MountSource, PoolSelector, Port, PortMode, Promotion, Reschedule, Resources,
        RestartPolicy, Strength, UpdatePolicy,
    },
    volume::Sharing,
};

use super::{
    container,
    field_table::{DurationText, FieldTable, bytes, cores, kebab_case, snake_case},
};

pub(super) fn fields(spec: &ServiceSpec) -> FieldTable {
    let ServiceSpec {
        kind,
        container,
        driver,
        resources,
        ports,
        mounts,
        secrets_required,
        networks,
        resolved_image,
        ..
    } = spec;
    let mut table = FieldTable::in_place();
    table.with_effect(Effect::Recreates, |table| {
        table.put("deploy.mode", mode(*kind)).put("x-longshore.driver", driver.as_str());
        table.put_list("x-longshore.secrets_required", secrets_required);
        table.put_some("image (resolved)", resolved_image.as_ref());
        container::fields(container, table);
        self::ports(ports, table);
        for (network, attachment) in networks {
            self::network(network, attachment, table);
        }
    });
    self::resources(resources, &mut table);
    for mount in mounts {
        self::mount(mount, &mut table);
    }
    policies(spec, &mut table);
    table
}

const fn mode(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::Service => "replicated",
        ServiceKind::System => "global",
        ServiceKind::Batch => "replicated-job",
        ServiceKind::Sysbatch => "global-job",
    }
}

/// The fields that do not change a running replica: count, placement and policies.
fn policies(spec: &ServiceSpec, table: &mut FieldTable) {
    let ServiceSpec {
        replicas,
        placement,
        priority,
        update,
        restart,
        rollback,
        canary,
        disconnect,
        reschedule,
        rebalance,
        max_concurrent,
        depends_on,
        endpoint_mode,
        labels,
        kind,
        container: _,
        driver: _,
        resources: _,
        ports: _,
        mounts: _,
        secrets_required: _,
        networks: _,
        spec_hash: _,
        resolved_image: _,
        one_off: _,
    } = spec;
    if !kind.is_per_node() {
        table.put("deploy.replicas", replicas);
    }
    table.put_map("deploy.labels", labels).put("x-longshore.priority", priority);
    if *endpoint_mode == EndpointMode::Dnsrr {
        table.put("deploy.endpoint_mode", "dnsrr");
    }
    self::placement(placement, table);
    policy("deploy.update_config", update, table);
    table.put_some("x-longshore.step_timeout", update.step_timeout.map(DurationText));
    table.put_some("x-longshore.surge", update.surge);
    if let Some(rollback) = rollback {
        policy("deploy.rollback_config", rollback, table);
        table.put_some("deploy.rollback_config.step_timeout", rollback.step_timeout.map(DurationText));
    }
    self::restart(restart, table);
    let Canary { count, promotion } = canary;
    table.put_unless(0, "x-longshore.canary", *count);
    table.put_unless(false, "x-longshore.auto_promote", *promotion == Promotion::Automatic);
    self::disconnect(disconnect, table);
    if let Some(reschedule) = reschedule {
        self::reschedule(reschedule, table);
    }
    table.put("x-longshore.rebalance", kebab_case(rebalance)).put_some("x-longshore.max_concurrent", *max_concurrent);
    for (service, Dependency { condition, restart, required }) in depends_on {
        table.under(&format!("depends_on.{service}"), |table| {
            table.put("condition", snake_case(condition)).put_unless(false, "restart", *restart);
            table.put_unless(true, "required", *required);
        });
    }
}

/// Limits are fixed at creation too: a changed limit is rolled out in new replicas.
fn resources(resources: &Resources, table: &mut FieldTable) {
    let Resources {
        cpu_limit_millis,
        cpu_reservation_millis,
        memory_limit_bytes,
        memory_reservation_bytes,
        devices,
        device_requests,
    } = resources;
    table.with_effect(Effect::Recreates, |table| {
        table.under("deploy.resources", |table| {
            table
                .put_some("limits.cpus", cores(*cpu_limit_millis))
                .put_some("limits.memory", bytes(*memory_limit_bytes));
            table.put_some("reservations.cpus", cores(*cpu_reservation_millis));
            table.put_some("reservations.memory", bytes(*memory_reservation_bytes));
            table.put_map("reservations.generic_resources", devices);
        });
        let asked = device_requests.iter().map(|request| format!("{} × {request}", request.count));
        table.put_list("x-longshore.devices", asked);
    });
    // Device affinities only affect placement.
    let like = |like: &DeviceAffinity| format!("{} ({})", like.matches, like.weight);
    for (at, request) in device_requests.iter().enumerate() {
        let field = format!("x-longshore.devices.{at}.{}.affinities", request.id());
        table.put_list(&field, request.affinities.iter().map(like));
    }
}

/// The order of ports in the manifest is not significant.
fn ports(ports: &[Port], table: &mut FieldTable) {
    let mut ports = ports.to_vec();
    ports.sort();
    ports.dedup();
    let port = |port: &Port| {
        let Port { target, published, protocol, mode, host_ip } = port;
        let ip = host_ip.map(|ip| format!("{ip}:")).unwrap_or_default();
        let published = published.map(|port| format!("{port}:")).unwrap_or_default();
        let mode = match mode {
            PortMode::Ingress => "",
            PortMode::Host => " on the node",
        };
        format!("{ip}{published}{target}/{}{mode}", protocol.as_str())
    };
    table.put_list("ports", ports.iter().map(port));
}

fn mount(mount: &Mount, table: &mut FieldTable) {
    let Mount { source, target, access, options } = mount;
    table.under(&format!("volumes.{target}"), |table| {
        table.with_effect(Effect::Recreates, |table| {
            match source {
                MountSource::Volume { key, driver, .. } => {
                    table.put("source", &key.name).put("namespace", &key.namespace).put_some("driver", driver.as_ref());
                }
                MountSource::Bind(path) => _ = table.put("bind", path),
                MountSource::Tmpfs => _ = table.put("type", "tmpfs"),
                MountSource::Anonymous => _ = table.put("type", "anonymous"),
            }
            table.put_unless(false, "read_only", *access == Access::ReadOnly).put_map("options", options);
        });
        // Volume sharing only affects placement; the container does not change.
        if let MountSource::Volume { sharing: Sharing::Exclusive, .. } = source {
            table.put("exclusive", true);
        }
    });
}

fn network(key: &str, attachment: &Attachment, table: &mut FieldTable) {
    let Attachment { aliases, priority, options } = attachment;
    table.under(&format!("networks.{key}"), |table| {
        table.put("priority", priority).put_list("aliases", aliases).put_map("driver_opts", options);
    });
}

fn placement(placement: &PlacementSpec, table: &mut FieldTable) {
    let PlacementSpec {
        strategy,
        hosts,
        pool,
        constraints,
        preferences,
        max_replicas_per_node,
        platforms,
        plugins,
        affinities,
        spread_targets,
        distinct_hosts,
        distinct_property,
        near,
        away_from,
        max_skew,
        batching,
    } = placement;
    table.under("deploy.placement", |table| {
        table.put_list("constraints", constraints).put_list("preferences", preferences);
        table.put_some("max_replicas_per_node", *max_replicas_per_node);
    });
    let platform = |platform: &longshore_model::Platform| format!("{}/{}", platform.os, platform.arch);
    table.put_list("platform", platforms.iter().map(platform));
    table.under("x-longshore", |table| {
        table.put("placement", strategy.as_str()).put_list("hosts", hosts).put_list("plugins", plugins);
        match pool {
            PoolSelector::Default => {}
            PoolSelector::All => _ = table.put("pool", "all"),
            PoolSelector::Named(name) => _ = table.put("pool", format!("`{name}`")),
        }
        table.put_list("affinities", affinities.iter().map(|like| format!("{} ({})", like.matches, like.weight)));
        let target = |target: &longshore_model::service::SpreadTarget| {
            format!("{} ({}) {:?}", target.over, target.weight, target.percent)
        };
        table.put_list("spread", spread_targets.iter().map(target));
        table.put_unless(false, "distinct_hosts", *distinct_hosts);
        let rule = distinct_property.iter().map(|rule| format!("{} at most {}", rule.attribute, rule.limit));
        table.put_list("distinct_property", rule);
        table.put_list("near", near.iter().map(companion)).put_list("away_from", away_from.iter().map(companion));
        table.put_some("max_skew", *max_skew);
        table.put_unless(false, "all_or_nothing", *batching == Batching::AllOrNothing);
    });
}

fn companion(companion: &Companion) -> String {
    match companion.strength {
        Strength::Hard => companion.service.to_string(),
        Strength::Preferred(weight) => format!("{} ({weight})", companion.service),
    }
}

fn policy(key: &str, policy: &UpdatePolicy, table: &mut FieldTable) {
    let UpdatePolicy {
        parallelism,
        delay,
        order,
        monitor,
        failure_action,
        max_failure_ratio_millionths: ratio,
        step_timeout: _,
        surge: _,
    } = policy;
    table.under(key, |table| {
        table
            .put("parallelism", parallelism.unwrap_or(1))
            .put("delay", DurationText(*delay))
            .put("monitor", DurationText(*monitor));
        table.put_some("order", order.map(kebab_case)).put("failure_action", snake_case(failure_action));
        table.put("max_failure_ratio", format!("{}.{:06}", ratio / 1_000_000, ratio % 1_000_000));
    });
}

fn restart(policy: &RestartPolicy, table: &mut FieldTable) {
    let RestartPolicy { condition, delay, max_attempts, window, after_exhaustion } = policy;
    table.under("deploy.restart_policy", |table| {
        table.put("condition", kebab_case(condition)).put_some("delay", delay.map(DurationText));
        // Manifests count restarts, the scheduler counts failures; 0 in a manifest is unlimited.
        let restarts = |failures: u32| if failures == u32::MAX { 0 } else { failures.saturating_sub(1) };
        table.put_some("max_attempts", max_attempts.map(restarts)).put_some("window", window.map(DurationText));
    });
    if *after_exhaustion == AfterExhaustion::Return {
        table.put("restart", "always");
    }
}

fn disconnect(policy: &Disconnect, table: &mut FieldTable) {
    let Disconnect { lost_after, replace, reconcile } = policy;
    table.under("x-longshore.disconnect", |table| {
        table.put_some("lost_after", lost_after.map(DurationText)).put("replace", snake_case(replace));
        table.put("reconcile", snake_case(reconcile));
    });
}

fn reschedule(policy: &Reschedule, table: &mut FieldTable) {
    let Reschedule { attempts, interval, delay, delay_function, max_delay } = policy;
    table.under("x-longshore.reschedule", |table| {
        table.put("attempts", attempts.map_or_else(|| "unlimited".to_owned(), |count| count.to_string()));
        table.put("interval", DurationText(*interval)).put("delay", DurationText(*delay));
        table.put("delay_function", snake_case(delay_function)).put("max_delay", DurationText(*max_delay));
    });
}
