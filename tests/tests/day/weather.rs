//! What happens to the machines of the control plane and to the migrators themselves, at fixed parts of the day.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use spot_tests::{
    control_plane::REPLICAS,
    rights::NAMESPACE,
    wait::{PATIENCE, until},
};
use tokio::time::sleep;

use crate::scene::Day;

/// Bad weather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    ApiServerRestarts,
    EtcdIsFrozen,
    LeaderIsFrozen,
    FollowerIsKilled,
}

/// What comes after how many hundredths of the day.
pub(crate) const FORECAST: [(u32, Weather); 5] = [
    (15, Weather::ApiServerRestarts),
    (30, Weather::EtcdIsFrozen),
    (45, Weather::LeaderIsFrozen),
    (60, Weather::ApiServerRestarts),
    (75, Weather::FollowerIsKilled),
];

impl Day {
    pub(crate) async fn strike(&mut self, weather: Weather) {
        match weather {
            Weather::ApiServerRestarts => {
                self.world.control_plane_mut().restart_api_server().await;
                self.world.restart_kwok().await;
            }
            Weather::EtcdIsFrozen => {
                // From within a renewal's deadline to beyond a lease.
                let seconds = u64::try_from(2 + self.chance.below(5)).expect("it is small");
                self.world.control_plane().freeze_etcd();
                sleep(Duration::from_secs(seconds)).await;
                self.world.control_plane().thaw_etcd();
            }
            Weather::LeaderIsFrozen => {
                let leader = self.leads(None).await;
                self.replicas[leader].freeze();
                self.leads(Some(leader)).await;
                self.replicas[leader].thaw_to_end().await;
            }
            Weather::FollowerIsKilled => {
                let leader = self.leads(None).await;
                self.replicas[1 - leader].crash().await;
            }
        }
        until("the weather to clear up", PATIENCE, || async {
            self.leases().get_opt("spot-migrator").await.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    /// Waits until somebody leads who is not `former`, and returns who. The lease alone does not tell: it may still be
    /// held by a process that has ended.
    pub(crate) async fn leads(&self, former: Option<usize>) -> usize {
        until("a leader", PATIENCE, || async {
            let lease = self.leases().get("spot-migrator").await.map_err(|error| error.to_string())?;
            let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            let place = REPLICAS.iter().position(|name| holder.starts_with(name));
            let leads = |place: &usize| Some(*place) != former && self.replicas[*place].leads();
            place.filter(leads).ok_or_else(|| format!("held by {holder:?}"))
        })
        .await
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.world.client(), NAMESPACE)
    }
}
