//! What happens to the cluster and its processes by chance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use spot_core::capacity::Class;
use spot_core::error::ErrorClass;
use spot_core::interruption::{Announcement, MachineState, Reclaim};
use spot_core::model::fault::Fault;
use spot_core::model::{Call, SplitMix64, World};
use spot_core::node::{ClaimAnnotation, Effect, NodeSnapshot, Taint, key};
use spot_core::ports::EvictAnswer;
use spot_core::reason::{Reason, ReasonKind};

use super::cluster::{Plan, WORKLOADS, on_demand};
use super::crew::Shared;
use super::{MINUTE, SECOND};

/// More spot machines than anybody buys.
const PLENTY: u32 = 1_000_000;
/// The taint of somebody else.
const FOREIGN: &str = "gpu";

/// The weather, and whoever else is about.
struct Weather {
    plan: Plan,
    chance: SplitMix64,
    board: Shared,
    /// Set when it is good: faults that have not struck by then never do.
    calm: Arc<AtomicBool>,
}

/// Something that may happen.
#[derive(Clone, Copy)]
enum Act {
    SpotRunsOut,
    Interruption,
    Announcement,
    Fault,
    FailingEvictions,
    Kill,
    Restart,
    Handover,
    Uncordoned,
    OptOut,
    Cordoned,
    Tainted,
    Refused,
    Rollout,
    PodDeleted,
    PodUnready,
    PodLands,
    Scaled,
    KubeletSilent,
    KubeletRestarts,
    Reboot,
    AutoscalerRestarts,
    NodeAdded,
    Terminated,
    ScaleDown,
    Clock,
}

/// Each with how often it is chosen beside the others.
const ACTS: [(Act, u64); 26] = [
    (Act::SpotRunsOut, 4),
    (Act::Interruption, 8),
    (Act::Announcement, 4),
    (Act::Fault, 14),
    (Act::FailingEvictions, 3),
    (Act::Kill, 4),
    (Act::Restart, 2),
    (Act::Handover, 2),
    (Act::Uncordoned, 2),
    (Act::OptOut, 3),
    (Act::Cordoned, 2),
    (Act::Tainted, 1),
    (Act::Refused, 2),
    (Act::Rollout, 3),
    (Act::PodDeleted, 4),
    (Act::PodUnready, 2),
    (Act::PodLands, 1),
    (Act::Scaled, 2),
    (Act::KubeletSilent, 2),
    (Act::KubeletRestarts, 2),
    (Act::Reboot, 1),
    (Act::AutoscalerRestarts, 2),
    (Act::NodeAdded, 10),
    (Act::Terminated, 1),
    (Act::ScaleDown, 4),
    (Act::Clock, 1),
];

/// Lets things happen from now on, until the storm is over.
pub(crate) fn begin(world: &mut World, plan: Plan, board: &Shared) {
    let weather = Weather { plan, chance: plan.chance(2), board: board.clone(), calm: Arc::default() };
    world.later(5 * MINUTE, move |world| weather.goes_on(world));
}

impl Weather {
    fn goes_on(mut self, world: &mut World) {
        if self.board.is_over() {
            return;
        }
        if world.now().0 >= self.plan.storm {
            return self.clears(world);
        }
        let act = self.act();
        self.happens(world, act);
        let pause = self.pause(world);
        world.later(pause, move |world| self.goes_on(world));
    }

    fn act(&mut self) -> Act {
        let all = ACTS.iter().map(|(_, weight)| weight).sum();
        let mut at = self.chance.below(all);
        for (act, weight) in ACTS {
            match at.checked_sub(weight) {
                Some(rest) => at = rest,
                None => return act,
            }
        }
        Act::Fault
    }

    /// Half of the time something happens while a run is under way.
    fn pause(&mut self, world: &World) -> Duration {
        let hour = 3600;
        if self.chance.below(2) == 0 {
            let left = hour - world.now().0.as_secs() % hour;
            return SECOND * u32::try_from(left + self.chance.below(420)).unwrap();
        }
        Duration::from_millis(1000 + self.chance.below(1_500_000))
    }

