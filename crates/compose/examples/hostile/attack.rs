//! Files made to cost more than they weigh, for the tests and for the measurement beside this file.
//!
//! Owns: the list of attacks somebody has thought of. A new one is added here and is then tried everywhere.

use std::fmt::Write as _;

/// Each attack by name; at a size of 1,000,000 each is as large as a file may be.
pub(crate) fn attacks(size: usize) -> Vec<(&'static str, String)> {
    vec![
        ("a bomb of aliases", bomb()),
        ("a quadratic bomb", quadratic(size / 50)),
        ("a scalar of ten megabytes", format!("services: {{a: {{image: {}}}}}\n", "x".repeat(size * 10))),
        ("a scalar of eight megabytes", format!("services: {{a: {{image: {}}}}}\n", "x".repeat(size * 8))),
        ("a quoted scalar of line feeds", format!("services: {{a: {{image: \"{}\"}}}}\n", "\n".repeat(size * 4))),
        ("deep lists", "[".repeat(size)),
        ("deep mappings", "{a: ".repeat(size)),
        ("deep blocks", (0..2000).map(|depth| " ".repeat(depth) + "a:\n").collect()),
        ("many keys", many(|at, out| writeln!(out, "k{at}: {at}"), size / 2)),
        ("one key often", "a: 1\n".repeat(size)),
        (
            "many unknown keys",
            "services:\n  a:\n".to_owned() + &many(|at, out| writeln!(out, "    key{at}: 1"), size / 3),
        ),
        (
            "many services",
            "services:\n".to_owned() + &many(|at, out| writeln!(out, "  s{at}: {{image: a}}"), size / 16),
        ),
        ("ranges of ports", "services:\n".to_owned() + &many(ports, size / 16)),
        ("a chain of depends_on", "services:\n".to_owned() + &many(chain, size / 16)),
        ("services that all depend on each other", all_on_all(size / 2500)),
        ("services that extend each other", "services:\n".to_owned() + &many(extends, size / 16)),
        ("extends that grows", growing_extends(size / 50)),
        (
            "nested variables",
            format!("services: {{a: {{image: \"{}x{}\"}}}}\n", "${A:-".repeat(size), "}".repeat(size)),
        ),
        ("unclosed variables", format!("services: {{a: {{image: \"{}\"}}}}\n", "${A:-".repeat(size))),
        ("many variables", format!("services: {{a: {{image: \"{}\"}}}}\n", "$A".repeat(size * 2))),
        ("words without end", format!("services: {{a: {{image: a, command: \"{}\"}}}}\n", "' ".repeat(size * 2))),
        ("many mounts", list("volumes", size / 10, |at| format!("/a:/b{at}"))),
        ("many secrets", list("secrets", size / 10, |at| format!("s{at}"))),
        ("many variables of a list", list("environment", size / 10, |at| format!("A{at}=1"))),
        ("many expressions", many_expressions(size / 16)),
        ("as many mounts as values", repeated("volumes: ['/a:/b', '/c:/d', '/e:/f']", size / 50)),
        ("mounts by alias", mounts_by_alias(size / 5000)),
        (
            "as many patterns as values",
            repeated("deploy: {placement: {constraints: ['node.id regexp (?i)\\pL\\W']}}", size / 100),
        ),
        (
            "patterns that are none",
            repeated("deploy: {placement: {constraints: ['node.id regexp (?i)\\pL\\W(']}}", size / 100),
        ),
        ("a pattern of classes", constraint(&"\\w?".repeat(size))),
        ("a class of classes", constraint(&format!("[{}]", "\\w".repeat(size)))),
        (
            "a command of short words",
            format!("services: {{a: {{image: a, command: \"{}\"}}}}\n", "a ".repeat(size * 2)),
        ),
        ("volumes that all are mounted", volumes(size / 20)),
        ("networks that all are joined", networks(size / 20)),
        ("devices", list("gpus", size / 20, |_| "{count: 1}".to_owned())),
        (
            "limits",
            format!(
                "services: {{a: {{image: a, ulimits: {{{}}}}}}}\n",
                many(|at, out| write!(out, "u{at}: 1, "), size / 11)
            ),
        ),
        ("a terrible expression", constraint(&"(a*)*".repeat(size / 500))),
        ("a large repetition", constraint("a{1000}{1000}{1000}")),
        ("merge keys on merge keys", merges(size / 700)),
        ("comments", "# x\n".repeat(size * 2)),
        ("anchors", many(|at, out| writeln!(out, "a{at}: &a{at} x"), size / 3)),
        (
            "colons",
            format!(
                "services: {{a: {{image: a, volumes: [\"{}\"], ports: [\"{}\"]}}}}\n",
                ":".repeat(size * 3),
                ":".repeat(size * 3)
            ),
        ),
    ]
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
    let services: String = (0..count.min(9999)).map(|at| format!("  s{at}: {{image: a, {keys}}}\n")).collect();
    format!("services:\n{services}")
}

fn mounts_by_alias(count: usize) -> String {
    let mounts: Vec<String> = (0..999).map(|at| format!("/a:/b{at}")).collect();
    let services: String = (0..count).map(|at| format!("  s{at}: {{image: a, volumes: *v}}\n")).collect();
    format!("x-v: &v [{}]\nservices:\n{services}", mounts.join(", "))
}

fn volumes(count: usize) -> String {
    let services: String = (0..count / 999)
        .map(|at| {
            let mounts: Vec<String> = (0..999).map(|of| format!("v{}:/b{of}", at * 999 + of)).collect();
            format!("  s{at}: {{image: a, volumes: [{}]}}\n", mounts.join(", "))
        })
        .collect();
    format!("services:\n{services}volumes:\n{}", many(|at, out| writeln!(out, "  v{at}:"), count))
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

/// Each service carries everything below it once more.
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
