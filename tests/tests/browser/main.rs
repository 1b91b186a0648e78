//! The page that `simulate` writes, in a real browser.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use serde_json::{Value, json};
use spot_tests::{Browser, migrator::binary};
use tempfile::TempDir;

/// Widths of a telephone, a small window and a large one.
const WIDTHS: [u32; 3] = [360, 800, 1600];

/// Text that is on top of nothing of its own colour, as WCAG 2 counts contrast; those that are too faint.
const TOO_FAINT: &str = r#"(() => {
  const channel = value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const parts = colour => colour.match(/[\d.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = parts(colour).map(part => channel(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if ((parts(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = [];
  for (const element of document.querySelectorAll("main *")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own || element.closest("svg")) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(element.outerHTML);
  }
  return faint;
})()"#;

/// What is wider than the window, or than the box that it is in and that can't be scrolled.
const TOO_WIDE: &str = r#"[...document.querySelectorAll("main *")].filter(element => {
  const { right, left } = element.getBoundingClientRect();
  return !element.closest(".table, svg *") && (left < 0 || right > document.documentElement.clientWidth + 0.5);
}).map(element => element.outerHTML.slice(0, 200))"#;

/// The drawn nodes: what is said of them, where their bar begins and ends, and what is painted in the middle of it.
const LANES: &str = r#"[...document.querySelectorAll(".lane")].map(lane => {
  lane.scrollIntoView({ block: "center" });
  const svg = lane.querySelector("svg"), [bar, box] = [svg.querySelector(".life"), svg].map(e => e.getBoundingClientRect());
  const y = bar.top + bar.height * 0.8, x = Math.min(bar.left + Math.max(bar.width / 2, 0.5), box.right - 1);
  return {
    story: svg.querySelector("title").textContent,
    name: lane.querySelector(".name").textContent,
    from: (bar.left - box.left) / box.width,
    to: (bar.right - box.left) / box.width,
    height: bar.height,
    painted: document.elementFromPoint(x, y)?.getAttribute("class") ?? null,
    apart: lane.querySelector(".name").getBoundingClientRect().right <= box.left,
    phases: svg.querySelectorAll(".phase").length,
  };
})"#;

