//! Files made to cost more than they weigh, for tests and for the measurement in `examples/hostile.rs`.
//!
//! Owns: the list of attacks somebody has thought of. A new one is added here and is then tried everywhere.

use std::fmt::Write as _;

/// Each attack by name.
pub fn attacks() -> Vec<(&'static str, String)> {
    vec![
        ("a bomb of aliases", bomb()),
        ("a quadratic bomb", quadratic()),
        ("a scalar of ten megabytes", format!("services: {{a: {{image: {}}}}}\n", "x".repeat(10_000_000))),
        ("a scalar of eight megabytes", format!("services: {{a: {{image: {}}}}}\n", "x".repeat(8_000_000))),
        ("a quoted scalar of line feeds", format!("services: {{a: {{image: \"{}\"}}}}\n", "\n".repeat(4_000_000))),
        ("deep lists", "[".repeat(1_000_000)),
        ("deep mappings", "{a: ".repeat(1_000_000)),
        ("deep blocks", (0..2000).map(|depth| " ".repeat(depth) + "a:\n").collect()),
        ("many keys", many(|at, out| write!(out, "k{at}: {at}\n"), 500_000)),
        ("one key often", "a: 1\n".repeat(1_000_000)),
        (
            "many unknown keys",
            "services:\n  a:\n".to_owned() + &many(|at, out| write!(out, "    key{at}: 1\n"), 300_000),
        ),
        ("many services", "services:\n".to_owned() + &many(|at, out| write!(out, "  s{at}: {{image: a}}\n"), 60_000)),
        ("ranges of ports", "services:\n".to_owned() + &many(ports, 60_000)),
        ("a chain of depends_on", "services:\n".to_owned() + &many(chain, 60_000)),
        ("services that all depend on each other", all_on_all(400)),
        ("services that extend each other", "services:\n".to_owned() + &many(extends, 60_000)),
        ("extends that grows", growing_extends()),
        (
            "nested variables",
            format!("services: {{a: {{image: \"{}x{}\"}}}}\n", "${A:-".repeat(1_000_000), "}".repeat(1_000_000)),
        ),
        ("unclosed variables", format!("services: {{a: {{image: \"{}\"}}}}\n", "${A:-".repeat(1_000_000))),
        ("many variables", format!("services: {{a: {{image: \"{}\"}}}}\n", "$A".repeat(2_000_000))),
        ("words without end", format!("services: {{a: {{image: a, command: \"{}\"}}}}\n", "' ".repeat(2_000_000))),
        ("a terrible expression", constraint(&"(a*)*".repeat(2000))),
        ("a large repetition", constraint("a{1000}{1000}{1000}")),
        ("merge keys on merge keys", merges()),
        ("comments", "# x\n".repeat(2_000_000)),
        ("anchors", many(|at, out| write!(out, "a{at}: &a{at} x\n"), 300_000)),
        (
            "colons",
            format!(
                "services: {{a: {{image: a, volumes: [\"{}\"], ports: [\"{}\"]}}}}\n",
                ":".repeat(3_000_000),
                ":".repeat(3_000_000)
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

fn bomb() -> String {
    let mut out = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        let _ = writeln!(out, "a{level}: &a{level} [{below}]");
    }
    out
}

fn quadratic() -> String {
    format!("a: &a [{}]\nb: [{}]\n", "x, ".repeat(20_000), "*a, ".repeat(20_000))
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
fn growing_extends() -> String {
    let mut out = "services:\n  s0: {image: a, cap_add: [a]}\n".to_owned();
    for at in 1..30 {
        let list = "x, ".repeat(20_000);
        let _ = writeln!(out, "  s{at}: {{extends: s{}, cap_add: [{list}]}}", at - 1);
    }
    out
}

fn constraint(pattern: &str) -> String {
    format!(
        "services: {{a: {{image: a, deploy: {{placement: {{constraints: ['node.labels.x regexp {pattern}']}}}}}}}}\n"
    )
}

fn merges() -> String {
    let mut out = "x0: &x0 {a: 1}\n".to_owned();
    for at in 1..1500 {
        let _ = writeln!(out, "x{at}: &x{at} {{<<: [*x{}, *x{}], k{at}: 1}}", at - 1, at / 2);
    }
    out
}