    fn seconds(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_secs(least + self.chance.below(most - least + 1))
    }

    /// A node of which `wanted` says so.
    fn node(&mut self, world: &World, wanted: impl Fn(&NodeSnapshot) -> bool) -> Option<String> {
        let is_meant = |node: &NodeSnapshot| !node.labels.contains_key(key::CONTROL_PLANE) && wanted(node);
        let mut names: Vec<_> = world.view().nodes().iter().filter(|node| is_meant(node)).map(|n| &n.name).collect();
        names.sort_unstable();
        let at = usize::try_from(self.chance.below(names.len() as u64)).unwrap();
        names.get(at).map(ToString::to_string)
    }

    /// A node that is being worked on, or else any of this class.
    fn node_of(&mut self, world: &World, class: Class) -> Option<String> {
        let worked_on = |node: &NodeSnapshot| node.claim != ClaimAnnotation::Absent;
        let of_class = |node: &NodeSnapshot| world.class_of(&node.name) == Some(class);
        self.node(world, |node| worked_on(node) && of_class(node)).or_else(|| self.node(world, of_class))
    }

    fn workload(&mut self) -> (&'static str, u32) {
        WORKLOADS[usize::try_from(self.chance.below(WORKLOADS.len() as u64)).unwrap()]
    }

    fn happens(&mut self, world: &mut World, act: Act) {
        match act {
            Act::Fault | Act::FailingEvictions => self.board.lock().figures.faults += 1,
            _other => self.board.lock().figures.acts += 1,
        }
        match act {
            Act::SpotRunsOut => {
                let left = u32::try_from(self.chance.below(3)).unwrap();
                world.set_spot_left(left);
                world.later(self.seconds(1800, 36_000), |world| world.set_spot_left(PLENTY));
            }
            Act::Interruption => self.interrupt(world),
            Act::Announcement => self.announce(world),
            Act::Fault => self.fault(world),
            Act::FailingEvictions => self.failing_evictions(world),
            Act::Kill | Act::Restart | Act::Handover => self.strike_process(world, act),
            Act::Rollout | Act::PodDeleted | Act::PodUnready | Act::PodLands | Act::Scaled => {
                self.strike_pods(world, act);
            }
            Act::NodeAdded => {
                world.add_node(on_demand());
            }
            Act::Clock => {
                let by = SignedDuration::from_secs(i64::try_from(self.chance.below(240)).unwrap() - 120);
                world.jump_wall_clock(by);
            }
            Act::ScaleDown => {
                let empty = self.node(world, |node| {
                    world.class_of(&node.name) == Some(Class::Spot)
                        && node.claim == ClaimAnnotation::Absent
                        && world.movable_pods_on(&node.reference()).is_empty()
                });
                if let Some(name) = empty {
                    world.terminate_machine(&name);
                }
            }
            Act::Uncordoned
            | Act::OptOut
            | Act::Cordoned
            | Act::Tainted
            | Act::Refused
            | Act::KubeletSilent
            | Act::KubeletRestarts
            | Act::Reboot
            | Act::AutoscalerRestarts
            | Act::Terminated => self.strike_node(world, act),
        }
    }

    fn interrupt(&mut self, world: &mut World) {
        let Some(name) = self.node_of(world, Class::Spot) else { return };
        self.board.lock().figures.interruptions += 1;
        let action = match self.chance.below(6) {
            0 => Reclaim::Stop,
            1 => Reclaim::Hibernate,
            _ => Reclaim::Terminate,
        };
        let message = world.interrupt(&name, action);
        if self.chance.below(4) == 0
            && let Some(message) = message
        {
            world.later(self.seconds(1, 300), move |world| world.deliver_again(&message));
        }
        if action != Reclaim::Terminate {
            self.wakes_up(world, &name, action == Reclaim::Stop, (600, 14_400));
        }
    }

