//! Provider IDs: which are read, which are refused, and as what.

use proptest::prelude::*;
use spot_aws::{ProviderId, ProviderIdError};

#[expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helpers")]
fn refused(found: &str) -> ProviderIdError {
    ProviderId::parse(found).expect_err("it should be refused")
}

#[test]
fn an_instance_in_a_zone_is_read() {
    for zone in ["eu-west-1b", "us-gov-west-1a", "us-west-2-lax-1a", "us-east-1-wl1-bos-wlz-1"] {
        let id = ProviderId::parse(&format!("aws:///{zone}/i-0123456789abcdef0")).expect("it is well formed");
        assert_eq!((id.zone(), id.instance_id()), (Some(zone), "i-0123456789abcdef0"));
    }
}

#[test]
fn an_instance_id_of_the_old_length_is_read() {
    let id = ProviderId::parse("aws:///us-east-1a/i-1a2b3c4d").expect("it is well formed");
    assert_eq!(id.instance_id(), "i-1a2b3c4d");
}

#[test]
fn rb_24_one_odd_provider_id_spoils_no_other() {
    let fargate = "aws:///eu-west-1b/2b6e4f0a9c-1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f6a/fargate-ip-10-0-1-2.ec2.internal";
    let hybrid = "eks-hybrid:///eu-west-1/my-cluster/mi-0123456789abcdef0";
    let kind = "kind://docker/kind/kind-worker";
    let nodes = [fargate, "aws:///eu-west-1b/i-0123456789abcdef0", hybrid, kind, "", "aws:////i-0123456789abcdef1"];

    let read: Vec<_> = nodes.into_iter().map(ProviderId::parse).collect();

    let owned = str::to_owned;
    assert_eq!(read[0], Err(ProviderIdError::Fargate { found: owned(fargate) }));
    assert_eq!(read[1].as_ref().map(ProviderId::instance_id), Ok("i-0123456789abcdef0"));
    assert_eq!(read[2], Err(ProviderIdError::Hybrid { found: owned(hybrid) }));
    assert_eq!(read[3], Err(ProviderIdError::OtherProvider { scheme: owned("kind"), found: owned(kind) }));
    assert_eq!(read[4], Err(ProviderIdError::Empty));
    let zoneless = read[5].as_ref().expect("the form without a zone is accepted");
    assert_eq!((zoneless.zone(), zoneless.instance_id()), (None, "i-0123456789abcdef1"));
}

#[test]
fn a_fargate_node_is_called_one_whatever_stands_before_its_name() {
    for found in ["aws:///fargate-ip-10-0-1-2", "aws:///eu-west-1b/fargate-ip-10-0-1-2", "aws:////h/fargate-ip-1"] {
        assert_eq!(refused(found), ProviderIdError::Fargate { found: found.to_owned() });
    }
}

#[test]
fn other_providers_are_named() {
    for (scheme, found) in [
        ("kwok", "kwok://node-1"),
        ("gce", "gce://project/europe-west1-b/node"),
        ("AWS", "AWS:///eu-west-1b/i-0123456789abcdef0"),
        ("", ":///eu-west-1b/i-0123456789abcdef0"),
    ] {
        let expected = ProviderIdError::OtherProvider { scheme: scheme.to_owned(), found: found.to_owned() };
        assert_eq!(refused(found), expected);
    }
}

#[test]
fn an_id_without_a_scheme_is_refused() {
    for found in ["i-0123456789abcdef0", "aws:/eu-west-1b/i-0123456789abcdef0", " "] {
        assert_eq!(refused(found), ProviderIdError::NoScheme { found: found.to_owned() });
    }
}

#[test]
fn other_forms_are_refused() {
    for found in [
        "aws://",
        "aws:///",
        "aws:///i-0123456789abcdef0",
        "aws://eu-west-1b/i-0123456789abcdef0",
        "aws://eu-west-1/eu-west-1b/i-0123456789abcdef0",
        "aws:///eu-west-1b/i-0123456789abcdef0/",
        "aws:///eu-west-1b/more/i-0123456789abcdef0",
        "aws://///i-0123456789abcdef0",
    ] {
        assert_eq!(refused(found), ProviderIdError::Form { found: found.to_owned() });
    }
}

