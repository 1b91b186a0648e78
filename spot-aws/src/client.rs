//! The clients: one set a process, with time-outs, retries and clock set once.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use aws_config::SdkConfig;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::identity::IdentityCache;
use aws_config::imds::region::ImdsRegionProvider;
use aws_config::meta::credentials::CredentialsProviderChain;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_autoscaling::config::retry::RetryPartition;
use aws_smithy_async::rt::sleep::{AsyncSleep, Sleep};
use aws_smithy_async::time::TimeSource;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use futures::future::{self, BoxFuture, Either};
use spot_core::error::{ErrorClass, PortError};
#[cfg(feature = "ec2")]
use spot_core::ports::Write;
use spot_core::ports::{Clock, Instant};

use crate::action::Action;
use crate::error::{CallError, Kind};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(3);
/// How long one request may take: a describe of 200 instances takes two seconds on a bad day.
const ATTEMPT: Duration = Duration::from_secs(8);
/// How often a request is made, if nothing but the deadline ends it before.
const ATTEMPTS: u32 = 8;
/// The longest pause between two of them.
const PAUSE: Duration = Duration::from_secs(5);

/// How many sets of clients there were.
static APIS: AtomicUsize = AtomicUsize::new(0);

/// How a call ended, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallResult {
    /// It was answered.
    Answered,
    /// It came too fast.
    Throttled,
    /// AWS failed, or could not be reached.
    Unavailable,
    /// It took too long.
    Timeout,
    /// The right or valid credentials are missing.
    Denied,
    /// AWS would not.
    Refused,
}

impl CallResult {
    /// Every result.
    pub const ALL: [Self; 6] =
        [Self::Answered, Self::Throttled, Self::Unavailable, Self::Timeout, Self::Denied, Self::Refused];

    /// Its word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Denied => "denied",
            Self::Refused => "refused",
        }
    }
}

impl From<Kind> for CallResult {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Throttled => Self::Throttled,
            Kind::Unavailable => Self::Unavailable,
            Kind::Timeout => Self::Timeout,
            Kind::Denied | Kind::Credentials => Self::Denied,
            Kind::Refused => Self::Refused,
        }
    }
}

/// Wants to know of every call. Never blocks.
pub type CallObserver = Arc<dyn Fn(Action, CallResult) + Send + Sync>;

/// The clients, and the clock by which their calls end.
pub(crate) struct Api {
    pub(crate) autoscaling: aws_sdk_autoscaling::Client,
    #[cfg(feature = "ec2")]
    pub(crate) ec2: aws_sdk_ec2::Client,
    #[cfg(feature = "ec2")]
    pub(crate) classic: aws_sdk_elasticloadbalancing::Client,
    #[cfg(feature = "ec2")]
    pub(crate) balancing: aws_sdk_elasticloadbalancingv2::Client,
    #[cfg(feature = "ec2")]
    pub(crate) eks: aws_sdk_eks::Client,
    #[cfg(feature = "fleet")]
    pub(crate) iam: aws_sdk_iam::Client,
    #[cfg(feature = "queue")]
    pub(crate) sqs: aws_sdk_sqs::Client,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where the APIs are.
    place: String,
    observer: Option<CallObserver>,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Api {
    /// Clients with the region, credentials, endpoint and HTTP client of `config`; the rest is set here.
    pub(crate) fn new(config: &SdkConfig, clock: Arc<dyn Clock>, observer: Option<CallObserver>) -> Self {
        let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ATTEMPT).build();
        let config = config
            .to_builder()
            .timeout_config(timeouts)
            .retry_config(RetryConfig::adaptive().with_max_attempts(ATTEMPTS).with_max_backoff(PAUSE))
            .sleep_impl(Timer(Arc::clone(&clock)))
            .time_source(Timer(Arc::clone(&clock)))
            .build();
        // Unless told otherwise, all clients of a process share one pace, each with the clock that it has.
        let number = APIS.fetch_add(1, Ordering::Relaxed);
        let pace = |service| RetryPartition::new(format!("{service} {number}"));
        Self {
            autoscaling: {
                let config = aws_sdk_autoscaling::config::Builder::from(&config).retry_partition(pace("autoscaling"));
                aws_sdk_autoscaling::Client::from_conf(config.build())
            },
            #[cfg(feature = "ec2")]
            ec2: {
                let config = aws_sdk_ec2::config::Builder::from(&config).retry_partition(pace("ec2"));
                aws_sdk_ec2::Client::from_conf(config.build())
            },
            #[cfg(feature = "ec2")]
            classic: {
                let config = aws_sdk_elasticloadbalancing::config::Builder::from(&config).retry_partition(pace("elb"));
                aws_sdk_elasticloadbalancing::Client::from_conf(config.build())
            },
            #[cfg(feature = "ec2")]
            balancing: {
                let config = aws_sdk_elasticloadbalancingv2::config::Builder::from(&config);
                aws_sdk_elasticloadbalancingv2::Client::from_conf(config.retry_partition(pace("elbv2")).build())
            },
            #[cfg(feature = "ec2")]
            eks: {
                let config = aws_sdk_eks::config::Builder::from(&config).retry_partition(pace("eks"));
                aws_sdk_eks::Client::from_conf(config.build())
            },
            #[cfg(feature = "fleet")]
            iam: {
                let config = aws_sdk_iam::config::Builder::from(&config).retry_partition(pace("iam"));
                aws_sdk_iam::Client::from_conf(config.build())
            },
            #[cfg(feature = "queue")]
            sqs: {
                let config = aws_sdk_sqs::config::Builder::from(&config).retry_partition(pace("sqs"));
                aws_sdk_sqs::Client::from_conf(config.build())
            },
            clock,
            place: place(&config),
            observer,
        }
    }

