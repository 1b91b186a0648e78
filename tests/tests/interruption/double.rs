//! The double of SQS keeps SQS's promises, and none beyond.

use http_body_util::BodyExt as _;
use kube::{Client, Config};
use serde_json::{Value, json};
use spot_tests::{
    Sqs,
    aws::REGION,
    sqs::{Happened, Queue},
};

struct Asker {
    client: Client,
    region: &'static str,
}

/// The status, the older protocol's code, and the body.
type Answer = (u16, String, Value);

impl Asker {
    fn new(sqs: &Sqs) -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let config = Config::new(sqs.endpoint().parse().expect("it is a URI"));
        Self { client: Client::try_from(config).expect("the configuration is complete"), region: REGION }
    }

    async fn ask(&self, action: &str, body: Value) -> Answer {
        let scope = format!("AWS4-HMAC-SHA256 Credential=KEY/20270101/{}/sqs/aws4_request", self.region);
        let request = http::Request::post("/")
            .header("X-Amz-Target", format!("AmazonSQS.{action}"))
            .header("Content-Type", "application/x-amz-json-1.0")
            .header("Authorization", scope)
            .body(kube::client::Body::from(body.to_string().into_bytes()))
            .expect("it is a request");
        let (head, body) = self.client.send(request).await.expect("it answers").into_parts();
        let body = body.collect().await.expect("it answers whole").to_bytes();
        let code = head.headers.get("x-amzn-query-error").and_then(|code| code.to_str().ok()).unwrap_or_default();
        let code = code.trim_end_matches(";Sender").to_owned();
        (head.status.as_u16(), code, serde_json::from_slice(&body).expect("answers are JSON"))
    }

    /// Receives at most ten messages, hidden for `hidden` seconds.
    async fn receive(&self, queue: &Queue, wait: u32, hidden: u32) -> Vec<Value> {
        let (status, _, body) = self
            .ask(
                "ReceiveMessage",
                json!({
                    "QueueUrl": queue.url(),
                    "MaxNumberOfMessages": 10,
                    "WaitTimeSeconds": wait,
                    "VisibilityTimeout": hidden,
                    "MessageSystemAttributeNames": ["ApproximateReceiveCount"],
                }),
            )
            .await;
        assert_eq!(status, 200, "{body}");
        body["Messages"].as_array().cloned().unwrap_or_default()
    }

    async fn with_receipt(&self, action: &str, queue: &Queue, message: &Value, seconds: Option<u32>) -> Answer {
        let mut body = json!({"QueueUrl": queue.url(), "ReceiptHandle": message["ReceiptHandle"]});
        if let Some(seconds) = seconds {
            body["VisibilityTimeout"] = json!(seconds);
        }
        self.ask(action, body).await
    }
}

#[tokio::test]
async fn a_message_is_hidden_from_others_until_its_time_is_over_and_only_the_last_receipt_counts() {
    let sqs = Sqs::start().await;
    let (queue, asker) = (sqs.queue("q"), Asker::new(&sqs));
    let id = queue.send("a");
    let first = asker.receive(&queue, 0, 1).await.remove(0);
    assert_eq!((&first["MessageId"], &first["Body"]), (&json!(id), &json!("a")));
    assert_eq!(first["Attributes"], json!({"ApproximateReceiveCount": "1"}), "those that were asked for");
    assert_eq!(asker.receive(&queue, 0, 1).await, Vec::<Value>::new());
    // A poll that waits has it as soon as its second is over.
    let second = asker.receive(&queue, 20, 30).await.remove(0);
    assert_eq!(second["Attributes"]["ApproximateReceiveCount"], "2");

    let (status, code, _) = asker.with_receipt("ChangeMessageVisibility", &queue, &first, Some(30)).await;
    assert_eq!((status, code.as_str()), (400, "AWS.SimpleQueueService.MessageNotInflight"));
    let (status, ..) = asker.with_receipt("DeleteMessage", &queue, &first, None).await;
    assert_eq!((status, queue.when(&id, crate::is_deleted)), (200, None), "it says so, and does nothing");
    let (status, ..) = asker.with_receipt("ChangeMessageVisibility", &queue, &second, Some(0)).await;
    assert_eq!(status, 200);
    let third = asker.receive(&queue, 0, 30).await.remove(0);
    let (status, ..) = asker.with_receipt("DeleteMessage", &queue, &third, None).await;
    assert_eq!(status, 200);
    assert_eq!(asker.receive(&queue, 0, 30).await, Vec::<Value>::new());
    let story: Vec<_> = queue.story(&id).into_iter().map(|moment| moment.what).collect();
    let received = Happened::Received;
    assert_eq!(story, [Happened::Sent, received, received, Happened::Returned, received, Happened::Deleted]);
}

