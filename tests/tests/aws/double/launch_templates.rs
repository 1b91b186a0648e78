//! Launch templates.

use serde_json::{Value, json};

use super::{Region, strings};

#[tokio::test(flavor = "multi_thread")]
async fn the_same_token_makes_a_template_once_and_with_other_parameters_nothing() {
    let region = Region::start().await;
    let request = template(&region).await;
    let first = region.aws.call("ec2", "CreateLaunchTemplate", request.clone()).await;
    assert_eq!(region.aws.call("ec2", "CreateLaunchTemplate", request.clone()).await, first);
    let mut other = request.clone();
    other["VersionDescription"] = json!("other");
    assert_eq!(region.refused("ec2", "CreateLaunchTemplate", other).await.code, "IdempotentParameterMismatch");
    let mut second = request;
    second["ClientToken"] = json!("another");
    let refusal = region.refused("ec2", "CreateLaunchTemplate", second).await;
    assert_eq!(refusal.code, "InvalidLaunchTemplateName.AlreadyExistsException");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_makes_nothing_and_takes_no_token() {
    let region = Region::start().await;
    let request = template(&region).await;
    let mut dry = request.clone();
    dry["DryRun"] = json!(true);
    assert_eq!(region.refused("ec2", "CreateLaunchTemplate", dry).await.code, "DryRunOperation");
    let templates = region.aws.call("ec2", "DescribeLaunchTemplates", json!({})).await;
    assert_eq!(templates["LaunchTemplates"], json!([]));
    region.aws.call("ec2", "CreateLaunchTemplate", request).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_are_found_by_the_tags_that_they_have_now() {
    let region = Region::start().await;
    let id = create(&region).await;
    let tagged = |value: &str| json!({"Filters": [{"Name": "tag:pool", "Values": [value]}]});
    let found = region.aws.call("ec2", "DescribeLaunchTemplates", tagged("one")).await;
    assert_eq!(strings(&found["LaunchTemplates"], "LaunchTemplateId"), [id.as_str()]);
    let tags = json!({"Resources": [id], "Tags": [{"Key": "pool", "Value": "two"}]});
    region.aws.call("ec2", "CreateTags", tags).await;
    let found = region.aws.call("ec2", "DescribeLaunchTemplates", tagged("one")).await;
    assert_eq!(found["LaunchTemplates"], json!([]));
    let unknown = json!({"LaunchTemplateIds": ["lt-0123456789abcdef0"]});
    let refusal = region.refused("ec2", "DescribeLaunchTemplates", unknown).await;
    assert_eq!(refusal.code, "InvalidLaunchTemplateId.NotFound");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_a_deleted_version_is_never_given_again_and_the_default_one_stays() {
    let region = Region::start().await;
    let id = create(&region).await;
    assert_eq!(version(&region, &id, "a").await, 2);
    assert_eq!(version(&region, &id, "a").await, 2, "the same token");
    assert_eq!(version(&region, &id, "b").await, 3);
    let delete = json!({"LaunchTemplateId": id, "Versions": ["1", "3", "9"]});
    let answer = region.aws.call("ec2", "DeleteLaunchTemplateVersions", delete).await;
    let numbers = |list: &Value| {
        let all = list.as_array().into_iter().flatten();
        all.filter_map(|one| one["VersionNumber"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&answer["SuccessfullyDeletedLaunchTemplateVersions"]), [3]);
    assert_eq!(numbers(&answer["UnsuccessfullyDeletedLaunchTemplateVersions"]), [1, 9]);
    assert_eq!(version(&region, &id, "c").await, 4);
    let described = region.aws.call("ec2", "DescribeLaunchTemplateVersions", json!({"LaunchTemplateId": id})).await;
    assert_eq!(numbers(&described["LaunchTemplateVersions"]), [1, 2, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_user_data_or_tags_than_ec2_takes_are_refused() {
    let region = Region::start().await;
    let mut request = template(&region).await;
    let encoded = |length: usize| json!(k8s_openapi::ByteString(vec![b'x'; length]));
    request["LaunchTemplateData"]["UserData"] = encoded(16 * 1024 + 1);
    assert_eq!(region.refused("ec2", "CreateLaunchTemplate", request.clone()).await.code, "InvalidUserData.Malformed");
    request["LaunchTemplateData"]["UserData"] = encoded(16 * 1024);
    let tags = |count: u32| {
        let tags: Vec<_> = (0..count).map(|number| json!({"Key": format!("key-{number}"), "Value": ""})).collect();
        json!([{"ResourceType": "instance", "Tags": tags}])
    };
    request["LaunchTemplateData"]["TagSpecifications"] = tags(51);
    assert_eq!(region.refused("ec2", "CreateLaunchTemplate", request.clone()).await.code, "TagLimitExceeded");
    request["LaunchTemplateData"]["TagSpecifications"] = tags(50);
    region.aws.call("ec2", "CreateLaunchTemplate", request).await;
}

async fn template(region: &Region) -> Value {
    json!({
        "LaunchTemplateName": "template",
        "ClientToken": "token",
        "LaunchTemplateData": {"ImageId": region.aws.image().await, "InstanceType": "m5.large"},
        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": [{"Key": "pool", "Value": "one"}]}],
    })
}

async fn create(region: &Region) -> String {
    let answer = region.aws.call("ec2", "CreateLaunchTemplate", template(region).await).await;
    answer["LaunchTemplate"]["LaunchTemplateId"].as_str().expect("it has an ID").to_owned()
}

async fn version(region: &Region, template: &str, token: &str) -> u64 {
    let data = json!({"InstanceType": "m5.xlarge"});
    let request = json!({"LaunchTemplateId": template, "ClientToken": token, "LaunchTemplateData": data});
    let answer = region.aws.call("ec2", "CreateLaunchTemplateVersion", request).await;
    answer["LaunchTemplateVersion"]["VersionNumber"].as_u64().expect("it has a number")
}
