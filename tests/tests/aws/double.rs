//! The double is as strict as AWS where moto is friendlier, and in doubt stricter.

mod faults;
mod fleets;
mod groups;
mod instances;
mod launch_templates;
mod load_balancers;
mod rights;
mod roles;
mod spot_fleets;

use std::time::Duration;

use serde_json::{Value, json};
use spot_tests::{
    aws::{Aws, Group, Instance, Refusal, cloud::network},
    wait::{PATIENCE, until},
};
use tempfile::TempDir;

/// Long enough that nothing moves on while a test looks.
const STILL: Duration = Duration::from_hours(1);

/// An AWS without a cluster, in which transitions take no time.
struct Region {
    aws: Aws,
    vpc: String,
    subnets: Vec<String>,
    // Last: the others write their logs there.
    _folder: TempDir,
}

impl Region {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("temporary folders can be made");
        let aws = Aws::start(folder.path()).await;
        aws.pace(Duration::ZERO).await;
        let (vpc, subnets) = network(&aws).await;
        Self { aws, vpc, subnets, _folder: folder }
    }

    /// Creates `group`, and returns its instances once they are in service.
    async fn group(&self, name: &str, group: &Group) -> Vec<Instance> {
        self.aws.create_group(group, &self.subnets).await;
        self.in_service(name).await
    }

    /// The instances of a group, once it has as many in service as it wants, and no other member.
    async fn in_service(&self, name: &str) -> Vec<Instance> {
        until(&format!("{name} to have what it wants"), PATIENCE, || async {
            let (desired, members) = self.aws.group(name).await;
            let in_service = members.iter().filter(|member| member.lifecycle_state == "InService").count();
            if u64::try_from(in_service) == Ok(desired) && members.len() == in_service {
                let instances = self.aws.instances().await.into_iter();
                let member = |instance: &Instance| members.iter().any(|member| member.instance_id == instance.id);
                Ok(instances.filter(member).collect())
            } else {
                Err(format!("{desired} are wanted, and there are {members:?}"))
            }
        })
        .await
    }

    async fn instance(&self, id: &str) -> Instance {
        let instances = self.aws.instances().await;
        instances.into_iter().find(|instance| instance.id == id).expect("EC2 knows it")
    }

    /// The lifecycle state of a member, or nothing when it is none any more.
    async fn lifecycle(&self, group: &str, id: &str) -> Option<String> {
        let (_, members) = self.aws.group(group).await;
        members.into_iter().find(|member| member.instance_id == id).map(|member| member.lifecycle_state)
    }

    async fn refused(&self, service: &str, operation: &str, parameters: Value) -> Refusal {
        self.aws.try_call(service, operation, parameters).await.expect_err("it is refused")
    }
}

fn ids(instances: &[Instance]) -> Vec<&str> {
    instances.iter().map(|instance| instance.id.as_str()).collect()
}

fn strings<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list.as_array().into_iter().flatten().filter_map(|item| item[field].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asked_for_what_is_written_down_in_order() {
    let region = Region::start().await;
    let calls = region.aws.calls_of("HARNESS").await;
    let actions: Vec<_> = calls.iter().map(|call| (call.service.as_str(), call.action.as_str())).collect();
    assert_eq!(actions, [("ec2", "CreateVpc"), ("ec2", "CreateSubnet"), ("ec2", "CreateSubnet")]);
    assert_eq!(calls[0].parameters["CidrBlock"], json!("10.1.0.0/16"));
    assert!(calls.iter().all(|call| call.succeeded() && call.changes()));
    assert!(region.aws.calls_of("ANOTHER").await.is_empty());
}
