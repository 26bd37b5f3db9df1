//! `healthcheck`: the probe that decides whether a replica is running or degraded.

use std::time::Duration;

use longshore_model::container::Healthcheck;

use super::ServiceReader;
use crate::{
    keys::{self, Rule},
    yaml::{Key, Node},
};

/// The engine's defaults, so that a health check behaves as in Compose.
fn defaults() -> Healthcheck {
    Healthcheck {
        test: Vec::new(),
        interval: Duration::from_secs(30),
        timeout: Duration::from_secs(30),
        retries: 3,
        start_period: Duration::ZERO,
        start_interval: Duration::from_secs(5),
    }
}

pub(crate) struct HealthReader<'r, 'a> {
    service: &'r mut ServiceReader<'a>,
    check: Healthcheck,
    disabled: bool,
}

type HealthRead = fn(&mut HealthReader<'_, '_>, &Key, &Node);

/// Keys of a health check.
pub(crate) static HEALTH_KEYS: &[Rule<HealthRead>] = &[
    Rule::honoured("disable", |r, k, n| r.disable(k, n), "takes the image's check away"),
    Rule::honoured(
        "interval",
        |r, k, n| HealthReader::set(r.service.duration(k, n), &mut r.check.interval),
        "30 s unless said",
    ),
    Rule::honoured("retries", |r, k, n| r.retries(k, n), "3 unless said"),
    Rule::honoured(
        "start_interval",
        |r, k, n| HealthReader::set(r.service.duration(k, n), &mut r.check.start_interval),
        "5 s unless said",
    ),
    Rule::honoured(
        "start_period",
        |r, k, n| HealthReader::set(r.service.duration(k, n), &mut r.check.start_period),
        "0 s unless said",
    ),
    Rule::honoured(
        "test",
        |r, k, n| r.test(k, n),
        "a text runs in a shell; a list begins with `CMD`, `CMD-SHELL` or `NONE`, for plain processes also `HTTP` with a URL \
         or `TCP` with an address",
    ),
    Rule::honoured(
        "timeout",
        |r, k, n| HealthReader::set(r.service.duration(k, n), &mut r.check.timeout),
        "30 s unless said",
    ),
];

impl HealthReader<'_, '_> {
    fn set(read: Option<Duration>, field: &mut Duration) {
        if let Some(duration) = read {
            *field = duration;
        }
    }

    fn disable(&mut self, key: &Key, node: &Node) {
        let what = self.service.of(key);
        self.disabled = self.service.problems.boolean(node, what) == Some(true);
    }

    fn retries(&mut self, key: &Key, node: &Node) {
        let what = self.service.of(key);
        if let Some(retries) = self.service.problems.count(node, what) {
            self.check.retries = retries;
        }
    }

    fn test(&mut self, key: &Key, node: &Node) {
        let what = self.service.of(key);
        if let Some(text) = node.as_text() {
            self.check.test = vec!["CMD-SHELL".to_owned(), text.to_owned()];
            return;
        }
        self.check.test = self.service.problems.texts(node, &what);
        let first = self.check.test.first().map(String::as_str);
        let asks = matches!(first, Some("HTTP" | "TCP"));
        if asks && self.check.test.len() != 2 {
            let message = format!("{what} asks at one place, a URL after `HTTP` or an address after `TCP`");
            self.service
                .problems
                .error(&node.location, message)
                .hint("for instance `[HTTP, \"http://localhost:8080/health\"]`");
        }
        if asks {
            self.service.raw.prober = Some(node.location.clone());
        } else if !matches!(first, Some("CMD" | "CMD-SHELL" | "NONE")) && node.as_sequence().is_some() {
            self.service
                .problems
                .error(&node.location, format!("{what} must begin with `CMD`, `CMD-SHELL` or `NONE`"))
                .hint("put `CMD` in front, or write the check as one text to run it in a shell");
        }
    }
}

impl ServiceReader<'_> {
    pub(super) fn healthcheck(&mut self, key: &Key, node: &Node) {
        let what = self.of(key);
        if node.is_null() {
            return;
        }
        let Some(mapping) = self.problems.mapping(node, &what) else { return };
        let met = keys::dispatch(HEALTH_KEYS, mapping, &what, self.problems);
        let mut reader = HealthReader { service: self, check: defaults(), disabled: false };
        for (read, key, node) in met {
            read(&mut reader, key, node);
        }
        let HealthReader { mut check, disabled, .. } = reader;
        if disabled || check.test.first().is_some_and(|word| word == "NONE") {
            check = Healthcheck { test: vec!["NONE".to_owned()], ..defaults() };
        }
        self.spec.container.healthcheck = Some(check);
    }
}
