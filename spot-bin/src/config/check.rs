//! What problems are noted in while values are checked, and the checks of what several files have in common.

use std::{fmt::Display, time::Duration};

use super::{
    Drain, LeaderElection, Problem, State, file,
    lapse::{Timeout, written},
    problem::Place,
    tree::{Tree, steps},
};

/// Problems, noted at their places.
pub(crate) struct Check<'t> {
    pub(crate) tree: &'t Tree,
    pub(crate) problems: Vec<Problem>,
}

impl Check<'_> {
    pub(crate) fn refuse(&mut self, key: &str, message: impl Into<String>) {
        self.problems.push(Problem { place: self.tree.place(key), key: key.to_owned(), message: message.into() });
    }

    /// Whether no problem is known of a key, of what it is in, or of what is in it: its value is the one that was written,
    /// not a default that stands in for a refused one, and a further problem does not only follow from that.
    pub(crate) fn is_sound(&self, key: &str) -> bool {
        let key = steps(key);
        self.problems
            .iter()
            .map(|problem| steps(&problem.key))
            .all(|known| known.is_empty() || !known.starts_with(&key) && !key.starts_with(&known))
    }

    pub(crate) fn noted<T, E: Display>(&mut self, key: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.refuse(key, error.to_string())).ok()
    }

    pub(crate) fn parsed<T: std::str::FromStr>(
        &mut self,
        key: &str,
        text: &str,
        remedy: fn(&str) -> String,
    ) -> Option<T> {
        self.noted(key, text.parse().map_err(|_| format!("found {text:?}: {}", remedy(text))))
    }

    pub(crate) fn drain(&mut self, drain: &file::Drain) -> Drain {
        let pod_grace_period = drain.pod_grace_period.0.map(Timeout::get);
        if let Some(period) = pod_grace_period {
            self.whole_seconds("drain.podGracePeriod", period);
        }
        Drain {
            timeout: drain.timeout.get(),
            force: drain.force,
            delete_empty_dir_data: drain.delete_empty_dir_data,
            pod_grace_period,
        }
    }

    pub(crate) fn leader_election(&mut self, election: &file::LeaderElection) -> LeaderElection {
        const LEASE: &str = "leaderElection.leaseDuration";
        const RENEW: &str = "leaderElection.renewDeadline";
        const RETRY: &str = "leaderElection.retryPeriod";
        let (lease, renew, retry) =
            (election.lease_duration.get(), election.renew_deadline.get(), election.retry_period.get());
        self.whole_seconds(LEASE, lease);
        self.ordered(RENEW, renew, Order::Below, LEASE, lease);
        self.ordered(RETRY, retry, Order::Below, RENEW, renew);
        self.object_name("leaderElection.leaseName", &election.lease_name.0);
        LeaderElection {
            enabled: election.enabled,
            lease_name: election.lease_name.0.clone(),
            lease_duration: lease,
            renew_deadline: renew,
            retry_period: retry,
        }
    }

    pub(crate) fn state(&mut self, namespace: &str, config_map: &str) -> State {
        self.object_name("state.configMap", config_map);
        if !namespace.is_empty() && !is_dns_label(namespace) {
            let message = format!(
                "found {namespace:?}, which can't be the name of a namespace: write at most 63 small letters, digits and \
                 `-`, such as `spot-migrator`, or \"\" for the pod's own"
            );
            self.refuse("state.namespace", message);
        }
        State { namespace: some(namespace), config_map: config_map.to_owned() }
    }

    pub(crate) fn object_name(&mut self, key: &str, name: &str) {
        if name.len() > 253 || !name.split('.').all(is_dns_label) {
            let message = format!(
                "found {name:?}, which can't be the name of an object: write small letters, digits and `-`, such as \
                 `spot-migrator`"
            );
            self.refuse(key, message);
        }
    }

    pub(crate) fn url(&mut self, key: &str, url: &str) {
        let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        let is_url = host.is_some_and(|host| !host.starts_with(['/', ':']) && !host.is_empty());
        if !url.is_empty() && (!is_url || url.contains(char::is_whitespace)) {
            self.refuse(
                key,
                format!("found {url:?}: write a URL that begins with https:// or http://, or \"\" for none"),
            );
        }
    }

    pub(crate) fn whole_seconds(&mut self, key: &str, duration: Duration) {
        if duration.subsec_nanos() != 0 {
            let rounded = written(Duration::from_secs(duration.as_secs() + 1));
            self.refuse(
                key,
                format!("found {}, but Kubernetes counts whole seconds: write {rounded}", written(duration)),
            );
        }
    }

    pub(crate) fn ordered(&mut self, key: &str, value: Duration, order: Order, other_key: &str, other: Duration) {
        let (holds, words) = match order {
            Order::Below => (value < other, "be shorter than"),
            Order::AtMost => (value <= other, "not be longer than"),
        };
        if holds || !self.is_sound(key) || !self.is_sound(other_key) {
            return;
        }
        let (value, other) = (written(value), written(other));
        let message =
            format!("found {value}, but it must {words} `{other_key}`, which is {other}: lower it, or raise the other");
        // The one that somebody wrote is the one to look at.
        let blamed = if self.tree.place(key) == Place::Default { other_key } else { key };
        if blamed == key {
            self.refuse(key, message);
        } else {
            self.refuse(
                other_key,
                format!("found {other}, but `{key}`, which is {value}, must {words} it: raise it, or lower the other"),
            );
        }
    }
}

/// How two values go together.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    Below,
    AtMost,
}

/// The text, unless it is empty.
pub(crate) fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Whether Kubernetes takes this for the name of a namespace, and for a part of that of an object.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with('-') && !text.ends_with('-')
}
