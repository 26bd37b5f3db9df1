//! The fields that are fixed when a container or process is created, under their Compose names.
//!
//! Owns: one entry for every field of a container's spec. Every field is destructured here, so a new one does not
//! compile until it has an entry.

use std::fmt::Write as _;

use longshore_model::container::{
    ContainerSpec, EngineDeviceRequest, FileKind, FileMount, Healthcheck, Hook, Limits, Namespaces, PullPolicy,
    Resolver, Security,
};

use super::field_table::{DurationText, FieldTable, bytes, quoted, snake_case};

pub(super) fn fields(spec: &ContainerSpec, table: &mut FieldTable) {
    program(spec, table);
    let ContainerSpec { security, namespaces, resolver, limits, devices, device_requests, files, .. } = spec;
    self::security(security, table);
    self::namespaces(namespaces, table);
    self::resolver(resolver, table);
    self::limits(limits, table);
    table.put_list("devices", devices);
    table.put_list("deploy.resources.reservations.devices", device_requests.iter().map(device_request));
    for file in files {
        self::file(file, table);
    }
}

fn program(spec: &ContainerSpec, table: &mut FieldTable) {
    let ContainerSpec {
        image,
        command,
        entrypoint,
        environment,
        labels,
        healthcheck,
        stop_signal,
        stop_grace_period,
        log_driver,
        log_options,
        annotations,
        user,
        groups,
        working_dir,
        hostname,
        domainname,
        switches,
        runtime,
        pull_policy,
        post_start,
        pre_stop,
        security: _,
        namespaces: _,
        resolver: _,
        limits: _,
        devices: _,
        device_requests: _,
        files: _,
    } = spec;
    table.put("image", image);
    // An empty command removes the image's command; an absent one keeps it.
    table.put_some("command", command.as_deref().map(quoted)).put_some("entrypoint", entrypoint.as_deref().map(quoted));
    table.under("environment", |table| {
        for (name, value) in environment {
            table.put(name, value.as_deref().unwrap_or("(of the node)"));
        }
    });
    table.put_map("labels", labels).put_map("annotations", annotations);
    if let Some(check) = healthcheck {
        self::healthcheck(check, table);
    }
    table
        .put_some("stop_signal", stop_signal.as_ref())
        .put_some("stop_grace_period", stop_grace_period.map(DurationText));
    table.put_some("logging.driver", log_driver.as_ref()).put_map("logging.options", log_options);
    table.put_some("user", user.as_ref()).put_list("group_add", groups).put_some("working_dir", working_dir.as_ref());
    table.put_some("hostname", hostname.as_ref()).put_some("domainname", domainname.as_ref());
    for switch in switches {
        table.put(&snake_case(switch), true);
    }
    // The other policies are when the engine pulls anyway; saying so is no change.
    let pulls = pull_policy.filter(|policy| matches!(policy, PullPolicy::Always | PullPolicy::Never));
    table.put_some("runtime", runtime.as_ref()).put_some("pull_policy", pulls.map(snake_case));
    table.put_list("post_start", post_start.iter().map(hook)).put_list("pre_stop", pre_stop.iter().map(hook));
}

fn healthcheck(check: &Healthcheck, table: &mut FieldTable) {
    let Healthcheck { test, interval, timeout, retries, start_period, start_interval } = check;
    table.under("healthcheck", |table| {
        table.put("test", quoted(test)).put("interval", DurationText(*interval)).put("timeout", DurationText(*timeout));
        table.put("retries", retries).put("start_period", DurationText(*start_period));
        table.put("start_interval", DurationText(*start_interval));
    });
}

fn hook(hook: &Hook) -> String {
    let Hook { command, user, working_dir, environment, privileged } = hook;
    let mut text = quoted(command);
    let settings = [("user", user), ("in", working_dir)];
    for (word, value) in settings.into_iter().filter_map(|(word, value)| Some((word, value.as_ref()?))) {
        let _ = write!(text, " {word} {value:?}");
    }
    if !environment.is_empty() {
        let _ = write!(text, " with {environment:?}");
    }
    if *privileged {
        text.push_str(" privileged");
    }
    text
}

fn security(security: &Security, table: &mut FieldTable) {
    let Security { cap_add, cap_drop, options, device_cgroup_rules } = security;
    table.put_list("cap_add", cap_add).put_list("cap_drop", cap_drop).put_list("security_opt", options);
    table.put_list("device_cgroup_rules", device_cgroup_rules);
}

fn namespaces(namespaces: &Namespaces, table: &mut FieldTable) {
    let Namespaces { network, ipc, pid, uts, user, cgroup, cgroup_parent } = namespaces;
    table.put_some("network_mode", network.as_ref()).put_some("ipc", ipc.as_ref()).put_some("pid", pid.as_ref());
    table.put_some("uts", uts.as_ref()).put_some("userns_mode", user.as_ref());
    table.put_some("cgroup", cgroup.as_ref()).put_some("cgroup_parent", cgroup_parent.as_ref());
}

fn resolver(resolver: &Resolver, table: &mut FieldTable) {
    let Resolver { dns, dns_search, dns_opt, extra_hosts } = resolver;
    table.put_list("dns", dns).put_list("dns_search", dns_search).put_list("dns_opt", dns_opt);
    for (name, addresses) in extra_hosts {
        table.put_list(&format!("extra_hosts.{name}"), addresses);
    }
}

fn limits(limits: &Limits, table: &mut FieldTable) {
    let Limits {
        pids,
        shm_size_bytes,
        memory_swap_bytes,
        memory_swappiness,
        cpu_shares,
        cpuset,
        oom_score_adj,
        sysctls,
        ulimits,
        storage_options,
    } = limits;
    table.put_some("deploy.resources.limits.pids", *pids).put_some("shm_size", bytes(*shm_size_bytes));
    table.put_some("memswap_limit", *memory_swap_bytes).put_some("mem_swappiness", *memory_swappiness);
    table
        .put_some("cpu_shares", *cpu_shares)
        .put_some("cpuset", cpuset.as_ref())
        .put_some("oom_score_adj", *oom_score_adj);
    table.put_map("sysctls", sysctls).put_map("storage_opt", storage_options);
    for (name, limit) in ulimits {
        table.put(&format!("ulimits.{name}"), format!("{} of at most {}", limit.soft, limit.hard));
    }
}

fn device_request(request: &EngineDeviceRequest) -> String {
    let EngineDeviceRequest { driver, count, ids, capabilities, options } = request;
    let count = count.map_or_else(|| "all".to_owned(), |count| count.to_string());
    let mut text = format!("{count} {capabilities:?}");
    if !ids.is_empty() {
        let _ = write!(text, " of {ids:?}");
    }
    if let Some(driver) = driver {
        let _ = write!(text, " by {driver:?}");
    }
    if !options.is_empty() {
        let _ = write!(text, " with {options:?}");
    }
    text
}

/// A file is identified by its target path; of its content only the name is known here.
fn file(file: &FileMount, table: &mut FieldTable) {
    let FileMount { target, name, kind, uid, gid, mode } = file;
    let section = match kind {
        FileKind::Secret => "secrets",
        FileKind::Config => "configs",
    };
    table.under(&format!("{section}.{target}"), |table| {
        table.put("source", name).put_some("uid", uid.as_ref()).put_some("gid", gid.as_ref());
        table.put_some("mode", mode.map(|mode| format!("0{mode:o}")));
    });
}
