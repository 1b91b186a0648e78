//! Whether AWS answers as the provider needs it.

use aws_sdk_ec2::types::{self, Filter};
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use futures::future::{self, BoxFuture, FutureExt as _};
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::Instant;

use crate::action::Action;
use crate::check::Checked;
use crate::client::Api;
use crate::error::{CallError, Kind};
use crate::provider::Aws;
use crate::provider::describe::more;
use crate::provider::instance::CLUSTER_TAG;

/// The instances in one answer, of which one is enough. Those that do not match may be left out of a page of so many.
const PAGE: i32 = 100;

impl Aws {
    /// Tries every read that needs no group, fleet or balancer to ask about, and has EC2 say whether it would terminate
    /// one of the cluster's instances. Region, credentials, endpoint and these rights are right if all are answered.
    /// Nothing is changed; the rights to change anything else can't be asked for without using them.
    pub async fn check(&self, by: Instant) -> Vec<Checked> {
        let Api { ec2, autoscaling, balancing, classic, .. } = &*self.api;
        // Side by side: one that is asked again and again does not use up the time of the others.
        let (machines, reads) = future::join(
            self.check_machines(by),
            future::join_all([
                self.read(
                    Action::DescribeAutoScalingInstances,
                    by,
                    autoscaling.describe_auto_scaling_instances().max_records(1).send(),
                ),
                self.read(
                    Action::DescribeAutoScalingGroups,
                    by,
                    autoscaling.describe_auto_scaling_groups().max_records(1).send(),
                ),
                self.read(Action::DescribeFleets, by, ec2.describe_fleets().max_results(1).send()),
                self.read(
                    Action::DescribeSpotFleetRequests,
                    by,
                    ec2.describe_spot_fleet_requests().max_results(1).send(),
                ),
                self.read(Action::DescribeTargetGroups, by, balancing.describe_target_groups().page_size(1).send()),
                self.read(Action::DescribeLoadBalancers, by, classic.describe_load_balancers().page_size(1).send()),
            ]),
        )
        .await;
        machines.into_iter().chain(reads).collect()
    }

    /// Tries a read.
    fn read<'a, T, E>(
        &'a self,
        action: Action,
        by: Instant,
        request: impl Future<Output = Result<T, SdkError<E, Response>>> + Send + 'a,
    ) -> BoxFuture<'a, Checked>
    where
        T: Send + 'a,
        E: ProvideErrorMetadata + std::error::Error + Send + 'static,
    {
        let dispensable = matches!(action, Action::DescribeFleets | Action::DescribeSpotFleetRequests);
        let call = self.api.call(action, by, request);
        let answered =
            async move { Checked { action, outcome: call.await.map(drop).map_err(PortError::from), dispensable } };
        answered.boxed()
    }

    /// Tries to describe an instance of the cluster, and asks whether it could be terminated.
    async fn check_machines(&self, by: Instant) -> Vec<Checked> {
        let checked = |action, outcome| Checked { action, outcome, dispensable: false };
        match self.instance_of_cluster(by).await {
            Ok(Some(id)) => vec![
                checked(Action::DescribeInstances, Ok(())),
                checked(Action::TerminateInstances, self.may_terminate(&id, by).await.map_err(PortError::from)),
            ],
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
        let asked = async {
            match request.send().await {
                // This is how EC2 says yes.
                Err(SdkError::ServiceError(answer)) if answer.err().code() == Some("DryRunOperation") => Ok(()),
                answer => answer.map(|_| ()),
            }
        };
        match self.api.call(Action::TerminateInstances, by, asked).await {
            // It is about the instance, not about us.
            Err(error) if error.kind == Kind::Refused => Ok(()),
            answer => answer,
        }
    }
}
