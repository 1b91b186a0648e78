//! Any plan on any terminal.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::cost::Dollars;

const REMEDIES: [(&str, &str); 3] = [
    ("budget_allows_none", "give the application more replicas, or its budget more room"),
    ("outside_window", "wait for the next window, or widen `windows`"),
    ("unmanaged_pod", "give the pod a controller, move it by hand, or set `drain.force: true`"),
];

fn because(at: usize, detail: String) -> Because {
    let (kind, remedy) = REMEDIES[at];
    Because { kind, detail, transient: false, remedy }
}

fn some_because() -> impl Strategy<Value = Because> {
    let words = vec("[a-z/,:_-]{1,40}", 0..8).prop_map(|words| words.join(" "));
    (0..REMEDIES.len(), words, option::of("[a-z/-]{1,70}")).prop_map(|(at, words, pod)| {
        let pod = pod.map(|pod| format!(" pod {pod}")).unwrap_or_default();
        because(at, format!("{}:{pod} {words}", REMEDIES[at].0).trim_end().to_owned())
    })
}

prop_compose! {
    fn row()(
        name in prop_oneof!["[a-z]{1,9}", "[a-z0-9.-]{1,90}"],
        class in prop_oneof![Just("on-demand"), Just("spot"), Just("unknown")],
        verdict in prop_oneof![Just("eligible"), Just("refused"), Just("not_a_candidate")],
        preference in option::of(Just("deletion_candidate")),
        known in vec(option::of("[a-z0-9-]{1,40}"), 3),
        pods in 0..200_usize,
        monthly in option::of(0.0..1e6),
        reasons in prop_oneof![vec(some_because(), 1), vec(some_because(), 0..11)],
    ) -> Row {
        let [pool, instance_type, zone] = [&known[0], &known[1], &known[2]].map(Clone::clone);
        let monthly = monthly.map(Dollars);
        Row { name, class, pool, instance_type, zone, pods, monthly, rank: None, preference, verdict, reasons }
    }
}

prop_compose! {
    fn sum()(on_demand in 0..9999_usize, spot in 0..9999_usize, monthly in 0.0..1e8, saved in 0.0..1.0, unpriced in 0..3_usize)
    -> Sum {
        let (monthly, saving) = (Dollars(monthly), Dollars(monthly * saved));
        Sum { on_demand, spot, monthly, saving, unpriced, ..Sum::default() }
    }
}

prop_compose! {
    fn plan()(
        mut nodes in vec(row(), 0..8),
        pools in proptest::collection::btree_map("[a-z-]{1,50}", sum(), 0..4),
        total in sum(),
        outlook in prop_oneof![Just(Outlook::Retire), Just(Outlook::Wait), Just(Outlook::AllSpot), Just(Outlook::NothingEligible)],
        is_priced in any::<bool>(),
    ) -> Plan {
        for (at, row) in nodes.iter_mut().enumerate() {
            row.name = format!("{at}.{}", row.name);
            row.rank = (row.verdict == "eligible").then_some(at + 1);
        }
        let next = nodes.iter().filter(|row| row.rank.is_some()).map(|row| row.name.clone()).collect();
        let costs = is_priced.then_some(Bill { pools, total });
        Plan { next, outlook, summary: Summary::of(&nodes), costs, nodes }
    }
}

/// What those see who see no colours: the table, and the rest.
fn seen(plan: &Plan, columns: Columns, width: Option<usize>) -> (String, String) {
    let text = anstream::adapter::strip_str(&text(plan, columns, width)).to_string();
    let (table, rest) = text.split_once("\n\n").expect("there is a summary");
    (table.to_owned(), rest.to_owned())
}

