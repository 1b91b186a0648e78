//! What becomes of messages: none is lost, none is answered twice, and none ends the process.

use std::ops::Range;

use async_trait::async_trait;
use spot_core::capacity::Class;
use spot_core::claim::InstanceId;
use spot_core::error::{ErrorClass, PortError};
use spot_core::interruption::{Announcement, MachineState, Notice, Rebalance, Reclaim};
use spot_core::memory::Memory;
use spot_core::model::fault::Fault;
use spot_core::model::{Answer, CallRecord, Ended, NodeSpec, WorkloadSpec, WorldBuilder};
use spot_core::node::NodeRef;
use spot_core::pod::{PodRef, PodSnapshot};
use spot_core::ports::{Clock, Cluster, Erased, EvictAnswer, Live, NodeChange, Ports, Scope, Write, Written};
use spot_core::retire::{DeletableNode, DoomedPod};
use spot_core::view::{Revision, View};

use super::*;

fn small() -> Model {
    let slow = WorkloadSpec::deployment("web", 4).stop(8 * SECOND);
    WorldBuilder::default().spot(2).workload(slow).stateful_set("db", 2).daemon_set("agent").build()
}

fn records(model: &Model, matches: impl Fn(&CallRecord) -> bool) -> Vec<CallRecord> {
    model.with(|world| world.calls().iter().filter(|record| matches(record)).cloned().collect())
}

fn settled(model: &Model, as_what: Handled) -> Vec<CallRecord> {
    records(model, |one| matches!(&one.call, Call::Settle { handled, .. } if *handled == as_what))
}

#[test]
fn twenty_deliveries_of_one_notice_are_one_drain() {
    let model = small();
    let invariants = watch(&model);
    let message = model.with(|world| {
        let message = world.interrupt("spot-1", Reclaim::Terminate).unwrap();
        let notice = world.announced(&world.machine_of("spot-1").unwrap()).next().unwrap().clone();
        for second in 0..10 {
            // the queue delivers a message again, and the cloud sends it again
            let (message, notice) = (Arc::clone(&message), notice.clone());
            world.later(Duration::from_millis(second * 9_000), move |world| {
                world.deliver_again(&message);
                world.send_notice(notice);
            });
        }
        message
    });
    let notes = answering(&model, &settings(), 3 * MINUTE);
    assert_eq!(notes.cordoned().len(), 1, "{:?}", notes.told());
    assert_eq!(notes.emptied().len(), 1);
    let delivered = |record: &CallRecord| match &record.answer {
        Answer::Delivered(messages) => messages.contains(&message),
        _other => false,
    };
    assert!(records(&model, delivered).len() > 5, "it did come again and again");
    let mut evicted: Vec<_> = records(&model, |one| is_eviction(&one.call)).into_iter().map(|one| one.call).collect();
    let all = evicted.len();
    evicted.dedup();
    assert_eq!((evicted.len(), all), (3, 3), "each pod is asked for once");
    assert!(model.with(|world| world.unsettled()).is_empty());
    assert!(notes.ignored().iter().filter(|why| **why == "duplicate").count() >= 15, "{:?}", notes.ignored());
    kept(&model, &invariants);
}

#[test]
fn rb_21_notices_of_other_machines_are_counted_settled_after_a_while_and_hold_nobody_up() {
    let model = WorldBuilder::default().spot(3).deployment("web", 6).build();
    let invariants = watch(&model);
    let at = model.with(|world| world.wall()).checked_add(2 * MINUTE).unwrap();
    model.with(|world| {
        for number in 0..45 {
            let instance = InstanceId::new(format!("i-{:08}", 90_000 + number));
            world.announce(instance, Announcement::Interruption { action: Reclaim::Terminate, at });
        }
        world.interrupt("spot-2", Reclaim::Terminate).unwrap();
    });
    let notes = answering(&model, &settings(), 5 * MINUTE);
    let [(name, after)] = &notes.cordoned()[..] else { panic!("{:?}", notes.cordoned()) };
    assert!(name == "spot-2" && *after < SECOND, "{after:?}");
    assert_eq!(notes.ignored(), ["unknown_instance"; 45]);
    assert!(model.with(|world| world.unsettled()).is_empty());
    let first =
        settled(&model, Handled::Ignored).iter().map(|one| one.sent).filter(|at| *at > Instant(90 * SECOND)).min();
    assert!(first >= Some(Instant(2 * MINUTE)), "their nodes might have come until then: {first:?}");
    assert_eq!(calls(&model, |call| matches!(call, Call::DeleteInstance { .. } | Call::InstanceState(_))), 0);
    kept(&model, &invariants);
}

