//! One request of a migration of two nodes is broken, or the process dies at it: the migration ends as if nothing had
//! happened. One case for each fault, verb, resource and step that differ; `tests/matrix` plays them all.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "clippy's allowance for tests does not reach their helper functions"
)]

mod judge;
mod scene;
mod step;

use spot_tests::{
    Proxy,
    Verb::{self, Create, Delete, Get, List, Patch, Update, Watch},
    World,
    proxy::Fault::{
        self, AnswerLost, Budget, Conflict, Hang, InternalError, KilledAfter, KilledBefore, Overload, Reset,
        Unavailable,
    },
};

use crate::{
    scene::{Case, Scene},
    step::{
        Call,
        Step::{
            self, Announce, Claim, Delete as Erase, Evict, GiveBack, Hold, LastLook, List as See, Recall, Remember,
            Rights, Soften, Taint, Tell, Watch as Follow,
        },
    },
};

/// What happens to the first request of which verb, resource and step, and how the runs end that it takes.
type Row<'r> = (Fault, Verb, &'r str, Step, &'r [Option<i32>]);

/// One run is enough: it tries again by itself.
const ONE_RUN: &[Option<i32>] = &[Some(0)];

/// The next run only finishes what the killed one has left, and the one after that goes on.
const KILLED: &[Option<i32>] = &[None, Some(0), Some(0)];

/// The killed run has left nothing to finish.
const KILLED_AT_THE_EDGE: &[Option<i32>] = &[None, Some(0)];

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_a_node_that_fails_once_is_made_again() {
    play(&[
        (Overload, Patch, "nodes", Soften, ONE_RUN),
        (Conflict, Patch, "nodes", Claim, ONE_RUN),
        (InternalError, Patch, "nodes", Claim, ONE_RUN),
        (Reset, Patch, "nodes", Claim, ONE_RUN),
        (AnswerLost, Patch, "nodes", Claim, ONE_RUN),
        (Conflict, Patch, "nodes", Taint, ONE_RUN),
        (Hang, Patch, "nodes", Taint, ONE_RUN),
        (AnswerLost, Patch, "nodes", Taint, ONE_RUN),
        (Unavailable, Patch, "nodes", Announce, ONE_RUN),
        (AnswerLost, Patch, "nodes", Announce, ONE_RUN),
        (Conflict, Delete, "nodes", Erase, ONE_RUN),
        (InternalError, Delete, "nodes", Erase, ONE_RUN),
        (Reset, Delete, "nodes", Erase, ONE_RUN),
        (AnswerLost, Delete, "nodes", Erase, ONE_RUN),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_that_fails_once_is_made_again_and_none_is_accepted_twice() {
    play(&[
        (Conflict, Create, "pods/eviction", Evict, ONE_RUN),
        (Overload, Create, "pods/eviction", Evict, ONE_RUN),
        (Budget, Create, "pods/eviction", Evict, ONE_RUN),
        (InternalError, Create, "pods/eviction", Evict, ONE_RUN),
        (Unavailable, Create, "pods/eviction", Evict, ONE_RUN),
        (Hang, Create, "pods/eviction", Evict, ONE_RUN),
        (Reset, Create, "pods/eviction", Evict, ONE_RUN),
        (AnswerLost, Create, "pods/eviction", Evict, ONE_RUN),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_what_the_next_one_finishes() {
    play(&[
        (KilledBefore, Patch, "nodes", Claim, KILLED_AT_THE_EDGE),
        (KilledAfter, Patch, "nodes", Claim, KILLED),
        (KilledAfter, Create, "pods/eviction", Evict, KILLED),
        (KilledBefore, Patch, "nodes", Taint, KILLED),
        (KilledAfter, Patch, "nodes", Taint, KILLED),
        (KilledAfter, Patch, "nodes", Announce, KILLED),
        (KilledBefore, Delete, "nodes", Erase, KILLED),
        (KilledAfter, Delete, "nodes", Erase, KILLED_AT_THE_EDGE),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_about_a_node_or_a_pod_may_fail_once_too() {
    play(&[
        (Unavailable, Create, "selfsubjectaccessreviews", Rights, ONE_RUN),
        (AnswerLost, Create, "leases", Hold, ONE_RUN),
        (Conflict, Update, "leases", Hold, ONE_RUN),
        (Hang, Update, "leases", Hold, ONE_RUN),
        (Reset, Update, "leases", GiveBack, ONE_RUN),
        (Unavailable, Get, "configmaps", Recall, ONE_RUN),
        (AnswerLost, Create, "configmaps", Remember, ONE_RUN),
        (InternalError, List, "nodes", See, ONE_RUN),
        (Reset, Watch, "nodes", Follow, ONE_RUN),
        (AnswerLost, Watch, "pods", Follow, ONE_RUN),
        (Overload, List, "pods", LastLook, ONE_RUN),
        (InternalError, Create, "events", Tell, ONE_RUN),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "never fired: Hang at number 1")]
async fn a_fault_that_never_fires_fails_its_test() {
    let world = World::start().await;
    let proxy = Proxy::start(&world).await;
    drop(proxy.arm(Hang, 1, |_| true));
}

/// Plays one migration after another in one world.
#[expect(clippy::print_stderr, reason = "the test runner shows below a failed test which case it was")]
async fn play(cases: &[Row<'_>]) {
    let mut scene = Scene::set().await;
    for (fault, verb, resource, step, expected) in cases {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let call =
            Call { verb: *verb, resource: resource.to_owned(), subresource: subresource.to_owned(), step: *step };
        let case = Case { fault: *fault, call, nth: 1 };
        eprintln!("{case}");
        let (_asked, ends) = scene.play(Some(&case)).await;
        assert_eq!(ends, *expected, "{case}: how the runs ended");
    }
}
