//! Many rows, long and hostile names, and failures: pages stay readable, on narrow screens too, and text is never
//! markup.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::{
    browser::{Browser, TAB},
    test_cluster::{Cluster, eventually, free_address},
};

const HOSTILE: &str = "<img src=x onerror=document.title='taken'>";

/// Two hundred pending replicas, some running ones, and one that fails and has markup in its environment.
fn manifest(long: &str) -> String {
    let exec = "image: none\n    x-longshore: { driver: exec }\n";
    format!(
        "\
name: {long}
services:
  {long}:
    {exec}    command: [sleep, \"600\"]
    deploy: {{ replicas: 3, update_config: {{ monitor: 100ms }} }}
  waits:
    {exec}    command: [sleep, \"600\"]
    deploy: {{ replicas: 200, resources: {{ limits: {{ memory: 900GiB }} }} }}
  fails:
    {exec}    command: [sh, -c, \"exit 3\"]
    environment: {{ NOTE: \"{HOSTILE}\" }}
"
    )
}

#[test]
fn a_page_with_many_rows_is_readable_and_names_are_never_markup() {
    let cluster = Cluster::with_browsers(&free_address());
    let node = &cluster.nodes[0];
    eventually("the node is there", || (node.json(&["node", "ls"])?.as_array()?.len() == 1).then_some(()));
    let long = format!("long-{}", "x".repeat(50));
    let file = cluster.folder.path().join("crowd.yaml");
    fs::write(&file, manifest(&long)).unwrap();
    node.expect_json(&["apply", "-f", file.to_str().unwrap()]);
    node.expect_json(&["node", "label", "n1", &format!("note={HOSTILE}")]);
    // Refused, and recorded in the audit log with the given name.
    assert!(!node.ask(&["scale", HOSTILE, "web=1"]).status.success());
    let browser = Browser::start();
    let base = format!("http://{}/", node.http.as_ref().unwrap());
    browser.open(&node.text(&["dashboard"]));
    browser.sees(&long);
    let failed = format!("{long}-fails-0");
    eventually("one that fails", || {
        let status = node.json(&["status"])?;
        let row = status["replicas"].as_array()?.iter().find(|row| row["id"] == failed.as_str())?.clone();
        (row["state"] == "failed").then_some(())
    });

    let deployment = format!("ui/deployments/default/{long}");
    let pages = [
        (String::new(), "degraded"),
        (deployment.clone(), "restart_exhausted"),
        ("ui/nodes/n1".to_owned(), HOSTILE),
        (format!("ui/replicas/{failed}"), "exit code: 3"),
        (format!("ui/replicas/{long}-waits-7"), "no_capacity_memory"),
        ("ui/pending".to_owned(), "no_capacity_memory"),
        ("ui/audit".to_owned(), HOSTILE),
    ];
    for (width, height) in [(1200, 900), (320, 640)] {
        narrow(&browser, width, height);
        for (page, words) in &pages {
            browser.open(&format!("{base}{page}"));
            browser.sees(words);
            let wide = browser.run("return document.documentElement.scrollWidth - innerWidth");
            assert!(wide.as_i64().unwrap() <= 0, "{page} is wider than {width} by {wide}");
            assert_eq!(browser.run("return document.querySelectorAll('main img, main script').length"), 0, "{page}");
            assert_ne!(browser.run("return document.title"), "taken", "{page}");
            browser.picture(&format!("crowd-{width}-{}", page.rsplit('/').next().unwrap_or_default()));
        }
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
    stays_where_it_is(&browser, &cluster, &format!("{base}{deployment}"), &long);
    node.expect_json(&["rm", &long]);
    eventually("gone", || node.json(&["status"])?["replicas"].as_array()?.is_empty().then_some(()));
}

/// Sets the viewport, which may be narrower than a browser window can be.
fn narrow(browser: &Browser, width: u32, height: u32) {
    browser.size(width.max(500), height);
    browser.viewport(width, height);
}

/// The keyboard focus survives a redraw of the page.
fn stays_where_it_is(browser: &Browser, cluster: &Cluster, page: &str, long: &str) {
    narrow(browser, 1200, 900);
    browser.open(page);
    let held = format!("{long}-{long}-1");
    browser.sees(&held);
    let script = format!("[...document.querySelectorAll('td a')].find((it) => it.textContent === '{held}').focus()");
    browser.run(&script);
    let marks = |browser: &Browser| browser.run("return document.querySelectorAll('tbody tr').length");
    let before = marks(browser);
    cluster.nodes[0].expect_json(&["scale", long, &format!("{long}=5")]);
    let began = Instant::now();
    eventually("a page that shows it", || (marks(browser) != before).then_some(()));
    assert!(began.elapsed() < Duration::from_secs(10), "a crowded page is drawn in {:?}", began.elapsed());
    assert_eq!(browser.run("return document.activeElement.textContent"), held.as_str(), "the place was lost");
    browser.press(TAB);
    assert_eq!(browser.run("return document.activeElement.textContent"), "n1", "Tab goes on from there");
}
