//! The machines of a pool.

use aws_sdk_ec2::types::{self, Filter};
use jiff::Timestamp;
use spot_core::error::PortError;
use spot_core::ports::Instant;

use super::existing::moment;
use super::node_pool::NodePool;
use crate::action::Action;
use crate::error::CallError;
use crate::provider::describe::more;
use crate::provider::instance::{Instance, Keeper, SPOT_FLEET_TAG};
use crate::provider::maintain::Fleet;

/// The most fleets in one call: the most values of a filter.
const BATCH: usize = 200;
/// The largest page of instances.
const PAGE: i32 = 1000;
/// The states of an instance that is not gone yet.
const THERE: [&str; 5] = ["pending", "running", "shutting-down", "stopping", "stopped"];

/// A machine of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolMember {
    /// Its ID.
    pub instance: String,
    /// The fleet that launched it.
    pub fleet: String,
    /// As in `m5.large`.
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// How much of the fleet's capacity it is; none: the fleet does not say.
    pub weight: Option<u32>,
    /// EC2's word for its state.
    pub state: String,
    /// When it was launched.
    pub launched: Timestamp,
    /// What an hour of such a machine costs on spot now, in dollars; none: EC2 does not say.
    pub price: Option<f64>,
}

/// An instance of a fleet, by the fleet's own tag, which nobody else can write.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) id: String,
    pub(super) launched: Timestamp,
    pub(super) instance: Instance,
}

impl Described {
    fn of(described: &types::Instance) -> Option<Self> {
        Some(Self {
            id: described.instance_id()?.to_owned(),
            launched: described.launch_time().and_then(moment).unwrap_or(Timestamp::UNIX_EPOCH),
            instance: Instance::of(described),
        })
    }

    /// Whether it is an instance of this fleet.
    pub(super) fn is_of(&self, fleet: &str) -> bool {
        matches!(&self.instance.keeper, Keeper::Fleet(keeper) if keeper.as_str() == fleet)
    }
}

impl NodePool {
    /// The pool's machines that are not gone yet, in the order of their launch, with what each costs now.
    ///
    /// # Errors
    /// When EC2 could not be asked.
    pub async fn members(&self, by: Instant) -> Result<Vec<PoolMember>, PortError> {
        let mut requests = self.requests(by).await?;
        requests.retain(|request| self.owns(request.tags()));
        let ids: Vec<_> = requests.iter().filter_map(|request| request.spot_fleet_request_id()).collect();
        let mut machines = self.described(&ids, by).await?;
        machines.sort_by(|one, other| (one.launched, &one.id).cmp(&(other.launched, &other.id)));
        let prices =
            self.aws.prices(machines.iter().map(|machine| machine.instance.kind.as_str()).collect(), by).await?;
        let fleets: Vec<_> = requests.iter().filter_map(Fleet::of_spot).collect();
        let member = |machine: Described| {
            let fleet = fleets.iter().find(|fleet| machine.is_of(fleet.id.as_str()))?;
            let weight = fleet.weight(&machine.instance).ok();
            let Instance { kind: instance_type, zone, state, .. } = machine.instance;
            Some(PoolMember {
                instance: machine.id,
                fleet: fleet.id.to_string(),
                price: prices.get(&(instance_type.clone(), zone.clone())).copied(),
                instance_type,
                zone,
                weight,
                state,
                launched: machine.launched,
            })
        };
        Ok(machines.into_iter().filter_map(member).collect())
    }

    /// The instances of these fleets that are not terminated yet.
    pub(super) async fn described(&self, fleets: &[&str], by: Instant) -> Result<Vec<Described>, CallError> {
        self.instances(fleets, &THERE, Described::of, by).await
    }

    /// What there is to `tell` of the instances of these fleets that are in one of these states.
    pub(super) async fn instances<T>(
        &self,
        fleets: &[&str],
        states: &[&str],
        tell: impl Fn(&types::Instance) -> Option<T>,
        by: Instant,
    ) -> Result<Vec<T>, CallError> {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let states = Filter::builder().name("instance-state-name").set_values(Some(texts(states))).build();
        let mut found = Vec::new();
        for ids in fleets.chunks(BATCH) {
            let ours = Filter::builder().name(format!("tag:{SPOT_FLEET_TAG}")).set_values(Some(texts(ids))).build();
            let mut token = None;
            loop {
                let request = self.api().ec2.describe_instances().filters(ours.clone()).filters(states.clone());
                let request = request.max_results(PAGE).set_next_token(token);
                let page = self.api().call(Action::DescribeInstances, by, request.send()).await?;
                let instances = page.reservations().iter().flat_map(types::Reservation::instances);
                found.extend(instances.filter_map(&tell));
                token = more(page.next_token());
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }
}
