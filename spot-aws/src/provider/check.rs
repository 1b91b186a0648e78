//! Whether AWS answers as the provider needs it.

mod reads;

use std::pin::Pin;

use aws_sdk_ec2::types::{self, Filter};
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use futures::future::{self, BoxFuture, FutureExt as _};
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::Instant;

use crate::action::Action;
use crate::check::Checked;
use crate::error::{CallError, Kind};
use crate::provider::Aws;
use crate::provider::describe::more;
use crate::provider::instance::CLUSTER_TAG;

/// The instances in one answer, of which one is enough. Those that do not match may be left out of a page of so many.
const PAGE: i32 = 100;

impl Aws {
    /// Tries every read: those that need an instance, a group, a fleet or a balancer, about the first that is there, and
    /// where there is none, nothing is missing yet. And has EC2 say whether it would terminate one of the cluster's
    /// instances, and modify one of its EC2 Fleets. Region, credentials, endpoint and these rights are right if all are
    /// answered.
    ///
    /// Nothing is changed. The other rights to change something can't be asked for without using them: Auto Scaling, load
    /// balancing and Spot Fleets have no dry run.
    pub async fn check(&self, by: Instant) -> Vec<Checked> {
        // Side by side: one that is asked again and again does not use up the time of the others.
        let asked: [BoxFuture<'_, Vec<Checked>>; 7] = [
            self.check_machines(by).boxed(),
            self.check_groups(by).boxed(),
            self.check_ec2_fleets(by).boxed(),
            self.check_spot_fleets(by).boxed(),
            self.check_target_groups(by).boxed(),
            self.check_classic(by).boxed(),
            self.check_prices(by).boxed(),
        ];
        future::join_all(asked).await.into_iter().flatten().collect()
    }

    /// Tries to describe an instance of the cluster and its protection, and asks whether it could be terminated.
    async fn check_machines(&self, by: Instant) -> Vec<Checked> {
        let checked = |action, outcome| Checked { action, outcome, dispensable: false };
        match self.instance_of_cluster(by).await {
            Ok(Some(id)) => {
                let (attribute, terminate) =
                    future::join(self.api.is_termination_protected(&id, by), self.may_terminate(&id, by)).await;
                vec![
                    checked(Action::DescribeInstances, Ok(())),
                    checked(Action::DescribeInstanceAttribute, attribute.map(drop).map_err(PortError::from)),
                    checked(Action::TerminateInstances, terminate.map_err(PortError::from)),
                ]
            }
            Ok(None) if self.rules.require_cluster_tag => {
                vec![checked(Action::DescribeInstances, Err(self.no_instance()))]
            }
            Ok(None) => vec![checked(Action::DescribeInstances, Ok(()))],
            Err(error) => vec![checked(Action::DescribeInstances, Err(error.into()))],
        }
    }

    /// The ID of an instance that is tagged for the cluster, if there is one.
    async fn instance_of_cluster(&self, by: Instant) -> Result<Option<String>, CallError> {
        let tag = format!("tag:{CLUSTER_TAG}{}", self.rules.cluster_name);
        let ours = Filter::builder().name(tag).values("owned").values("shared").build();
        let states = ["pending", "running", "stopping", "stopped"].map(str::to_owned);
        let there = Filter::builder().name("instance-state-name").set_values(Some(states.into())).build();
        let mut token = None;
        loop {
            let request = self.api.ec2.describe_instances().filters(ours.clone()).filters(there.clone());
            let request = request.max_results(PAGE).set_next_token(token);
            let page = self.api.call(Action::DescribeInstances, by, request.send()).await?;
            let mut instances = page.reservations().iter().flat_map(types::Reservation::instances);
            if let Some(id) = instances.find_map(types::Instance::instance_id) {
                return Ok(Some(id.to_owned()));
            }
            token = more(page.next_token());
            if token.is_none() {
                return Ok(None);
            }
        }
    }

    fn no_instance(&self) -> PortError {
        let region = self.api.ec2.config().region().map_or("none", |region| region.as_ref());
        let cluster = &self.rules.cluster_name;
        let what = format!(
            "no instance of region {region} is tagged for cluster {cluster}: look at `cloudProvider.aws.region` and \
             `cloudProvider.aws.clusterName`"
        );
        PortError::new(ErrorClass::Permanent, what)
    }

    /// Whether EC2 would let us terminate this instance.
    async fn may_terminate(&self, id: &str, by: Instant) -> Result<(), CallError> {
        let request = self.api.ec2.terminate_instances().instance_ids(id).dry_run(true);
        self.rehearse(Action::TerminateInstances, by, Box::pin(request.send())).await
    }

    /// Whether EC2 would do what a dry run asks for, which is on the heap: the SDK's futures are large.
    async fn rehearse<T, E>(
        &self,
        action: Action,
        by: Instant,
        dry_run: Pin<Box<impl Future<Output = Result<T, SdkError<E, Response>>>>>,
    ) -> Result<(), CallError>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let asked = async {
            match dry_run.await {
                // This is how EC2 says yes.
                Err(SdkError::ServiceError(answer)) if answer.err().code() == Some("DryRunOperation") => Ok(()),
                answer => answer.map(drop),
            }
        };
        match self.api.call(action, by, asked).await {
            // It is about the instance or fleet, not about us.
            Err(error) if error.kind == Kind::Refused => Ok(()),
            answer => answer,
        }
    }
}
