//! A service as lines of `field: value`, by the names manifests have for them.
//!
//! Owns: which fields are fixed when a replica is made. Every field is named here, so a new one does not compile until it
//! has its line.

use longshore_model::{
    Effect, PlacementSpec, ServiceKind, ServiceSpec,
    service::{
        Access, Attachment, Batching, Canary, Companion, Dependency, DeviceAffinity, Disconnect, DistinctHosts, Mount,
        MountSource, PoolWanted, Port, PortMode, Promotion, Reschedule, Resources, RestartPolicy, Strength,
        UpdatePolicy,
    },
    volume::Sharing,
};

use super::{
    container,
    sheet::{Lasting, Sheet, bytes, cores, hyphenated, word},
};

pub(super) fn sheet(spec: &ServiceSpec) -> Sheet {
    let ServiceSpec { kind, container, driver, resources, ports, mounts, secrets_required, networks, .. } = spec;
    let mut sheet = Sheet::in_place();
    sheet.with(Effect::Recreates, |sheet| {
        sheet.put("deploy.mode", mode(*kind)).put("x-longshore.driver", driver.as_str());
        sheet.list("x-longshore.secrets_required", secrets_required);
        container::lines(container, sheet);
        self::ports(ports, sheet);
        for (network, attachment) in networks {
            self::network(network, attachment, sheet);
        }
    });
    self::resources(resources, &mut sheet);
    for mount in mounts {
        self::mount(mount, &mut sheet);
    }
    wishes(spec, &mut sheet);
    sheet
}

const fn mode(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::Service => "replicated",
        ServiceKind::System => "global",
        ServiceKind::Batch => "replicated-job",
        ServiceKind::Sysbatch => "global-job",
    }
}

/// What is wanted of a service beyond what each of its replicas is.
fn wishes(spec: &ServiceSpec, sheet: &mut Sheet) {
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
    } = spec;
    if !kind.is_per_node() {
        sheet.put("deploy.replicas", replicas);
    }
    sheet.each("deploy.labels", labels).put("x-longshore.priority", priority);
    self::placement(placement, sheet);
    policy("deploy.update_config", update, sheet);
    sheet.maybe("x-longshore.step_timeout", update.step_timeout.map(Lasting));
    if let Some(rollback) = rollback {
        policy("deploy.rollback_config", rollback, sheet);
        sheet.maybe("deploy.rollback_config.step_timeout", rollback.step_timeout.map(Lasting));
    }
    self::restart(restart, sheet);
    let Canary { count, promotion } = canary;
    sheet.unless(0, "x-longshore.canary", *count);
    sheet.unless(false, "x-longshore.auto_promote", *promotion == Promotion::Automatic);
    self::disconnect(disconnect, sheet);
    if let Some(reschedule) = reschedule {
        self::reschedule(reschedule, sheet);
    }
    sheet.put("x-longshore.rebalance", hyphenated(rebalance)).maybe("x-longshore.max_concurrent", *max_concurrent);
    for (service, Dependency { condition, restart, required }) in depends_on {
        sheet.under(&format!("depends_on.{service}"), |sheet| {
            sheet.put("condition", word(condition)).unless(false, "restart", *restart);
            sheet.unless(true, "required", *required);
        });
    }
}

/// Limits are fixed too: a new one proves itself in a new replica before the old one goes.
fn resources(resources: &Resources, sheet: &mut Sheet) {
    let Resources {
        cpu_limit_millis,
        cpu_reservation_millis,
        memory_limit_bytes,
        memory_reservation_bytes,
        devices,
        device_requests,
    } = resources;
    sheet.with(Effect::Recreates, |sheet| {
        sheet.under("deploy.resources", |sheet| {
            sheet.maybe("limits.cpus", cores(*cpu_limit_millis)).maybe("limits.memory", bytes(*memory_limit_bytes));
            sheet.maybe("reservations.cpus", cores(*cpu_reservation_millis));
            sheet.maybe("reservations.memory", bytes(*memory_reservation_bytes));
            sheet.each("reservations.generic_resources", devices);
        });
        let asked = device_requests.iter().map(|request| format!("{} × {request}", request.count));
        sheet.list("x-longshore.devices", asked);
    });
    // Which devices are liked is a matter of placement.
    let like = |like: &DeviceAffinity| format!("{} ({})", like.matches, like.weight);
    for (at, request) in device_requests.iter().enumerate() {
        let field = format!("x-longshore.devices.{at}.{}.affinities", request.id());
        sheet.list(&field, request.affinities.iter().map(like));
    }
}

/// The order they are written in means nothing.
fn ports(ports: &[Port], sheet: &mut Sheet) {
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
    sheet.list("ports", ports.iter().map(port));
}

