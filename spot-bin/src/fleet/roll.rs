//! `spot-fleet roll`: a fleet that is what the file asks for now takes the place of the others.

use std::collections::BTreeSet;

use anyhow::{Context as _, anyhow};
use spot_aws::fleet::{Existing, ExistingFleet, PoolMember, difference};
use spot_core::pool::Outcome;
use spot_core::pool::roll::{Terms, TooHeavy};

use super::cli::{Arguments, RollArgs};
use super::create::{existing, looked_at};
use super::plan;
use super::report::exit;
use super::work::{Held, Task, settings, told, until_told};
use crate::cli::Environment;
use crate::exit::{Exit, Fault};
use crate::output;
use crate::pool::PoolFile;
use crate::run::fault;
use crate::settings::Own;

/// Rolls the pool.
pub(super) fn roll(args: &RollArgs, arguments: &Arguments, environment: &Environment) -> Result<Exit, Fault> {
    let path = &args.pool.file;
    let file = PoolFile::read(path).map_err(Fault::usage)?;
    until_told(arguments, environment, async |work| {
        let cloud = work.cloud(&file).await?;
        let found = existing(work, &cloud, &file).await?;
        if found.fleets.iter().all(|fleet| !fleet.ours || fleet.is_gone()) {
            let path = path.display();
            return Err(Fault::failed(anyhow!(
                "there is no such pool: `spot-fleet create {path}` comes first; nothing was touched"
            )));
        }
        let launch = looked_at(work, &cloud, &found).await?;
        plan::not_orphaned(&difference(&file.pool, &launch, &found))?;
        let rolled = async |held: &Held| {
            // Now that nobody else changes it.
            let existing = existing(work, &cloud, &file).await?;
            let keep = BTreeSet::from([launch.hash.clone()]);
            let old = old(&existing, &launch.hash);
            if old.is_empty() {
                cloud.pool.clean_up(&keep, &held.permit()).await.context("can't remove old versions")?;
                output::result("nothing to replace: every machine is what the file asks for\n")?;
                return Ok(Exit::Orderly);
            }
            let capacity = capacity(&existing);
            let members = cloud.pool.members(work.by()).await.context("can't ask for the pool's machines")?;
            let surge = args.max_surge.unwrap_or_else(|| heaviest(&file, &members));
            let terms = Terms { capacity, surge, unavailable: args.max_unavailable };
            fit(&terms, &file, &members)?;
            let ensured = cloud.pool.ensure(&launch, 0, capacity, &held.permit()).await;
            let fleet = ensured.context("can't request the new fleet")?.fleet;
            let from: Vec<_> = old.iter().map(|fleet| fleet.id.as_str()).collect();
            work.shown.say(&format!("fleet {fleet} takes the place of {}, with {capacity} units", from.join(", ")));
            let report = held.pools.roll(terms, &work.stop).await.map_err(fault)?;
            told(work, &report)?;
            if report.outcome == Outcome::Done {
                cloud.pool.clean_up(&keep, &held.permit()).await.context("can't remove old versions")?;
            }
            exit(&report, args.detailed_exit_code)
        };
        let settings = settings(&file, &Own::of(environment));
        let task =
            Task { file: &file, access: &args.access, cloud: &cloud, settings, deletes_pods: false, grows: true };
        work.holding(task, rolled).await
    })
}

/// The fleets whose place is taken.
fn old<'a>(existing: &'a Existing, hash: &str) -> Vec<&'a ExistingFleet> {
    let current = existing.current(hash).map(|fleet| &fleet.id);
    existing.fleets.iter().filter(|fleet| fleet.ours && !fleet.is_gone() && Some(&fleet.id) != current).collect()
}

/// What the pool as a whole wants: what its fleet wants now, or, of several, what the youngest was told when it began to
/// take the others' place. An older one, though it may be current again, was told that before the pool was scaled.
fn capacity(existing: &Existing) -> u32 {
    let there: Vec<_> = existing.fleets.iter().filter(|fleet| fleet.ours && !fleet.is_gone()).collect();
    if let [only] = there[..] {
        // If it has ended, what it wanted then.
        return only.target;
    }
    let youngest = there.iter().max_by_key(|fleet| (!fleet.has_ended, fleet.created, &fleet.id));
    let wanted =
        || there.iter().filter(|fleet| !fleet.has_ended).map(|fleet| fleet.target).fold(0, u32::saturating_add);
    youngest.and_then(|fleet| fleet.capacity).unwrap_or_else(wanted)
}