#[tokio::test]
async fn a_waiting_poll_has_a_message_at_once_and_a_message_may_be_delivered_twice() {
    let sqs = Sqs::start().await;
    let (queue, asker) = (sqs.queue("q"), Asker::new(&sqs));
    let (waiting, id) = tokio::join!(asker.receive(&queue, 20, 30), async { queue.send("a") });
    assert_eq!(waiting.len(), 1);
    queue.deliver_again(&id, 1);
    let again = asker.receive(&queue, 0, 30).await;
    assert_eq!((again.len(), &again[0]["MessageId"]), (1, &waiting[0]["MessageId"]));
    assert_ne!(again[0]["ReceiptHandle"], waiting[0]["ReceiptHandle"]);
    assert!(asker.receive(&queue, 0, 30).await.is_empty());
}

#[tokio::test]
async fn a_batch_answers_for_each_of_its_entries() {
    let sqs = Sqs::start().await;
    let (queue, asker) = (sqs.queue("q"), Asker::new(&sqs));
    let ids = queue.send_all(["a", "b"]);
    let messages = asker.receive(&queue, 0, 30).await;
    let entry = |id: &str, receipt: &Value| json!({"Id": id, "ReceiptHandle": receipt});
    let entries = [entry("1", &messages[0]["ReceiptHandle"]), entry("2", &json!("no receipt"))];
    let (status, _, body) = asker.ask("DeleteMessageBatch", json!({"QueueUrl": queue.url(), "Entries": entries})).await;
    assert_eq!((status, &body["Successful"]), (200, &json!([{"Id": "1"}])));
    assert_eq!((&body["Failed"][0]["Id"], &body["Failed"][0]["Code"]), (&json!("2"), &json!("ReceiptHandleIsInvalid")));
    queue.deleted(&ids[..1], crate::END).await;
    assert_eq!(queue.when(&ids[1], crate::is_deleted), None);
    let twice = [entry("1", &json!("a")), entry("1", &json!("b"))];
    let eleven: Vec<_> = (0..11).map(|number| entry(&number.to_string(), &json!("a"))).collect();
    for (entries, refusal) in [
        (&[][..], "AWS.SimpleQueueService.EmptyBatchRequest"),
        (&twice[..], "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"),
        (&eleven[..], "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"),
    ] {
        let request = json!({"QueueUrl": queue.url(), "Entries": entries});
        let (status, code, _) = asker.ask("DeleteMessageBatch", request).await;
        assert_eq!((status, code.as_str()), (400, refusal));
    }
}

#[tokio::test]
async fn what_is_missing_denied_elsewhere_or_out_of_range_is_refused_in_the_words_of_sqs() {
    let sqs = Sqs::start().await;
    let (queue, mut asker) = (sqs.queue("q"), Asker::new(&sqs));
    let receive = |url: &str, most: u32| json!({"QueueUrl": url, "MaxNumberOfMessages": most});
    let (status, code, body) = asker.ask("ReceiveMessage", receive(&(queue.url() + "x"), 1)).await;
    assert_eq!((status, code.as_str()), (400, "AWS.SimpleQueueService.NonExistentQueue"));
    assert_eq!(body["__type"], "com.amazonaws.sqs#QueueDoesNotExist");
    let (status, code, _) = asker.ask("ReceiveMessage", receive(&queue.url(), 11)).await;
    assert_eq!((status, code.as_str()), (400, "InvalidParameterValue"));
    sqs.deny("sqs:DeleteMessage", true);
    let one = json!({"QueueUrl": queue.url(), "Entries": [{"Id": "1", "ReceiptHandle": "a"}]});
    let (status, code, body) = asker.ask("DeleteMessageBatch", one).await;
    assert_eq!((status, code.as_str()), (403, "AccessDenied"));
    assert!(body["message"].as_str().is_some_and(|text| text.contains("sqs:deletemessage")), "{body}");
    asker.region = "us-east-1";
    let (_, code, _) = asker.ask("ReceiveMessage", receive(&queue.url(), 1)).await;
    assert_eq!(code, "AWS.SimpleQueueService.NonExistentQueue");
}
