//! What is to be done about a notice, and how long there is.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use spot_core::claim::InstanceId;
use spot_core::drain::plan::Force;
use spot_core::interruption::answer::{Answer, FLOOR, Moment, answer, may_be_known_later};
use spot_core::interruption::{
    Announcement, InterruptionSettings, Limits, MachineState, Notice, Rebalance, Reclaim, Terms,
};
use spot_core::node::NodeSnapshot;
use spot_core::ports::Instant;

use crate::support::build::{node, noon};
use crate::support::config;

const MINUTE: Duration = Duration::from_mins(1);

fn secs(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

fn settings() -> InterruptionSettings {
    InterruptionSettings::default()
}

/// A notice that was sent at noon.
fn notice(announcement: Announcement) -> Notice {
    Notice { instance: InstanceId::new("i-1"), announcement, sent: noon() }
}

fn interruption(at: i64) -> Notice {
    notice(Announcement::Interruption { action: Reclaim::Terminate, at: noon() + secs(at) })
}

/// So many seconds after noon, by both clocks: the monotonic one stands at a thousand seconds at noon.
fn moment(seconds: i64) -> Moment {
    let instant = Instant(Duration::from_secs(1_000) + Duration::from_secs(seconds.unsigned_abs()));
    Moment { wall: noon() + secs(seconds), instant }
}

fn limits(answered: Answer) -> Limits {
    match answered {
        Answer::Empty(limits) => limits,
        other => panic!("{other:?}"),
    }
}

fn old() -> NodeSnapshot {
    node("spot-1")
}

#[test]
fn an_interrupted_node_is_given_its_two_minutes_and_obeys_budgets_for_one() {
    let given = limits(answer(&interruption(120), &old(), &settings(), moment(1)));
    assert_eq!(given.until, moment(120).instant);
    assert_eq!(given.delete_blocked, Some(moment(60).instant), "counted from when it was sent");
    assert_eq!(given.force, Force::Forced);
    let late = limits(answer(&interruption(120), &old(), &settings(), moment(90)));
    assert_eq!((late.until, late.delete_blocked), (moment(120).instant, Some(moment(90).instant)));
    let past = limits(answer(&interruption(120), &old(), &settings(), moment(300)));
    assert_eq!((past.until, past.delete_blocked), (moment(300).instant + FLOOR, Some(moment(300).instant)));
    let patient = InterruptionSettings { delete_blocked_after: 10 * MINUTE, ..settings() };
    let given = limits(answer(&interruption(120), &old(), &patient, moment(0)));
    assert_eq!(given.delete_blocked, Some(moment(110).instant), "what is deleted has to end in order, too");
}

#[test]
fn each_kind_has_its_answer() {
    let at = |seconds| noon() + secs(seconds);
    let answered = |announcement, seconds| answer(&notice(announcement), &old(), &settings(), moment(seconds));
    let change = |seconds| Announcement::ScheduledChange { at: at(seconds) };
    assert_eq!(answered(change(7_200), 0), Answer::Later);
    assert_eq!(answered(change(7_200), 5_399), Answer::Later);
    let given = limits(answered(change(7_200), 5_400));
    assert_eq!((given.until, given.delete_blocked, given.force), (moment(7_200).instant, None, Force::Forced));
    let given = limits(answered(change(0), 60));
    assert_eq!(given.until, moment(180).instant, "it begins at that time or later");

    let given = limits(answered(Announcement::TerminateAction { until: at(300) }, 0));
    assert_eq!((given.until, given.delete_blocked, given.force), (moment(290).instant, None, Force::Forced));
    assert_eq!(
        answered(Announcement::LaunchAction { until: at(300) }, 0),
        Answer::AwaitReady { until: moment(290).instant }
    );
    assert_eq!(answered(Announcement::LaunchAction { until: at(300) }, 300), Answer::Nothing);
    assert_eq!(answered(Announcement::StateChange(MachineState::Down), 1), Answer::Cordon);
    assert_eq!(answered(Announcement::StateChange(MachineState::Up), 1), Answer::Nothing);

    assert_eq!(answered(Announcement::Rebalance, 1), Answer::Soften);
    let with = |rebalance| InterruptionSettings { rebalance, ..settings() };
    let answered = |rebalance| answer(&notice(Announcement::Rebalance), &old(), &with(rebalance), moment(0));
    assert_eq!(answered(Rebalance::Ignore), Answer::Nothing);
    let given = limits(answered(Rebalance::Drain));
    assert_eq!((given.until, given.delete_blocked, given.force), (moment(3_600).instant, None, Force::Planned));
}

#[test]
fn what_was_announced_is_past_once_the_node_has_become_ready_since() {
    let back = NodeSnapshot { ready_since: Some(noon() + secs(200)), ..old() };
    for (announcement, at) in [
        (Announcement::Interruption { action: Reclaim::Stop, at: noon() + secs(120) }, 300),
        (Announcement::ScheduledChange { at: noon() + secs(120) }, 300),
        (Announcement::StateChange(MachineState::Down), 300),
    ] {
        assert_eq!(answer(&notice(announcement.clone()), &back, &settings(), moment(at)), Answer::Nothing);
        assert_ne!(answer(&notice(announcement), &old(), &settings(), moment(at)), Answer::Nothing);
    }
    let again = notice(Announcement::Interruption { action: Reclaim::Stop, at: noon() + secs(320) });
    assert_ne!(answer(&again, &back, &settings(), moment(300)), Answer::Nothing, "this one is another");
}

#[test]
fn a_machine_without_a_node_is_waited_for_two_minutes_and_a_new_one_as_long_as_its_group_does() {
    assert!(may_be_known_later(&interruption(120), noon() + secs(119)));
    assert!(!may_be_known_later(&interruption(120), noon() + secs(120)));
    let launch = notice(Announcement::LaunchAction { until: noon() + secs(600) });
    assert!(may_be_known_later(&launch, noon() + secs(599)));
    assert!(!may_be_known_later(&launch, noon() + secs(600)));
    // A hook can be kept for two days; that a machine never joins must end it.
    let patient = notice(Announcement::LaunchAction { until: noon() + secs(172_800) });
    assert!(may_be_known_later(&patient, noon() + secs(899)));
    assert!(!may_be_known_later(&patient, noon() + secs(900)));
    for state in [MachineState::Up, MachineState::Down] {
        let change = notice(Announcement::StateChange(state));
        assert!(!may_be_known_later(&change, noon()), "{state:?}: the account has many machines that are not ours");
    }
}

#[test]
fn a_recommendation_is_old_news_after_an_hour() {
    for rebalance in [Rebalance::Taint, Rebalance::Drain] {
        let settings = InterruptionSettings { rebalance, ..settings() };
        let answered = |seconds| answer(&notice(Announcement::Rebalance), &old(), &settings, moment(seconds));
        assert_ne!(answered(3_599), Answer::Nothing);
        assert_eq!(answered(3_600), Answer::Nothing, "its soft taint would be off by now");
    }
}

fn announcement() -> impl Strategy<Value = Announcement> {
    let at = (-100_i64..7_500).prop_map(|seconds| noon() + secs(seconds));
    let reclaim = prop_oneof![Just(Reclaim::Terminate), Just(Reclaim::Stop), Just(Reclaim::Hibernate)];
    prop_oneof![
        (reclaim, at.clone()).prop_map(|(action, at)| Announcement::Interruption { action, at }),
        Just(Announcement::Rebalance),
        at.clone().prop_map(|at| Announcement::ScheduledChange { at }),
        at.prop_map(|until| Announcement::TerminateAction { until }),
    ]
}

/// Until when, by the notice's own word, counted from when it was sent.
fn announced(notice: &Notice) -> Option<i64> {
    let at: Timestamp = match notice.announcement {
        Announcement::Interruption { at, .. }
        | Announcement::ScheduledChange { at }
        | Announcement::TerminateAction { until: at } => at,
        Announcement::Rebalance | Announcement::LaunchAction { .. } | Announcement::StateChange(_) => return None,
    };
    Some(at.as_second() - notice.sent.as_second())
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn no_clock_that_is_set_back_makes_a_deadline_longer(
        announcement in announcement(),
        received in 0_i64..600,
        jump in -100_000_i64..100_000,
    ) {
        let notice = notice(announcement);
        let now = Moment { wall: noon() + secs(received + jump), instant: moment(received).instant };
        if let (Answer::Empty(limits), Some(most)) = (answer(&notice, &old(), &settings(), now), announced(&notice)) {
            let given = limits.until.since(now.instant);
            prop_assert!(given <= Duration::from_secs(most.max(0).unsigned_abs()).max(2 * MINUTE), "{given:?} of {most}");
            if matches!(notice.announcement, Announcement::Interruption { .. }) {
                prop_assert!(given <= Duration::from_secs(most.max(0).unsigned_abs()).max(FLOOR), "{given:?} of {most}");
            }
            prop_assert!(given >= FLOOR, "there is one pass");
            prop_assert!(limits.delete_blocked.is_none_or(|at| at >= now.instant && at < limits.until));
        }
    }

    #[test]
    fn budgets_are_passed_over_for_an_interruption_alone(announcement in announcement(), received in 0_i64..7_500) {
        let interrupted = matches!(announcement, Announcement::Interruption { .. });
        if let Answer::Empty(limits) = answer(&notice(announcement), &old(), &settings(), moment(received)) {
            prop_assert_eq!(limits.delete_blocked.is_some(), interrupted);
        }
    }

    #[test]
    fn deadlines_only_tighten_in_any_order_and_however_often_notices_come(
        all in prop::collection::vec((announcement(), 0_i64..600), 1..6),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let given = |(announcement, received): &(Announcement, i64)| {
            match answer(&notice(announcement.clone()), &old(), &settings(), moment(*received)) {
                Answer::Empty(limits) => Some(limits),
                _other => None,
            }
        };
        let all: Vec<Limits> = all.iter().filter_map(given).collect();
        prop_assume!(!all.is_empty());
        let in_turn = |order: &[Limits]| {
            let terms = Terms::new(order[0].until, order[0].delete_blocked, order[0].force);
            for limits in order {
                let before = terms.limits();
                let stricter = terms.tighten(limits.until, limits.delete_blocked, limits.force);
                let after = terms.limits();
                assert_eq!(stricter, after != before);
                assert!(after.until <= before.until && after.until <= limits.until);
                assert!(before.force == Force::Planned || after.force == Force::Forced);
                assert!(before.delete_blocked.is_none_or(|at| after.delete_blocked.is_some_and(|after| after <= at)));
            }
            terms.limits()
        };
        let mut shuffled: Vec<Limits> = order.iter().map(|at| *at.get(&all)).collect();
        shuffled.extend(all.iter().rev());
        let (once, again) = (in_turn(&all), in_turn(&shuffled));
        prop_assert_eq!(once, again);
        prop_assert_eq!(once.until, all.iter().map(|limits| limits.until).min().unwrap());
        prop_assert_eq!(once.delete_blocked, all.iter().filter_map(|limits| limits.delete_blocked).min());
    }
}
