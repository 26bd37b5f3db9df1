//! Commands that only read: `status`, `why`, `plan`, `whatif`, `audit` and lists.

use longshore_api::{
    AuditEntry, Deployment, ManifestPlan, NamespaceRow, NetworkRow, Node, Replica, ServiceNetwork, VolumeRow, WhatIf,
    Why,
};
use serde::{Deserialize, Serialize};

use super::Tour;

pub(super) fn queries(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says("status"), @r"
    exit 0
    DEPLOYMENT STATUS REVISION RUNNING REASONS
    shop active 1 2/2

    SERVICE IMAGE RUNNING PORTS
    shop/web none 2/2

    REPLICA STATE NODE GENERATION REVISION AGE RESTARTS CODE
    shop-web-0 running n1 1 1 [AGE] 0
    shop-web-1 running n1-2 1 1 [AGE] 0
    ");
    insta::assert_snapshot!(tour.says("status -n team"), @r"
    exit 0
    nothing is deployed
    ");
    insta::assert_snapshot!(tour.says("node ls"), @r"
    exit 0
    NODE HEALTH INTENT REPLICAS MEMORY DRIVERS
    n1 ready active 1 # exec
    n1-2 ready active 1 # exec
    ");
    insta::assert_snapshot!(tour.says("why shop-web-1"), @r"
    exit 0
    shop-web-1 is on n1-2: spread, 2 of 2 nodes fit
    placed [DATE] [TIME] compared at log index #

    NODE RECENT FAILURES SAME SERVICE AFFINITY PENALTY CPU RESERVED ALL REPLICAS
    > n1-2 no 0 0 0% 0
    n1 no 1 0 0% 1
    ");
    insta::assert_snapshot!(tour.says("why shop/web"), @r"
    exit 0
    shop/web: 2 of 2 replicas have a node, none waits
    ");
    insta::assert_snapshot!(tour.says("whatif --down n1-2"), @r"
    exit 0
    REPLICA FROM TO
    shop-web-1 n1-2 n1

    NODE USABLE REPLICAS MEMORY USED FREE
    n1 yes 1 -> 2 16 -> # #
    n1-2 no 1 # #
    ");
    insta::assert_snapshot!(tour.says("volume ls"), @r"
    exit 0
    no volumes
    ");
    // Volumes need an engine; their story is in `images_and_data`.
    tour.endless("volume inspect");
    tour.endless("volume rm");
}

pub(super) fn plans(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says("plan -f report.yaml"), @r"
    exit 0
    shop would be at revision 2

    SERVICE CHANGE REPLICAS FIELDS
    + report added 1 waiting
    web unchanged

    1 of shop/report waits: no_capacity_memory
    0 of 2 nodes fit: needs 900000 GiB, best has # free on n1
    ");
    insta::assert_snapshot!(tour.says("plan -f compose.yaml -f compose.prod.yaml"), @r"
    exit 0
    shop would be at revision 2

    SERVICE CHANGE REPLICAS FIELDS
    ! web destructive 2 replaced !environment.MODE

    REPLICA FROM TO
    shop-web-0 n1 n1
    shop-web-1 n1-2 n1-2
    ");
    insta::assert_snapshot!(tour.says("plan -f compose.yaml -f compose.wider.yaml"), @r"
    exit 0
    shop would be at revision 2

    SERVICE CHANGE REPLICAS FIELDS
    ~ web in_place 1 new ~deploy.replicas

    REPLICA FROM TO
    shop-web-2 - n1
    ");
    insta::assert_snapshot!(tour.says("plan -f compose.yaml -f compose.more.yaml --overlay routes.yaml"), @r"
    exit 0
    shop would be at revision 2

    SERVICE CHANGE REPLICAS FIELDS
    ! web destructive 1 new, 2 replaced ~deploy.replicas, !environment.MODE

    outside services: routes.shop.example

    REPLICA FROM TO
    shop-web-0 n1 n1
    shop-web-1 n1-2 n1-2
    shop-web-2 - n1-2
    ");
}

/// Unknown names: the hint suggests the nearest name, and never the given one.
pub(super) fn mistakes(tour: &mut Tour) {
    insta::assert_snapshot!(tour.says("why shop-wep-0"), @r"
    exit 1
    error: there is no replica `shop-wep-0` (not_found)

    hint: did you mean `shop-web-0`?
    ");
    insta::assert_snapshot!(tour.says("status shoq"), @r"
    exit 1
    error: there is no deployment `shoq` (not_found)

    hint: did you mean `shop`?
    ");
    insta::assert_snapshot!(tour.says("scale shop wep=2"), @r"
    exit 1
    error: deployment `shop` has no service `wep` (unknown_service)

    hint: did you mean `web`?
    ");
    insta::assert_snapshot!(tour.says("node inspect n2"), @r"
    exit 1
    error: there is no node `n2` (not_found)

    hint: did you mean `n1`?
    ");
    insta::assert_snapshot!(tour.says("why shop/web -n team"), @r"
    exit 1
    error: there is no service `shop/web` (not_found)

    hint: `shop/web` is in the namespace `default`: use `-n default`
    ");
    insta::assert_snapshot!(tour.says("why shop"), @r"
    exit 1
    error: there is no replica `shop` (not_found)

    hint: `shop` is a deployment: name a service or a replica of it, for instance `shop/web`
    ");
    insta::assert_snapshot!(tour.says("apply -f missing.yaml"), @r"
    exit 2
    missing.yaml:1:1: error: the file `missing.yaml` does not exist

    hint: check the path

    1 error
    ");
}

#[derive(Serialize, Deserialize)]
struct Status {
    deployments: Vec<Deployment>,
    replicas: Vec<Replica>,
}

pub(super) fn shapes(tour: &mut Tour) {
    tour.shape::<Status>("status");
    tour.shape::<Why>("why shop-web-0");
    tour.shape::<Why>("why shop/web");
    tour.shape::<ManifestPlan>("plan -f report.yaml");
    tour.shape::<WhatIf>("whatif --drain n1");
    tour.shape::<Vec<Node>>("node ls");
    tour.shape::<Node>("node inspect n1");
    tour.shape::<Vec<NamespaceRow>>("namespace ls");
    assert!(tour.says("network ls").contains("default/shop/default"));
    assert!(tour.says("network inspect default/shop/default").contains("shop/web"));
    assert!(tour.says("service inspect shop/web").contains("shop-web-0"));
    tour.shape::<Vec<NetworkRow>>("network ls");
    tour.shape::<NetworkRow>("network inspect default/shop/default");
    tour.shape::<ServiceNetwork>("service inspect shop/web");
    tour.shape::<Vec<VolumeRow>>("volume ls");
}

pub(super) fn audit(tour: &mut Tour) {
    let records = tour.shape::<Vec<AuditEntry>>("audit --limit 1000 --type quota_set");
    assert_eq!(records[0]["subject"], "default", "{records:#}");
    // `--most` is the older name of `--limit`.
    let newest = tour.machine.json(&["audit", "--most", "1", "--type", "quota_set"]);
    assert_eq!(newest[0], records[records.as_array().unwrap().len() - 1], "the newest entry of that action");
    // Numbers and actors depend on what ran before.
    let said = tour.says("audit --limit 1000 --type quota_set");
    let steady = |word: &str| match word {
        _ if word.parse::<u64>().is_ok() => "[N]".to_owned(),
        _ if word.starts_with("operator/") => "[WHO]".to_owned(),
        _ => word.to_owned(),
    };
    let lines = said.lines().skip(1).map(|line| line.split(' ').map(steady).collect::<Vec<_>>().join(" "));
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
    # TIME ACTOR ACTION SUBJECT OUTCOME
    [N] [DATE] [TIME] [WHO] quota_set default done
    [N] [DATE] [TIME] [WHO] quota_set default done
    [N] [DATE] [TIME] [WHO] quota_set other done
    [N] [DATE] [TIME] [WHO] quota_set other done
    [N] [DATE] [TIME] [WHO] quota_set yet-another done
    [N] [DATE] [TIME] [WHO] quota_set yet-another done
    ");
}
