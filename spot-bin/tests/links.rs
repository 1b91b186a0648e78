//! The manual leads nowhere that is not there.

#![expect(clippy::expect_used, reason = "what fails in a test ends it")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is a folder of the workspace")
}

/// Every page of the repository.
fn pages() -> Vec<PathBuf> {
    let folders = ["", "docs", "deploy/iam", "deploy/aws", "deploy/chart"].map(|folder| top().join(folder));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("it is there"));
    let files = files.map(|file| file.expect("it is listed").path());
    let pages: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "md")).collect();
    assert!(pages.len() > 15, "{pages:?}");
    pages
}

/// The text of a page without what stands in code.
fn prose(page: &Path) -> String {
    let text = fs::read_to_string(page).expect("it is text");
    let mut in_code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !fence && !in_code
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The names by which the sections of a page are reached, as GitHub makes them.
fn anchors(page: &Path) -> BTreeSet<String> {
    let headings = prose(page);
    let headings =
        headings.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |character: char| character.is_alphanumeric() || "-_ ".contains(character);
    headings
        .map(|heading| heading.to_lowercase().chars().filter(|one| kept(*one)).collect::<String>().replace(' ', "-"))
        .collect()
}

/// The targets of the links of a page.
fn links(page: &Path) -> Vec<String> {
    let text = prose(page);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let mut seen = 0;
    for page in pages() {
        for link in links(&page).into_iter().filter(|link| !link.contains("://")) {
            seen += 1;
            let (path, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(path, anchor)| (path, Some(anchor)));
            let folder = page.parent().expect("a page is in a folder");
            let target = if path.is_empty() { page.clone() } else { folder.join(path) };
            assert!(target.exists(), "{}: {link} leads nowhere", page.display());
            if let Some(anchor) = anchor {
                assert!(anchors(&target).contains(anchor), "{}: {link}: no such section", page.display());
            }
        }
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn every_page_of_the_manual_can_be_reached_from_the_readme() {
    let mut reached = BTreeSet::from([top().join("README.md").canonicalize().expect("it is there")]);
    let mut ahead: Vec<_> = reached.iter().cloned().collect();
    while let Some(page) = ahead.pop() {
        for link in links(&page).into_iter().filter(|link| !link.contains("://")) {
            let path = link.split('#').next().unwrap_or_default();
            let target = page.parent().expect("a page is in a folder").join(path);
            let Ok(target) = target.canonicalize() else { continue };
            if target.extension().is_some_and(|end| end == "md") && reached.insert(target.clone()) {
                ahead.push(target);
            }
        }
    }
    for page in pages() {
        assert!(reached.contains(&page.canonicalize().expect("it is there")), "nothing leads to {}", page.display());
    }
}

/// The names of all tests of the workspace.
fn tests() -> BTreeSet<String> {
    let mut folders: Vec<_> =
        ["spot-core", "spot-kube", "spot-aws", "spot-bin", "tests"].map(|of| top().join(of)).into();
    let mut tests = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("it is there") {
            let path = entry.expect("it is listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                tests.extend(tests_of(&fs::read_to_string(path).expect("it is text")));
            }
        }
    }
    tests
}

/// The names of the functions that bear an attribute of a test, or are in a block of properties.
fn tests_of(source: &str) -> Vec<String> {
    let mut marked = false;
    let mut found = Vec::new();
    for line in source.lines().map(str::trim_start) {
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        if let Some(name) = function.and_then(|rest| rest.split(['(', '<']).next()) {
            found.extend(marked.then(|| name.to_owned()));
            marked = false;
        } else if ["#[test]", "#[tokio::test", "#[rstest]"].iter().any(|mark| line.starts_with(mark)) {
            marked = true;
        }
    }
    found
}

#[test]
fn every_claim_of_the_security_model_is_held_by_a_test_that_is_there_or_is_called_a_limit() {
    let text = prose(&top().join("docs/security.md"));
    let tests = tests();
    let mut held = 0;
    for section in text.split("\n## ").skip(1) {
        let (heading, _) = section.split_once('\n').expect("a section has lines");
        let (_, claims) = section.split_once("| claim | held by |\n|---|---|\n").unwrap_or_else(|| panic!("{heading}"));
        for row in claims.lines().take_while(|line| line.starts_with('|')) {
            let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [_, by] = cells[..] else { panic!("{row}") };
            if by.starts_with("limit: ") {
                continue;
            }
            for name in by.split(", ") {
                let name =
                    name.strip_prefix('`').and_then(|name| name.strip_suffix('`')).unwrap_or_else(|| panic!("{row}"));
                assert!(tests.contains(name), "docs/security.md: there is no test {name}");
                held += 1;
            }
        }
    }
    assert!(held > 50, "{held}");
}