#[test]
fn a_notice_that_comes_before_its_node_is_answered_when_the_node_is_there() {
    let model = WorldBuilder::default().spot(1).build();
    model.with(|world| {
        let instance = InstanceId::new("i-00000001");
        let at = world.wall().checked_add(2 * MINUTE).unwrap();
        world.announce(instance, Announcement::Interruption { action: Reclaim::Terminate, at });
        world.later(40 * SECOND, |world| {
            world.add_node(NodeSpec::new(Class::Spot).named("newcomer")).unwrap();
        });
    });
    let notes = answering(&model, &settings(), MINUTE);
    let [(name, after)] = &notes.cordoned()[..] else { panic!("{:?}", notes.told()) };
    assert!(name == "newcomer" && *after < 52 * SECOND, "{after:?}");
}

#[test]
fn rb_22_a_message_stays_until_its_node_is_cordoned_and_empty() {
    let model = small();
    let invariants = watch(&model);
    model.with(|world| {
        world.fault_when(1, Fault::Fail(ErrorClass::Denied), is_claim);
        world.interrupt("spot-1", Reclaim::Terminate).unwrap();
    });
    let notes = answering(&model, &settings(), 100 * SECOND);
    let claims = records(&model, |one| is_claim(&one.call));
    assert!(claims.len() >= 2 && matches!(claims[0].answer, Answer::Failed(..)), "{claims:?}");
    let done = settled(&model, Handled::Done);
    let last = departures(&model, "spot-1").iter().map(|(.., at)| *at).max().unwrap();
    assert!(done.len() == 1 && done[0].sent >= last, "{done:?} {last:?}");
    let kept_for_us = calls(&model, |call| matches!(call, Call::Extend(_)));
    let deliveries = records(&model, |one| matches!(&one.answer, Answer::Delivered(some) if !some.is_empty()));
    assert_eq!(deliveries.len(), 1, "it is kept for us while its node is drained");
    assert!(kept_for_us as u64 >= last.since(Instant::default()).as_secs() / 5, "{kept_for_us}");
    assert_eq!(notes.cordoned().len(), 1);
    kept(&model, &invariants);
}

#[test]
fn rb_22_a_process_that_dies_after_the_cordon_is_succeeded_by_one_that_gets_the_message() {
    let model = small();
    let invariants = watch(&model);
    model.with(|world| {
        world.fault_when(1, Fault::KillAfter, is_claim);
        world.interrupt("spot-1", Reclaim::Terminate).unwrap();
    });
    let ended = try_answering(&model, &model.process(), &settings(), MINUTE, &Notes::default());
    assert!(matches!(ended, Err(Halt::Killed)));
    assert!(node(&model, "spot-1").unschedulable);
    assert_eq!(model.with(|world| world.unsettled()).len(), 1);
    let notes = answering(&model, &settings(), 110 * SECOND);
    assert_eq!(notes.emptied(), [("spot-1".to_owned(), NoticeKind::Interruption)]);
    assert!(model.with(|world| world.unsettled()).is_empty());
    kept(&model, &invariants);
}

#[test]
fn rb_23_nodes_are_known_by_their_provider_id_and_by_nothing_else() {
    // the machine of `worker-7.corp` is i-00000001, which is another node's name
    let model = WorldBuilder::default()
        .node(NodeSpec::new(Class::Spot).named("i-00000001"))
        .node(NodeSpec::new(Class::Spot).named("worker-7.corp"))
        .spot(1)
        .deployment("web", 6)
        .build();
    let invariants = watch(&model);
    assert_eq!(model.with(|world| world.machine_of("worker-7.corp")), Some(InstanceId::new("i-00000001")));
    model.with(|world| world.interrupt("worker-7.corp", Reclaim::Terminate).unwrap());
    let notes = answering(&model, &settings(), MINUTE);
    assert_eq!(notes.cordoned().iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["worker-7.corp"]);
    assert!(departures(&model, "i-00000001").is_empty());
    assert!(is_clean(&node(&model, "i-00000001")));
    kept(&model, &invariants);
}