    /// Makes a call, until a deadline.
    pub(crate) async fn call<T, E>(
        &self,
        action: Action,
        by: Instant,
        request: impl Future<Output = Result<T, SdkError<E, Response>>>,
    ) -> Result<T, CallError>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        // On the heap: the SDK's futures are large.
        let request = Box::pin(request);
        let answer = match future::select(request, pin!(self.clock.sleep_until(by))).await {
            Either::Left((answer, _)) => answer.map_err(|error| CallError::of(action, &error).at(&self.place)),
            Either::Right(_) => Err(CallError::timeout(action).at(&self.place)),
        };
        if let Some(observer) = &self.observer {
            observer(action, answer.as_ref().map_or_else(|error| error.kind.into(), |_| CallResult::Answered));
        }
        answer
    }

    /// Makes a call that changes something, once: whether it is to be made again is the caller's to find out.
    #[cfg(feature = "ec2")]
    pub(crate) async fn write<T, E>(
        &self,
        action: Action,
        write: &Write,
        request: impl Future<Output = Result<T, SdkError<E, Response>>>,
    ) -> Result<Result<T, CallError>, PortError>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        write.permit()?;
        let by = write.valid_until().map_or(write.by, |until| write.by.min(until));
        Ok(self.call(action, by, request).await)
    }

    /// Waits, at most until `by`; whether there is time left.
    #[cfg(feature = "ec2")]
    pub(crate) async fn pause(&self, pause: Duration, by: Instant) -> bool {
        let until = self.clock.instant() + pause;
        self.clock.sleep_until(until.min(by)).await;
        until < by
    }
}

/// Where APIs are, for whoever can't reach them.
fn place(config: &SdkConfig) -> String {
    let region = config.region().map_or_else(String::new, |region| format!("region {region}"));
    match config.endpoint_url() {
        Some(url) => format!("{region} at {url}"),
        None => region,
    }
}

/// Without the SDK's own repetitions: whether a request to EC2 is made again is found out by whoever makes it.
#[cfg(feature = "ec2")]
pub(crate) fn once() -> aws_sdk_ec2::config::Builder {
    aws_sdk_ec2::Config::builder().retry_config(RetryConfig::disabled())
}

/// The SDK's timer and clock, by ours.
#[derive(Clone)]
struct Timer(Arc<dyn Clock>);

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timer")
    }
}

impl AsyncSleep for Timer {
    fn sleep(&self, duration: Duration) -> Sleep {
        let clock = Arc::clone(&self.0);
        let until = clock.instant() + duration;
        Sleep::new(Alarm(Mutex::new(Box::pin(async move { clock.sleep_until(until).await }))))
    }
}

/// The SDK wants a future that is `Sync`, though it alone polls it.
struct Alarm(Mutex<BoxFuture<'static, ()>>);

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(context)
    }
}

impl TimeSource for Timer {
    fn now(&self) -> SystemTime {
        self.0.now().into()
    }
}

/// Region, credentials and HTTP client as the SDK's own chain finds them. The metadata service of the machine is asked
/// only if `instance_metadata` says so: in a pod it answers for the node, or not at all.
pub(crate) async fn discover(
    region: Option<String>,
    endpoint_url: Option<&str>,
    instance_metadata: bool,
    clock: &Arc<dyn Clock>,
) -> Result<SdkConfig, PortError> {
    let http = https();
    let timer = Timer(Arc::clone(clock));
    let base =
        ProviderConfig::empty().with_http_client(http.clone()).with_sleep_impl(timer.clone()).with_time_source(timer);
    let profile = ProfileFileRegionProvider::builder().configure(&base).build();
    let chain = RegionProviderChain::first_try(region.map(Region::new))
        .or_else(EnvironmentVariableRegionProvider::new())
        .or_else(profile);
    let metadata = instance_metadata.then(|| ImdsRegionProvider::builder().configure(&base).build());
    let region = match metadata {
        Some(metadata) => chain.or_else(metadata).region().await,
        None => chain.region().await,
    };
    let Some(region) = region else {
        let why = "no region is named, nor is the environment variable `AWS_REGION` set, or a profile's `region`";
        return Err(PortError::new(ErrorClass::Permanent, why));
    };
    let base = base.with_region(Some(region.clone()));
    let credentials = if instance_metadata {
        let chain = DefaultCredentialsChain::builder().configure(base);
        SharedCredentialsProvider::new(chain.build().await)
    } else {
        let chain = CredentialsProviderChain::first_try("environment", EnvironmentVariableCredentialsProvider::new())
            .or_else("profile", ProfileFileCredentialsProvider::builder().configure(&base).build())
            .or_else("web identity", WebIdentityTokenCredentialsProvider::builder().configure(&base).build())
            .or_else("pod identity", EcsCredentialsProvider::builder().configure(&base).build());
        SharedCredentialsProvider::new(chain)
    };
    let mut config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        // One for all clients: credentials are fetched once, and again before they expire.
        .identity_cache(IdentityCache::lazy().build())
        .region(region)
        .credentials_provider(credentials)
        .http_client(http);
    config.set_endpoint_url(endpoint_url.map(str::to_owned));
    Ok(config.build())
}

/// With the one TLS stack that the rest of the process uses too.
fn https() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}
