//! Whom a role trusts.

use serde_json::{Value, json};

/// A document by which this service, and nobody else, may act by the role.
pub(super) fn of(service: &str) -> String {
    let statement = json!({ "Effect": "Allow", "Principal": { "Service": service }, "Action": "sts:AssumeRole" });
    json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string()
}

/// Whether a document, as IAM tells it, lets this service act by the role. One that can't be read does not.
pub(super) fn holds(document: &str, service: &str) -> bool {
    let document: Value = decoded(document).and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    // In China, some services have names of their own.
    let names = [service.to_owned(), format!("{service}.cn")];
    any(&document["Statement"], &|statement| {
        let allows = statement["Effect"] == "Allow";
        let assumes = any(&statement["Action"], &|action| {
            action.as_str().is_some_and(|action| ["sts:assumerole", "sts:*", "*"].contains(&&*action.to_lowercase()))
        });
        let trusts = any(&statement["Principal"]["Service"], &|name| names.iter().any(|ours| name == ours));
        allows && assumes && trusts
    })
}

/// Where one is meant, IAM allows it without a list.
fn any(value: &Value, is_it: &dyn Fn(&Value) -> bool) -> bool {
    match value {
        Value::Array(values) => values.iter().any(is_it),
        one => is_it(one),
    }
}

/// The bytes behind the percent signs of a URL; none where one is not followed by two digits.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        let byte = if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
        } else {
            byte
        };
        bytes.push(byte);
    }
    Some(bytes)
}
