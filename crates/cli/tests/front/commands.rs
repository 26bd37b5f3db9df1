//! What each command says to people and to programs, on a daemon of two nodes.

use std::{
    fmt::Write as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use longshore_api::{
    AppliedManifest, AuditEntry, Changed, Deployment, EvenOutMove, ManifestPlan, NamespaceRow, Node, Replica,
    VolumeRow, WhatIf, Why,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::machine::{Machine, steady};

const SHOP: &str = "\
name: shop
services:
  web:
    image: none
    command: [sleep, \"600\"]
    x-longshore: { driver: exec }
    deploy: { replicas: 2, resources: { limits: { memory: 16m } }, update_config: { monitor: 50ms } }
";
const REPORT: &str = r#"  report:
    image: none
    command: [sleep, "600"]
    x-longshore: { driver: exec }
    deploy: { resources: { limits: { memory: 900000g } } }
"#;

fn shop() -> Machine {
    let mut machine = Machine::new();
    machine.start_daemon_of("n1", 2);
    machine.write("compose.yaml", SHOP);
    machine.write("compose.prod.yaml", "services: { web: { environment: { MODE: prod } } }\n");
    machine.write("compose.more.yaml", "services: { web: { environment: { MODE: prod }, deploy: { replicas: 3 } } }\n");
    machine.write("longshore.yaml", "deployment: shop\nroutes: [ { domain: shop.example, service: web, port: 80 } ]\n");
    machine.write("compose.wider.yaml", "services: { web: { deploy: { replicas: 3 } } }\n");
    machine.write("report.yaml", &format!("{SHOP}{REPORT}"));
    let applied = machine.ask(&["apply", "-f", "compose.yaml", "--wait"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    machine
}

/// What a command says, with its exit code in front.
fn said(machine: &Machine, line: &str) -> String {
    let output = machine.ask(&line.split(' ').collect::<Vec<_>>());
    let mut text = format!("exit {}\n", output.status.code().unwrap());
    let _ = write!(text, "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    steady(&text)
}

/// The same without the lines of progress, which depend on when somebody looked.
fn said_in_the_end(machine: &Machine, line: &str) -> String {
    let said = said(machine, line);
    said.lines().filter(|line| !line.starts_with("shop-")).fold(String::new(), |out, line| out + line + "\n")
}

#[test]
fn every_answer_is_in_words_people_read() {
    let machine = shop();
    insta::assert_snapshot!(said(&machine, "status"), @r"
    exit 0
    DEPLOYMENT STATUS REVISION RUNNING REASONS
    shop active 1 2/2

    REPLICA STATE NODE RESTARTS CODE
    shop-web-0 running n1 0
    shop-web-1 running n1-2 0
    ");
    insta::assert_snapshot!(said(&machine, "node ls"), @r"
    exit 0
    NODE HEALTH INTENT REPLICAS MEMORY DRIVERS
    n1 ready active 1 # exec
    n1-2 ready active 1 # exec
    ");
    insta::assert_snapshot!(said(&machine, "why shop-web-1"), @r"
    exit 0
    shop-web-1 is on n1-2: spread, 2 of 2 nodes fit

    NODE FAULTY HERE DISLIKED CPU_MILLIONTHS REPLICAS
    > n1-2 0 0 0 0 0
    n1 0 1 0 0 1
    ");
    insta::assert_snapshot!(said(&machine, "plan -f report.yaml"), @r"
    exit 0
    shop would be at revision 2

    SERVICE CHANGE REPLICAS FIELDS
    + report added 1 waiting
    web unchanged

    1 of shop/report waits: no_capacity_memory
    0 of 2 nodes fit: needs 900000 GiB, best has # free on n1
    ");
    insta::assert_snapshot!(said(&machine, "plan -f compose.yaml -f compose.prod.yaml"), @r"
    exit 0
    shop would be at revision 2

    SERVICE CHANGE REPLICAS FIELDS
    ! web destructive 2 replaced !environment.MODE

    REPLICA FROM TO
    shop-web-0 n1 n1
    shop-web-1 n1-2 n1-2
    ");
    insta::assert_snapshot!(said(&machine, "plan -f compose.yaml -f compose.wider.yaml"), @r"
    exit 0
    shop would be at revision 2

    SERVICE CHANGE REPLICAS FIELDS
    ~ web in_place 1 new ~deploy.replicas

    REPLICA FROM TO
    shop-web-2 - n1
    ");
    insta::assert_snapshot!(said(&machine, "plan -f compose.yaml -f compose.more.yaml -f longshore.yaml"), @r"
    exit 0
    shop would be at revision 2

    SERVICE CHANGE REPLICAS FIELDS
    ! web destructive 1 new, 2 replaced ~deploy.replicas, !environment.MODE

    beside the services: routes.shop.example

    REPLICA FROM TO
    shop-web-0 n1 n1
    shop-web-1 n1-2 n1-2
    shop-web-2 - n1-2
    ");
    insta::assert_snapshot!(said(&machine, "whatif --down n1-2"), @r"
    exit 0
    REPLICA FROM TO
    shop-web-1 n1-2 n1

    NODE USABLE REPLICAS MEMORY USED FREE
    n1 yes 1 -> 2 16 -> # #
    n1-2 no 1 # #
    ");
    let _ = machine.ask(&["rm", "shop", "--wait"]);
}

#[test]
fn what_cannot_be_had_is_explained_and_can_be_undone() {
    let machine = shop();
    insta::assert_snapshot!(said_in_the_end(&machine, "apply -f report.yaml --wait --timeout 3"), @r"
    exit 5
    shop applied, revision 2
    error: `shop` is not there in time: degraded: no_capacity_memory, rollout_in_progress

    hint: `longshore status shop` shows more, and `longshore why REPLICA` the reason
    ");
    insta::assert_snapshot!(said(&machine, "why shop/report"), @r"
    exit 0
    shop/report: 0 of 1 have a node
    1 waits: no_capacity_memory
    0 of 2 nodes fit: needs 900000 GiB, best has # free on n1
    ");
    insta::assert_snapshot!(said(&machine, "why shop-wep-0"), @r"
    exit 1
    error: there is no replica `shop-wep-0` (not_found)

    hint: did you mean `shop-web-0`?
    ");
    insta::assert_snapshot!(said_in_the_end(&machine, "rollback shop --wait"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(said(&machine, "rm shop --wait"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(said(&machine, "status"), @r"
    exit 0
    nothing is deployed
    ");
}

#[test]
fn a_namespace_has_ceilings_and_what_came_together_can_be_spread_anew() {
    let machine = shop();
    insta::assert_snapshot!(said(&machine, "quota set default --replicas 3 --cpu 1.5 --memory 64GiB"), @r"
    exit 0
    done
    ");
    insta::assert_snapshot!(said(&machine, "namespace ls"), @r"
    exit 0
    NAMESPACE DEPLOYMENTS REPLICAS CPU MEMORY
    default 1 2/3 0/1.5 32 #
    ");
    insta::assert_snapshot!(said(&machine, "scale shop web=4"), @r"
    exit 1
    error: the replicas quota of namespace `default` is 3, 2 in use, and 2 more would be needed (quota_exceeded)

    hint: raise the quota, or scale something else of the namespace down
    ");
    insta::assert_snapshot!(said(&machine, "quota set default"), @r"
    exit 2
    error: no ceiling is given

    hint: `--replicas`, `--cpu` or `--memory`; `quota rm` removes all
    ");
    insta::assert_snapshot!(said(&machine, "quota rm default"), @r"
    exit 0
    done
    ");
    assert!(said(&machine, "namespace ls").contains("default 1 2 0 #"), "{}", said(&machine, "namespace ls"));
    for slip in ["scale shop web=4294967295", "whatif --scale shop/web=4294967295"] {
        let said = said(&machine, slip);
        assert!(said.contains("(too_many_replicas)"), "{slip}: {said}");
    }
    let said_of_the_last = said(&machine, "node rm n1");
    assert!(said_of_the_last.contains("(last_server)"), "{said_of_the_last}");
    insta::assert_snapshot!(said(&machine, "rebalance --plan"), @r"
    exit 0
    nothing would move
    ");
    let _ = machine.ask(&["node", "drain", "n1-2"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !said(&machine, "node ls").contains("n1-2 ready draining 0") {
        assert!(Instant::now() < deadline, "{}", said(&machine, "node ls"));
        thread::sleep(Duration::from_millis(50));
    }
    let _ = machine.ask(&["node", "activate", "n1-2"]);
    insta::assert_snapshot!(said(&machine, "rebalance --plan"), @r"
    exit 0
    REPLICA FROM TO
    shop-web-1 n1 n1-2
    ");
    insta::assert_snapshot!(said(&machine, "rebalance --apply"), @r"
    exit 0
    done
    ");
    let _ = machine.ask(&["rm", "shop", "--wait"]);
}

/// Reads an answer as the API's own type, and demands that nothing is left over or missing.
fn is_exactly<T: DeserializeOwned + Serialize>(answer: &Value) {
    let read: T = serde_json::from_value(answer.clone()).unwrap_or_else(|error| panic!("{error}: {answer:#}"));
    assert_eq!(serde_json::to_value(&read).unwrap(), *answer);
}

#[test]
fn every_answer_has_the_shape_the_api_promises() {
    let machine = shop();
    is_exactly::<AppliedManifest>(&machine.json(&["apply", "-f", "report.yaml"]));
    let status = machine.json(&["status"]);
    is_exactly::<Vec<Deployment>>(&status["deployments"]);
    is_exactly::<Vec<Replica>>(&status["replicas"]);
    is_exactly::<Why>(&machine.json(&["why", "shop-web-0"]));
    is_exactly::<Why>(&machine.json(&["why", "shop/report"]));
    is_exactly::<ManifestPlan>(&machine.json(&["plan", "-f", "compose.yaml"]));
    is_exactly::<WhatIf>(&machine.json(&["whatif", "--drain", "n1"]));
    is_exactly::<Vec<Node>>(&machine.json(&["node", "ls"]));
    is_exactly::<Node>(&machine.json(&["node", "inspect", "n1"]));
    is_exactly::<Vec<NamespaceRow>>(&machine.json(&["namespace", "ls"]));
    is_exactly::<Vec<VolumeRow>>(&machine.json(&["volume", "ls"]));
    is_exactly::<Vec<EvenOutMove>>(&machine.json(&["rebalance", "--plan"]));
    is_exactly::<Changed>(&machine.json(&["quota", "set", "other", "--replicas", "5"]));
    is_exactly::<Vec<AuditEntry>>(&machine.json(&["audit"]));
    is_exactly::<Changed>(&machine.json(&["scale", "shop", "web=1"]));
    is_exactly::<Changed>(&machine.json(&["node", "label", "n1", "zone=east"]));
    let yaml = machine.ask(&["status", "-o", "yaml"]);
    assert!(String::from_utf8_lossy(&yaml.stdout).starts_with("deployments:\n  - name: shop\n"));
    let _ = machine.ask(&["rm", "shop", "--wait"]);
}

/// Commands listed in a help text.
fn words(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let first =
        |line: &str| line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty()).map(str::to_owned);
    listed.filter_map(first).filter(|word| word != "help").collect()
}

#[test]
fn every_example_in_a_help_text_is_understood() {
    let machine = shop();
    let help = |path: &[&str]| {
        let output = machine.ask(&[path, &["--help"]].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let (mut tried, mut without) = (0, Vec::new());
    for word in words(&help(&[])) {
        let inner = words(&help(&[&word]));
        let paths = if inner.is_empty() {
            vec![vec![word.clone()]]
        } else {
            inner.into_iter().map(|it| vec![word.clone(), it]).collect()
        };
        for path in paths {
            let text = help(&path.iter().map(String::as_str).collect::<Vec<_>>());
            if !text.contains("Example") {
                without.push(path.join(" "));
            }
            let examples =
                text.lines().skip_while(|line| *line != "Examples:").skip(1).take_while(|line| !line.is_empty());
            for example in examples.filter(|line| !line.contains('|')) {
                let line = example.trim().split("  ").next().unwrap();
                let ended = ends_within(&machine, line.strip_prefix("longshore ").unwrap(), Duration::from_secs(3));
                assert_ne!(ended, Some(2), "`{line}` is not understood");
                tried += 1;
            }
        }
    }
    assert!(tried >= 30, "only {tried} examples");
    without.retain(|path| !path.starts_with("sim "));
    assert_eq!(without, Vec::<String>::new());
    let _ = machine.ask(&["node", "mend", "n1"]);
    let _ = machine.ask(&["node", "activate", "n1"]);
    let _ = machine.ask(&["rm", "shop", "--wait"]);
}

/// The exit code of a command, or nothing where it goes on; it is ended then.
fn ends_within(machine: &Machine, line: &str, limit: Duration) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    machine.prepare(&mut command);
    command.args(line.split(' ')).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let until = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_shell_is_told_every_word() {
    let machine = Machine::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(machine.ask(&["completions", shell]).stdout).unwrap();
        assert!(script.contains("whatif") && script.contains("rollback"), "{shell}");
    }
}
