//! What is fixed when a container or process is made, by the names Compose has for it.
//!
//! Owns: one line for every field of a container's spec. Every field is named here, so a new one does not compile until
//! it has its line.

use std::fmt::Write as _;

use longshore_model::container::{
    ContainerSpec, DeviceRequest, FileKind, FileMount, Healthcheck, Hook, Limits, Namespaces, Resolver, Security,
};

use super::sheet::{Lasting, Sheet, bytes, quoted, word};

pub(super) fn lines(spec: &ContainerSpec, sheet: &mut Sheet) {
    program(spec, sheet);
    let ContainerSpec { security, namespaces, resolver, limits, devices, device_requests, files, .. } = spec;
    self::security(security, sheet);
    self::namespaces(namespaces, sheet);
    self::resolver(resolver, sheet);
    self::limits(limits, sheet);
    sheet.list("devices", devices);
    sheet.list("deploy.resources.reservations.devices", device_requests.iter().map(device_request));
    for file in files {
        self::file(file, sheet);
    }
}

fn program(spec: &ContainerSpec, sheet: &mut Sheet) {
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
    sheet.put("image", image);
    // An empty command takes the image's away, which is not the same as not giving one.
    sheet.maybe("command", command.as_deref().map(quoted)).maybe("entrypoint", entrypoint.as_deref().map(quoted));
    sheet.under("environment", |sheet| {
        for (name, value) in environment {
            sheet.put(name, value.as_deref().unwrap_or("(of the node)"));
        }
    });
    sheet.each("labels", labels).each("annotations", annotations);
    if let Some(check) = healthcheck {
        self::healthcheck(check, sheet);
    }
    sheet.maybe("stop_signal", stop_signal.as_ref()).maybe("stop_grace_period", stop_grace_period.map(Lasting));
    sheet.maybe("logging.driver", log_driver.as_ref()).each("logging.options", log_options);
    sheet.maybe("user", user.as_ref()).list("group_add", groups).maybe("working_dir", working_dir.as_ref());
    sheet.maybe("hostname", hostname.as_ref()).maybe("domainname", domainname.as_ref());
    for switch in switches {
        sheet.put(&word(switch), true);
    }
    sheet.maybe("runtime", runtime.as_ref()).maybe("pull_policy", pull_policy.map(word));
    sheet.list("post_start", post_start.iter().map(hook)).list("pre_stop", pre_stop.iter().map(hook));
}

fn healthcheck(check: &Healthcheck, sheet: &mut Sheet) {
    let Healthcheck { test, interval, timeout, retries, start_period, start_interval } = check;
    sheet.under("healthcheck", |sheet| {
        sheet.put("test", quoted(test)).put("interval", Lasting(*interval)).put("timeout", Lasting(*timeout));
        sheet.put("retries", retries).put("start_period", Lasting(*start_period));
        sheet.put("start_interval", Lasting(*start_interval));
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

fn security(security: &Security, sheet: &mut Sheet) {
    let Security { cap_add, cap_drop, options, device_cgroup_rules } = security;
    sheet.list("cap_add", cap_add).list("cap_drop", cap_drop).list("security_opt", options);
    sheet.list("device_cgroup_rules", device_cgroup_rules);
}

fn namespaces(namespaces: &Namespaces, sheet: &mut Sheet) {
    let Namespaces { network, ipc, pid, uts, user, cgroup, cgroup_parent } = namespaces;
    sheet.maybe("network_mode", network.as_ref()).maybe("ipc", ipc.as_ref()).maybe("pid", pid.as_ref());
    sheet.maybe("uts", uts.as_ref()).maybe("userns_mode", user.as_ref());
    sheet.maybe("cgroup", cgroup.as_ref()).maybe("cgroup_parent", cgroup_parent.as_ref());
}

fn resolver(resolver: &Resolver, sheet: &mut Sheet) {
    let Resolver { dns, dns_search, dns_opt, extra_hosts } = resolver;
    sheet.list("dns", dns).list("dns_search", dns_search).list("dns_opt", dns_opt);
    for (name, addresses) in extra_hosts {
        sheet.list(&format!("extra_hosts.{name}"), addresses);
    }
}

fn limits(limits: &Limits, sheet: &mut Sheet) {
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
    sheet.maybe("deploy.resources.limits.pids", *pids).maybe("shm_size", bytes(*shm_size_bytes));
    sheet.maybe("memswap_limit", *memory_swap_bytes).maybe("mem_swappiness", *memory_swappiness);
    sheet.maybe("cpu_shares", *cpu_shares).maybe("cpuset", cpuset.as_ref()).maybe("oom_score_adj", *oom_score_adj);
    sheet.each("sysctls", sysctls).each("storage_opt", storage_options);
    for (name, limit) in ulimits {
        sheet.put(&format!("ulimits.{name}"), format!("{} of at most {}", limit.soft, limit.hard));
    }
}

fn device_request(request: &DeviceRequest) -> String {
    let DeviceRequest { driver, count, ids, capabilities, options } = request;
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

/// A file is told by where it appears; of what is in it only the name is known here.
fn file(file: &FileMount, sheet: &mut Sheet) {
    let FileMount { target, name, kind, uid, gid, mode } = file;
    let section = match kind {
        FileKind::Secret => "secrets",
        FileKind::Config => "configs",
    };
    sheet.under(&format!("{section}.{target}"), |sheet| {
        sheet.put("source", name).maybe("uid", uid.as_ref()).maybe("gid", gid.as_ref());
        sheet.maybe("mode", mode.map(|mode| format!("0{mode:o}")));
    });
}
