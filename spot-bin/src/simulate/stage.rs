//! Where a simulation takes place: the model, what the migrator is told, and when it begins.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use spot_core::migrator::Settings;
use spot_core::model::{Model, Scenario, Seen};

use crate::cli::{Environment, SimulateArgs};
use crate::connection;
use crate::cost::PriceBook;
use crate::exit::Fault;
use crate::saved::Saved;
use crate::settings::{self, Own};
use crate::windows;

/// What a simulation begins with.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) model: Model,
    pub(super) settings: Settings,
    pub(super) prices: PriceBook,
    /// What nobody could tell of the cluster, and what is assumed instead.
    pub(super) assumptions: Vec<String>,
    /// What is to be said beside the result.
    pub(super) notes: Vec<String>,
}

impl Stage {
    /// The one that these arguments name, at the moment at which a run begins.
    pub(super) fn of(
        args: &SimulateArgs,
        overrides: &BTreeMap<String, String>,
        environment: &Environment,
    ) -> Result<Self, Fault> {
        let (config, assumed) = connection::configuration_of_any_provider(&args.config, environment, overrides)?;
        let settings = settings::settings(&config, &Own::of(environment));
        let prices = PriceBook::read(config.prices.as_deref()).map_err(Fault::usage)?;
        let scenario = Scenario::from(args.scenario);
        let mut stage = if args.files.is_empty() {
            let model = scenario.build(args.seed, args.nodes, args.pods);
            Self { model, settings, prices, assumptions: Vec::new(), notes: Vec::new() }
        } else {
            let Saved { view, cloud, notes } = Saved::read(&args.files, &config)?;
            let seen = Seen {
                view: &view,
                cloud: &cloud,
                seed: args.seed,
                start: Seen::moment(&view)
                    .ok_or_else(|| Fault::usage(anyhow!("the files hold no node: there is nothing to simulate")))?,
                load_balancer_drain: config.load_balancer.drain,
            };
            let like = scenario.like(&seen);
            let notes = assumed.into_iter().chain(notes).collect();
            Self { model: like.model, settings, prices, assumptions: like.assumptions, notes }
        };
        stage.await_window()?;
        Ok(stage)
    }

    /// Lets time pass until a run may begin nodes.
    fn await_window(&mut self) -> Result<(), Fault> {
        let (start, now) = self.model.with(|world| (world.wall(), world.now()));
        let budgets = &self.settings.policy.budgets;
        if budgets.is_open(start) {
            return Ok(());
        }
        let schedule = &self.settings.schedule;
        let first = windows::first(schedule, budgets, start).map_err(|_last| {
            Fault::usage(anyhow!("`{schedule}` fires in none of the windows: let `schedule` and `windows` meet"))
        })?;
        let wait = Duration::try_from(first.duration_since(start)).context("a window lies in the past")?;
        self.model.run_until(now + wait).context("the simulation came to no end")?;
        self.assumptions
            .push(format!("The run begins at {first}, when `schedule` first fires in one of the `windows`."));
        Ok(())
    }
}
