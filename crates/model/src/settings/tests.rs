//! Settings are printed and parsed alike, and errors say what to do.

use super::*;

fn set(name: &str, value: &str) -> Result<ClusterConfig, Vec<SettingError>> {
    changed(&ClusterConfig::default(), &[(name.to_owned(), value.to_owned())].into())
}

#[test]
fn what_is_printed_is_read_as_the_same_and_nothing_is_left_out() {
    let mut printed = print(&ClusterConfig::default());
    assert_eq!(printed.len(), SETTINGS.len(), "names are unique");
    assert_eq!(changed(&ClusterConfig::default(), &printed).unwrap(), ClusterConfig::default());
    let others = [("drain_timeout", "1m30s"), ("default_memory", "64MiB"), ("cpu_overcommit_ratio", "1.5")];
    printed.extend(others.map(|(name, value)| (name.to_owned(), value.to_owned())));
    printed.insert("preemption".to_owned(), "on".to_owned());
    let other = changed(&ClusterConfig::default(), &printed).unwrap();
    assert_eq!(print(&other), printed);
    assert_eq!((other.drain_timeout, other.preemption), (Duration::from_secs(90), Preemption::On));
}

#[test]
fn an_error_names_the_setting_and_the_remedy() {
    let said = |name, value| {
        let errors = set(name, value).unwrap_err();
        let texts = errors.iter().map(|error| format!("{error}|{}", error.hint().unwrap_or_default()));
        texts.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        said("drain_timeout", "soon"),
        "`drain_timeout`: `soon` is not a duration; write it like `30s`, `1m30s` or `500ms`|"
    );
    assert_eq!(said("drain_time", "1m"), "unknown setting `drain_time`|did you mean `drain_timeout`?");
    assert_eq!(
        said("down_after_missed", "2"),
        "`down_after_missed` must be more than `suspect_after_missed`|\
         a node is suspect first and down later; the defaults are 3 and 10"
    );
    assert_eq!(said("node_status_interval", "1s"), "`node_status_interval` must be from 5s to 5m|");
    assert_eq!(said("heartbeat_interval", "1ms"), "`heartbeat_interval` must be at least 10ms|");
    assert_eq!(said("cpu_overcommit_ratio", "0"), "`cpu_overcommit_ratio` must be more than 0.0|");
    assert_eq!(said("suspect_after_missed", "-1"), {
        "`suspect_after_missed` must be a whole number, zero or more, not `-1`|"
    });
    assert_eq!(said("preemption", "maybe"), "`preemption` must be `on` or `off`, not `maybe`|");
    assert_eq!(
        said("cluster_prefix", "fd00::/48"),
        "`cluster_prefix` cannot be changed: replicas have addresses of it|"
    );
    assert_eq!(set("gc_nodes", "1h").unwrap().gc_nodes, Duration::from_hours(1));
}

#[test]
fn a_setting_describes_itself() {
    let setting = Setting::find("node_status_interval").unwrap();
    assert_eq!((setting.kind, setting.default_value().as_str()), (SettingKind::Duration, "30s"));
    assert_eq!(setting.allowed().as_deref(), Some("from 5s to 5m"));
    assert_eq!(setting.description, "Time between two samples of the load of a node and its replicas");
    assert_eq!(Setting::find("gc_nodes").unwrap().allowed(), None);
}
