//! Who is logged in sees what they may do, and is out once their token is.

use crate::{
    apply,
    browser::Browser,
    test_cluster::{Cluster, eventually, free_address},
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
    // Drops the errors from before the login.
    browser.complaints();
    (browser, token.split('-').nth(2).unwrap().to_owned())
}

fn base(cluster: &Cluster) -> String {
    format!("http://{}/", cluster.nodes[0].http.as_ref().unwrap())
}

fn buttons(browser: &Browser) -> Vec<String> {
    let found = browser.run("return [...document.querySelectorAll('main button')].map((it) => it.textContent)");
    found.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

#[test]
fn buttons_follow_the_role_and_a_revoked_token_logs_out() {
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
    // The page notices the revocation by itself.
    cluster.nodes[0].expect_json(&["token", "rm", &token]);
    viewer.sees("Paste a token");
    assert!(!viewer.words().contains("Log out"), "{}", viewer.words());

    // A token for one deployment may change only that.
    let (deployer, _) = logged_in(&cluster, &["deploy", "--deployment", "shop"]);
    deployer.open(&format!("{base}ui/deployments/default/shop"));
    deployer.sees("Scale");
    deployer.open(&format!("{base}ui/nodes/n1"));
    deployer.sees("the token is limited to a part of it");
    assert_eq!(buttons(&deployer), [""; 0]);
    deployer.click("button", "Log out");
    deployer.sees("Paste a token");
    deployer.open(&base);
    deployer.sees("Paste a token");
    cluster.nodes[0].expect_json(&["rm", "shop"]);
    eventually("gone", || cluster.nodes[0].json(&["status"])?["replicas"].as_array()?.is_empty().then_some(()));
}
