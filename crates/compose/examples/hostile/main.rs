//! Times every attack of the list, and a file of a thousand services: `cargo run --release -p longshore-compose --example
//! hostile`. The bars are 1 s and 1 GiB for anything, and 200 ms for a thousand services.

mod attack;

use std::{fmt::Write as _, time::Instant};

use longshore_compose::{Memory, Output, Request, Secrets, config, load_text};

fn main() {
    thousand_services();
    for (name, text) in attack::attacks(500_000) {
        let files = Memory([("/p/compose.yaml".to_owned(), text)].into());
        let request = Request { working_directory: "/p".to_owned(), ..Request::default() };
        let (start, before) = (Instant::now(), cpu_ms());
        let report = config(&request, &files, Output::Yaml, Secrets::Hidden);
        let (took, cpu) = (start.elapsed(), cpu_ms() - before);
        let said = report.problems.iter().next().map(|found| found.message.chars().take(60).collect::<String>());
        println!(
            "{:7.1} ms, {cpu:4} ms of CPU  {}  {name}: {}",
            took.as_secs_f64() * 1e3,
            if report.problems.has_errors() { "refused" } else { "taken  " },
            said.unwrap_or_default()
        );
    }
    println!("{} MiB at most", peak_mib());
}

fn thousand_services() {
    let mut text = "x-base: &base {image: 'app:1', restart: always, environment: {A: 1, B: 2}}\nservices:\n".to_owned();
    for at in 0..1000 {
        let _ = write!(
            text,
            "  service-{at}:\n    <<: *base\n    command: [serve, --index, '{at}']\n    ports: ['{}:80']\n    labels: {{tier: web, \
             index: '{at}'}}\n    healthcheck: {{test: curl -f http://localhost/, interval: 5s}}\n    depends_on: [service-{}]\n    \
             deploy:\n      replicas: 3\n      resources: {{limits: {{cpus: '0.5', memory: 256m}}}}\n      placement: {{constraints: \
             [node.labels.zone == z{}]}}\n",
            10_000 + at,
            (at + 1).min(999),
            at % 5,
        );
    }
    let text = text.replace("depends_on: [service-999]", "depends_on: []");
    let (start, before) = (Instant::now(), cpu_ms());
    let services = load_text("compose.yaml", &text, "large", "default").map(|(spec, _)| spec.services.len());
    let (took, cpu) = (start.elapsed().as_secs_f64() * 1e3, cpu_ms() - before);
    println!("{took:7.1} ms, {cpu:4} ms of CPU  {} services, {} KiB", services.unwrap_or(0), text.len() / 1024);
}

/// CPU time, because wall time depends on the load of the machine.
fn cpu_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) / 1_000_000
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) / 1024
}
