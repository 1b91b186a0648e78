//! IAM.

use serde_json::json;
use spot_tests::aws::fleet::ROLE;

use super::{Region, strings};

#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_made_once_and_can_be_given_the_policy_of_fleets() {
    let region = Region::start().await;
    let role = json!({"RoleName": ROLE});
    assert_eq!(region.refused("iam", "GetRole", role.clone()).await.code, "NoSuchEntity");
    let arn = region.aws.create_fleet_roles().await;
    assert_eq!(region.aws.call("iam", "GetRole", role.clone()).await["Role"]["Arn"], json!(arn));
    let again = json!({"RoleName": ROLE, "AssumeRolePolicyDocument": "{}"});
    assert_eq!(region.refused("iam", "CreateRole", again).await.code, "EntityAlreadyExists");

    let attached = region.aws.call("iam", "ListAttachedRolePolicies", role).await;
    assert_eq!(strings(&attached["AttachedPolicies"], "PolicyName"), ["AmazonEC2SpotFleetTaggingRole"]);
    let unknown = json!({"RoleName": ROLE, "PolicyArn": "arn:aws:iam::aws:policy/None"});
    assert_eq!(region.refused("iam", "AttachRolePolicy", unknown).await.code, "NoSuchEntity");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_of_a_service_s_own_is_refused_as_bad_input_the_second_time() {
    let region = Region::start().await;
    for (service, name) in [
        ("spot.amazonaws.com", "AWSServiceRoleForEC2Spot"),
        ("spotfleet.amazonaws.com", "AWSServiceRoleForEC2SpotFleet"),
    ] {
        let create = json!({"AWSServiceName": service});
        let answer = region.aws.call("iam", "CreateServiceLinkedRole", create.clone()).await;
        assert_eq!(answer["Role"]["RoleName"], json!(name));
        assert_eq!(region.refused("iam", "CreateServiceLinkedRole", create).await.code, "InvalidInput");
        region.aws.call("iam", "GetRole", json!({"RoleName": name})).await;
    }
}
