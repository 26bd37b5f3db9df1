//! Settings of the collector, from the standard `OTEL_*` variables.
//!
//! Owns: their names and valid values. Must not touch: the environment itself, which is passed in.
//! Invariant: an invalid value is reported, never guessed at.

use std::time::Duration;

/// How telemetry is sent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Host and port.
    pub(crate) address: String,
    /// Path prefix before `/v1/traces`.
    pub(crate) path: String,
    /// Headers for every call; they may hold a key, and are never printed.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) service: String,
    pub(crate) spans_every: Duration,
    pub(crate) metrics_every: Duration,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Settings({}{}, {} headers)", self.address, self.path, self.headers.len())
    }
}

/// Why telemetry is off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("`OTEL_EXPORTER_OTLP_ENDPOINT` is `{0}`, and only `http://HOST:PORT` is sent to")]
    Endpoint(String),
    #[error("`OTEL_EXPORTER_OTLP_PROTOCOL` is `{0}`, and only `http/json` is spoken")]
    Protocol(String),
    #[error("`{0}` is `{1}`, and has to be a number of milliseconds from 100 on")]
    Interval(&'static str, String),
    #[error("`OTEL_EXPORTER_OTLP_HEADERS` has to be `NAME=VALUE` pairs with commas between them")]
    Headers,
}

impl Settings {
    /// Reads the settings; `None` if no collector is configured.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, SettingsError> {
        let variable_set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        if variable_set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let Some(endpoint) = variable_set("OTEL_EXPORTER_OTLP_ENDPOINT") else { return Ok(None) };
        if let Some(protocol) = variable_set("OTEL_EXPORTER_OTLP_PROTOCOL").filter(|protocol| protocol != "http/json") {
            return Err(SettingsError::Protocol(protocol));
        }
        let rest = endpoint.strip_prefix("http://").ok_or_else(|| SettingsError::Endpoint(endpoint.clone()))?;
        let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if address.is_empty() {
            return Err(SettingsError::Endpoint(endpoint));
        }
        // The standard port of OTLP over HTTP.
        let has_port = address.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let address = if has_port { address.to_owned() } else { format!("{address}:4318") };
        let millis = |name: &'static str, usual: u64| match variable_set(name) {
            None => Ok(Duration::from_millis(usual)),
            Some(value) => match value.trim().parse() {
                Ok(number @ 100..) => Ok(Duration::from_millis(number)),
                Ok(_) | Err(_) => Err(SettingsError::Interval(name, value)),
            },
        };
        Ok(Some(Self {
            address,
            path: path.trim_end_matches('/').to_owned(),
            headers: headers(&variable_set("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default())?,
            service: variable_set("OTEL_SERVICE_NAME").unwrap_or_else(|| "longshore".to_owned()),
            spans_every: millis("OTEL_BSP_SCHEDULE_DELAY", 5_000)?,
            metrics_every: millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?,
        }))
    }
}

/// `name=value` pairs, separated by commas. The error repeats nothing of them: they may hold a key.
fn headers(text: &str) -> Result<Vec<(String, String)>, SettingsError> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').ok_or(SettingsError::Headers)?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    pairs.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variable_set: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        Settings::read(|name| {
            variable_set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_otel_variables_configure_the_collector_and_an_invalid_one_is_an_error() {
        assert_eq!(read(&[]), Ok(None));
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9/otel/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc, y=z"),
            ("OTEL_BSP_SCHEDULE_DELAY", "250"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!((settings.address.as_str(), settings.path.as_str()), ("127.0.0.1:9", "/otel"));
        assert_eq!(settings.headers, [("x-key".to_owned(), "abc".to_owned()), ("y".to_owned(), "z".to_owned())]);
        assert_eq!(
            (settings.spans_every, settings.metrics_every),
            (Duration::from_millis(250), Duration::from_mins(1))
        );
        assert_eq!(
            read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector")]).unwrap().unwrap().address,
            "collector:4318"
        );

        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1]")]).unwrap().unwrap().address, "[::1]:4318");

        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1");
        for wrong in [("OTEL_BSP_SCHEDULE_DELAY", "soon"), ("OTEL_METRIC_EXPORT_INTERVAL", "5")] {
            assert_eq!(read(&[endpoint, wrong]), Err(SettingsError::Interval(wrong.0, wrong.1.to_owned())));
        }
        assert_eq!(read(&[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "sesame")]), Err(SettingsError::Headers));
        assert_eq!(read(&[endpoint, ("OTEL_SDK_DISABLED", "true")]), Ok(None));
        let grpc = read(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert_eq!(grpc, Err(SettingsError::Protocol("grpc".to_owned())));
        for wrong in ["https://c:1", "c:1", "http:///x"] {
            assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", wrong)]).is_err(), "{wrong}");
        }
    }
}
