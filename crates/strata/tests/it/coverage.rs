//! Which promised behaviours have a test. `ids.tsv` lists every acceptance id (A, X) and every case (C) with its title; a
//! test that shows one carries the id in its name (`fn a23_sliding_window_...`, `def test_c058_...`). What was covered once
//! stands in `covered.txt` and must stay covered: `UPDATE_COVERAGE=1 cargo test -p strata coverage` adds new ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "py") {
            found.push(path);
        }
    }
}

/// Ids in the name of a test function: `a02_a03_title` gives A02 and A03.
fn ids_of(name: &str) -> Vec<String> {
    name.strip_prefix("test_")
        .unwrap_or(name)
        .split('_')
        .take_while(|part| {
            let mut chars = part.chars();
            matches!(chars.next(), Some('a' | 'c' | 'x')) && part.len() > 2 && chars.all(|c| c.is_ascii_digit())
        })
        .map(str::to_ascii_uppercase)
        .collect()
}

fn shown() -> BTreeMap<String, Vec<String>> {
    let mut files = Vec::new();
    for dir in ["crates", "tests"] {
        sources(&workspace().join(dir), &mut files);
    }
    let mut shown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a readable source file");
        for line in text.lines() {
            let line = line.trim_start();
            let line = line.strip_prefix("pub ").unwrap_or(line);
            let line = line.strip_prefix("async ").unwrap_or(line);
            let Some(name) = line.strip_prefix("fn ").or_else(|| line.strip_prefix("def ")) else { continue };
            let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            for id in ids_of(&name) {
                shown.entry(id).or_default().push(name.clone());
            }
        }
    }
    shown
}

#[test]
fn what_was_covered_stays_covered() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let ids = fs::read_to_string(here.join("ids.tsv")).expect("ids.tsv");
    let known: BTreeMap<&str, &str> = ids.lines().filter_map(|l| l.split_once('\t')).collect();
    let shown = shown();
    let unknown: Vec<_> = shown.keys().filter(|id| !known.contains_key(id.as_str())).collect();
    assert!(unknown.is_empty(), "tests name ids that do not exist: {unknown:?}");

    let path = here.join("covered.txt");
    if std::env::var_os("UPDATE_COVERAGE").is_some() {
        let list: String = shown.keys().map(|id| format!("{id}\n")).collect();
        fs::write(&path, list).expect("covered.txt is writable");
    }
    let covered = fs::read_to_string(&path).expect("covered.txt");
    let covered: BTreeSet<&str> = covered.lines().collect();
    let lost: Vec<_> = covered.iter().filter(|id| !shown.contains_key(**id)).collect();
    let open: Vec<_> = known.iter().filter(|(id, _)| !shown.contains_key(**id)).collect();
    eprintln!("{} of {} behaviours have a test; open:", shown.len(), known.len());
    for (id, title) in open {
        eprintln!("  {id} {title}");
    }
    assert!(lost.is_empty(), "these were covered and no longer are: {lost:?}");
}

#[test]
fn ids_are_read_from_names() {
    assert_eq!(ids_of("a02_a03_each_layer"), ["A02", "A03"]);
    assert_eq!(ids_of("test_c058_retry"), ["C058"]);
    assert!(ids_of("add_a02").is_empty());
    assert!(ids_of("a_test").is_empty());
}
