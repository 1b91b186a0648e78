//! The fault proxy in front.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use spot_tests::aws::Fault;

use super::Region;

/// A caller that is no SDK: what comes back is what an SDK gets. The signature is made up, and nobody looks.
fn describe_instances(endpoint: &str) -> String {
    let authority = endpoint.strip_prefix("http://").expect("it is the loopback");
    let body = "Action=DescribeInstances&Version=2016-11-15";
    let mut stream = TcpStream::connect(authority).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("it is a time");
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential=PRODUCT/20300101/eu-west-1/ec2/aws4_request, \
         SignedHeaders=host, Signature=0\r\n\r\n{body}",
        body.len(),
    )
    .expect("it takes requests");
    let mut answer = Vec::new();
    // A reset is an answer here, too.
    drop(stream.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_throttled_as_often_as_said_and_then_gets_through() {
    let region = Region::start().await;
    region.aws.faults().throttle("DescribeInstances", 2).await;
    for _ in 0..2 {
        let answer = describe_instances(region.aws.endpoint());
        assert!(answer.contains("<Code>Throttling</Code>"), "{answer}");
    }
    let answer = describe_instances(region.aws.endpoint());
    assert!(answer.contains("DescribeInstancesResponse"), "{answer}");

    let fired = region.aws.faults().fired().await;
    let fired: Vec<_> = fired.iter().map(|fired| (fired.operation.as_deref(), fired.action.as_str())).collect();
    assert_eq!(fired, [(Some("DescribeInstances"), "error:Throttling"); 2]);
    assert_eq!(region.aws.calls_of("PRODUCT").await.len(), 1, "what was throttled has not reached AWS");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_is_what_it_says_and_whether_aws_has_heard_is_known() {
    let region = Region::start().await;
    for (fault, status, text, heard) in [
        (Fault::Throttled, "HTTP/1.1 400", "<Code>Throttling</Code>", false),
        (Fault::Internal, "HTTP/1.1 500", "<Code>InternalFailure</Code>", false),
        (Fault::Denied, "HTTP/1.1 403", "<Code>UnauthorizedOperation</Code>", false),
        (Fault::Reset, "", "", false),
        (Fault::Hang(Duration::from_millis(10)), "HTTP/1.1 504", "", false),
        (Fault::AnswerLost, "HTTP/1.1 200", "", true),
    ] {
        let before = region.aws.calls_of("PRODUCT").await.len();
        region.aws.faults().inject("DescribeInstances", fault, 1).await;
        let answer = describe_instances(region.aws.endpoint());
        assert!(answer.starts_with(status) && answer.contains(text), "{fault:?}: {answer}");
        assert!(!answer.contains("</DescribeInstancesResponse>"), "{fault:?}: {answer}");
        let after = region.aws.calls_of("PRODUCT").await.len();
        assert_eq!(after - before, usize::from(heard), "{fault:?}");
    }
    region.aws.faults().throttle("DescribeInstances", 1_000).await;
    region.aws.faults().stop().await;
    let answer = describe_instances(region.aws.endpoint());
    assert!(answer.contains("</DescribeInstancesResponse>"), "{answer}");
}
