//! What the core's judgement makes of the provider's facts.

use std::collections::BTreeMap;
use std::sync::Arc;

use spot_core::budget::Budgets;
use spot_core::cloud::CloudFacts;
use spot_core::judge::{Batch, Facts, Judgement, Policy, RunFacts, Verdict, judge};
use spot_core::memory::Memory;
use spot_core::node::NodeSnapshot;
use spot_core::reason::{Reason, ReasonKind};
use spot_core::view::View;

use crate::support::{World, noon, uid};

/// Judges the nodes of a world, three of which may go at once.
fn judged<T>(world: &World, cloud: &CloudFacts, look: impl FnOnce(Judgement<'_, Arc<NodeSnapshot>>) -> T) -> T {
    let (view, memory, run) = (View::default(), Memory::default(), RunFacts::default());
    let policy = Policy { budgets: Budgets { at_once: 3, ..Budgets::default() }, ..Policy::default() };
    let facts = Facts { view: &view, cloud, memory: &memory, run: &run };
    look(judge(&world.nodes, &facts, &policy, noon()))
}

#[tokio::test(start_paused = true)]
async fn rb_02_three_nodes_do_not_share_a_groups_room_for_two() {
    let mut world = World::of_group(3, 1);
    world.add(8, Some("spot")).add(9, Some("spot"));
    let chosen = judged(&world, &world.survey(&[]).await, |judgement| match judgement.batch() {
        Batch::Nodes(nodes) => nodes.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(chosen, 2);
}

#[tokio::test(start_paused = true)]
async fn rb_02_of_a_group_at_its_minimum_nobody_goes_and_of_another_somebody_does() {
    let mut world = World::of_group(3, 3);
    world.on_demand(4).add(9, Some("spot"));
    world.group("other", &[4], 0);
    let facts = world.survey(&[]).await;
    let verdicts = judged(&world, &facts, |judgement| {
        let kinds = |verdict| match verdict {
            Verdict::Refused(reasons) => reasons.iter().map(Reason::kind).collect(),
            Verdict::Eligible | Verdict::NotACandidate => Vec::new(),
        };
        let all = judgement.verdicts().into_iter();
        all.map(|(node, verdict)| (node.uid.clone(), kinds(verdict))).collect::<BTreeMap<_, _>>()
    });
    for number in 1..=3 {
        assert_eq!(verdicts[&uid(number)], [ReasonKind::GroupAtMinimum]);
    }
    judged(&world, &facts, |judgement| {
        let Batch::Nodes(nodes) = judgement.batch() else { panic!("somebody may go") };
        assert_eq!(nodes.iter().map(|node| node.uid.clone()).collect::<Vec<_>>(), [uid(4)]);
    });
}
