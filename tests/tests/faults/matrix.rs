//! Every fault at every request of a migration, one after another: what `tests/matrix` runs.
//!
//! Arguments narrow it down to the cases whose line holds all of them, as in `tests/matrix killed evict`.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a command that tests: what fails in it fails a case, and what it prints is its result"
)]

mod judge;
mod scene;
mod step;

use std::{collections::BTreeMap, process::ExitCode};

use spot_tests::proxy::{Fault, Request};
use tokio::time::Instant;

use crate::{
    scene::{Case, Scene},
    step::{Call, Step},
};

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).map(|word| word.to_lowercase()).collect();
    let began = Instant::now();
    let mut scene = Scene::set().await;
    let (asked, ends) = scene.play(None).await;
    assert_eq!(ends, [Some(0)], "without a fault, one run is enough");
    let mut cases = cases(&asked);
    cases.retain(|case| words.iter().all(|word| case.to_string().to_lowercase().contains(word)));
    println!("{} requests, {} cases", asked.len(), cases.len());

    let mut failed = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let (began, played) = (Instant::now(), case.clone());
        let playing = tokio::spawn(async move {
            let (_asked, ends) = scene.play(Some(&played)).await;
            (scene, ends)
        });
        let said = match playing.await {
            Ok((again, ends)) => {
                scene = again;
                format!("ended {ends:?}")
            }
            Err(_panicked) => {
                // What it left behind is nobody else's.
                scene = Scene::set().await;
                failed.push(case);
                "FAILED".to_owned()
            }
        };
        println!("{:4} {case}: {said}, {:.1} s", number + 1, began.elapsed().as_secs_f32());
    }
    println!("{} cases, {} failed, {} s", cases.len(), failed.len(), began.elapsed().as_secs());
    for case in &failed {
        println!("FAILED {case}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every fault that is possible at every one of these requests.
fn cases(asked: &[Request]) -> Vec<Case> {
    let mut counts = BTreeMap::<_, usize>::new();
    let mut cases = Vec::new();
    for request in asked {
        let call = Call::of(request);
        let nth = *counts.entry(call.clone()).and_modify(|count| *count += 1).or_insert(1);
        // How often a lease is renewed is a question of time alone.
        if nth > 1 && call.step == Step::Hold {
            continue;
        }
        let faults = Fault::ALL.into_iter().filter(|fault| fault.is_possible(request));
        cases.extend(faults.map(|fault| Case { fault, call: call.clone(), nth }));
    }
    cases.sort_by_key(|case| (case.call.clone(), case.fault, case.nth));
    cases
}
