//! Every scenario under `tests/scenarios/` ends as its golden file says.
//!
//! `x.yaml` has its golden `x.json` beside it: what `longshore sim run x.yaml --json` prints, without `decide_us`; for a
//! file that is refused, the diagnostics. `LONGSHORE_BLESS=1 cargo test -p longshore-sim --test scenarios` rewrites the
//! goldens; review the diff.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use longshore_sim::Scenario;

/// Lines shown of a golden that differs.
const SHOWN: usize = 12;

#[test]
fn every_scenario_ends_as_its_golden_file_says() {
    let root = root();
    let bless = std::env::var_os("LONGSHORE_BLESS").is_some();
    let mut complaints = Vec::new();
    let mut goldens: BTreeSet<PathBuf> = files(&root, "json");
    let scenarios = files(&root, "yaml");
    assert!(!scenarios.is_empty(), "there is no scenario under {}", root.display());
    for scenario in scenarios {
        let golden = scenario.with_extension("json");
        let known = goldens.remove(&golden).then(|| fs::read_to_string(&golden).unwrap());
        let outcome = ending(&root, &scenario);
        if outcome != ending(&root, &scenario) {
            complaints.push(format!("{} ends differently in a second run", scenario.display()));
        }
        match known {
            Some(known) if known == outcome => {}
            _ if bless => fs::write(&golden, outcome).unwrap(),
            Some(known) => complaints.push(difference(&scenario, &known, &outcome)),
            None => complaints.push(format!("{} has no golden file", scenario.display())),
        }
    }
    for orphan in goldens {
        complaints.push(format!("{} belongs to no scenario", orphan.display()));
    }
    let hint = "hint: if the new result is right, run again with LONGSHORE_BLESS=1 and review the diff";
    assert!(complaints.is_empty(), "{}\n\n{hint}", complaints.join("\n\n"));
}

#[test]
fn no_scenario_breaks_a_safety_rule() {
    let root = root();
    for path in files(&root, "yaml") {
        let Ok(scenario) = parse(&root, &path) else { continue };
        let violations = longshore_sim::run(&scenario).violations;
        assert!(violations.is_empty(), "{}: {violations:#?}", path.display());
    }
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    root.canonicalize().expect("the repository has scenarios")
}

fn parse(root: &Path, path: &Path) -> Result<Scenario, longshore_compose::Diagnostics> {
    // Paths are relative to the root, so that a golden does not depend on where the tree is.
    let name = path.strip_prefix(root).expect("the file was found under the root").to_string_lossy().into_owned();
    Scenario::parse(&name, &fs::read_to_string(path).expect("a scenario is UTF-8"))
}

fn ending(root: &Path, path: &Path) -> String {
    match parse(root, path) {
        Ok(scenario) => longshore_sim::run(&scenario).to_golden(),
        Err(problems) => problems.to_json() + "\n",
    }
}

fn files(folder: &Path, extension: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("the folder can be listed").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|known| known == extension) {
            found.insert(path);
        }
    }
    found
}

fn difference(scenario: &Path, known: &str, outcome: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (known.lines().collect(), outcome.lines().collect());
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let shown = |sign: &str, lines: &[&str]| {
        let lines: Vec<String> = lines.iter().skip(same).take(SHOWN).map(|line| format!("{sign} {line}")).collect();
        lines.join("\n")
    };
    let (line, old, new) = (same + 1, shown("-", &before), shown("+", &after));
    format!("{} ends differently from line {line} of its golden file:\n{old}\n{new}", scenario.display())
}
