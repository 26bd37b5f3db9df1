//! Nodes: what is wanted of them, and emptying one.

use longshore_api::Changed;

use super::Tour;

pub(super) fn words(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says("node label n1-2 zone=east"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("node label n1-2 zone"), @r"
    exit 2
    error: invalid value 'zone' for '<KEY=VALUE>...': a name, `=` and a value

    For more information, try '--help'.
    ");
    let inspected = tour.says("node inspect n1-2");
    // How busy the machine is, and how large, is not for us to say.
    let steady = inspected.lines().filter(|line| !line.starts_with("measured") && !line.starts_with("cores"));
    let steady = steady.fold(String::new(), |out, line| out + line + "\n");
    let steady = steady.replace("linux/amd64", "linux/[ARCH]").replace("linux/arm64", "linux/[ARCH]");
    insta::assert_snapshot!(steady, @r"
    exit 0
    NODE n1-2
    health ready
    intent active
    role manager
    platform linux/[ARCH]
    drivers exec
    labels zone=east
    memory 0 of # given out
    replicas 0
    ");
    insta::assert_snapshot!(tour.says("node pause n1-2"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("node pause n1-2"), @r"
    exit 0
    unchanged
    ");
    insta::assert_snapshot!(tour.says("node activate n1-2"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("node cut n1-2"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("node mend n1-2"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("node lost n1-2"), @r"
    exit 1
    error: node `n1-2` is heard of and cannot be given up for lost (node_is_heard_of)

    hint: wait until the node is suspect or down; to empty one that is well, drain it
    ");
    insta::assert_snapshot!(tour.says("node rm n1"), @r"
    exit 1
    error: node `n1` is the only server, and with it the cluster would be gone (last_server)

    hint: let another server join first, or end the daemon and empty its folder
    ");
}

pub(super) fn a_node_is_emptied(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says_in_the_end("node drain n1-2 --wait"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("node ls"), @r"
    exit 0
    NODE HEALTH INTENT REPLICAS MEMORY DRIVERS
    n1 ready active 2 # exec
    n1-2 ready draining 0 # exec
    ");
    let _ = tour.machine.ask(&["node", "activate", "n1-2"]);
}

pub(super) fn shapes(tour: &mut Tour) {
    for line in [
        "node label n1 zone=east",
        "node pause n1-2",
        "node activate n1-2",
        "node drain n1-2 --wait",
        "node activate n1-2",
    ] {
        tour.shape::<Changed>(line);
        tour.shape_in_yaml::<Changed>(line);
    }
    tour.shape::<Changed>("node cut n1-2");
    tour.shape_in_yaml::<Changed>("node cut n1-2");
    // Nobody hears of it any more, so it may be given up for lost, and then taken out.
    tour.machine
        .wait_for("a node that is down", || tour.machine.json(&["node", "inspect", "n1-2"])["health"] == "down");
    tour.shape::<Changed>("node lost n1-2");
    tour.shape_in_yaml::<Changed>("node lost n1-2");
    tour.shape::<Changed>("node mend n1-2");
    tour.shape_in_yaml::<Changed>("node mend n1-2");
    tour.machine
        .wait_for("a node that is back", || tour.machine.json(&["node", "inspect", "n1-2"])["health"] == "ready");
    tour.shape::<Changed>("node rm n1-2 --wait");
    tour.shape::<Changed>("rebalance --apply");
}
