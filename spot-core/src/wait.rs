//! The only waits of the core, each with a deadline: for a call, and for a change of the view.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures::future::{self, Either};

use crate::claim::InstanceId;
use crate::cloud::InstanceState;
use crate::error::{ErrorClass, PortError};
use crate::ports::{Instant, Live, Ports};
use crate::stop::Stop;
use crate::view::Revision;

/// How long one request to the cluster may take, all tries of the adapter included.
pub(crate) const REQUEST: Duration = Duration::from_secs(30);
/// How long past its deadline a future may live before it is dropped.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits for a call until shortly after its deadline. Dropped then, its effect is unknown.
pub(crate) async fn within<T>(
    ports: &Ports,
    by: Instant,
    what: &'static str,
    call: impl Future<Output = Result<T, PortError>>,
) -> Result<T, PortError> {
    match future::select(pin!(call), pin!(ports.clock.sleep_until(by + PATIENCE))).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(PortError::new(ErrorClass::Timeout, format!("{what}: no answer within the deadline"))),
    }
}

/// Where an instance is in its life, by the cloud's word within that time.
pub(crate) async fn instance_state(
    ports: &Ports,
    instance: &InstanceId,
    patience: Duration,
) -> Result<InstanceState, PortError> {
    let by = ports.clock.instant() + patience;
    within(ports, by, "asking for the instance", ports.cloud.instance_state(instance, by)).await
}

/// Waits until the view has changed since `seen`, until a time, or until asked to stop, whichever comes first.
pub(crate) async fn change(
    ports: &Ports,
    live: &dyn Live,
    stop: &Stop,
    seen: Revision,
    until: Instant,
) -> Result<(), PortError> {
    let timer = pin!(ports.clock.sleep_until(until));
    let stopped = pin!(stop.wait());
    match future::select(pin!(live.changed(seen)), future::select(timer, stopped)).await {
        Either::Left((changed, _)) => changed,
        Either::Right(_) => Ok(()),
    }
}
