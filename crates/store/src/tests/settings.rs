//! Compare-and-set of the cluster settings.

use longshore_model::{ClusterConfig, Command, Event};

use crate::{CommandError, State};

fn change(expected: &ClusterConfig, config: &ClusterConfig) -> Command {
    Command::ChangeSettings { expected: Box::new(expected.clone()), config: Box::new(config.clone()) }
}

#[test]
fn of_two_changes_computed_from_the_same_settings_the_second_is_refused_and_can_be_repeated() {
    let mut state = State::default();
    let before = state.config().clone();
    let first = ClusterConfig { suspect_after_missed: 5, ..before.clone() };
    let second = ClusterConfig { down_after_missed: 20, ..before.clone() };
    assert_eq!(state.apply(change(&before, &first)), Ok(vec![Event::Configured(first.clone())]));
    let refused = state.apply(change(&before, &second)).unwrap_err();
    assert_eq!((&refused, refused.code()), (&CommandError::SettingsConflict, "settings_conflict"));
    assert_eq!((state.config(), state.index().0), (&first, 1), "a refused change leaves no trace");

    let both = ClusterConfig { down_after_missed: 20, ..first.clone() };
    state.apply(change(&first, &both)).unwrap();
    assert_eq!((state.config().suspect_after_missed, state.config().down_after_missed), (5, 20), "neither is lost");
}

#[test]
fn a_change_that_is_in_force_already_succeeds_and_changes_nothing() {
    let mut state = State::default();
    let before = state.config().clone();
    let wanted = ClusterConfig { suspect_after_missed: 5, ..before.clone() };
    state.apply(change(&before, &wanted)).unwrap();
    assert_eq!(state.apply(change(&before, &wanted)), Ok(Vec::new()));
}

#[test]
fn the_unconditional_command_of_older_logs_still_applies() {
    let mut state = State::default();
    let config = ClusterConfig { suspect_after_missed: 5, ..ClusterConfig::default() };
    state.apply(Command::Configure(config.clone())).unwrap();
    assert_eq!(state.config(), &config);
}
