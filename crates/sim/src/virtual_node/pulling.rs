//! Pulls each image once per node, however many containers wait for it.
//!
//! Owns: pulls under way, the containers that wait for them, and the back-off of failed pulls.
//! Invariant: there is at most one pull of an image at a time.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use longshore_model::{
    ReplicaKey, ReplicaState, RuntimeCode, Time,
    replica::{Detail, Details, RegistryAnswer},
};

use super::{Outbox, Timer, VirtualNode};
use crate::scenario::Pull;

/// Time a failing pull takes to fail: as long as a good one takes by default.
const FAILS_AFTER: Duration = Duration::from_secs(1);
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(5);

/// A pull that is under way or about to be tried again.
#[derive(Debug, Default)]
pub(super) struct PullState {
    failures: u32,
    waiting: BTreeSet<ReplicaKey>,
}

impl VirtualNode {
    pub(super) fn await_image(&mut self, key: &ReplicaKey, image: &Arc<str>, now: Time, out: &mut Outbox) {
        let is_new = !self.pulls.contains_key(image);
        let pull = self.pulls.entry(Arc::clone(image)).or_default();
        pull.waiting.insert(key.clone());
        let failures = pull.failures;
        self.report_pull(key, image, failures, out);
        if is_new {
            self.pull(image, now, out);
        }
    }

    /// Tries to pull. Waiting containers keep the status of the last attempt, so that it does not flicker.
    pub(super) fn pull(&mut self, image: &Arc<str>, now: Time, out: &mut Outbox) {
        if self.pulls.contains_key(image) {
            let takes = match self.behaviour(image).pull {
                Pull::Takes(time) => time,
                Pull::Fails | Pull::Refused(_) => FAILS_AFTER,
            };
            out.timers.push((now.after(takes), Timer::PullEnds(Arc::clone(image))));
        }
    }

    pub(super) fn pull_ended(&mut self, image: &Arc<str>, now: Time, out: &mut Outbox) {
        let Some(mut pull) = self.pulls.remove(image) else { return };
        match self.behaviour(image).pull {
            Pull::Takes(_) => {
                self.images.insert(Arc::clone(image));
                for key in &pull.waiting {
                    self.begin(key, now, out);
                }
            }
            Pull::Fails | Pull::Refused(_) => {
                // A slot that was removed and created again has the same key and may need another image.
                pull.waiting.retain(|key| self.containers.get(key).is_some_and(|known| known.awaits(image)));
                if pull.waiting.is_empty() {
                    return;
                }
                pull.failures += 1;
                out.timers.push((now.after(back_off(pull.failures)), Timer::PullAgain(Arc::clone(image))));
                for key in &pull.waiting {
                    self.report_pull(key, image, pull.failures, out);
                }
                self.pulls.insert(Arc::clone(image), pull);
            }
        }
    }

    fn report_pull(&mut self, key: &ReplicaKey, image: &str, failures: u32, out: &mut Outbox) {
        let mut details = Details::from([("image".to_owned(), Detail::Text(image.to_owned()))]);
        if let (1.., Pull::Refused(answer)) = (failures, self.behaviour(image).pull) {
            details.insert(RegistryAnswer::DETAIL.to_owned(), Detail::Text(answer.as_str().to_owned()));
        }
        if failures == 0 {
            self.report(key, ReplicaState::Pulling, Some(RuntimeCode::Pulling), details, out);
        } else {
            self.report(key, ReplicaState::Pending, Some(RuntimeCode::ImagePullFailed), details, out);
        }
    }
}

/// 1 s, 2 s, 4 s, … 5 min.
fn back_off(failures: u32) -> Duration {
    let doubled = 2_u32.checked_pow(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_BACK_OFF.saturating_mul(doubled).min(LONGEST_BACK_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_up_to_five_minutes() {
        let seconds: Vec<u64> = (1..=10).map(|failures| back_off(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(back_off(u32::MAX).as_secs(), 300);
    }
}
