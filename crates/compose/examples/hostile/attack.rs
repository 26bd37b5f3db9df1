//! Hostile manifests whose cost is far above their size, for the tests and for the measurement in `main.rs`.
//!
//! Owns: the list of known attacks. A new one is added here and is then tried by both.

use std::fmt::Write as _;

/// Each attack by name; at a size of 500,000 each reaches the limits of a deployment.
pub(crate) fn attacks(size: usize) -> Vec<(&'static str, String)> {
    [on_the_parser(size), on_texts(size), on_services(size), on_lists(size)].concat()
}

fn on_the_parser(size: usize) -> Vec<(&'static str, String)> {
    vec![
        ("a bomb of aliases", bomb()),
        ("a quadratic bomb", quadratic(size / 50)),
        ("a scalar larger than a file may be", key("image", &"x".repeat(size * 10))),
        ("a scalar as large as a file may be", key("image", &"x".repeat(size * 8))),
        ("a quoted scalar of line feeds", key("image", &format!("\"{}\"", "\n".repeat(size * 4)))),
        ("deep lists", "[".repeat(size)),
        ("deep mappings", "{a: ".repeat(size)),
        ("deep blocks", (0..2000).map(|depth| " ".repeat(depth) + "a:\n").collect()),
        ("many keys", many(|at, out| writeln!(out, "k{at}: {at}"), size / 2)),
        ("one key often", "a: 1\n".repeat(size)),
        ("merge keys on merge keys", merges(size / 350)),
        ("comments", "# x\n".repeat(size * 2)),
        ("anchors", many(|at, out| writeln!(out, "a{at}: &a{at} x"), size / 3)),
    ]
}

fn on_texts(size: usize) -> Vec<(&'static str, String)> {
    let quoted = |text: String| format!("\"{text}\"");
    vec![
        ("nested variables", key("image", &quoted("${A:-".repeat(size) + "x" + &"}".repeat(size)))),
        ("unclosed variables", key("image", &quoted("${A:-".repeat(size)))),
        ("many variables", key("image", &quoted("$A".repeat(size * 4)))),
        ("words without end", key("command", &quoted("' ".repeat(size * 4)))),
        ("a command of short words", key("command", &quoted("a ".repeat(size * 4)))),
        ("colons in a mount", key("volumes", &format!("[\"{}\"]", ":".repeat(size * 8)))),
        ("colons in a port", key("ports", &format!("[\"{}\"]", ":".repeat(size * 8)))),
        ("a terrible expression", constraint(&"(a*)*".repeat(size / 500))),
        ("a large repetition", constraint("a{1000}{1000}{1000}")),
        ("a pattern of classes", constraint(&"\\w?".repeat(size))),
        ("a class of classes", constraint(&format!("[{}]", "\\w".repeat(size)))),
    ]
}

fn on_services(size: usize) -> Vec<(&'static str, String)> {
    let services = |line, count| "services:\n".to_owned() + &many(line, count);
    vec![
        ("many services", services(|at, out| writeln!(out, "  s{at}: {{image: a}}"), size / 16)),
        ("ranges of ports", services(ports, size / 50)),
        ("a chain of depends_on", services(chain, size / 51)),
        ("services that all depend on each other", all_on_all(size / 800)),
        ("services that extend each other", services(extends, size / 16)),
        ("services that extend a large one", extending_a_large_one(size / 250)),
        ("extends that grows", growing_extends(size / 50)),
        ("patterns", repeated("deploy: {placement: {constraints: ['node.id regexp (?i)\\pL\\W']}}", size / 51)),
        ("patterns that are none", repeated("deploy: {placement: {constraints: ['node.id regexp \\pL(']}}", size / 51)),
        ("a few mounts each", repeated("volumes: ['/a:/b', '/c:/d', '/e:/f', '/g:/h']", size / 51)),
        ("many mounts each", mounts_by_alias(size / 8500)),
        ("volumes that all are mounted", volumes(size / 10)),
        ("warnings", repeated("restart: always, container_name: a, attach: true", size / 51)),
    ]
}

fn on_lists(size: usize) -> Vec<(&'static str, String)> {
    let limits = many(|at, out| write!(out, "u{at}: 1, "), size / 6);
    vec![
        ("unknown keys", "services:\n  a:\n".to_owned() + &many(|at, out| writeln!(out, "    key{at}: 1"), size / 6)),
        ("mounts", list("volumes", size / 3, |at| format!("/a:/b{at}"))),
        ("secrets", list("secrets", size / 3, |at| format!("s{at}"))),
        ("variables of a list", list("environment", size / 3, |at| format!("A{at}=1"))),
        ("expressions", many_expressions(size / 16)),
        ("networks that all are joined", networks(size / 8)),
        ("devices", list("gpus", size / 9, |_| "{count: 1}".to_owned())),
        ("limits", key("ulimits", &format!("{{{limits}}}"))),
    ]
}