fn simulated(arguments: &[&str]) -> String {
    let output = Command::new(binary("spot-migrator"))
        .arg("simulate")
        .args(arguments)
        .env_clear()
        .output()
        .expect("the product is built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}

/// The page of that simulation, and what it says to machines.
fn page(arguments: &[&str]) -> (TempDir, PathBuf, Value) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("report.html");
    let with = |output| [arguments, &["-o", output][..]].concat();
    fs::write(&path, simulated(&with("html"))).expect("the folder is writable");
    let said = serde_json::from_str(&simulated(&with("json"))).expect("it is JSON");
    (folder, path, said)
}

/// Whether nothing is wrong with it, whoever looks at it.
fn looked_at(browser: &mut Browser) {
    for width in WIDTHS {
        browser.resize(width);
        assert_eq!(browser.ask("document.documentElement.scrollWidth"), json!(width), "it fits into its window");
        assert_eq!(browser.ask(TOO_WIDE), json!([]), "at {width}");
    }
    for dark in [false, true] {
        browser.darken(dark);
        assert_eq!(browser.ask(TOO_FAINT), json!([]), "dark: {dark}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let requests = browser.requests();
    assert!(requests.len() == 1 && requests[0].starts_with("file://"), "it needs nothing from elsewhere: {requests:?}");
}

#[test]
fn every_scenario_is_drawn_as_it_went() {
    for scenario in ["spot-available", "spot-exhausted", "blocked-by-budget", "killed-halfway"] {
        let (_folder, path, said) = page(&["--scenario", scenario, "--nodes", "7", "--pods", "80"]);
        let mut browser = Browser::open(&path, 1200);
        let title = browser.ask("document.title");
        assert!(title.as_str().is_some_and(|title| title.starts_with(said["outcome"].as_str().expect("it is a word"))));

        let lanes = browser.ask(LANES);
        let lanes = lanes.as_array().expect("there are some");
        let of = |kind: &str, end: &str| -> Vec<&Value> {
            let is = |story: &str| story.contains(&format!(", {kind}")) && story.contains(end);
            lanes.iter().filter(|lane| lane["story"].as_str().is_some_and(is)).collect()
        };
        assert_eq!(json!(of("on-demand", ", gone at ").len()), said["retired"], "{scenario}: {lanes:#?}");
        for lane in lanes {
            let (from, to) = (lane["from"].as_f64().expect("a number"), lane["to"].as_f64().expect("a number"));
            assert!(-0.001 <= from && from <= to && to <= 1.001, "{scenario}: {lane}");
            assert!(lane["height"].as_f64() > Some(8.0), "{scenario}: it can be seen: {lane}");
            assert_eq!(lane["apart"], true, "{scenario}: names are beside bars: {lane}");
            let painted = lane["painted"].as_str().unwrap_or_default();
            let kind = ["on-demand", "spot", "other"].into_iter().find(|kind| painted.ends_with(kind));
            let kind = kind.unwrap_or_else(|| panic!("{scenario}: nothing is painted there: {lane}"));
            assert!(lane["story"].as_str().is_some_and(|story| story.contains(&format!(", {kind}"))), "{lane}");
        }
        for gone in of("on-demand", ", gone at ") {
            assert!(gone["to"].as_f64() < Some(1.001) && gone["phases"].as_u64() >= Some(3), "{scenario}: {gone}");
        }

        let kept =
            browser.ask(r##"[...document.querySelectorAll("#kept tbody tr")].map(row => row.cells[0].textContent)"##);
        let kept: BTreeSet<_> = kept.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let expected = said["kept"].as_array().expect("it is a list").iter().filter_map(|kept| kept["node"].as_str());
        assert_eq!(kept, expected.collect(), "{scenario}");
        let events = browser.ask(r##"document.querySelector("#events").textContent"##);
        let mut ends = said["timeline"].as_array().into_iter().flatten().filter_map(|event| event["detail"].as_str());
        let words = ends.next_back().expect("it says how it ended");
        assert!(events.as_str().is_some_and(|events| events.contains(words)), "{scenario}: {words}");
        looked_at(&mut browser);
    }
}

/// A cluster in which everything has a name that would be more than text, were it not taken for text.
fn hostile() -> Value {
    const NAME: &str = r#"<img src=http://127.0.0.1:9/ onerror=alert(1)>"'`&"#;
    let node = |name: &str, lifecycle: &str| {
        let labels = json!({
            "node.kubernetes.io/lifecycle": lifecycle, "eks.amazonaws.com/nodegroup": NAME,
            "node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/region": "us-east-1",
        });
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-03-01T05:00:00Z", "labels": labels},
            "spec": {"providerID": "kwok://node"},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T05:01:00Z"}]},
        })
    };
    let pod = |name: &str, node: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": "2026-03-01T06:00:00Z"},
            "spec": {"nodeName": node, "containers": [{"name": "web"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    let items = [node(NAME, "on-demand"), node("a", "on-demand"), node("b", "spot"), pod(NAME, NAME)];
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

#[test]
fn what_files_say_stays_text() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("cluster.json");
    fs::write(&path, hostile().to_string()).expect("the folder is writable");
    let (_folder, page, said) = page(&["-f", path.to_str().expect("it is text")]);
    assert_eq!(said["kept"].as_array().map(Vec::len), Some(1), "{said:#}");
    let mut browser = Browser::open(&page, 1200);
    assert_eq!(browser.ask("document.images.length + document.scripts.length"), 0);
    let name = browser.ask(r##"document.querySelector("#kept tbody td").textContent"##);
    assert_eq!(name, said["kept"][0]["node"]);
    assert_eq!(browser.ask(r##"document.querySelectorAll("#assumptions li").length > 3"##), true);
    looked_at(&mut browser);
}

#[test]
fn a_page_that_asked_for_more_would_be_kept_from_it() {
    let (_folder, path, _said) = page(&["--nodes", "1", "--pods", "0"]);
    let text = fs::read_to_string(&path).expect("it was written");
    let more = r#"<script>document.title = "changed"</script><img src="http://127.0.0.1:9/"></main>"#;
    fs::write(&path, text.replace("</main>", more)).expect("the folder is writable");
    let mut browser = Browser::open(&path, 1200);
    assert_ne!(browser.ask("document.title"), "changed");
    let complaints = browser.complaints().join("\n");
    assert!(complaints.matches("Content Security Policy").count() >= 2, "{complaints}");
}
