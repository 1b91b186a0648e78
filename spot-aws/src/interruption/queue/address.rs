//! What the URL of a queue tells.

/// Region and account of a queue, as far as its URL tells them: that of an endpoint of one's own need not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address<'a> {
    pub(super) region: Option<&'a str>,
    pub(super) account: Option<&'a str>,
}

impl<'a> Address<'a> {
    /// None: it is not the URL of a queue.
    pub(super) fn parse(url: &'a str) -> Option<Self> {
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
        let (host, path) = rest.split_once('/')?;
        let host = host.split_once(':').map_or(host, |(host, _port)| host);
        let mut parts = path.split('/');
        let (account, name) = (parts.next()?, parts.next()?);
        if host.is_empty() || account.is_empty() || name.is_empty() || parts.next().is_some() {
            return None;
        }
        let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self { region: region(host), account: is_account.then_some(account) })
    }
}

/// Of `sqs.eu-west-1.amazonaws.com`, of the same at a VPC's own endpoint, of a partition with another domain, and of the
/// older `eu-west-1.queue.amazonaws.com`.
fn region(host: &str) -> Option<&str> {
    let labels: Vec<_> = host.split('.').collect();
    let is_region = |label: &&str| label.contains('-') && label.ends_with(|last: char| last.is_ascii_digit());
    let pairs = || labels.iter().copied().zip(labels.iter().copied().skip(1));
    let newer = pairs().find(|(service, _)| matches!(*service, "sqs" | "sqs-fips")).map(|(_, region)| region);
    let older = || pairs().find(|(_, service)| *service == "queue").map(|(region, _)| region);
    newer.or_else(older).filter(is_region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_and_account_are_read_where_the_url_tells_them() {
        for (url, region, account) in [
            ("https://sqs.eu-west-1.amazonaws.com/123456789012/notices", Some("eu-west-1"), Some("123456789012")),
            ("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/notices", Some("cn-north-1"), Some("123456789012")),
            ("https://sqs.us-gov-west-1.api.aws/123456789012/notices", Some("us-gov-west-1"), Some("123456789012")),
            ("https://sqs-fips.us-east-2.amazonaws.com/123456789012/n", Some("us-east-2"), Some("123456789012")),
            (
                "https://vpce-0a-1b.sqs.eu-west-1.vpce.amazonaws.com/123456789012/n",
                Some("eu-west-1"),
                Some("123456789012"),
            ),
            ("https://eu-west-1.queue.amazonaws.com/123456789012/notices", Some("eu-west-1"), Some("123456789012")),
            ("https://queue.amazonaws.com/123456789012/notices", None, Some("123456789012")),
            ("http://127.0.0.1:9324/123456789012/notices", None, Some("123456789012")),
            ("http://sqs.internal:9324/queue/notices", None, None),
        ] {
            assert_eq!(Address::parse(url), Some(Address { region, account }), "{url}");
        }
    }

    #[test]
    fn what_names_no_queue_is_told_apart() {
        for url in [
            "",
            "notices",
            "https://",
            "https://sqs.eu-west-1.amazonaws.com",
            "https://h/",
            "https://h/1",
            "https://h/1/",
            "https://h/1/n/more",
            "ftp://h/1/n",
            "https:///1/n",
        ] {
            assert_eq!(Address::parse(url), None, "{url}");
        }
    }
}
