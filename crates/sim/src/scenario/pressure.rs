//! The verb `pressure`: the load of a machine.
//!
//! Owns: its keys and their ranges. Must not touch: the effects of the load.

use longshore_compose::{Diagnostics, Extensions, yaml::Node as Yaml};
use longshore_model::{NodeName, rebalance::Share};

use super::{Action, Load, LoadMode, timeline::Actions};

const KEYS: &[&str] = &["node", "cpu", "memory", "fixed"];

pub(super) fn read(value: &Yaml, problems: &mut Diagnostics) -> Actions {
    let what = "`pressure`";
    let mapping = problems.mapping(value, what)?;
    problems.known_keys(mapping, what, KEYS, Extensions::Refused);
    let node = problems.required(value, "node", what)?;
    let name = NodeName::from(problems.text(node, "`node`")?);
    let part = |key: &str| mapping.get(key).filter(|node| !node.is_null());
    let cpu = part("cpu").map(|node| share(node, "`cpu`", problems));
    let memory = part("memory").map(|node| share(node, "`memory`", problems));
    if cpu.is_none() && memory.is_none() {
        problems.error(&value.location, "`pressure` says nothing").hint("add `cpu: 0.95`, `memory: 0.3` or both");
        return None;
    }
    let mode = match part("fixed").map(|node| problems.boolean(node, "`fixed`")) {
        Some(fixed) if fixed? => LoadMode::Fixed,
        Some(_) | None => LoadMode::FollowsReplicas,
    };
    // An invalid share already has a diagnostic; the rest of the entry is read to find further problems.
    let (cpu, memory) = (cpu.flatten(), memory.flatten());
    Some(vec![(node.location.clone(), Action::SetLoad(name, Load { cpu, memory, mode }))])
}

fn share(node: &Yaml, what: &str, problems: &mut Diagnostics) -> Option<Share> {
    let millionths = problems.millionths(node, what)?;
    let share = i64::try_from(millionths).ok().map(Share).filter(|share| *share <= Share::WHOLE);
    if share.is_none() {
        problems
            .error(&node.location, format!("{what} is more than all there is"))
            .hint("write it from 0 to 1; 0.95 is 95 percent of the machine");
    }
    share
}
