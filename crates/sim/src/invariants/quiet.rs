//! Once no more steps come, the scheduler stops making plans: the last plan is empty.

use longshore_model::Time;

pub(crate) const NAME: &str = "quiet";

pub(super) fn message(last_plan: Time) -> String {
    format!("a plan was still made at {last_plan}, long after the last step")
}
