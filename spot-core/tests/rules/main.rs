//! The rules that need no cluster: decisions, judgement, the drain's machine, the view and what surrounds them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail as tests do")]

mod batch;
mod budget;
mod candidates;
mod capacity;
mod claim;
mod decision;
mod drain_budgets;
mod drain_forced;
mod drain_machine;
mod drain_properties;
mod drain_terms;
mod exposure;
mod judge;
mod judge_pods;
mod notices;
mod placement;
mod returning;
mod settle;
mod support;
mod view;
mod volume;
