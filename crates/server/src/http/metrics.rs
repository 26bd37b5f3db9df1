//! Figures in the text format of Prometheus.
//!
//! Owns: the format. Must not touch: anything that would wait; a member that cannot reach the others tells its figures, too.

use std::{fmt::Write as _, sync::Arc};

use axum::extract::State;

use super::{Desk, Refusal};
use crate::figures::{Figure, Kind, told};

pub(super) async fn metrics(State(desk): State<Arc<Desk>>) -> Result<String, Refusal> {
    let mut figures = told::all(&desk.hub, &desk.store()?);
    figures.push(Figure::plain("longshore_event_streams", Kind::Gauge, desk.followers.count() as u64));
    Ok(text(&figures))
}

fn text(figures: &[Figure]) -> String {
    let mut text = String::new();
    for Figure { name, kind, points } in figures {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for (label, value) in points {
            let label = label.as_ref().map_or_else(String::new, |(label, word)| format!("{{{label}=\"{word}\"}}"));
            let _ = writeln!(text, "{name}{label} {value}");
        }
    }
    text
}