/// A process that is told to end gives its messages back, and the next one has them at once.
#[test]
fn a_process_that_is_told_to_end_gives_its_messages_back() {
    let model = small();
    let invariants = watch(&model);
    model.with(|world| world.interrupt("spot-1", Reclaim::Terminate).unwrap());
    let _notes = answering(&model, &settings(), 2 * SECOND);
    assert_eq!(settled(&model, Handled::Returned).len(), 1);
    let began = now(&model);
    let notes = answering(&model, &settings(), 100 * SECOND);
    assert_eq!(notes.emptied().len(), 1);
    let delivered =
        |one: &CallRecord| one.sent >= began && matches!(&one.answer, Answer::Delivered(some) if !some.is_empty());
    assert!(records(&model, delivered).first().unwrap().sent < began + SECOND);
    assert!(model.with(|world| world.unsettled()).is_empty());
    kept(&model, &invariants);
}

#[test]
fn a_process_that_leads_no_more_does_nothing_more() {
    let model = small();
    let invariants = watch(&model);
    let (first, second) = (model.process(), model.process());
    model.with(|world| {
        world.give_lease(first.id());
        world.interrupt("spot-1", Reclaim::Terminate).unwrap();
        let next = second.id();
        world.later(Duration::from_millis(12), move |world| world.give_lease(next));
    });
    let work = |process: Process| {
        let model = model.clone();
        let of = process.clone();
        let work: model::Work<'static, Result<(), RunError>> = Box::pin(async move {
            let candidate = process.candidate();
            candidate.gained().await;
            let ports = process.ports(Arc::new(Notes::default()), candidate);
            let interruptions = Interruptions::new(ports, process.notices(), settings(), Hold::default());
            interruptions.run(&stop_after(&model, MINUTE)).await
        });
        (of, work)
    };
    let ended = model::block_on_all(&model, vec![work(first), work(second)]).unwrap();
    let [Ended::Done(Err(RunError::LostLeadership)), Ended::Done(Ok(()))] = &ended[..] else { panic!("{ended:?}") };
    assert!(departures(&model, "spot-1").len() >= 3, "the next leader empties it");
    kept(&model, &invariants);
}

/// What can go wrong at one call.
const TROUBLES: [fn() -> Fault; 8] = [
    || Fault::Fail(ErrorClass::Transient),
    || Fault::Fail(ErrorClass::Timeout),
    || Fault::Fail(ErrorClass::Denied),
    || Fault::Fail(ErrorClass::Permanent),
    || Fault::Hang,
    || Fault::LoseAnswer,
    || Fault::KillBefore,
    || Fault::KillAfter,
];

/// Every pod of the node was moved before its machine went, and nothing is left of the notice.
fn ended_well(model: &Model, invariants: &Invariants, what: &str) {
    assert!(!exists(model, "spot-1"), "{what}: its machine was taken");
    let gone = departures(model, "spot-1");
    let moved = |removal| matches!(removal, Removal::Evicted | Removal::Deleted);
    assert!(gone.len() == 3 && gone.iter().all(|(_, removal, _)| moved(*removal)), "{what}: {gone:?}");
    assert!(model.with(|world| world.unsettled()).is_empty(), "{what}");
    let broken = invariants.at_the_end(model);
    assert!(broken.is_empty(), "{what}: {broken:#?}");
}

#[test]
fn whatever_happens_at_any_call_of_handling_a_message_it_ends_well() {
    let calls: Range<u64> = {
        let model = small();
        model.with(|world| world.interrupt("spot-1", Reclaim::Terminate).unwrap());
        let _notes = answering(&model, &settings(), 4 * MINUTE);
        let settled = settled(&model, Handled::Done);
        0..settled[0].number + 3
    };
    assert!(calls.end > 15, "the matrix is not empty: {calls:?}");
    for (trouble, fault) in TROUBLES.iter().enumerate() {
        for call in calls.clone() {
            let what = format!("{:?} ({trouble}) at call {call}", fault());
            let model = small();
            let invariants = watch(&model);
            model.with(|world| {
                world.interrupt("spot-1", Reclaim::Terminate).unwrap();
                world.fault_at(call, fault());
            });
            match try_answering(&model, &model.process(), &settings(), 4 * MINUTE, &Notes::default()) {
                Ok(ended) => ended.unwrap(),
                Err(Halt::Killed) => {
                    let _notes = answering(&model, &settings(), 4 * MINUTE);
                }
                Err(halt) => panic!("{what}: {halt}"),
            }
            ended_well(&model, &invariants, &what);
        }
    }
}

/// A cluster of whose views the first ends after a while, and one that can't be opened for a while.
struct Flaky {
    inner: Arc<dyn Cluster>,
    clock: Arc<dyn Clock>,
    ends: Mutex<Vec<Instant>>,
}

