//! `node` commands.

use longshore_api::Changed;

use super::Tour;

pub(super) fn intents(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says("node label n1-2 zone=east"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("node label n1-2 zone"), @r"
    exit 2
    error: invalid value 'zone' for '<KEY=VALUE>...': expected `NAME=VALUE`

    For more information, try '--help'.
    ");
    let inspected = tour.says("node inspect n1-2");
    // The load and the size depend on the machine, the block on chance, and whether the rebalance has moved a replica here
    // yet on the time.
    let volatile = ["measured", "cores", "disk", "memory", "replicas", "block"];
    let is_steady = |line: &&str| volatile.iter().all(|volatile| !line.starts_with(volatile));
    let steady = inspected.lines().filter(is_steady);
    let steady = steady.fold(String::new(), |out, line| out + line + "\n");
    let steady = steady.replace("linux/amd64", "linux/[ARCH]").replace("linux/arm64", "linux/[ARCH]");
    insta::assert_snapshot!(steady, @r"
    exit 0
    NODE n1-2
    health ready
    intent active
    role manager
    pool default
    data centre
    platform linux/[ARCH]
    drivers exec
    labels zone=east
    kept for the machine 0 MiB, 0 cores
    devices
    ");
    for line in [
        "node set n1-2 --pool default --datacenter east --device gpu=2",
        "node degrade n1-2",
        "node override n1-2",
        "node override n1-2 --off",
        "node recover n1-2",
    ] {
        assert_eq!(tour.says(line), "exit 0\ndone\n", "{line}");
    }
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
    insta::assert_snapshot!(tour.says("node isolate n1-2"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("node heal n1-2"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(tour.says("node lost n1-2"), @r"
    exit 1
    error: node `n1-2` still sends heartbeats and cannot be declared lost (node_still_alive)

    hint: wait until the node is suspect or down, or drain it
    ");
    insta::assert_snapshot!(tour.says("node rm n1"), @r"
    exit 1
    error: node `n1` is the only server, and with it the cluster would be gone (last_server)

    hint: let another server join first, or stop the daemon and empty its data directory
    ");
}

pub(super) fn a_node_is_drained(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says_without_progress("node drain n1-2 --wait"), @r"
    exit 0
    node n1-2 is drained
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
        "node set n1-2 --datacenter west",
        "node degrade n1-2",
        "node override n1-2",
        "node recover n1-2",
        "node pause n1-2",
        "node activate n1-2",
        "node drain n1-2 --wait",
        "node activate n1-2",
    ] {
        tour.shape::<Changed>(line);
        tour.shape_in_yaml::<Changed>(line);
    }
    tour.shape::<Changed>("node isolate n1-2");
    tour.shape_in_yaml::<Changed>("node isolate n1-2");
    // Its heartbeats no longer arrive, so it may be declared lost, and then removed.
    tour.machine
        .wait_for("a node that is down", || tour.machine.json(&["node", "inspect", "n1-2"])["health"] == "down");
    tour.shape::<Changed>("node lost n1-2");
    tour.shape_in_yaml::<Changed>("node lost n1-2");
    tour.shape::<Changed>("node heal n1-2");
    tour.shape_in_yaml::<Changed>("node heal n1-2");
    tour.machine
        .wait_for("a node that is back", || tour.machine.json(&["node", "inspect", "n1-2"])["health"] == "ready");
    tour.shape::<Changed>("node rm n1-2 --wait");
    tour.shape::<Changed>("rebalance --apply");
}
