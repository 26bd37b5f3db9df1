//! Commands that change deployments: apply, rollouts, scaling, quotas, logs and exec.

use longshore_api::{AppliedManifest, Changed, EvenOutMove, LogEntry, Policy, PolicyTest};
use serde_json::Value;

use super::{SHOP, Tour, output_formats::assert_shape};

pub(super) fn a_service_that_fits_no_node(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says_without_progress("apply -f report.yaml --wait --timeout 3"), @r"
    exit 5
    error: `shop` timed out: degraded: no_capacity_memory, rollout_in_progress

    hint: `longshore status shop` shows the replicas, `longshore why REPLICA` explains one
    ");
    insta::assert_snapshot!(tour.says("why shop/report"), @r"
    exit 0
    shop/report: 0 of 1 replicas have a node
    1 waits: no_capacity_memory
    0 of 2 nodes fit: needs 900000 GiB, best has # free on n1
    ");
    insta::assert_snapshot!(tour.says_without_progress("rollback shop --wait"), @r"
    exit 0
    shop is rolled back to revision 1
    ");
    insta::assert_snapshot!(tour.says_without_progress("apply -f compose.yaml --wait"), @r"
    exit 0
    shop unchanged, revision 1
    ");
}

/// A rollout with a canary waits for promotion; a paused one waits for `resume`.
pub(super) fn a_canary_waits_for_promotion(tour: &mut Tour) {
    let canary = |mode: &str| {
        let ahead = SHOP.replace("driver: exec", "driver: exec, canary: 1");
        ahead.replace("    image: none\n", &format!("    image: none\n    environment: {{ MODE: {mode} }}\n"))
    };
    tour.machine.write("canary.yaml", &canary("one"));
    insta::assert_snapshot!(tour.says_without_progress("apply -f canary.yaml --wait"), @r"
    exit 6
    shop applied, revision 3
    `shop` waits for promotion

    hint: `longshore promote shop` continues it, `longshore rollback shop` rolls it back
    ");
    insta::assert_snapshot!(tour.says("pause shop"), @r"
    exit 0
    the rollout of shop is paused; `longshore resume shop` continues it
    ");
    insta::assert_snapshot!(tour.says_without_progress("resume shop --wait"), @r"
    exit 6
    `shop` waits for promotion

    hint: `longshore promote shop` continues it, `longshore rollback shop` rolls it back
    ");
    insta::assert_snapshot!(tour.says_without_progress("promote shop --wait"), @r"
    exit 0
    revision 3 of shop is active
    ");
    insta::assert_snapshot!(tour.says("promote shop"), @r"
    exit 1
    error: deployment `shop` has no rollout under way (no_rollout)

    hint: apply a change first; a rollout that has ended cannot be controlled
    ");
    insta::assert_snapshot!(tour.says_without_progress("restart shop web --wait"), @r"
    exit 0
    shop/web was restarted
    ");
    insta::assert_snapshot!(tour.says_without_progress("pull shop --wait"), @r"
    exit 0
    shop has the newest images, revision 3
    ");
    insta::assert_snapshot!(tour.says_without_progress("up -f compose.yaml"), @r"
    exit 0
    shop is active, revision 4

    Try next, in another terminal:
    export LONGSHORE_SOCKET=HERE/data/longshore.sock
    longshore status shop
    longshore why shop-web-0
    longshore scale shop web=3
    longshore node drain n1-2
    longshore node isolate n1-2
    ");
}

pub(super) fn policies(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says("policy set team images=ghcr.io/team,nginx host_ports=30000-30100"), @r"
    exit 0
    done
    ");
    let shown = tour.says("policy show team");
    assert!(shown.contains("images ghcr.io/team, nginx") && shown.contains("privileged nothing"), "{shown}");
    let shown = tour.says("policy show default");
    assert!(shown.contains("no policy is set: namespace `default` may ask everything"), "{shown}");
    insta::assert_snapshot!(tour.says("policy test -f compose.yaml"), @r"
    exit 0
    the policy of namespace `default` allows shop
    ");
    let denied = tour.says("policy test -n team -f compose.yaml");
    assert!(denied.starts_with("exit 2") && denied.contains("services.web.user root exec_users"), "{denied}");
    assert!(tour.says("policy set team colour=red").contains("there is no rule `colour`"));
    tour.shape::<Changed>("policy set team devices=/dev/null");
    tour.shape::<Policy>("policy show team");
    tour.shape::<PolicyTest>("policy test -f compose.yaml");
    tour.shape_in_yaml::<Changed>("policy set team devices=/dev/zero");
}

pub(super) fn counts_and_quotas(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says("quota set default --replicas 3 --cpu 1.5 --memory 64GiB"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("namespace ls"), @r"
    exit 0
    NAMESPACE DEPLOYMENTS REPLICAS CPU MEMORY
    default 1 2/3 0/1.5 32 #
    ");
    insta::assert_snapshot!(tour.says("scale shop web=4"), @r"
    exit 1
    error: the replicas quota of namespace `default` is 3, 2 in use, and 2 more would be needed (quota_exceeded)

    hint: raise the quota, or scale something else of the namespace down
    ");
    insta::assert_snapshot!(tour.says("quota set default"), @r"
    exit 2
    error: no limit is given

    hint: give `--replicas`, `--cpu` or `--memory`; `quota rm` removes all limits
    ");
    insta::assert_snapshot!(tour.says("quota rm default"), @r"
    exit 0
    done
    ");
    for slip in ["scale shop web=4294967295", "whatif --scale shop/web=4294967295"] {
        let said = tour.says(slip);
        assert!(said.contains("(too_many_replicas)"), "{slip}: {said}");
    }
    insta::assert_snapshot!(tour.says_without_progress("scale shop web=3 --wait"), @r"
    exit 0
    shop/web runs 3 replicas
    ");
    insta::assert_snapshot!(tour.says_without_progress("scale shop web=2 --wait"), @r"
    exit 0
    shop/web runs 2 replicas
    ");
    insta::assert_snapshot!(tour.says("rebalance --plan"), @r"
    exit 0
    nothing would move
    ");
    let _ = tour.machine.ask(&["node", "drain", "n1-2", "--wait"]);
    let _ = tour.machine.ask(&["node", "activate", "n1-2"]);
    insta::assert_snapshot!(tour.says("rebalance --plan"), @r"
    exit 0
    REPLICA FROM TO
    shop-web-1 n1 n1-2
    ");
    insta::assert_snapshot!(tour.says("rebalance --apply"), @r"
    exit 0
    moving 1 replica; `longshore rebalance --plan` shows what is left
    ");
}

pub(super) fn logs_and_exec(tour: &mut Tour) {
    tour.machine.write(
        "talk.yaml",
        "name: talk\nservices:\n  web:\n    image: none\n    command: [sh, -c, \"echo hello; exec sleep 600\"]\n    \
         x-longshore: { driver: exec }\n",
    );
    assert!(tour.machine.ask(&["apply", "-f", "talk.yaml", "--wait"]).status.success());
    tour.machine.wait_for("a line", || !tour.machine.ask(&["logs", "talk"]).stdout.is_empty());
    insta::assert_snapshot!(tour.says("logs talk-web-0"), @r"
    exit 0
    talk-web-0 | hello
    ");
    insta::assert_snapshot!(tour.says("exec talk-web-0 printenv LONGSHORE_REPLICA"), @r"
    exit 0
    talk-web-0
    ");
    insta::assert_snapshot!(tour.says("run --rm -T talk/web echo once"), @r"
    exit 0
    once
    ");
    tour.shape::<LogEntry>("logs talk-web-0");
    insta::assert_snapshot!(tour.says("rm talk --wait"), @r"
    exit 0
    talk is removed
    ");
    insta::assert_snapshot!(tour.says("status talk"), @r"
    exit 1
    error: there is no deployment `talk` (not_found)
    ");
}

/// The verbs of Compose; what they do is told in `compose_habits`.
pub(super) fn compose_habits(tour: &mut Tour) {
    // Which of the two nodes has which replica depends on what went before.
    insta::assert_snapshot!(tour.says("ps shop -q"), @r"
    exit 0
    shop-web-0
    shop-web-1
    ");
    assert!(tour.says("images").starts_with("exit 0\nIMAGE SERVICE NODES\nnone shop/web n1"));
    insta::assert_snapshot!(tour.says("port web"), @r"
    exit 0
    no published ports
    ");
    assert!(tour.says("version").starts_with("exit 0\nlongshore "));
    insta::assert_snapshot!(tour.says_without_progress("stop shop"), @r"
    exit 0
    shop is stopped
    ");
    insta::assert_snapshot!(tour.says_without_progress("start shop --wait"), @r"
    exit 0
    shop is started
    ");
    insta::assert_snapshot!(tour.says_without_progress("down -p nothing-of-ours"), @r"
    exit 0
    unchanged
    `nothing-of-ours` is not deployed
    ");
    insta::assert_snapshot!(tour.says("cp one two"), @r"
    exit 2
    error: exactly one side is in a replica

    hint: write it like `longshore cp web:/etc/hosts .`
    ");
    tour.shape::<Vec<Value>>("ps");
    tour.shape::<Vec<Value>>("images");
    tour.shape::<Vec<String>>("port web");
    tour.shape::<Value>("version");
    tour.shape::<Changed>("stop shop");
    tour.shape::<Changed>("start shop --wait");
    tour.shape::<Changed>("down -p nothing-of-ours");
    tour.shape_in_yaml::<Changed>("stop shop");
    tour.shape_in_yaml::<Changed>("start shop --wait");
    tour.shape_in_yaml::<Changed>("down -p nothing-of-ours");
    tour.endless("events");
}

pub(super) fn shapes(tour: &mut Tour) {
    tour.shape::<AppliedManifest>("apply -f compose.yaml");
    tour.shape::<AppliedManifest>("pull shop");
    tour.shape::<Changed>("scale shop web=3");
    tour.shape::<Changed>("restart shop web");
    tour.shape::<Changed>("pause shop");
    tour.shape::<Changed>("resume shop");
    tour.shape::<Changed>("rollback shop --wait");
    tour.shape::<Vec<EvenOutMove>>("rebalance --plan");
    tour.shape::<Changed>("quota set other --replicas 5");
    tour.shape::<Changed>("quota rm other");
    let _ = tour.machine.ask(&["apply", "-f", "canary.yaml", "--wait"]);
    tour.shape::<Changed>("promote shop");
    tour.shape::<Changed>("rm shop --wait");
    in_yaml(tour);
    assert_shape::<AppliedManifest>(&tour.machine.json(&["apply", "-f", "compose.yaml", "--wait"]));
}

/// Each command again with `-o yaml`, on a new deployment.
fn in_yaml(tour: &mut Tour) {
    tour.shape_in_yaml::<AppliedManifest>("apply -f compose.yaml --wait");
    tour.shape_in_yaml::<AppliedManifest>("pull shop");
    tour.shape_in_yaml::<Changed>("restart shop web");
    tour.shape_in_yaml::<Changed>("pause shop");
    tour.shape_in_yaml::<Changed>("resume shop --wait");
    tour.shape_in_yaml::<Changed>("scale shop web=3");
    tour.shape_in_yaml::<Changed>("rollback shop --wait");
    tour.shape_in_yaml::<Vec<EvenOutMove>>("rebalance --plan");
    tour.shape_in_yaml::<Changed>("quota set yet-another --replicas 5");
    tour.shape_in_yaml::<Changed>("quota rm yet-another");
    let _ = tour.machine.ask(&["apply", "-f", "canary.yaml", "--wait"]);
    tour.shape_in_yaml::<Changed>("promote shop");
    tour.shape_in_yaml::<Changed>("rm shop --wait");
}
