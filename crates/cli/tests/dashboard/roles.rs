//! Who is logged in sees what they may do, and is out once their token is.

use crate::{
    apply,
    browser::Browser,
    fleet::{Cluster, eventually, free_address},
};

/// A browser that is logged in with a new token, and that token's id.
fn logged_in(cluster: &Cluster, role: &[&str]) -> (Browser, String) {
    let token = eventually("a token", || {
        let output = cluster.nodes[0].ask(&[&["token", "create", "eyes", "--role"], role].concat());
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    });
    let browser = Browser::start();
    browser.open(&base(cluster));
    browser.sees("Log in");
    browser.run(&format!("document.querySelector('input').value = '{token}'"));
    browser.click("main//button", "Log in");
    browser.sees("Log out");
    // That nobody was logged in at first is what was complained about so far.
    browser.complaints();
    (browser, token.split('-').nth(2).unwrap().to_owned())
}

fn base(cluster: &Cluster) -> String {
    format!("http://{}/", cluster.nodes[0].browsers.as_ref().unwrap())
}

fn buttons(browser: &Browser) -> Vec<String> {
    let found = browser.run("return [...document.querySelectorAll('main button')].map((it) => it.textContent)");
    found.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

#[test]
fn nobody_is_offered_what_they_may_not_do_and_who_is_revoked_is_out() {
    let cluster = Cluster::with_browsers(&free_address());
    let (viewer, token) = logged_in(&cluster, &["view"]);
    apply(&cluster, "1");
    let base = base(&cluster);
    for page in ["", "ui/deployments/default/shop", "ui/nodes/n1", "ui/replicas/shop-web-0", "ui/pending", "ui/audit"] {
        viewer.open(&format!("{base}{page}"));
        viewer.sees("live");
        eventually("a page", || (viewer.run("return document.querySelectorAll('main h1').length") == 1).then_some(()));
        assert_eq!(buttons(&viewer), [""; 0], "{page}");
    }
    viewer.sees("eyes");
    assert_eq!(viewer.complaints(), Vec::<String>::new());
    // Without a word of theirs: the page is left as it was, until it asks for something.
    cluster.nodes[0].told(&["token", "rm", &token]);
    viewer.sees("Paste a token");
    assert!(!viewer.words().contains("Log out"), "{}", viewer.words());

    // One for a deployment may change that and nothing else.
    let (deployer, _) = logged_in(&cluster, &["deploy", "--deployment", "shop"]);
    deployer.open(&format!("{base}ui/deployments/default/shop"));
    deployer.sees("Scale");
    deployer.open(&format!("{base}ui/nodes/n1"));
    deployer.sees("the token is for a part of it");
    assert_eq!(buttons(&deployer), [""; 0]);
    deployer.click("button", "Log out");
    deployer.sees("Paste a token");
    deployer.open(&base);
    deployer.sees("Paste a token");
    cluster.nodes[0].told(&["rm", "shop"]);
    eventually("gone", || cluster.nodes[0].json(&["status"])?["replicas"].as_array()?.is_empty().then_some(()));
}