/// Refuses terms by which nothing could be done, before anything is asked for.
fn fit(terms: &Terms, file: &PoolFile, members: &[PoolMember]) -> Result<(), Fault> {
    let Terms { capacity, surge, unavailable } = *terms;
    let floor = file.pool.min_capacity;
    if capacity.saturating_sub(unavailable) < floor {
        return Err(Fault::usage(anyhow!(
            "--max-unavailable {unavailable} of {capacity} units would leave less than the {floor} of `minCapacity`: \
             lower one of them; nothing was touched"
        )));
    }
    let room = surge.saturating_add(unavailable);
    match members.iter().filter_map(|member| member.weight).max() {
        Some(weight) if weight > room => Err(Fault::usage(anyhow!(
            "{}: raise --max-surge or --max-unavailable; nothing was touched",
            TooHeavy { weight, room }
        ))),
        Some(_) | None => Ok(()),
    }
}

/// The weight of the heaviest machine that may come or go.
fn heaviest(file: &PoolFile, members: &[PoolMember]) -> u32 {
    let come = file.pool.offers.iter().map(|offer| offer.weight);
    let go = members.iter().filter_map(|member| member.weight);
    come.chain(go).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::sample::{at, fleet, member, pool_file};

    fn existing(fleets: &[ExistingFleet]) -> Existing {
        Existing { template: None, fleets: fleets.to_vec() }
    }

    #[test]
    fn every_fleet_of_ours_that_is_not_current_is_old_until_nothing_of_it_is_left() {
        let hash = "now";
        let foreign = ExistingFleet { ours: false, ..fleet("sfr-3", "", (1, 1)) };
        let ending = ExistingFleet { has_ended: true, ..fleet("sfr-4", "before", (0, 2)) };
        let gone = ExistingFleet { has_ended: true, ..fleet("sfr-5", "before", (0, 0)) };
        let existing =
            existing(&[fleet("sfr-1", hash, (3, 3)), fleet("sfr-2", "before", (3, 3)), foreign, ending, gone]);
        let old: Vec<_> = old(&existing, hash).iter().map(|fleet| fleet.id.as_str()).collect();
        assert_eq!(old, ["sfr-2", "sfr-4"]);
    }

    #[test]
    fn the_pool_wants_what_its_fleets_wanted_when_the_roll_began() {
        let begins = existing(&[fleet("sfr-1", "before", (5, 5)), fleet("sfr-2", "older", (2, 2))]);
        assert_eq!(capacity(&begins), 7);
        let new = ExistingFleet { capacity: Some(7), ..fleet("sfr-3", "now", (2, 2)) };
        let goes_on = existing(&[fleet("sfr-1", "before", (4, 4)), new]);
        assert_eq!(capacity(&goes_on), 7);
    }

    #[test]
    fn a_roll_that_is_turned_back_halfway_keeps_what_the_pool_was_scaled_to() {
        let first = |target| ExistingFleet { capacity: Some(6), ..fleet("sfr-1", "before", (target, target)) };
        let scaled = existing(&[first(10)]);
        assert_eq!(capacity(&scaled), 10, "of the only fleet, what it wants now");
        let created = at() + jiff::SignedDuration::from_mins(1);
        // By its ID, it would be the older one.
        let second = ExistingFleet { capacity: Some(10), created, ..fleet("sfr-0", "now", (5, 5)) };
        let killed_halfway = existing(&[first(5), second.clone()]);
        assert_eq!(capacity(&killed_halfway), 10);
        let ended = ExistingFleet { has_ended: true, ..first(5) };
        assert_eq!(capacity(&existing(&[ended.clone(), second])), 10, "somebody has ended the first");
        assert_eq!(capacity(&existing(&[ended])), 5, "of a pool that somebody has ended, what it wanted then");
    }

    #[rstest]
    #[case::fits(3, 0, None)]
    #[case::fits_together(1, 2, None)]
    #[case::too_heavy(2, 0, Some("--max-surge"))]
    #[case::below_the_floor(3, 4, Some("`minCapacity`"))]
    fn terms_by_which_nothing_could_be_done_are_refused(
        #[case] surge: u32,
        #[case] unavailable: u32,
        #[case] named: Option<&str>,
    ) {
        let (file, members) = (pool_file("minCapacity: 2\n"), [member("i-1", 1), member("i-2", 3)]);
        let fitted = fit(&Terms { capacity: 5, surge, unavailable }, &file, &members);
        match (named, fitted) {
            (None, fitted) => assert!(fitted.is_ok(), "{fitted:?}"),
            (Some(named), fitted) => {
                let fault = fitted.expect_err("it can't be done");
                assert!(fault.error.to_string().contains(named), "{}", fault.error);
                assert_eq!(fault.exit, Exit::Usage);
            }
        }
    }

    #[test]
    fn the_surge_has_room_for_the_heaviest_machine_that_comes_or_goes() {
        let file = pool_file("");
        assert_eq!(heaviest(&file, &[]), 2);
        assert_eq!(heaviest(&file, &[member("i-1", 7)]), 7);
    }
}
