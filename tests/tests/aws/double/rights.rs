//! Rights that are denied.

use kube::{Client, Config};
use serde_json::json;

use super::Region;

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lacks_a_right_is_refused_dry_or_not_and_the_test_is_not() {
    let region = Region::start().await;
    region.aws.deny(&["ec2:DescribeSubnets", "iam:PassRole", "iam:GetRole"]).await;
    for (service, action, refused) in [
        ("ec2", "DescribeSubnets", Some("UnauthorizedOperation")),
        ("ec2", "DescribeSubnets&DryRun=true", Some("UnauthorizedOperation")),
        ("ec2", "RequestSpotFleet", Some("iam:PassRole")),
        ("iam", "GetRole&RoleName=fleet", Some("AccessDenied")),
        ("ec2", "DescribeVpcs", None),
    ] {
        let (status, body) = ask(&region, service, action).await;
        match refused {
            Some(word) => assert!(status == 403 && body.contains(word), "{action}: {status}: {body}"),
            None => assert_eq!(status, 200, "{action}: {body}"),
        }
    }
    region.aws.call("ec2", "DescribeSubnets", json!({})).await;
    region.aws.deny(&[]).await;
    assert_eq!(ask(&region, "ec2", "DescribeSubnets").await.0, 200);
}

/// The status and the body of what a client of the product's kind is answered.
async fn ask(region: &Region, service: &str, action: &str) -> (u16, String) {
    let mut config = Config::new(region.aws.endpoint().parse().expect("it is a URI"));
    config.default_retry = false;
    let client = Client::try_from(config).expect("the configuration is complete");
    let version = if service == "ec2" { "2016-11-15" } else { "2010-05-08" };
    let scope = format!("AWS4-HMAC-SHA256 Credential=PRODUCT/20260101/eu-west-1/{service}/aws4_request");
    let request = http::Request::post("/")
        .header("Content-Type", "application/x-www-form-urlencoded")
        .header("Host", format!("{service}.eu-west-1.amazonaws.com"))
        .header("Authorization", format!("{scope}, SignedHeaders=host, Signature=none"))
        .body(kube::client::Body::from(format!("Action={action}&Version={version}").into_bytes()))
        .expect("it is a request");
    let answer = client.send(request).await.expect("it is answered");
    let status = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.expect("it has a body");
    (status, String::from_utf8_lossy(&body).into_owned())
}