/// A file of one service with one key.
fn key(key: &str, value: &str) -> String {
    format!("services: {{a: {{image: a, {key}: {value}}}}}\n").replace("image: a, image:", "image:")
}

fn many(line: fn(usize, &mut String) -> std::fmt::Result, count: usize) -> String {
    let mut out = String::new();
    for at in 0..count {
        let _ = line(at, &mut out);
    }
    out
}

fn ports(at: usize, out: &mut String) -> std::fmt::Result {
    writeln!(out, "  s{at}: {{image: a, ports: [{{target: 1-1000, published: 1-1000, mode: host}}]}}")
}

fn chain(at: usize, out: &mut String) -> std::fmt::Result {
    writeln!(out, "  s{at}: {{image: a, depends_on: [s{}]}}", at + 1)
}

fn extends(at: usize, out: &mut String) -> std::fmt::Result {
    writeln!(out, "  s{at}: {{extends: s{}}}", at + 1)
}

fn list(key: &str, count: usize, item: fn(usize) -> String) -> String {
    let items: Vec<String> = (0..count).map(item).collect();
    format!("services: {{a: {{image: a, {key}: [{}]}}}}\n", items.join(", "))
}

fn many_expressions(count: usize) -> String {
    let items: Vec<String> = (0..count).map(|at| format!("'node.labels.a{at} regexp [\\w-]{{9}}+x'")).collect();
    format!("services: {{a: {{image: a, deploy: {{placement: {{constraints: [{}]}}}}}}}}\n", items.join(", "))
}

/// Many services of one shape.
fn repeated(keys: &str, count: usize) -> String {
    let mut out = "services:\n".to_owned();
    for at in 0..count {
        let _ = writeln!(out, "  s{at}: {{image: a, {keys}}}");
    }
    out
}

fn mounts_by_alias(count: usize) -> String {
    let mounts: Vec<String> = (0..999).map(|at| format!("/a:/b{at}")).collect();
    format!("x-v: &v [{}]\n{}", mounts.join(", "), repeated("volumes: *v", count))
}

fn volumes(count: usize) -> String {
    let mut out = "services:\n".to_owned();
    for at in 0..count / 999 {
        let mounts: Vec<String> = (0..999).map(|of| format!("v{}:/b{of}", at * 999 + of)).collect();
        let _ = writeln!(out, "  s{at}: {{image: a, volumes: [{}]}}", mounts.join(", "));
    }
    out + "volumes:\n" + &many(|at, out| writeln!(out, "  v{at}:"), count)
}

fn extending_a_large_one(count: usize) -> String {
    let mut out = "services:\n".to_owned();
    for at in 0..9000.min(count * 4) {
        let _ = writeln!(out, "  s{at}: {{extends: large}}");
    }
    out + "  large: {image: a, environment: {" + &many(|at, out| write!(out, "A{at}: 1, "), count) + "}}\n"
}

fn networks(count: usize) -> String {
    let names: Vec<String> = (0..count).map(|at| format!("n{at}")).collect();
    let declared = many(|at, out| writeln!(out, "  n{at}:"), count);
    format!("services: {{a: {{image: a, networks: [{}]}}}}\nnetworks:\n{declared}", names.join(", "))
}

fn bomb() -> String {
    let mut out = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        let _ = writeln!(out, "a{level}: &a{level} [{below}]");
    }
    out
}

fn quadratic(size: usize) -> String {
    format!("a: &a [{}]\nb: [{}]\n", "x, ".repeat(size), "*a, ".repeat(size))
}

fn all_on_all(count: usize) -> String {
    let names: Vec<String> = (0..count).map(|at| format!("s{at}")).collect();
    let mut out = "services:\n".to_owned();
    for (at, name) in names.iter().enumerate() {
        let _ = writeln!(out, "  {name}: {{image: a, depends_on: [{}]}}", names[at + 1..].join(", "));
    }
    out
}

/// Each service extends the previous one and so copies all of it.
fn growing_extends(size: usize) -> String {
    let mut out = "services:\n  s0: {image: a, cap_add: [a]}\n".to_owned();
    for at in 1..30 {
        let list = "x, ".repeat(size);
        let _ = writeln!(out, "  s{at}: {{extends: s{}, cap_add: [{list}]}}", at - 1);
    }
    out
}

fn constraint(pattern: &str) -> String {
    format!(
        "services: {{a: {{image: a, deploy: {{placement: {{constraints: ['node.labels.x regexp {pattern}']}}}}}}}}\n"
    )
}

fn merges(size: usize) -> String {
    let mut out = "x0: &x0 {a: 1}\n".to_owned();
    for at in 1..size {
        let _ = writeln!(out, "x{at}: &x{at} {{<<: [*x{}, *x{}], k{at}: 1}}", at - 1, at / 2);
    }
    out
}
