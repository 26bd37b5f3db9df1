//! The dashboard in a real browser: logging in, watching a rollout step, acting, on a large screen and on a phone.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/browser.rs"]
mod browser;
#[path = "dashboard/large_tables.rs"]
mod large_tables;
#[path = "dashboard/roles.rs"]
mod roles;
#[path = "support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;

use std::fs;

use browser::{Browser, ENTER, ESCAPE};
use test_cluster::{Cluster, eventually, free_address};

fn manifest(version: &str) -> String {
    format!(
        "\
name: shop
services:
  web:
    image: none
    command: [sleep, \"600\"]
    environment: {{ VERSION: \"{version}\" }}
    x-longshore: {{ driver: exec }}
    deploy:
      replicas: 3
      update_config: {{ monitor: 2s }}
  report:
    image: none
    command: [sleep, \"600\"]
    x-longshore: {{ driver: exec }}
    deploy:
      resources: {{ limits: {{ memory: 900GiB }} }}
"
    )
}

fn apply(cluster: &Cluster, version: &str) {
    let file = cluster.folder.path().join("shop.yaml");
    fs::write(&file, manifest(version)).unwrap();
    cluster.nodes[0].expect_json(&["apply", "-f", file.to_str().unwrap()]);
}

#[test]
fn an_operator_logs_in_watches_and_acts() {
    let cluster = Cluster::with_browsers(&free_address());
    eventually("the node is there", || {
        let nodes = cluster.nodes[0].json(&["node", "ls"])?;
        (nodes.as_array()?.len() == 1).then_some(())
    });
    let browser = Browser::start();
    let base = format!("http://{}/", cluster.nodes[0].http.as_ref().unwrap());

    browser.open(&base);
    browser.sees("Log in");
    let link = cluster.nodes[0].text(&["dashboard"]);
    assert!(link.starts_with(&base), "{link}");
    browser.open(&link);
    browser.sees("nothing is deployed");
    browser.sees("live");
    browser.complaints();

    apply(&cluster, "1");
    browser.sees("shop");
    browser.sees("1 service waits for a node");
    browser.sees("3 of 4 running");
    browser.picture("overview");
    browser.click("a", "1 service waits for a node");
    browser.sees("no_capacity_memory");
    browser.sees("0 of 1 node fit");
    browser.picture("pending");

    browser.click("a", "Overview");
    browser.click("a", "shop");
    browser.sees("Services");
    apply(&cluster, "2");
    browser.sees("in_progress");
    browser.sees("from revision 1 to 2");
    // Without a reload, the page shows some replicas updated and others not yet.
    eventually("a rollout that steps", || {
        let marks = |kind: &str| browser.run(&format!("return document.querySelectorAll('.steps .{kind}').length"));
        (marks("new").as_i64()? > 0 && marks("old").as_i64()? > 0).then_some(())
    });
    browser.picture("rollout");
    browser.click("tr[td[normalize-space()='web']]//button", "Scale");
    browser.run("const input = document.querySelector('dialog input'); input.value = '4'");
    browser.click("dialog//button", "Scale");
    browser.sees("4 of 4");
    browser.sees("completed");
    // Replicas added by scaling have another revision, and none counts as outdated.
    assert_eq!(browser.run("return document.querySelectorAll('.steps .old').length"), 0);

    browser.click("a", "shop-web-0");
    browser.sees("nodes fit");
    browser.sees("compared at log index");
    browser.sees("History");
    browser.sees("placed");
    browser.picture("replica");
    browser.open(&format!("{base}ui/nodes/n1"));
    browser.click("button", "Drain");
    browser.sees("started elsewhere first");
    browser.click("dialog//button", "Drain");
    browser.sees("draining");
    browser.click("button", "Activate");
    browser.click("dialog//button", "Activate");
    browser.sees("active");
    browser.picture("node");
    browser.open(&format!("{base}ui/audit"));
    browser.sees("node_drained");
    browser.picture("audit");

    fits_a_phone_and_the_night(&browser, &base);
    needs_no_mouse(&browser, &base);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    // The browser's internal pages cause no request.
    let inside = |url: &String| url.starts_with(&base) || url.starts_with("chrome:") || url.starts_with("data:");
    let elsewhere: Vec<String> = browser.requests().into_iter().filter(|url| !inside(url)).collect();
    assert_eq!(elsewhere, Vec::<String>::new(), "a request left the machine");

    // A login link is valid once.
    browser.run("document.cookie; return fetch('/ui/logout', { method: 'POST' })");
    browser.open(&link);
    browser.sees("this link was used before");
    cluster.nodes[0].expect_json(&["rm", "shop"]);
    eventually("gone", || cluster.nodes[0].json(&["status"])?["replicas"].as_array()?.is_empty().then_some(()));
}

fn fits_a_phone_and_the_night(browser: &Browser, base: &str) {
    browser.size(390, 844);
    for (page, name) in PAGES {
        browser.open(&format!("{base}{page}"));
        browser.run("window.scrollTo(0, 0)");
        browser.sees("Overview");
        eventually("a page that is drawn", || {
            (browser.run("return document.querySelectorAll('main h1').length") == 1).then_some(())
        });
        let wide = browser.run("return document.documentElement.scrollWidth - innerWidth");
        assert!(wide.as_i64().unwrap() <= 0, "{page} is wider than a phone by {wide}");
        browser.picture(&format!("phone-{name}"));
    }
    let light = browser.run("return getComputedStyle(document.body).backgroundColor");
    browser.scheme("dark");
    let dark = browser.run("return getComputedStyle(document.body).backgroundColor");
    assert_ne!(light, dark);
    browser.size(1200, 900);
    for (page, name) in PAGES {
        browser.open(&format!("{base}{page}"));
        eventually("a page that is drawn", || {
            (browser.run("return document.querySelectorAll('main h1').length") == 1).then_some(())
        });
        browser.picture(&format!("dark-{name}"));
    }
    browser.open(base);
    browser.sees("Nodes");
    browser.sees("memory in use");
}

/// Every page and the name of its screenshot.
const PAGES: [(&str, &str); 6] = [
    ("", "overview"),
    ("ui/deployments/default/shop", "deployment"),
    ("ui/nodes/n1", "node"),
    ("ui/replicas/shop-web-0", "replica"),
    ("ui/pending", "pending"),
    ("ui/audit", "audit"),
];

/// Navigation and dialogs work with the keyboard alone.
fn needs_no_mouse(browser: &Browser, base: &str) {
    browser.open(base);
    browser.sees("Nodes");
    browser.tab_to("Pending");
    browser.press(ENTER);
    browser.sees("Waiting for a node");
    browser.open(&format!("{base}ui/nodes/n1"));
    browser.sees("Drain");
    browser.tab_to("Drain");
    browser.press(ENTER);
    browser.sees("started elsewhere first");
    browser.press(ESCAPE);
    let open = || browser.run("return document.querySelector('dialog').open");
    assert_eq!(open(), false, "Escape leaves the dialog");
    let held = browser.run("return document.activeElement.textContent");
    assert_eq!(held, "Drain", "who left a dialog is where they were");
    browser.press(ENTER);
    browser.sees("started elsewhere first");
    browser.tab_to("Cancel");
    browser.press(ENTER);
    assert_eq!(open(), false);
    assert!(browser.words().contains("active"), "nothing was confirmed");
}

#[test]
fn a_foreign_page_cannot_use_the_session_of_a_browser() {
    let cluster = Cluster::with_browsers(&free_address());
    let token = eventually("a token", || {
        let output = cluster.nodes[0].ask(&["token", "create", "eyes", "--role", "admin"]);
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    });
    let browser = Browser::start();
    let base = format!("http://{}/", cluster.nodes[0].http.as_ref().unwrap());
    browser.open(&base);
    browser.sees("Log in");
    browser.run(&format!("document.querySelector('input').value = '{token}'"));
    browser.click("main//button", "Log in");
    browser.sees("Nodes");
    let asked = |headers: &str| {
        let script = format!(
            "const asked = await fetch('/v1/nodes/n1/pause', {{ method: 'POST', body: '{{}}', headers: {headers} }}); \
             return asked.status"
        );
        browser.run(&format!("return (async () => {{ {script} }})()"))
    };
    assert_eq!(asked("{}"), 401, "a form could have sent this");
    assert_eq!(asked("{ 'x-longshore': '1' }"), 200);
    let cookie = browser.run("return document.cookie");
    assert_eq!(cookie, "", "scripts read the session");
    cluster.nodes[0].expect_json(&["token", "rm", token.split('-').nth(2).unwrap()]);
    assert_eq!(asked("{ 'x-longshore': '1' }"), 401, "a revoked token's session lives on");
}
