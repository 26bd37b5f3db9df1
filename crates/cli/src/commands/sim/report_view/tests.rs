//! The drawing, without colour and with colour.

use longshore_sim::Scenario;

use super::*;

fn report() -> Report {
    let scenario = Scenario::parse(
        "s.yaml",
        r#"
nodes:
  - { name: a, count: 2, cpu: 4, memory: 4GiB }
  - { name: b, cpu: 1, memory: 1GiB }
deployments:
  shop: |
    services:
      web: { image: "web:1", deploy: { replicas: 3, resources: { limits: { memory: 512m, cpus: "1.5" } } } }
      big: { image: "big:1", deploy: { resources: { limits: { memory: 8g } } } }
timeline:
  - { at: 20s, node: b, do: pause }
  - { at: 30s, node: a-2, do: fail }
until: 41s
"#,
    )
    .unwrap();
    let mut report = longshore_sim::run(&scenario);
    (report.stats.passes, report.stats.decide_us) = (0, 0);
    report
}

#[test]
fn a_cluster_with_a_lost_node_and_waiting_work() {
    insta::assert_snapshot!(draw(&report(), Colour::Off), @r"
    after 0m41.000s   3 nodes · 3 replicas running · 1 without a node · 0 passes, 0 µs to decide

    node  is        memory                  cpu                    on it
    a-1   ready     ██░░░░░░░░     1/4 GiB  █░░░░░░░░░       3/16  shop-web ●●
    a-2   down      █░░░░░░░░░   0.5/4 GiB  █░░░░░░░░░     1.5/16  shop-web ?
    b     paused    █████░░░░░   0.5/1 GiB  ███░░░░░░░      1.5/4  shop-web ●

    shop is degraded: no_capacity_memory, revision 1

    1 of shop/big waits: no_capacity_memory
      0 of 3 nodes fit: needs 8 GiB, best has 3 GiB free on a-1

    … 5 entries before
     0m00.050s  placed        shop-web-1 on a-2
     0m00.050s  placed        shop-web-2 on b
     0m02.050s  running       shop-web-0 on a-1
     0m02.050s  running       shop-web-1 on a-2
     0m02.050s  running       shop-web-2 on b
     0m20.000s  node_paused   b
     0m32.000s  node_suspect  a-2
     0m39.000s  lost          shop-web-1 on a-2 node_lost
     0m39.000s  node_down     a-2
     0m39.050s  placed        shop-web-1 on a-1
     0m39.050s  moved         shop-web-1 on a-1 from a-2
     0m40.050s  running       shop-web-1 on a-1
    ");
}

#[test]
fn colour_adds_nothing_but_colour() {
    let coloured = draw(&report(), Colour::On);
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain.push_str(rest);
    assert_eq!(plain, draw(&report(), Colour::Off));
}

#[test]
fn any_use_shows_and_only_a_full_node_has_a_full_bar() {
    let bars: Vec<String> =
        [(0, 100), (1, 100), (99, 100), (100, 100), (5, 0)].map(|(used, of)| bar(used, of, Colour::Off)).to_vec();
    assert_eq!(bars, ["░░░░░░░░░░", "█░░░░░░░░░", "█████████░", "██████████", "██████████"]);
}
