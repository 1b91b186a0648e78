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
