//! The commands of the fixture `format-1-blocked`: those of the earlier fixtures, then a rollout whose next step is blocked.
//!
//! Never changed: the fixture was written from these. A kind of command added later gets a file and a fixture of its own.

use std::sync::Arc;

use longshore_model::{Actor, Command, GroupKey, GroupPlan, Plan, PlanItem, Time};
use longshore_store::replicated::Proposal;

use crate::stop_commands;

pub(crate) fn commands() -> Vec<Proposal> {
    let at = Time(1_700_000_400_000);
    let group = GroupKey { namespace: "default".into(), deployment: "shop".into(), service: "web".into() };
    let items = vec![PlanItem::Blocked { since: Some(at) }, PlanItem::Blocked { since: None }];
    let blocked = GroupPlan { group, reservation: Arc::default(), items };
    let plan = Plan { made_at: at, groups: vec![blocked], ..Plan::default() };
    let by_ann = |command| Proposal { command, key: None, request: None, actor: Actor::Operator("ann".to_owned()), at };
    let mut all = stop_commands::commands();
    all.push(by_ann(Command::Commit(Box::new(plan))));
    all
}
