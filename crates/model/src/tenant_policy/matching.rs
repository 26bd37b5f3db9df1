//! How an allowed value of a rule is compared with what a manifest asks.
//!
//! Owns: the comparison per rule: prefixes of paths and images, ranges of ports, names.
//! Invariant: a prefix ends where a component ends: `/srv/team` does not allow `/srv/team2`, and `..` is never allowed.

use super::{ANY, PolicyRule, ROOT};

/// Whether `allowed` covers `asked`.
pub(super) fn matches(rule: PolicyRule, allowed: &str, asked: &str) -> bool {
    match rule {
        // Root and named groups own more than a user: they are allowed by name only.
        PolicyRule::ExecUsers => allowed == asked || allowed == ANY && asked != ROOT && !asked.contains(':'),
        // Names the cluster itself gave belong to a namespace: they are allowed by name only.
        PolicyRule::EngineNames if allowed == ANY => !asked.starts_with("longshore_"),
        _ if allowed == ANY => true,
        PolicyRule::BindMounts | PolicyRule::Devices => is_below(allowed, asked),
        PolicyRule::HostPorts => is_in_range(allowed, asked),
        PolicyRule::Images => is_image_below(allowed, asked),
        PolicyRule::Capabilities => capability(allowed) == asked,
        PolicyRule::EngineNames => allowed.strip_suffix(ANY).map_or(allowed == asked, |head| asked.starts_with(head)),
        PolicyRule::Privileged
        | PolicyRule::HostNamespaces
        | PolicyRule::OomProtection
        | PolicyRule::SecurityOptions
        | PolicyRule::Sysctls
        | PolicyRule::VolumeDrivers
        | PolicyRule::NetworkDrivers
        | PolicyRule::LogDrivers
        | PolicyRule::Runtimes
        | PolicyRule::HostEnvironment => allowed == asked,
    }
}

/// A capability without its optional prefix, in capitals.
pub(super) fn capability(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    upper.strip_prefix("CAP_").map(str::to_owned).unwrap_or(upper)
}

/// Whether a path is `prefix` or below it, by whole components. A path with `..` is below nothing.
fn is_below(prefix: &str, path: &str) -> bool {
    let parts = |path: &str| -> Option<Vec<String>> {
        let named = path.strip_prefix('/')?.split('/').filter(|part| !part.is_empty() && *part != ".");
        let parts: Vec<String> = named.map(str::to_owned).collect();
        (!parts.iter().any(|part| part == "..")).then_some(parts)
    };
    match (parts(prefix), parts(path)) {
        (Some(prefix), Some(path)) => path.starts_with(&prefix),
        (None, _) | (_, None) => prefix == path,
    }
}

/// Whether a port is the allowed one or in the allowed range `first-last`.
fn is_in_range(allowed: &str, asked: &str) -> bool {
    let (first, last) = allowed.split_once('-').unwrap_or((allowed, allowed));
    let (Ok(first), Ok(last)) = (first.trim().parse::<u16>(), last.trim().parse::<u16>()) else { return false };
    asked.parse::<u16>().is_ok_and(|port| (first..=last).contains(&port))
}

/// Whether an image is the allowed one or below it: `ghcr.io/team` allows `ghcr.io/team/web:1`, not `ghcr.io/team2/web`.
fn is_image_below(allowed: &str, asked: &str) -> bool {
    let prefix = allowed.strip_suffix(ANY).unwrap_or(allowed);
    let (prefix, asked) = (full_name(prefix), full_name(asked));
    let Some(rest) = asked.strip_prefix(&prefix) else { return false };
    rest.is_empty() || prefix.ends_with(['/', ':', '@']) || rest.starts_with(['/', ':', '@'])
}

/// An image reference with the registry and `library/` that engines leave out.
fn full_name(image: &str) -> String {
    let is_host = |host: &str| host.contains(['.', ':']) || host == "localhost";
    match image.split_once('/') {
        Some((host, rest)) if is_host(host) => match rest {
            rest if host == "docker.io" && !rest.is_empty() && !rest.contains('/') => {
                format!("docker.io/library/{rest}")
            }
            rest => format!("{host}/{rest}"),
        },
        Some(_) => format!("docker.io/{image}"),
        None => format!("docker.io/library/{image}"),
    }
}