struct FlakyLive {
    inner: Box<dyn Live>,
    clock: Arc<dyn Clock>,
    ends: Option<Instant>,
}

#[async_trait]
impl Live for FlakyLive {
    fn view(&self) -> Arc<View> {
        self.inner.view()
    }
    async fn latest_pods(&self, node: &NodeRef, by: Instant) -> Result<Vec<Arc<PodSnapshot>>, PortError> {
        self.inner.latest_pods(node, by).await
    }
    async fn paused(&self, by: Instant) -> Result<bool, PortError> {
        self.inner.paused(by).await
    }
    async fn changed(&self, seen: Revision) -> Result<(), PortError> {
        let Some(ends) = self.ends else { return self.inner.changed(seen).await };
        let changed = future::select(self.inner.changed(seen), self.clock.sleep_until(ends)).await;
        match changed {
            future::Either::Left((changed, _)) if self.clock.instant() < ends => changed,
            _over => Err(PortError::new(ErrorClass::Transient, "the watch has ended")),
        }
    }
}

#[async_trait]
impl Cluster for Flaky {
    async fn open(&self, scope: Scope, by: Instant) -> Result<Box<dyn Live>, PortError> {
        let inner = self.inner.open(scope, by).await?;
        let ends = self.ends.lock().unwrap().pop();
        Ok(Box::new(FlakyLive { inner, clock: Arc::clone(&self.clock), ends }))
    }
    async fn write_node(&self, node: &NodeRef, change: &NodeChange, write: &Write) -> Result<Written, PortError> {
        self.inner.write_node(node, change, write).await
    }
    async fn evict(&self, pod: &PodRef, grace: Option<Duration>, write: &Write) -> Result<EvictAnswer, PortError> {
        self.inner.evict(pod, grace, write).await
    }
    async fn delete_pod(&self, pod: &DoomedPod, grace: Duration, write: &Write) -> Result<(), PortError> {
        self.inner.delete_pod(pod, grace, write).await
    }
    async fn delete_node(&self, node: &DeletableNode, write: &Write) -> Result<Erased, PortError> {
        self.inner.delete_node(node, write).await
    }
    async fn recall(&self, by: Instant) -> Result<Memory, PortError> {
        self.inner.recall(by).await
    }
    async fn remember(&self, memory: &Memory, write: &Write) -> Result<Memory, PortError> {
        self.inner.remember(memory, write).await
    }
}

#[test]
fn a_view_that_ends_is_opened_again_while_messages_stay() {
    for failing in [0_u32, 4] {
        let model = small();
        let invariants = watch(&model);
        model.with(|world| {
            world.interrupt("spot-1", Reclaim::Terminate).unwrap();
            let later = move |call: &Call| matches!(call, Call::Open(_));
            world.later(500 * Duration::from_millis(1), move |world| {
                world.fault_when(failing, Fault::Fail(ErrorClass::Transient), later);
            });
        });
        let process = model.process();
        let ports = process.ports_alone(Arc::new(Notes::default()));
        let ends = Mutex::new(vec![Instant(2 * SECOND), Instant(SECOND)]);
        let flaky = Flaky { inner: Arc::clone(&ports.cluster), clock: Arc::clone(&ports.clock), ends };
        let ports = Ports { cluster: Arc::new(flaky), ..ports };
        let interruptions = Interruptions::new(ports, process.notices(), settings(), Hold::default());
        let stop = stop_after(&model, 4 * MINUTE);
        model::block_on(&model, async { interruptions.run(&stop).await }).unwrap().unwrap();
        let opened = calls(&model, |call| matches!(call, Call::Open(_)));
        assert!(opened >= 3 + usize::try_from(failing).unwrap(), "{opened}");
        ended_well(&model, &invariants, &format!("{failing} times"));
    }
}

#[test]
fn a_source_that_fails_is_asked_again_and_a_notice_after_that_is_answered_within_seconds() {
    for (failing, after, soon) in [(6, Duration::ZERO, 5 * SECOND), (20, 10 * MINUTE, SECOND)] {
        let model = small();
        model.with(|world| {
            world.fault_when(failing, Fault::Fail(ErrorClass::Transient), |call| matches!(call, Call::Receive));
            world.later(after, |world| drop(world.interrupt("spot-1", Reclaim::Terminate)));
        });
        let notes = answering(&model, &settings(), 12 * MINUTE);
        let [(_, after)] = &notes.cordoned()[..] else { panic!("{:?}", notes.told()) };
        assert!(*after < soon, "{failing}: {after:?}");
        assert!(failing > 6 || *after > Duration::from_millis(500), "not at once each time: {after:?}");
        let problems = notes.all().iter().filter(|event| matches!(event, Progress::Problem { .. })).count();
        assert!(problems >= failing as usize, "it is told each time");
    }
}