    /// A kubelet that falls silent speaks again, if its machine is there still.
    fn wakes_up(&mut self, world: &mut World, name: &str, boots: bool, (least, most): (u64, u64)) {
        let Some(uid) = world.node(name).map(|node| node.uid.clone()) else { return };
        let name = name.to_owned();
        world.later(self.seconds(least, most), move |world| {
            let same = world.node(&name).is_some_and(|node| node.uid == uid);
            if same && world.machine_runs(uid.as_str()) {
                world.start_machine(&name, boots);
            }
        });
    }

    fn announce(&mut self, world: &mut World) {
        let class = if self.chance.below(2) == 0 { Class::Spot } else { Class::OnDemand };
        let Some(name) = self.node_of(world, class) else { return };
        let Some(machine) = world.machine_of(&name) else { return };
        let soon = world.wall() + self.seconds(300, 7200);
        match self.chance.below(3) {
            0 => {
                world.terminate_machine(&name);
                world.announce(machine, Announcement::StateChange(MachineState::Down));
            }
            1 => {
                world.announce(machine, Announcement::ScheduledChange { at: soon });
            }
            _ => {
                world.announce(machine, Announcement::Rebalance);
            }
        }
    }

    /// One of the next calls goes wrong.
    fn fault(&mut self, world: &mut World) {
        let fault = match self.chance.below(9) {
            0 => Fault::Fail(ErrorClass::Transient),
            1 => Fault::Fail(ErrorClass::Timeout),
            2 => Fault::Fail(ErrorClass::Denied),
            3 => Fault::Fail(ErrorClass::Permanent),
            4 => Fault::Hang,
            5 | 6 => Fault::LoseAnswer,
            7 => Fault::KillBefore,
            _ => Fault::KillAfter,
        };
        let times = match &fault {
            Fault::KillBefore | Fault::KillAfter => 1,
            _other => u32::try_from(1 + self.chance.below(4)).unwrap(),
        };
        let calm = Arc::clone(&self.calm);
        let (mut left, reads) = (self.chance.below(25), self.chance.below(3) == 0);
        world.fault_when(times, fault, move |call| {
            let meant = match call {
                Call::Receive | Call::Extend(_) => false,
                Call::Open(_) | Call::Recall | Call::Survey { .. } | Call::InstanceState(_) => reads,
                _other => true,
            };
            if meant && !calm.load(Ordering::Relaxed) {
                left = left.saturating_sub(1);
                return left == 0;
            }
            false
        });
    }

    /// Evictions of one workload are refused for a while.
    fn failing_evictions(&mut self, world: &mut World) {
        let answer = match self.chance.below(5) {
            0 => EvictAnswer::Budget { budget: None, retry_after: Some(10 * SECOND) },
            1 => EvictAnswer::Overloaded { retry_after: Some(5 * SECOND) },
            2 => EvictAnswer::ServerError("the server is on fire".to_owned()),
            3 => EvictAnswer::Denied("somebody took the right away".to_owned()),
            _ => EvictAnswer::Webhook("somebody's webhook says no".to_owned()),
        };
        let (workload, _) = self.workload();
        let times = u32::try_from(1 + self.chance.below(60)).unwrap();
        let calm = Arc::clone(&self.calm);
        world.fault_when(times, Fault::Evict(answer), move |call| {
            matches!(call, Call::Evict { pod, .. } if pod.name.starts_with(workload)) && !calm.load(Ordering::Relaxed)
        });
    }

    fn strike_process(&mut self, world: &mut World, act: Act) {
        let seat = usize::try_from(self.chance.below(2)).unwrap();
        let mut board = self.board.lock();
        let leader = world.leader().and_then(spot_core::model::Lease::holder);
        let alive: Vec<_> = board.alive.iter().flatten().cloned().collect();
        match act {
            Act::Handover => {
                if let Some((other, _)) = alive.iter().find(|(process, _)| Some(*process) != leader) {
                    board.figures.handovers += 1;
                    world.give_lease(*other);
                }
            }
            Act::Restart => alive.get(seat).into_iter().for_each(|(_, stop)| stop.set()),
            _kill => {
                // whoever leads is likelier to be hit
                let hit = alive.iter().find(|(process, _)| seat == 0 || Some(*process) == leader);
                if let Some((process, _)) = hit {
                    world.kill_process(*process);
                }
            }
        }
    }

