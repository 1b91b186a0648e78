//! The URL of a queue, and why one can't be it.

use std::net::IpAddr;

/// Why this can't be the URL of a queue that is to be trusted, with the remedy. A URL of plain HTTP is one only on this
/// machine, where somebody `doubled` AWS.
pub(super) fn fault(url: &str, doubled: bool) -> Option<String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let names_queue = path
        .split_once('/')
        .is_some_and(|(account, name)| !account.is_empty() && !name.is_empty() && !name.contains('/'));
    let is_url = !host.is_empty() && !host.starts_with(':') && names_queue && !url.contains(char::is_whitespace);
    match scheme {
        "https" if is_url => None,
        "http" if is_url && doubled && is_loopback(host) => None,
        "http" if is_url => Some(format!(
            "found {url:?}, but nodes are emptied because of what the queue says: write https:// (http:// is for a \
             stand-in on this machine, together with `cloudProvider.aws.endpointUrl`)"
        )),
        _ => Some(format!(
            "found {url:?}: write the URL that `aws sqs get-queue-url` prints, such as \
             https://sqs.eu-west-1.amazonaws.com/123456789012/spot, or \"\" for none"
        )),
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_aws("https://sqs.eu-west-1.amazonaws.com/123456789012/spot", false, true)]
    #[case::of_an_endpoint_in_the_network("https://vpce-1.sqs.eu-west-1.vpce.amazonaws.com/1/spot", false, true)]
    #[case::on_this_machine("http://127.0.0.1:4566/1/spot", true, true)]
    #[case::on_this_machine_by_name("http://localhost/1/spot", true, true)]
    #[case::on_this_machine_of_ipv6("http://[::1]:4566/1/spot", true, true)]
    #[case::on_this_machine_and_nobody_says_why("http://127.0.0.1:4566/1/spot", false, false)]
    #[case::plain("http://sqs.eu-west-1.amazonaws.com/1/spot", true, false)]
    #[case::only_like_this_machine("http://127.0.0.1.example.org/1/spot", true, false)]
    #[case::an_arn("arn:aws:sqs:eu-west-1:123456789012:spot", false, false)]
    #[case::no_scheme("sqs.eu-west-1.amazonaws.com/1/spot", false, false)]
    #[case::another_scheme("ftp://sqs.eu-west-1.amazonaws.com/1/spot", false, false)]
    #[case::no_host("https:///1/spot", false, false)]
    #[case::no_queue("https://sqs.eu-west-1.amazonaws.com/", false, false)]
    #[case::no_account("https://sqs.eu-west-1.amazonaws.com/spot", false, false)]
    #[case::more_than_a_queue("https://sqs.eu-west-1.amazonaws.com/1/spot/more", false, false)]
    #[case::a_space("https://sqs.eu-west-1.amazonaws.com/1/my spot", false, false)]
    fn a_queue_is_read_over_a_connection_that_can_be_trusted(
        #[case] url: &str,
        #[case] doubled: bool,
        #[case] sound: bool,
    ) {
        assert_eq!(fault(url, doubled).is_none(), sound, "{:?}", fault(url, doubled));
    }
}
