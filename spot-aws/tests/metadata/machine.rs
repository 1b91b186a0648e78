//! Whose notices they are: nothing begins before it is certain that they are the node's own.

use std::sync::Arc;
use std::time::Duration;

use spot_aws::ProviderId;
use spot_aws::interruption::metadata::{Metadata, MetadataSettings};
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::ports::{Clock, Instant, NoticeSource as _, Observer};

use crate::stub::{INSTANCE, INSTANCE_ID, INTERRUPTION, Odd, Stub};
use crate::support::{Heard, Time, World, open};

const OTHER: &str = "i-0fedcba9876543210";

async fn opened(stub: &Stub, instance: &str, patience: u64) -> Result<Metadata, PortError> {
    open(stub, instance, &Arc::default(), &Arc::default(), true, patience).await
}

#[tokio::test]
async fn the_service_of_another_machine_is_refused_with_both_names() {
    let stub = Stub::start().await;
    let error = opened(&stub, OTHER, 60).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent);
    let said = error.to_string();
    assert!(said.contains(INSTANCE) && said.contains(OTHER), "{said}");
    assert_eq!(stub.count(INTERRUPTION), 0);
}

#[tokio::test]
async fn a_service_that_comes_up_late_is_waited_for() {
    for odd in [Odd::Status(500), Odd::Status(404), Odd::Status(401), Odd::Reset, Odd::Garbage("<html>"), Odd::Silence]
    {
        let stub = Stub::start().await;
        stub.answer_oddly(INSTANCE_ID, &odd, 2);
        let source = opened(&stub, INSTANCE, 60).await;
        assert_eq!(source.unwrap().instance().as_str(), INSTANCE, "{odd:?}");
    }
}

#[tokio::test]
async fn a_service_that_never_says_which_machine_it_is_of_is_given_up_with_the_reason() {
    for (odd, named) in [(Odd::Status(503), "503"), (Odd::Garbage("i-no"), "i-no"), (Odd::Status(404), "instance-id")] {
        let stub = Stub::start().await;
        stub.answer_oddly(INSTANCE_ID, &odd, usize::from(u8::MAX));
        let error = opened(&stub, INSTANCE, 30).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Transient);
        assert!(chain(&error).contains(named), "{}", chain(&error));
        assert_eq!(stub.count(INSTANCE_ID), 16, "every two seconds, and no longer than that: {odd:?}");
    }
}

#[tokio::test]
async fn what_is_no_address_is_refused_at_once() {
    let settings = MetadataSettings { endpoint: "http://not an address".to_owned(), rebalance: true };
    let provider_id = ProviderId::parse(&format!("aws:////{INSTANCE}")).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(Time::default());
    let observer: Arc<dyn Observer> = Arc::new(Heard::default());
    let by = Instant(Duration::from_mins(1));
    let error = Metadata::open(&settings, &provider_id, clock, observer, by).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent);
    assert!(error.to_string().contains("not an address"), "{error}");
}

#[tokio::test]
async fn of_all_nodes_only_that_of_this_machine_has_one() {
    let world = World::new().await;
    let of = |provider_id: &str| world.source.instance_of(provider_id);
    assert_eq!(of(&format!("aws:///eu-west-1a/{INSTANCE}")).unwrap().as_str(), INSTANCE);
    assert_eq!(of(&format!("aws:////{INSTANCE}")).unwrap().as_str(), INSTANCE);
    for other in [&format!("aws:///eu-west-1a/{OTHER}"), &format!("gce://{INSTANCE}"), INSTANCE, ""] {
        assert_eq!(of(other), None, "{other:?}");
    }
}