    fn strike_pods(&mut self, world: &mut World, act: Act) {
        let (workload, replicas) = self.workload();
        let mut pods: Vec<_> = world.view().pods().filter(|pod| pod.name.starts_with(workload)).collect();
        pods.sort_unstable_by_key(|pod| &pod.uid);
        let pods: Vec<_> = pods.into_iter().map(|pod| pod.reference()).collect();
        let one = pods.get(usize::try_from(self.chance.below(pods.len() as u64)).unwrap()).cloned();
        match (act, one) {
            (Act::Rollout, _) => {
                for (delay, pod) in (0..).zip(pods) {
                    world.later(30 * SECOND * delay, move |world| world.delete_pod(&pod));
                }
            }
            (Act::Scaled, _) => {
                let more = u32::try_from(self.chance.below(u64::from(replicas) * 2)).unwrap();
                world.scale_workload(workload, 1 + more);
                world.later(self.seconds(3600, 36_000), move |world| world.scale_workload(workload, replicas));
            }
            (Act::PodUnready, Some(pod)) => {
                world.set_pod_ready(&pod, false);
                world.later(self.seconds(60, 3600), move |world| {
                    if world.view().pods().any(|other| other.uid == pod.uid && other.is_active()) {
                        world.set_pod_ready(&pod, true);
                    }
                });
            }
            (Act::PodLands, _) => {
                let node = self.node_of(world, Class::OnDemand);
                node.and_then(|node| world.land_pod(workload, &format!("{workload}-late"), &node));
            }
            (_, Some(pod)) if self.chance.below(4) == 0 => world.force_delete_pod(&pod),
            (_, Some(pod)) => world.delete_pod(&pod),
            (_, None) => {}
        }
    }

    fn strike_node(&mut self, world: &mut World, act: Act) {
        let class = if self.chance.below(4) == 0 { Class::Spot } else { Class::OnDemand };
        let Some(name) = self.node_of(world, class) else { return };
        let Some(uid) = world.node(&name).map(|node| node.uid.clone()) else { return };
        let while_there = self.seconds(300, 20_000);
        let again = name.clone();
        match act {
            Act::Uncordoned => world.cordon(&name, false),
            Act::OptOut => {
                world.annotate_node(&name, key::DO_NOT_MIGRATE, Some("true"));
                world.later(while_there, move |world| world.annotate_node(&again, key::DO_NOT_MIGRATE, None));
            }
            Act::Cordoned => {
                let board = self.board.clone();
                board.lock().cordoned.insert(uid.clone());
                world.cordon(&name, true);
                world.later(while_there, move |world| {
                    board.lock().cordoned.remove(&uid);
                    if world.node(&again).is_some_and(|node| node.uid == uid) {
                        world.cordon(&again, false);
                    }
                });
            }
            Act::Tainted => {
                world.taint_node(&name, Taint::new(FOREIGN, "installing", Effect::NoSchedule));
                world.later(while_there, move |world| world.untaint_node(&again, FOREIGN));
            }
            Act::Refused => {
                world.set_refusals(&name, vec![Reason::Plain(ReasonKind::TerminationProtected)]);
                world.later(while_there, move |world| world.set_refusals(&again, Vec::new()));
            }
            Act::KubeletSilent => {
                world.set_kubelet(&name, false);
                self.wakes_up(world, &name, false, (30, 1800));
            }
            Act::KubeletRestarts => world.re_register(&name),
            Act::Reboot => world.reboot(&name),
            Act::AutoscalerRestarts => world.autoscaler_restarts(&name),
            _terminated => world.terminate_machine(&name),
        }
    }

    /// The weather is good from now on; what was set to end later ends in its own time.
    fn clears(self, world: &mut World) {
        self.calm.store(true, Ordering::Relaxed);
        world.set_spot_left(PLENTY);
    }
}