fn columns() -> impl Strategy<Value = Columns> {
    prop_oneof![Just(Columns::Few), Just(Columns::All)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn only_a_word_that_has_no_room_even_by_itself_is_wider_than_the_terminal(
        plan in plan(),
        columns in columns(),
        width in 20..=250_usize,
    ) {
        let (table, rest) = seen(&plan, columns, Some(width));
        for line in table.lines().chain(rest.lines()) {
            let word = line.trim_start();
            let has_no_room = !word.contains(' ') && 6 + word.chars().count() > width;
            prop_assert!(line.chars().count() <= width || has_no_room, "{line:?}");
            prop_assert_eq!(line, line.trim_end());
        }
    }

    #[test]
    fn every_node_is_named_once_in_the_table_and_in_order(
        plan in plan(),
        columns in columns(),
        width in option::of(0..=250_usize),
    ) {
        let (table, _) = seen(&plan, columns, width);
        let names: Vec<_> = plan.nodes.iter().map(|row| row.name.as_str()).collect();
        let named = table.split_whitespace().filter(|word| names.contains(word));
        prop_assert_eq!(named.collect::<Vec<_>>(), names);
    }

    #[test]
    fn the_width_changes_the_lines_and_no_word(plan in plan(), columns in columns(), width in 0..=250_usize) {
        let (_, narrow) = seen(&plan, columns, Some(width));
        let (_, whole) = seen(&plan, columns, None);
        // Lines without anything are left out.
        let words = |text: &str| text.split_whitespace().filter(|word| *word != "-").map(str::to_owned).collect::<Vec<_>>();
        prop_assert_eq!(words(&narrow), words(&whole));
    }

    #[test]
    fn without_a_width_every_row_and_every_sentence_is_a_line(plan in plan(), columns in columns()) {
        let (table, rest) = seen(&plan, columns, None);
        prop_assert_eq!(table.lines().count(), plan.nodes.len() + 1);
        let refused = plan.nodes.iter().filter(|row| row.verdict == "refused").flat_map(|row| &row.reasons);
        for Because { kind, remedy, .. } in refused {
            let said = format!("  {kind}: {remedy}");
            prop_assert!(rest.lines().any(|line| line == said));
        }
    }
}

/// A node that each of these is in the way of.
fn refused(name: &str, reasons: impl IntoIterator<Item = Because>) -> Row {
    let (name, reasons) = (name.to_owned(), reasons.into_iter().collect());
    Row {
        name,
        class: "on-demand",
        pool: None,
        instance_type: None,
        zone: None,
        pods: 9,
        monthly: None,
        rank: None,
        preference: Some("ordinary"),
        verdict: "refused",
        reasons,
    }
}

fn of(nodes: Vec<Row>) -> Plan {
    let summary = Summary::of(&nodes);
    Plan { next: Vec::new(), outlook: Outlook::NothingEligible, summary, costs: None, nodes }
}

fn in_the_way_of(nodes: Vec<Row>) -> String {
    let (_, rest) = seen(&of(nodes), Columns::Few, None);
    let (part, _) = rest.split_once("\n\n").expect("there are remedies");
    part.to_owned()
}

#[test]
fn pods_that_the_same_is_in_the_way_of_are_named_in_one_sentence() {
    let budget = |pod| because(0, format!("budget_allows_none: budget shop/web protects pod shop/web-{pod}, for good"));
    let two = (0..2).map(|pod| because(0, format!("multiple_budgets: pod shop/db-{pod} is protected by a and b")));
    let other = because(2, "unmanaged_pod: pod shop/bare".to_owned());
    assert_eq!(
        in_the_way_of(vec![refused("a", (0..30).map(budget).chain(two).chain([other]))]),
        "In the way:\n  a\n    \
         budget_allows_none: budget shop/web protects pods shop/web-0, shop/web-1, shop/web-2 and 27 more, for good\n    \
         multiple_budgets: pods shop/db-0 and shop/db-1 are protected by a and b\n    \
         unmanaged_pod: pod shop/bare"
    );
}

#[test]
fn nodes_that_the_same_is_in_the_way_of_are_named_together() {
    let plain = || [because(1, "outside_window".to_owned()), because(1, "run_limit".to_owned())];
    let more = || plain().into_iter().chain([because(2, "unmanaged_pod: pod shop/bare".to_owned())]);
    let nodes = (0..6).map(|at| if at == 1 { refused("b", more()) } else { refused(&format!("a{at}"), plain()) });
    assert_eq!(
        in_the_way_of(nodes.collect()),
        "In the way:\n  a0, a2, a3 and 2 more\n    outside_window\n    run_limit\n  b\n    outside_window\n    run_limit\n    \
         unmanaged_pod: pod shop/bare"
    );
}

#[test]
fn of_very_many_nodes_and_reasons_the_first_are_told_and_the_rest_counted() {
    let reasons = |node: usize, most| (0..most).map(move |at| because(1, format!("reason {node}-{at}")));
    let nodes =
        (0..NODES + 3).map(|node| refused(&format!("n{node}"), reasons(node, if node == 0 { REASONS + 2 } else { 2 })));
    let part = in_the_way_of(nodes.collect());
    assert!(part.contains("reason 0-7\n    and 2 more, which `-o json` shows\n  n1\n"), "{part}");
    assert!(part.ends_with("reason 19-1\n  and 3 more nodes, which `-o json` shows"), "{part}");
}

#[test]
fn what_is_never_spot_costs_the_same_when_all_is_and_a_saving_that_is_not_known_is_no_amount() {
    let never = Sum { on_demand: 1, monthly: Dollars(70.0), ..Sum::default() };
    let unknown =
        Sum { on_demand: 3, monthly: Dollars(210.0), may_be_spot: 2, without_spot_price: 2, ..Sum::default() };
    let bill =
        Bill { pools: [("never".to_owned(), never), ("unknown".to_owned(), unknown)].into(), total: Sum::default() };
    let (_, rest) = seen(&Plan { costs: Some(bill), ..of(Vec::new()) }, Columns::Few, None);
    let cells =
        |pool| rest.lines().find_map(|line| line.trim().strip_prefix(pool)).expect("it is there").split_whitespace();
    assert_eq!(cells("never").collect::<Vec<_>>(), ["1", "0", "$70.00", "$70.00", "-"]);
    assert_eq!(cells("unknown").collect::<Vec<_>>(), ["3", "0", "$210", "-", "-"]);
}
