//! Arguments and environment of the agent, read once.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;
use axum::http::Uri;
use clap::{Parser, ValueEnum};
use spot_aws::interruption::metadata::ENDPOINT;

use crate::cli::{AccessArgs, Environment};
use crate::config::{self, Log, LogFormat, LogLevel};

/// Where the metadata service is on IPv6.
const ENDPOINT_ON_IPV6: &str = "http://[fd00:ec2::254]";

/// Empties the node on which it runs before its machine is taken back.
///
/// Asks the metadata service of its own EC2 instance for spot interruptions, recommendations to rebalance and scheduled
/// changes, and answers for its own node only. It runs on every node where no queue of notices is read. SIGTERM and
/// SIGINT end it in order; a second one ends it at once.
#[derive(Clone, Debug, Parser)]
#[command(name = "spot-agent", version, max_term_width = 100)]
pub struct Arguments {
    /// Name of the node on which it runs; in a pod, from spec.nodeName.
    #[arg(
        long,
        value_name = "NAME",
        env = "NODE_NAME",
        hide_env_values = true,
        default_value = "",
        hide_default_value = true
    )]
    pub node_name: String,
    /// Address of the metadata service. Unless it is given, as `AWS_EC2_METADATA_SERVICE_ENDPOINT` and
    /// `AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE` say.
    #[arg(
        long,
        value_name = "URL",
        env = "SPOT_AGENT_IMDS_ENDPOINT",
        hide_env_values = true,
        default_value = "",
        hide_default_value = true
    )]
    pub imds_endpoint: String,
    /// How long the drain of an interrupted node obeys budgets before it deletes what they still block; at most 2m.
    #[arg(
        long,
        value_name = "DURATION",
        env = "SPOT_AGENT_DELETE_BLOCKED_PODS_AFTER",
        hide_env_values = true,
        default_value = "60s",
        value_parser = config::delete_blocked_pods_after,
    )]
    pub delete_blocked_pods_after: Duration,
    /// How long before a scheduled change the node is drained.
    #[arg(
        long,
        value_name = "DURATION",
        env = "SPOT_AGENT_SCHEDULED_CHANGE_LEAD",
        hide_env_values = true,
        default_value = "30m",
        value_parser = config::duration,
    )]
    pub scheduled_change_lead: Duration,
    /// What a recommendation to rebalance leads to.
    #[arg(
        long,
        value_name = "ANSWER",
        value_enum,
        env = "SPOT_AGENT_REBALANCE_RECOMMENDATION",
        hide_env_values = true,
        default_value_t
    )]
    pub rebalance_recommendation: Recommendation,
    /// Where metrics and health are served: /metrics, /livez, /readyz. It is an address of the node's where the agent
    /// runs in its network.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "SPOT_AGENT_SERVER_ADDRESS",
        hide_env_values = true,
        default_value = "0.0.0.0:9797"
    )]
    pub server_address: SocketAddr,
    /// Shape of the lines that are logged.
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        env = "SPOT_AGENT_LOG_FORMAT",
        hide_env_values = true,
        default_value_t
    )]
    pub log_format: LogFormat,
    /// Least severe lines that are logged.
    #[arg(
        long,
        value_name = "LEVEL",
        value_enum,
        env = "SPOT_AGENT_LOG_LEVEL",
        hide_env_values = true,
        default_value_t
    )]
    pub log_level: LogLevel,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub access: AccessArgs,
}

/// What a recommendation to rebalance leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Recommendation {
    /// Nothing.
    Ignore,
    /// Pods are kept off the node for a while, softly.
    #[default]
    Taint,
}

