//! `restart` and `deploy.restart_policy`: what they mean, and that `config` prints what was understood.

use longshore_compose::load_text;
use longshore_model::{
    DeploymentSpec, ServiceKind, ServiceSpec,
    service::{AfterExhaustion, RestartCondition, RestartPolicy},
};

fn load(text: &str) -> (DeploymentSpec, Vec<String>) {
    let (spec, warnings) =
        load_text("compose.yaml", text, "shop", "default").unwrap_or_else(|problems| panic!("{problems}"));
    (spec, warnings.iter().map(ToString::to_string).collect())
}

fn web(keys: &str) -> ServiceSpec {
    let (spec, warnings) = load(&format!("services: {{ web: {{ image: a, {keys} }} }}"));
    assert_eq!(warnings, [""; 0], "{keys}");
    (*spec.services["web"]).clone()
}

fn policy(condition: RestartCondition, max_attempts: Option<u32>, after_exhaustion: AfterExhaustion) -> RestartPolicy {
    RestartPolicy { condition, max_attempts, after_exhaustion, ..RestartPolicy::default() }
}

#[test]
fn every_word_is_understood_without_a_warning() {
    use AfterExhaustion::{GiveUp, Return};
    use RestartCondition::{Any, None as Never, OnFailure};
    for (keys, expected) in [
        ("", policy(Any, None, GiveUp)),
        ("restart: always", policy(Any, None, Return)),
        ("restart: unless-stopped", policy(Any, None, Return)),
        ("restart: \"no\"", policy(Never, None, GiveUp)),
        ("restart: no", policy(Never, None, GiveUp)),
        ("restart: false", policy(Never, None, GiveUp)),
        ("restart: on-failure", policy(OnFailure, Some(u32::MAX), GiveUp)),
        ("restart: on-failure:0", policy(OnFailure, Some(u32::MAX), GiveUp)),
        ("restart: \"on-failure:2\"", policy(OnFailure, Some(3), GiveUp)),
        ("restart: always, deploy: { restart_policy: { condition: none } }", policy(Never, None, GiveUp)),
        ("restart: \"no\", deploy: { restart_policy: { condition: any } }", policy(Any, None, Return)),
        ("deploy: { restart_policy: { condition: any, max_attempts: 4 } }", policy(Any, Some(5), GiveUp)),
        ("restart: always, deploy: { restart_policy: { max_attempts: 4 } }", policy(Any, Some(5), GiveUp)),
        ("deploy: { restart_policy: { condition: on-failure } }", policy(OnFailure, None, GiveUp)),
    ] {
        assert_eq!(web(keys).restart, expected, "{keys}");
    }
}

#[test]
fn a_word_that_is_none_is_refused_with_the_words_there_are() {
    for word in ["sometimes", "on-failure:many", "on-failure:-1"] {
        let text = format!("services: {{ web: {{ image: a, restart: \"{word}\" }} }}");
        let problems = load_text("compose.yaml", &text, "shop", "default").unwrap_err().to_string();
        let expected = "`restart` of service `web` must be `no`, `always`, `unless-stopped` or `on-failure[:n]`, not";
        assert!(problems.contains(expected), "{problems}");
    }
}

/// A service `app` that waits for `migrate` to complete.
fn waited_for(keys: &str) -> (ServiceSpec, Vec<String>) {
    let (spec, warnings) = load(&format!(
        "services: {{ migrate: {{ image: a, {keys} }}, app: {{ image: b, depends_on: {{ migrate: {{ condition: \
         service_completed_successfully }} }} }} }}"
    ));
    ((*spec.services["migrate"]).clone(), warnings)
}

#[test]
fn what_another_waits_for_to_complete_is_a_job_unless_the_file_says_otherwise() {
    for (keys, kind, condition) in [
        ("", ServiceKind::Batch, RestartCondition::None),
        ("restart: \"no\"", ServiceKind::Batch, RestartCondition::None),
        ("restart: on-failure", ServiceKind::Batch, RestartCondition::OnFailure),
        ("deploy: { mode: global }, restart: \"no\"", ServiceKind::System, RestartCondition::None),
        ("x-longshore: { placement: global }", ServiceKind::Sysbatch, RestartCondition::None),
        ("deploy: { mode: replicated-job }", ServiceKind::Batch, RestartCondition::Any),
    ] {
        let (migrate, warnings) = waited_for(keys);
        assert_eq!((migrate.kind, migrate.restart.condition), (kind, condition), "{keys}");
        assert_eq!(warnings, [""; 0], "{keys}");
    }
    let (migrate, warnings) = waited_for("restart: always");
    assert_eq!((migrate.kind, migrate.restart.condition), (ServiceKind::Service, RestartCondition::Any));
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    let expected = "service `app` waits for service `migrate` to complete, which is started again when it ends";
    assert!(warning.contains(expected), "{warning}");
}
