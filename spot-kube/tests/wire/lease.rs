//! Who leads: one process of several, and none once its lease may have changed hands.

mod store;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use http::Method;
use serde_json::json;
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::node::Uid;
use spot_core::pod::PodRef;
use spot_core::ports::{Clock as _, Cluster as _, EvictAnswer, Instant, Leadership, Write};
use spot_core::stop::Stop;
use spot_kube::lease::{Candidate, End, Leader, Term, Waits, identity};
use spot_kube::{KubeCluster, Settings};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::server::ApiServer;
use store::{FrozenClock, Mood, Store, held_by, never, now, settings};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ours/leases";

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn leads(candidate: Candidate) -> Term {
    candidate.lead(|_| {}).await
}

/// A process that holds its lease until it is lost.
fn holds(term: Term) -> (Leader, JoinHandle<End>) {
    (term.leader(), tokio::spawn(term.hold(never())))
}

fn lost(end: End) -> String {
    match end {
        End::Lost(why) => why,
        End::Released => panic!("it was given back"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_made_renewed_and_given_back_as_client_go_does_it() {
    let server = ApiServer::new();
    let head = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lease","namespace":"ours""#;
    let spec = |holder: &str, duration: u32, acquired: &str, renewed: &str| {
        format!(
            r#""spec":{{"holderIdentity":"{holder}","leaseDurationSeconds":{duration},"acquireTime":"2026-01-01T12:00:{acquired}Z","renewTime":"2026-01-01T12:00:{renewed}Z","leaseTransitions":0}}}}"#
        )
    };
    let first = spec("a", 15, "00.000000", "00.000000");
    let second = spec("a", 15, "00.000000", "02.000000");
    let last = spec("", 1, "03.000000", "03.000000");
    let at = |version: &str, spec: &str| format!(r#"{head},"resourceVersion":"{version}"}},{spec}"#);
    server.on(&format!("GET {LEASES}/lease")).says(404, crate::server::status(404, "NotFound", "none"));
    let create = format!("POST {LEASES}?fieldManager=spot-migrator");
    server.on_body(&create, "application/json", &format!("{head}}},{first}")).says(201, at("1", &first));
    let replace = format!("PUT {LEASES}/lease?fieldManager=spot-migrator");
    server.on_body(&replace, "application/json", &at("1", &second)).says(200, at("2", &second));
    server.on_body(&replace, "application/json", &at("2", &last)).says(200, at("3", &last));

    let clock = FrozenClock::new();
    let term = leads(Candidate::new(server.client(), settings("a"), Arc::clone(&clock) as _)).await;
    assert_eq!(clock.instant(), Instant::default(), "at once");
    let done = Stop::default();
    let stop = done.clone();
    let holding = tokio::spawn(term.hold(async move { stop.wait().await }));
    sleep(seconds(3)).await;
    done.set();
    assert_eq!(holding.await.unwrap(), End::Released);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_the_next_ones_at_its_next_look() {
    let (store, clock) = (Store::new(), FrozenClock::new());
    let term = leads(store.candidate("a", &clock)).await;
    let leader = term.leader();
    let next = tokio::spawn(leads(store.candidate("b", &clock)));
    sleep(seconds(5)).await;
    assert!(term.hold(async {}).await == End::Released && !next.is_finished());
    let refused = leader.check().expect_err("it was given back");
    assert_eq!((refused.class, now(leader.lost())), (ErrorClass::NotLeader, Some(())));

    let before = clock.instant();
    let (next, _held) = holds(next.await.unwrap());
    assert!(clock.instant().since(before) <= seconds(4), "{:?}", clock.instant().since(before));
    assert!(next.check().is_ok());
    assert_eq!((store.holder().as_str(), &store.spec()["leaseTransitions"]), ("b", &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn while_one_leads_the_other_looks_and_does_not_write() {
    let (store, clock) = (Store::new(), FrozenClock::new());
    let (leader, held) = holds(leads(store.candidate("a", &clock)).await);
    let waits = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&waits);
    let candidate = store.candidate("b", &clock);
    let follower = tokio::spawn(candidate.lead(move |why| told.lock().unwrap().push(format!("{why:?}"))));
    sleep(seconds(3_600)).await;
    assert!(leader.check().is_ok() && !held.is_finished() && !follower.is_finished());
    assert!(waits.lock().unwrap().iter().all(|why| why == r#"HeldBy("a")"#), "{waits:?}");

    let count = |method| store.requests().iter().filter(|(_, asked)| *asked == method).count();
    let (gets, posts, puts) = (count(Method::GET), count(Method::POST), count(Method::PUT));
    assert!((900..=1_801).contains(&gets), "every 2 to 4 s: {gets}");
    assert!(posts == 1 && (1_790..=1_800).contains(&puts), "every 2 s: {puts}");
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_process_that_died_is_taken_once_it_has_expired() {
    let (store, clock) = (Store::new(), FrozenClock::new());
    let (_leader, held) = holds(leads(store.candidate("a", &clock)).await);
    let follower = tokio::spawn(leads(store.candidate("b", &clock)));
    sleep(seconds(20)).await;
    held.abort();
    let died = clock.instant();
    let _next = follower.await.unwrap();
    let after = clock.instant().since(died);
    // The last renewal was up to 2 s before the death, and seen up to 4 s after it.
    assert!(after >= seconds(13) && after <= seconds(19), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_container_of_the_same_pod_resumes_at_once() {
    let (store, clock) = (Store::new(), FrozenClock::new());
    let (_leader, held) = holds(leads(store.candidate("pod", &clock)).await);
    sleep(seconds(3)).await;
    held.abort();
    let before = clock.instant();
    let (leader, _held) = holds(leads(store.candidate("pod", &clock)).await);
    assert!(clock.instant() == before && leader.check().is_ok());
    assert_eq!(store.spec()["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn rb_17_of_those_that_try_an_expired_lease_at_once_one_wins() {
    let (store, clock) = (Store::new(), FrozenClock::new());
    store.put(Some(held_by("gone")));
    let outrun = Arc::new(Mutex::new(0));
    let candidates = ["a", "b", "c"].map(|identity| {
        let outrun = Arc::clone(&outrun);
        let tell = move |why: &Waits<'_>| *outrun.lock().unwrap() += usize::from(matches!(why, Waits::Outrun));
        tokio::spawn(store.candidate(identity, &clock).lead(tell))
    });
    sleep(Duration::from_millis(15_500)).await;
    let winners: Vec<_> = candidates.iter().filter(|candidate| candidate.is_finished()).collect();
    assert!(winners.len() == 1 && *outrun.lock().unwrap() == 2, "{} won", winners.len());
    assert_eq!(store.spec()["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_taken_is_lost_at_the_next_renewal() {
    for (spec, said) in [
        (Some(held_by("b")), "b holds the lease now"),
        (Some(held_by("")), "given to nobody"),
        (Some(held_by("a")), "under the same identity"),
        (None, "was deleted"),
    ] {
        let (store, clock) = (Store::new(), FrozenClock::new());
        sleep(seconds(1)).await;
        let (leader, held) = holds(leads(store.candidate("a", &clock)).await);
        sleep(seconds(1)).await;
        store.put(spec.clone());
        let before = clock.instant();
        let why = lost(held.await.unwrap());
        assert!(why.contains(said) && leader.check().is_err(), "{why}");
        assert!(clock.instant().since(before) <= seconds(2), "{said}");
        assert_eq!(store.spec(), spec.unwrap_or_default(), "it is left as it is");
    }
}

#[tokio::test(start_paused = true)]
async fn rb_17_a_renewal_that_hangs_loses_the_lease_before_another_can_take_it() {
    for mood in [Mood::Hangs, Mood::Away, Mood::DropsAnswers, Mood::Says(500, "InternalError")] {
        let (store, clock) = (Store::new(), FrozenClock::new());
        let (leader, held) = holds(leads(store.candidate("a", &clock)).await);
        sleep(seconds(5)).await;
        // The last renewal was sent at 4 s.
        store.is(mood);
        sleep(Duration::from_millis(8_999)).await;
        assert!(leader.check().is_ok() && now(leader.lost()).is_none(), "{mood:?}");
        leader.lost().await;
        assert_eq!(clock.instant().0, seconds(14), "{mood:?}");
        assert!(leader.check().is_err(), "{mood:?}");
        let why = lost(held.await.unwrap());
        assert!(why.starts_with("not renewed within 10 s: "), "{why}");
        assert_eq!(clock.instant().0, seconds(14), "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_failed_renewal_loses_nothing() {
    for mood in [
        Mood::Hangs,
        Mood::Away,
        Mood::DropsAnswers,
        Mood::Says(401, "Unauthorized"),
        Mood::Says(429, "TooManyRequests"),
        Mood::Says(500, "InternalError"),
        Mood::Says(409, "Conflict"),
    ] {
        let (store, clock) = (Store::new(), FrozenClock::new());
        let (leader, held) = holds(leads(store.candidate("a", &clock)).await);
        store.once(mood);
        sleep(seconds(60)).await;
        assert!(leader.check().is_ok() && !held.is_finished(), "{mood:?}");
        assert_eq!(store.spec()["leaseTransitions"], 0, "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_tells_what_is_wrong_and_goes_on_trying() {
    let (store, clock) = (Store::new(), FrozenClock::new());
    store.is(Mood::Says(403, "Forbidden"));
    let told = Arc::new(Mutex::new(String::new()));
    let tell = Arc::clone(&told);
    let candidate = tokio::spawn(store.candidate("a", &clock).lead(move |why| {
        let Waits::Failed(error) = why else { panic!("{why:?}") };
        *tell.lock().unwrap() = chain(*error);
    }));
    sleep(seconds(60)).await;
    assert!(told.lock().unwrap().contains("the right `get leases` is missing"), "{told:?}");
    store.is(Mood::Serves);
    let before = clock.instant();
    let _term = candidate.await.unwrap();
    assert!(clock.instant().since(before) <= seconds(4));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_missing_is_no_faster_process() {
    let (store, clock) = (Store::new(), FrozenClock::new());
    store.is(Mood::Says(404, "NotFound"));
    let told = Arc::new(Mutex::new(String::new()));
    let tell = Arc::clone(&told);
    let candidate = tokio::spawn(store.candidate("a", &clock).lead(move |why| {
        let Waits::Failed(error) = why else { panic!("{why:?}") };
        *tell.lock().unwrap() = chain(*error);
    }));
    sleep(seconds(10)).await;
    assert!(
        told.lock().unwrap().contains("could not create leases ours/lease") && !candidate.is_finished(),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn rb_34_after_twenty_seconds_without_an_api_server_somebody_leads_again() {
    for mood in [Mood::Away, Mood::Hangs, Mood::Says(500, "InternalError")] {
        let (store, clock) = (Store::new(), FrozenClock::new());
        let leaders: Vec<_> = ["a", "b"]
            .map(|identity| {
                let leading = Arc::new(Mutex::new(None::<Leader>));
                let (store, clock, now_leads) = (store.clone(), Arc::clone(&clock), Arc::clone(&leading));
                // What ends is started again.
                tokio::spawn(async move {
                    loop {
                        let term = leads(store.candidate(identity, &clock)).await;
                        *now_leads.lock().unwrap() = Some(term.leader());
                        lost(term.hold(never()).await);
                    }
                });
                leading
            })
            .into();
        let lead = || {
            let leads = |leader: &Arc<Mutex<Option<Leader>>>| {
                leader.lock().unwrap().as_ref().is_some_and(|leader| leader.check().is_ok())
            };
            leaders.iter().filter(|leader| leads(leader)).count()
        };
        sleep(seconds(60)).await;
        assert_eq!(lead(), 1);
        store.is(mood);
        for _ in 0..200 {
            sleep(Duration::from_millis(100)).await;
            assert!(lead() <= 1, "{mood:?}");
        }
        assert_eq!(lead(), 0, "{mood:?}");
        store.is(Mood::Serves);
        // What hangs is given up after 5 s, and the lease may have been renewed at the last moment.
        sleep(seconds(20)).await;
        for second in 0..3 * 3_600 {
            assert_eq!(lead(), 1, "{mood:?}, {second} s later");
            sleep(seconds(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rb_17_a_process_that_was_frozen_does_not_lead_on_waking() {
    let (store, frozen) = (Store::new(), FrozenClock::new());
    let (leader, held) = holds(leads(store.candidate("a", &frozen)).await);
    sleep(seconds(3)).await;
    let mut losing = leader.lost();
    assert!(now(losing.as_mut()).is_none());

    // The other one takes the lease meanwhile; the frozen one wakes before any of its timers fires.
    store.put(Some(held_by("b")));
    let writes = store.requests().len();
    frozen.freeze(seconds(40));
    assert_eq!(leader.check().expect_err("it was frozen").class, ErrorClass::NotLeader);
    assert!(leader.valid_until().is_some_and(|until| until < frozen.instant()));
    assert_eq!(now(losing), Some(()));
    assert!(lost(held.await.unwrap()).contains("was stopped for that long"));
    assert_eq!(store.requests().len(), writes, "it asks for nothing");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_answered_while_the_process_was_frozen_does_not_bring_the_lease_back() {
    // It is sent after 2 s, and answered after 3: the lease would have lasted until 10 s, and with it until 12.
    for frozen in [8, 12, 3_600] {
        let (store, clock) = (Store::new(), FrozenClock::new());
        let (leader, held) = holds(leads(store.candidate("a", &clock)).await);
        store.is(Mood::Takes(seconds(1)));
        sleep(Duration::from_millis(2_500)).await;
        clock.freeze(seconds(frozen));
        sleep(seconds(1)).await;
        assert!(leader.check().is_err(), "{frozen}");
        assert_eq!(store.spec()["renewTime"], "2026-01-01T12:00:02.000000Z", "it was written");
        assert!(lost(held.await.unwrap()).contains("was stopped for that long"));
        assert!(leader.check().is_err(), "{frozen}");
    }
}

#[tokio::test(start_paused = true)]
async fn rb_17_a_lease_that_was_lost_in_a_freeze_is_not_given_back() {
    let (store, clock) = (Store::new(), FrozenClock::new());
    let term = leads(store.candidate("a", &clock)).await;
    let done = Stop::default();
    let stop = done.clone();
    let holding = tokio::spawn(term.hold(async move { stop.wait().await }));
    sleep(seconds(3)).await;
    store.put(Some(held_by("b")));
    let requests = store.requests().len();
    clock.freeze(seconds(40));
    done.set();
    assert!(lost(holding.await.unwrap()).contains("was stopped for that long"));
    assert_eq!(store.requests().len(), requests, "it asks for nothing");
}

/// A cluster whose writes are those of this leader.
fn cluster(server: &ApiServer, clock: &Arc<FrozenClock>) -> KubeCluster {
    let settings =
        Settings { namespace: "ours".to_owned(), config_map: "memory".to_owned(), clock: Arc::clone(clock) as _ };
    KubeCluster::new(server.client(), settings)
}

fn web() -> PodRef {
    PodRef { namespace: "shop".into(), name: "web".into(), uid: Uid::new("uid-web") }
}

const EVICT: &str = "POST /api/v1/namespaces/shop/pods/web/eviction";
const BODY: &str = concat!(
    r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web","namespace":"shop"},"#,
    r#""deleteOptions":{"preconditions":{"uid":"uid-web"}}}"#,
);

fn class(outcome: Result<EvictAnswer, PortError>) -> ErrorClass {
    outcome.expect_err("it did not succeed").class
}

#[tokio::test(start_paused = true)]
async fn rb_17_nothing_is_sent_once_the_lease_may_have_changed_hands() {
    let (store, server, clock) = (Store::new(), ApiServer::new(), FrozenClock::new());
    let cluster = cluster(&server, &clock);
    let (leader, _held) = holds(leads(store.candidate("a", &clock)).await);
    let write = Write::assume(clock.instant() + seconds(3_600), Arc::new(leader));
    clock.freeze(seconds(10));
    assert_eq!(class(cluster.evict(&web(), None, &write).await), ErrorClass::NotLeader);
}

#[tokio::test(start_paused = true)]
async fn rb_17_a_call_that_hangs_is_given_up_when_the_lease_may_change_hands() {
    let (store, server, clock) = (Store::new(), ApiServer::new(), FrozenClock::new());
    let cluster = cluster(&server, &clock);
    let (leader, held) = holds(leads(store.candidate("a", &clock)).await);
    let write = Write::assume(clock.instant() + seconds(3_600), Arc::new(leader.clone()));
    let came = server.on_body(EVICT, "application/json", BODY).hangs();
    let pod = web();
    let (leads, evicts) = tokio::join!(
        async {
            came.acquire().await.unwrap().forget();
            // As long as the lease is renewed, the call goes on.
            sleep(seconds(31)).await;
            store.is(Mood::Hangs);
            leader.check()
        },
        cluster.evict(&pod, None, &write)
    );
    assert_eq!((leads.is_ok(), class(evicts)), (true, ErrorClass::Timeout));
    // The last renewal was sent at 30 s.
    assert_eq!(clock.instant().0, seconds(40));
    assert!(leader.check().is_err());
    lost(held.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn rb_17_what_waits_for_its_turn_is_not_sent_after_a_freeze() {
    let (store, server, clock) = (Store::new(), ApiServer::new(), FrozenClock::new());
    let cluster = cluster(&server, &clock);
    let (leader, _held) = holds(leads(store.candidate("a", &clock)).await);
    let write = Write::assume(clock.instant() + seconds(3_600), Arc::new(leader));
    // As many as may be under way at once, and one more.
    let came: Vec<_> = (0..64).map(|_| server.on_body(EVICT, "application/json", BODY).hangs()).collect();
    let pod = web();
    let answers = join_all((0..65).map(|_| cluster.evict(&pod, None, &write)));
    let (answers, ()) = tokio::join!(answers, async {
        for came in came {
            came.acquire().await.unwrap().forget();
        }
        clock.freeze(seconds(40));
    });
    let mut classes: Vec<_> = answers.into_iter().map(class).collect();
    assert_eq!(classes.pop(), Some(ErrorClass::NotLeader));
    assert!(classes.iter().all(|class| *class == ErrorClass::Timeout));
}

#[test]
fn a_pod_is_known_by_its_uid_and_any_other_process_by_a_name_of_its_own() {
    assert_eq!(identity(Some("uid-1"), "host"), "uid-1");
    let (one, other) = (identity(None, "host"), identity(None, "host"));
    assert!(one.starts_with("host_") && other.starts_with("host_") && one != other, "{one}, {other}");
}
