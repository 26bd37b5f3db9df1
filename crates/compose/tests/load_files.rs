//! Loading from several files: names, overlays, variables and warnings.

use std::collections::BTreeSet;

use longshore_compose::{Diagnostics, Loaded, Memory, Request, load};
use longshore_model::NodeName;

fn files(list: &[(&str, &str)]) -> Memory {
    Memory(list.iter().map(|(name, text)| (format!("/p/{name}"), (*text).to_owned())).collect())
}

fn request() -> Request {
    Request { working_directory: "/p".to_owned(), ..Request::default() }
}

fn loaded(request: &Request, memory: &Memory) -> Loaded {
    load(request, memory).unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems_of(request: &Request, memory: &Memory) -> Diagnostics {
    load(request, memory).map_or_else(|problems| problems, |loaded| loaded.warnings.into())
}

#[test]
fn the_name_comes_from_the_caller_then_the_variable_then_the_file_then_the_directory() {
    let named = files(&[("compose.yaml", "name: written\nservices: {a: {image: a}}\n")]);
    let plain = files(&[("compose.yaml", "services: {a: {image: \"a:${COMPOSE_PROJECT_NAME}\"}}\n")]);
    let name = |request: &Request, memory: &Memory| loaded(request, memory).deployment.to_string();
    assert_eq!(name(&request(), &named), "written");
    assert_eq!(name(&request(), &plain), "p");
    let mut request = request();
    request.environment.insert("COMPOSE_PROJECT_NAME".to_owned(), "variable".to_owned());
    assert_eq!(name(&request, &named), "variable");
    assert_eq!(loaded(&request, &plain).spec.services["a"].container.image, "a:variable");
    request.name = Some("given".to_owned());
    assert_eq!(name(&request, &named), "given");
    request.name = Some("Not Good".to_owned());
    assert!(problems_of(&request, &named).has_errors());
}

#[test]
fn a_byte_order_mark_does_not_rename_the_deployment() {
    for text in
        ["\u{feff}name: written\nservices: {a: {image: a}}\n", "\u{feff}{name: written, services: {a: {image: a}}}\n"]
    {
        assert_eq!(loaded(&request(), &files(&[("compose.yaml", text)])).deployment.as_str(), "written", "{text:?}");
    }
}

#[test]
fn a_host_the_cluster_does_not_have_is_only_a_warning() {
    let memory = files(&[(
        "compose.yaml",
        "services: {a: {image: a, deploy: {replicas: 2}, x-longshore: {placement: hosts, hosts: [n1, n9]}}}\n",
    )]);
    let mut request = request();
    request.nodes = Some(BTreeSet::from([NodeName::from("n1")]));
    let problems = problems_of(&request, &memory);
    assert!(!problems.has_errors());
    assert!(problems.to_string().contains("names the host `n9`, which the cluster does not have"));
}

#[test]
fn without_files_the_usual_names_are_looked_for() {
    let memory = files(&[
        ("docker-compose.yml", "services: {old: {image: a}}\n"),
        ("compose.yml", "services: {new: {image: a}}\n"),
    ]);
    assert!(loaded(&request(), &memory).spec.services.contains_key("new"));
    let problems = problems_of(&request(), &files(&[]));
    assert!(problems.has_errors());
    assert!(problems.to_string().contains("no Compose file; looked for `compose.yaml`"), "{}", problems);
    let mut request = request();
    request.environment.insert("COMPOSE_FILE".to_owned(), "docker-compose.yml:compose.yml".to_owned());
    assert_eq!(loaded(&request, &memory).spec.services.len(), 2);
}

#[test]
fn an_overlay_takes_its_variables_from_its_own_file_alone() {
    let memory = files(&[
        ("compose.yaml", "services: {a: {image: \"a:${TAG:-none}\"}}\n"),
        ("longshore.yaml", "deployment: d\nenvironment: prod.env\n"),
        ("prod.env", "OTHER=1\n"),
    ]);
    let mut request = request();
    request.environment.insert("TAG".to_owned(), "of the caller".to_owned());
    assert_eq!(loaded(&request, &memory).spec.services["a"].container.image, "a:none");
}

#[test]
fn problems_are_also_printed_as_json() {
    let memory = files(&[("compose.yaml", "services:\n  a: {imge: x}\n")]);
    let problems = problems_of(&request(), &memory);
    let json: serde_json::Value = serde_json::from_str(&problems.to_json()).expect("JSON");
    let first = json.as_array().and_then(|list| list.iter().find(|found| found["column"] == 7)).expect("the key");
    assert_eq!(first["severity"], "error");
    assert_eq!((first["file"].as_str(), first["line"].as_u64()), (Some("compose.yaml"), Some(2)));
    assert_eq!(first["hint"], "did you mean `image`?");
    assert_eq!(first["excerpt"], "  a: {imge: x}");
}

#[test]
fn waiting_for_completion_of_a_service_that_never_ends_gives_a_warning() {
    let memory = files(&[(
        "compose.yaml",
        "services:\n  app: {image: a, depends_on: {init: {condition: service_completed_successfully}}}\n  init: {image: b, restart: always}\n",
    )]);
    let problems = problems_of(&request(), &memory);
    assert!(!problems.has_errors());
    assert!(problems.to_string().starts_with("compose.yaml:2:32: warning: service `app` waits"), "{}", problems);
}

#[test]
fn many_warnings_hide_neither_an_error_nor_a_service() {
    let restarted = |name: &str, key: &str| format!("  {name}: {{image: a, container_name: b, {key}: x}}\n");
    let many =
        |letter: &str| -> String { (0..600).map(|at| restarted(&format!("{letter}{at}"), "hostname")).collect() };
    let good = files(&[("compose.yaml", &format!("services:\n{}", many("s")))]);
    assert_eq!(loaded(&request(), &good).spec.services.len(), 600);
    let bad = format!("services:\n{}{}{}", many("s"), restarted("wrong", "hstname"), many("t"));
    let problems = problems_of(&request(), &files(&[("compose.yaml", &bad)]));
    assert!(problems.to_string().contains("unknown key `hstname`"), "{problems}");
}
