//! Once nothing happens any more, nothing more is decided: the number of plans is finite and the last is empty.

use longshore_model::Time;

pub(crate) const NAME: &str = "quiet";

pub(super) fn message(last_plan: Time) -> String {
    format!("something was still decided at {last_plan}, long after the last thing had happened")
}
