//! Where the collector is, in the variables everybody uses for that.
//!
//! Owns: their names and what is usable. Must not touch: the environment itself, which is handed in.
//! Invariant: what cannot be used is said, never guessed at.

use std::time::Duration;

/// How telemetry is sent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Host and port.
    pub(crate) address: String,
    /// In front of `/v1/traces`.
    pub(crate) path: String,
    /// Headers sent along; they may hold a key, and are never printed.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) service: String,
    pub(crate) spans_every: Duration,
    pub(crate) figures_every: Duration,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Settings({}{}, {} headers)", self.address, self.path, self.headers.len())
    }
}

/// Why nothing is sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
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
    /// What the environment says; nothing where it names no collector.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, Unusable> {
        let said = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        if said("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let Some(endpoint) = said("OTEL_EXPORTER_OTLP_ENDPOINT") else { return Ok(None) };
        if let Some(protocol) = said("OTEL_EXPORTER_OTLP_PROTOCOL").filter(|protocol| protocol != "http/json") {
            return Err(Unusable::Protocol(protocol));
        }
        let rest = endpoint.strip_prefix("http://").ok_or_else(|| Unusable::Endpoint(endpoint.clone()))?;
        let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if address.is_empty() {
            return Err(Unusable::Endpoint(endpoint));
        }
        // The port that collectors listen at for this.
        let has_port = address.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let address = if has_port { address.to_owned() } else { format!("{address}:4318") };
        let millis = |name: &'static str, usual: u64| match said(name) {
            None => Ok(Duration::from_millis(usual)),
            Some(value) => match value.trim().parse() {
                Ok(number @ 100..) => Ok(Duration::from_millis(number)),
                Ok(_) | Err(_) => Err(Unusable::Interval(name, value)),
            },
        };
        Ok(Some(Self {
            address,
            path: path.trim_end_matches('/').to_owned(),
            headers: headers(&said("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default())?,
            service: said("OTEL_SERVICE_NAME").unwrap_or_else(|| "longshore".to_owned()),
            spans_every: millis("OTEL_BSP_SCHEDULE_DELAY", 5_000)?,
            figures_every: millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?,
        }))
    }
}

/// `name=value` pairs, with commas between them. What is wrong with them is not repeated: they may hold a key.
fn headers(text: &str) -> Result<Vec<(String, String)>, Unusable> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').ok_or(Unusable::Headers)?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    pairs.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(said: &[(&str, &str)]) -> Result<Option<Settings>, Unusable> {
        Settings::read(|name| said.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn a_collector_is_named_by_the_usual_variables_and_what_cannot_be_used_is_said() {
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
            (settings.spans_every, settings.figures_every),
            (Duration::from_millis(250), Duration::from_mins(1))
        );
        assert_eq!(
            read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector")]).unwrap().unwrap().address,
            "collector:4318"
        );

        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1]")]).unwrap().unwrap().address, "[::1]:4318");

        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1");
        for wrong in [("OTEL_BSP_SCHEDULE_DELAY", "soon"), ("OTEL_METRIC_EXPORT_INTERVAL", "5")] {
            assert_eq!(read(&[endpoint, wrong]), Err(Unusable::Interval(wrong.0, wrong.1.to_owned())));
        }
        assert_eq!(read(&[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "sesame")]), Err(Unusable::Headers));
        assert_eq!(read(&[endpoint, ("OTEL_SDK_DISABLED", "true")]), Ok(None));
        let grpc = read(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert_eq!(grpc, Err(Unusable::Protocol("grpc".to_owned())));
        for wrong in ["https://c:1", "c:1", "http:///x"] {
            assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", wrong)]).is_err(), "{wrong}");
        }
    }
}