fn mount(mount: &Mount, sheet: &mut Sheet) {
    let Mount { source, target, access, options } = mount;
    sheet.under(&format!("volumes.{target}"), |sheet| {
        sheet.with(Effect::Recreates, |sheet| {
            match source {
                MountSource::Volume { key, driver, .. } => {
                    sheet.put("source", &key.name).put("namespace", &key.namespace).maybe("driver", driver.as_ref());
                }
                MountSource::Bind(path) => _ = sheet.put("bind", path),
                MountSource::Tmpfs => _ = sheet.put("type", "tmpfs"),
                MountSource::Anonymous => _ = sheet.put("type", "anonymous"),
            }
            sheet.unless(false, "read_only", *access == Access::ReadOnly).each("options", options);
        });
        // Who may share a volume is decided when replicas are placed; the container does not change with it.
        if let MountSource::Volume { sharing: Sharing::Exclusive, .. } = source {
            sheet.put("exclusive", true);
        }
    });
}

fn network(key: &str, attachment: &Attachment, sheet: &mut Sheet) {
    let Attachment { aliases, priority, options } = attachment;
    sheet.under(&format!("networks.{key}"), |sheet| {
        sheet.put("priority", priority).list("aliases", aliases).each("driver_opts", options);
    });
}

fn placement(placement: &PlacementSpec, sheet: &mut Sheet) {
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
    sheet.under("deploy.placement", |sheet| {
        sheet.list("constraints", constraints).list("preferences", preferences);
        sheet.maybe("max_replicas_per_node", *max_replicas_per_node);
    });
    let platform = |platform: &longshore_model::Platform| format!("{}/{}", platform.os, platform.arch);
    sheet.list("platform", platforms.iter().map(platform));
    sheet.under("x-longshore", |sheet| {
        sheet.put("placement", strategy.as_str()).list("hosts", hosts).list("plugins", plugins);
        match pool {
            PoolWanted::Default => {}
            PoolWanted::All => _ = sheet.put("pool", "all"),
            PoolWanted::Named(name) => _ = sheet.put("pool", format!("`{name}`")),
        }
        sheet.list("affinities", affinities.iter().map(|like| format!("{} ({})", like.matches, like.weight)));
        let target = |target: &longshore_model::service::SpreadTarget| {
            format!("{} ({}) {:?}", target.over, target.weight, target.percent)
        };
        sheet.list("spread", spread_targets.iter().map(target));
        sheet.unless(false, "distinct_hosts", *distinct_hosts == DistinctHosts::Yes);
        let rule = distinct_property.iter().map(|rule| format!("{} at most {}", rule.attribute, rule.limit));
        sheet.list("distinct_property", rule);
        sheet.list("near", near.iter().map(companion)).list("away_from", away_from.iter().map(companion));
        sheet.maybe("max_skew", *max_skew);
        sheet.unless(false, "all_or_nothing", *batching == Batching::AllOrNothing);
    });
}

fn companion(companion: &Companion) -> String {
    match companion.strength {
        Strength::Hard => companion.service.to_string(),
        Strength::Preferred(weight) => format!("{} ({weight})", companion.service),
    }
}

fn policy(key: &str, policy: &UpdatePolicy, sheet: &mut Sheet) {
    let UpdatePolicy {
        parallelism,
        delay,
        order,
        monitor,
        failure_action,
        max_failure_ratio_millionths: ratio,
        step_timeout: _,
    } = policy;
    sheet.under(key, |sheet| {
        sheet.put("parallelism", parallelism).put("delay", Lasting(*delay)).put("monitor", Lasting(*monitor));
        sheet.maybe("order", order.map(hyphenated)).put("failure_action", word(failure_action));
        sheet.put("max_failure_ratio", format!("{}.{:06}", ratio / 1_000_000, ratio % 1_000_000));
    });
}

fn restart(policy: &RestartPolicy, sheet: &mut Sheet) {
    let RestartPolicy { condition, delay, max_attempts, window } = policy;
    sheet.under("deploy.restart_policy", |sheet| {
        sheet.put("condition", hyphenated(condition)).maybe("delay", delay.map(Lasting));
        // Manifests count restarts, the scheduler failures; 0 is as many as it takes.
        let restarts = |failures: u32| if failures == u32::MAX { 0 } else { failures.saturating_sub(1) };
        sheet.maybe("max_attempts", max_attempts.map(restarts)).maybe("window", window.map(Lasting));
    });
}

fn disconnect(policy: &Disconnect, sheet: &mut Sheet) {
    let Disconnect { lost_after, replace, reconcile } = policy;
    sheet.under("x-longshore.disconnect", |sheet| {
        sheet.maybe("lost_after", lost_after.map(Lasting)).put("replace", word(replace));
        sheet.put("reconcile", word(reconcile));
    });
}

fn reschedule(policy: &Reschedule, sheet: &mut Sheet) {
    let Reschedule { attempts, interval, delay, delay_function, max_delay } = policy;
    sheet.under("x-longshore.reschedule", |sheet| {
        sheet.put("attempts", attempts.map_or_else(|| "unlimited".to_owned(), |count| count.to_string()));
        sheet.put("interval", Lasting(*interval)).put("delay", Lasting(*delay));
        sheet.put("delay_function", word(delay_function)).put("max_delay", Lasting(*max_delay));
    });
}
