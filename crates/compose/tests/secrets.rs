//! Secret values are printed only on request.

use longshore_compose::{Memory, Output, Request, Secrets, config};

fn case() -> (Request, Memory) {
    let files = [
        (
            "/p/compose.yaml",
            "services: {a: {image: a, secrets: [filed, variable, kept]}}
secrets: {filed: {file: ./secret.txt}, variable: {environment: TOKEN}, kept: {external: true}}\n",
        ),
        ("/p/secret.txt", "hunter2"),
    ];
    let memory = Memory(files.map(|(name, text)| (name.to_owned(), text.to_owned())).into());
    let mut request = Request { working_directory: "/p".to_owned(), ..Request::default() };
    request.environment.insert("TOKEN".to_owned(), "swordfish".to_owned());
    (request, memory)
}

#[test]
fn config_hides_secret_values_by_default() {
    let (request, memory) = case();
    for output in [Output::Yaml, Output::Json] {
        let hidden = config(&request, &memory, output, Secrets::Hidden).text;
        assert!(!hidden.contains("hunter2") && !hidden.contains("swordfish"), "{hidden}");
        assert!(hidden.contains("/p/secret.txt") && hidden.contains("TOKEN"));
        let shown = config(&request, &memory, output, Secrets::Shown).text;
        assert!(shown.contains("hunter2") && shown.contains("swordfish"), "{shown}");
    }
}

#[test]
fn only_external_secrets_are_required_before_placement() {
    let (request, memory) = case();
    let loaded = longshore_compose::load(&request, &memory).unwrap_or_else(|problems| panic!("{problems}"));
    let required: Vec<&str> =
        loaded.spec.services["a"].secrets_required.iter().map(longshore_model::SecretName::as_str).collect();
    assert_eq!(required, ["kept"]);
}

#[test]
fn the_error_about_an_inline_secret_does_not_repeat_it() {
    let problems = longshore_compose::load_text(
        "f",
        "services: {a: {image: a, secrets: [s]}}\nsecrets:\n  s:\n    content:\n      hunter2\n",
        "d",
        "default",
    )
    .expect_err("refused");
    assert!(!problems.to_string().contains("hunter2"), "{problems}");
}