#[test]
fn a_source_that_never_answers_is_asked_again() {
    let model = small();
    model.with(|world| {
        world.fault_when(2, Fault::Hang, |call| matches!(call, Call::Receive));
        world.interrupt("spot-1", Reclaim::Terminate).unwrap();
    });
    let notes = answering(&model, &settings(), 100 * SECOND);
    let [(_, after)] = &notes.cordoned()[..] else { panic!("{:?}", notes.told()) };
    assert!(*after < 45 * SECOND, "{after:?}");
}

#[test]
fn a_notice_of_a_node_that_can_not_be_cordoned_in_time_comes_again() {
    let model = small();
    model.with(|world| {
        world.fault_when(12, Fault::Fail(ErrorClass::Denied), is_claim);
        let (instance, at) = (world.machine_of("spot-1").unwrap(), world.wall());
        world.announce(instance, Announcement::Interruption { action: Reclaim::Hibernate, at });
    });
    let notes = answering(&model, &settings(), 2 * MINUTE);
    assert!(notes.told().iter().any(|told| matches!(told, Told::NotEmptied { .. })), "{:?}", notes.told());
    assert!(!settled(&model, Handled::Later).is_empty());
    assert_eq!(notes.emptied(), [("spot-1".to_owned(), NoticeKind::Interruption)]);
    assert!(model.with(|world| world.unsettled()).is_empty());
}

#[test]
fn a_notice_without_effect_writes_nothing() {
    let model = WorldBuilder::default().spot(3).deployment("web", 6).build();
    model.with(|world| {
        let machines: Vec<_> = (1..=3).map(|number| world.machine_of(&format!("spot-{number}")).unwrap()).collect();
        let past = world.wall();
        world.later(MINUTE, |world| world.reboot("spot-1"));
        world.later(MINUTE, |world| world.set_kubelet("spot-1", false));
        world.later(MINUTE + SECOND, |world| world.set_kubelet("spot-1", true));
        world.later(2 * MINUTE, move |world| {
            let far = world.wall().checked_add(48 * 60 * MINUTE).unwrap();
            // what was announced of the first is past: it has become ready since
            let action = Reclaim::Stop;
            let sent = past;
            for announcement in [
                Announcement::Interruption { action, at: past },
                Announcement::ScheduledChange { at: past },
                Announcement::StateChange(MachineState::Down),
            ] {
                world.send_notice(Notice { instance: machines[0].clone(), announcement, sent });
            }
            world.announce(machines[1].clone(), Announcement::Rebalance);
            world.announce(machines[1].clone(), Announcement::ScheduledChange { at: far });
            world.announce(machines[2].clone(), Announcement::StateChange(MachineState::Up));
            world.announce(machines[2].clone(), Announcement::LaunchAction { until: far });
            world.announce(InstanceId::new("i-99999999"), Announcement::Interruption { action, at: far });
        });
    });
    let ignore = InterruptionSettings { rebalance: Rebalance::Ignore, ..settings() };
    let notes = answering(&model, &ignore, 10 * MINUTE);
    let writes = |call: &Call| matches!(call, Call::WriteNode { .. } | Call::Evict { .. } | Call::DeletePod { .. });
    assert_eq!(calls(&model, writes), 0, "{:?}", notes.told());
    assert_eq!(model.with(|world| world.unsettled()).len(), 1, "the scheduled change is still to come");
}

/// A request that hangs holds the process up while it parts.
#[test]
fn what_arrives_while_the_process_parts_is_given_back_at_once() {
    let model = WorldBuilder::default().spot(3).deployment("web", 6).build();
    model.with(|world| {
        world.fault_when(1, Fault::Hang, is_eviction);
        world.interrupt("spot-1", Reclaim::Terminate).unwrap();
        world.later(11 * SECOND, |world| drop(world.interrupt("spot-2", Reclaim::Terminate)));
    });
    drop(answering(&model, &settings(), 10 * SECOND));
    let returned = |call: &Call| matches!(call, Call::Settle { handled: Handled::Returned, .. });
    assert_eq!(calls(&model, returned), 2);
    assert!(now(&model) < Instant(16 * SECOND), "and it ends all the same: {:?}", now(&model));
}