impl Arguments {
    /// Reads the command line, the name of the program first.
    ///
    /// # Errors
    /// When it is none, or asks for help or the version: the error says what to print.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(arguments)
    }

    /// The node on which it runs.
    ///
    /// # Errors
    /// When nobody names it: a guess could be another node.
    pub fn node(&self) -> anyhow::Result<&str> {
        if self.node_name.is_empty() {
            return Err(anyhow!(
                "NODE_NAME is not set: the agent has to know on which node it runs; set it from spec.nodeName in the \
                 pod's manifest, or give --node-name; nothing was touched"
            ));
        }
        Ok(&self.node_name)
    }

    /// Where the metadata service is.
    ///
    /// # Errors
    /// When that is no address, or nobody is to ask it.
    pub fn endpoint(&self, environment: &Environment) -> anyhow::Result<String> {
        const DISABLED: &str = "AWS_EC2_METADATA_DISABLED";
        if environment.get(DISABLED).is_some_and(|told| told.eq_ignore_ascii_case("true")) {
            return Err(anyhow!("{DISABLED} is `true`, but the agent does nothing else than asking it: unset it"));
        }
        let (flag, url, mode) =
            ("--imds-endpoint", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
        let (named_by, endpoint) = match (&*self.imds_endpoint, environment.get(url), environment.get(mode)) {
            ("", Some(endpoint), _) => (url, endpoint),
            ("", None, Some(found)) if found.eq_ignore_ascii_case("ipv6") => (mode, ENDPOINT_ON_IPV6),
            ("", None, Some(found)) if !found.eq_ignore_ascii_case("ipv4") => {
                return Err(anyhow!("{mode} is {found:?}: write IPv4 or IPv6"));
            }
            ("", None, _) => (mode, ENDPOINT),
            (endpoint, ..) => (flag, endpoint),
        };
        let is_address = endpoint
            .parse::<Uri>()
            .is_ok_and(|uri| uri.scheme_str() == Some("http") && uri.authority().is_some() && uri.path() == "/");
        if !is_address {
            return Err(anyhow!("{named_by} is {endpoint:?}: write an address such as {ENDPOINT}"));
        }
        Ok(endpoint.trim_end_matches('/').to_owned())
    }

    /// What is logged, and how.
    #[must_use]
    pub const fn log(&self) -> Log {
        Log { format: self.log_format, level: self.log_level }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use rstest::rstest;

    use super::*;
    use crate::sample::environment;

    fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::parse(["spot-agent"].iter().chain(arguments).map(OsString::from))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn help_is_as_reviewed() {
        let help = parse(&["--help"]).expect_err("help is no command").to_string();
        insta::assert_snapshot!("help", help);
    }

    #[test]
    fn a_node_has_to_be_named() {
        let arguments = parse(&["--node-name", ""]).expect("it can be read");
        let error = arguments.node().expect_err("it is empty").to_string();
        assert!(error.contains("NODE_NAME") && error.contains("spec.nodeName"), "{error}");
    }

    #[rstest]
    #[case::no_unit(&["--delete-blocked-pods-after", "60"], "60s")]
    #[case::longer_than_the_notice(&["--delete-blocked-pods-after", "3m"], "at most 2m")]
    #[case::drain_needs_all_nodes(&["--rebalance-recommendation", "drain"], "taint")]
    #[case::no_port(&["--server-address", "0.0.0.0"], "--server-address")]
    #[case::unknown_level(&["--log-level", "loud"], "info")]
    #[case::unknown_flag(&["--imds-endpont", "http://here"], "--imds-endpoint")]
    #[case::word_without_flag(&["run"], "run")]
    fn what_is_wrong_is_refused_with_the_remedy(#[case] arguments: &[&str], #[case] named: &str) {
        let said = parse(arguments).expect_err("it is wrong").to_string();
        assert!(said.contains(named), "{named} is not named in\n{said}");
    }

    const ADDRESS: (&str, &str) = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1338/");
    const IPV6: (&str, &str) = ("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6");

    #[rstest]
    #[case::the_machines_own(&[], &[], ENDPOINT)]
    #[case::by_the_other_protocol(&[], &[IPV6], ENDPOINT_ON_IPV6)]
    #[case::an_address_before_a_protocol(&[], &[IPV6, ADDRESS], "http://127.0.0.1:1338")]
    #[case::a_flag_before_all(&["--imds-endpoint", "http://127.0.0.1:9"], &[IPV6, ADDRESS], "http://127.0.0.1:9")]
    #[case::nothing_is_no_address(&["--imds-endpoint", ""], &[], ENDPOINT)]
    #[case::not_disabled(&[], &[("AWS_EC2_METADATA_DISABLED", "false")], ENDPOINT)]
    fn the_service_is_where_the_sdks_would_find_it(
        #[case] arguments: &[&str],
        #[case] variables: &[(&str, &str)],
        #[case] expected: &str,
    ) {
        let arguments = parse(arguments).expect("it can be read");
        assert_eq!(arguments.endpoint(&environment(variables)).expect("it is an address"), expected);
    }

    #[rstest]
    #[case::no_scheme(&["--imds-endpoint", "127.0.0.1:1338"], &[], "--imds-endpoint")]
    #[case::tls(&["--imds-endpoint", "https://127.0.0.1"], &[], "--imds-endpoint")]
    #[case::path(&["--imds-endpoint", "http://127.0.0.1/latest"], &[], "--imds-endpoint")]
    #[case::variable(&[], &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", "here")], "AWS_EC2_METADATA_SERVICE_ENDPOINT")]
    #[case::protocol(&[], &[("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv5")], "IPv6")]
    #[case::disabled(&[], &[("AWS_EC2_METADATA_DISABLED", "TRUE")], "AWS_EC2_METADATA_DISABLED")]
    #[case::disabled_though_named(
        &["--imds-endpoint", "http://127.0.0.1"], &[("AWS_EC2_METADATA_DISABLED", "true")], "AWS_EC2_METADATA_DISABLED"
    )]
    fn a_service_that_can_not_or_must_not_be_asked_is_refused(
        #[case] arguments: &[&str],
        #[case] variables: &[(&str, &str)],
        #[case] named: &str,
    ) {
        let arguments = parse(arguments).expect("it can be read");
        let error = arguments.endpoint(&environment(variables)).expect_err("it is refused").to_string();
        assert!(error.contains(named), "{error}");
    }
}
