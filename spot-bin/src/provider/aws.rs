//! The provider `aws`, as the configuration has it.

use std::sync::Arc;

use anyhow::Context as _;
use spot_aws::{Aws, AwsSettings, Identity};
use spot_core::ports::Clock;

use crate::cli::Environment;
use crate::config::{self, Config};
use crate::exit::Fault;
use crate::metrics::Metrics;

/// The SDKs' own switch. They ask the metadata service unless it is off; we, only if somebody turned it on.
const METADATA: &str = "AWS_EC2_METADATA_DISABLED";

/// One whose calls are counted. No API is called yet.
pub(super) async fn connect(
    aws: &config::Aws,
    config: &Config,
    environment: &Environment,
    clock: &Arc<dyn Clock>,
    metrics: Option<&Metrics>,
) -> Result<Aws, Fault> {
    let observer = metrics.map(Metrics::aws_calls);
    let connected = Aws::connect(settings(aws, config, environment), Arc::clone(clock), observer).await;
    connected.context("the configuration is refused: set `cloudProvider.aws.region`").map_err(Fault::usage)
}

fn settings(aws: &config::Aws, config: &Config, environment: &Environment) -> AwsSettings {
    let config::Aws { region, cluster_name, require_cluster_tag, identity, endpoint_url } = aws.clone();
    AwsSettings {
        region,
        endpoint_url,
        cluster_name,
        require_cluster_tag,
        identity: match identity {
            config::Identity::Name => Identity::Name,
            config::Identity::Address => Identity::Address,
        },
        labels: config.selection.capacity_labels.clone(),
        load_balancer: (config.load_balancer.drain, config.load_balancer.drain_max),
        instance_metadata: asks_metadata_service(environment),
    }
}

/// Whether the metadata service of the machine may be asked for region and credentials.
pub(crate) fn asks_metadata_service(environment: &Environment) -> bool {
    environment.get(METADATA).is_some_and(|disabled| disabled.eq_ignore_ascii_case("false"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;
    use crate::sample::environment;

    fn load(keys: &[(&str, &str)]) -> (config::Aws, Config) {
        let keys = [("cloudProvider.aws.clusterName", "prod")].iter().chain(keys);
        let keys = keys.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let config = Config::load(None, [], &keys).unwrap_or_else(|error| panic!("{error}"));
        let config::CloudProvider::Aws(aws) = &config.cloud_provider else { panic!("it is the default") };
        (aws.clone(), config)
    }

    #[test]
    fn every_key_reaches_the_provider() {
        let (aws, config) = load(&[
            ("cloudProvider.aws.region", "eu-west-1"),
            ("cloudProvider.aws.requireClusterTag", "false"),
            ("cloudProvider.aws.identity", "address"),
            ("cloudProvider.aws.endpointUrl", "http://127.0.0.1:1"),
            ("loadBalancer.drain", "1s"),
            ("loadBalancer.drainMax", "2m"),
        ]);
        let settings = settings(&aws, &config, &Environment::default());
        assert_eq!(
            (settings.region.as_deref(), settings.endpoint_url.as_deref()),
            (Some("eu-west-1"), Some("http://127.0.0.1:1"))
        );
        assert_eq!((&*settings.cluster_name, settings.require_cluster_tag), ("prod", false));
        assert_eq!(settings.identity, Identity::Address);
        assert_eq!(settings.load_balancer, (Duration::from_secs(1), Duration::from_mins(2)));
    }

    #[rstest]
    #[case::not_said(None, false)]
    #[case::turned_off(Some("true"), false)]
    #[case::turned_on(Some("False"), true)]
    fn the_metadata_service_is_asked_only_if_somebody_says_so(#[case] disabled: Option<&str>, #[case] asked: bool) {
        let (aws, config) = load(&[]);
        let variables: Vec<_> = disabled.into_iter().map(|disabled| (METADATA, disabled)).collect();
        assert_eq!(settings(&aws, &config, &environment(&variables)).instance_metadata, asked);
    }
}