#[test]
fn malformed_instance_ids_are_refused() {
    for instance_id in [
        "",
        "i-",
        "i-0abc",
        "i-0123456789ABCDEF0",
        "i-0123456789abcdeg0",
        "i-0123456789abcdef",
        "i-0123456789abcdef01",
        "0123456789abcdef0",
        "mi-0123456789abcdef0",
        "i-0123456789abcdef0 ",
        "i-éééé",
    ] {
        let found = format!("aws:///eu-west-1b/{instance_id}");
        let expected = ProviderIdError::InstanceId { instance_id: instance_id.to_owned(), found: found.clone() };
        assert_eq!(refused(&found), expected);
    }
}

#[test]
fn malformed_zones_are_refused() {
    for zone in ["EU-west-1b", "eu west", "*", "zürich", "eu-west-1b\n"] {
        let found = format!("aws:///{zone}/i-0123456789abcdef0");
        assert_eq!(refused(&found), ProviderIdError::Zone { zone: zone.to_owned(), found });
    }
}

#[test]
fn errors_quote_what_was_found_with_escapes() {
    assert_eq!(refused("a\u{1b}[31m").to_string(), r#""a\u{1b}[31m" has no scheme like `aws://`"#);
}

fn zones() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z]{2}(-[a-z0-9]{1,5}){1,4}"]
}

/// Strings that come close: the pieces of all forms, in any order.
fn near_misses() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("aws"),
        Just("eks-hybrid"),
        Just("kind"),
        Just("://"),
        Just(":"),
        Just("/"),
        Just("eu-west-1b"),
        Just("i-"),
        Just("i-0123456789abcdef0"),
        Just("1a2b3c4d"),
        Just("fargate-ip-10-0-1-2"),
        Just("é"),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// What is accepted, told without the parser: the characters are counted off from both ends.
fn is_well_formed(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some(path) = bytes.strip_prefix(b"aws:///".as_slice()) else { return false };
    [8, 17].into_iter().any(|digits| {
        let Some(at) = path.len().checked_sub(digits + 3) else { return false };
        let (zone, id) = path.split_at(at);
        id.starts_with(b"/i-")
            && id[3..].iter().all(|byte| b"0123456789abcdef".contains(byte))
            && zone.iter().all(|byte| b"abcdefghijklmnopqrstuvwxyz0123456789-".contains(byte))
    })
}

proptest! {
    #[test]
    fn every_instance_is_read_and_written_back(zone in zones(), digits in "[0-9a-f]{8}|[0-9a-f]{17}") {
        let text = format!("aws:///{zone}/i-{digits}");
        let id: ProviderId = text.parse().expect("it is well formed");
        prop_assert_eq!(id.to_string(), text);
        prop_assert_eq!(id.zone().unwrap_or_default(), zone);
        prop_assert_eq!(id.instance_id(), format!("i-{digits}"));
    }

    #[test]
    fn no_string_makes_it_panic_and_only_well_formed_ones_are_read(text in any::<String>()) {
        let read = ProviderId::parse(&text);
        prop_assert_eq!(read.is_ok(), is_well_formed(&text));
    }

    #[test]
    fn what_comes_close_is_read_only_if_well_formed(text in near_misses()) {
        let read = ProviderId::parse(&text);
        prop_assert_eq!(read.is_ok(), is_well_formed(&text));
        if let Ok(id) = read {
            prop_assert_eq!(id.to_string(), text);
        }
    }

    #[test]
    fn an_error_is_one_printable_line(text in prop_oneof![any::<String>(), near_misses()]) {
        if let Err(error) = ProviderId::parse(&text) {
            prop_assert!(!error.to_string().chars().any(char::is_control));
        }
    }
}
