//! What types alone can't tell: the language of a value, and how values go together.

use std::{collections::BTreeSet, num::NonZeroU32, path::PathBuf, time::Duration};

use jiff::{
    civil::{Time, Weekday},
    tz::TimeZone,
};
use spot_core::{
    Schedule,
    capacity::{CapacityLabels, Class},
    schedule,
    selector::{LabelSelector, key_fault, value_fault},
};

use super::{
    Aws, BackOff, CapacityClass, CloudProvider, Config, Interruption, Log, Notifications, Problem, Queue, Selection,
    UnlabelledNodes, Window,
    check::{Check, Order, some},
    file::{self, File},
    lapse::{Timeout, written},
    queue,
    tree::Tree,
};

/// How long before a spot machine is taken back its notice comes.
const NOTICE: Duration = Duration::from_mins(2);

/// How long a drain obeys budgets, or what to write instead.
#[cfg(feature = "agent")]
pub(crate) fn delete_blocked_pods_after(text: &str) -> Result<Duration, String> {
    within_notice(super::duration(text)?)
}

fn within_notice(after: Duration) -> Result<Duration, String> {
    if after > NOTICE {
        let found = written(after);
        return Err(format!("found {found}, but a spot machine is gone 2m after its notice: write at most 2m"));
    }
    Ok(after)
}

/// The typed configuration, unless `problems` (those found before, and here) is not empty.
pub(super) fn validate(file: File, tree: &Tree, problems: Vec<Problem>) -> Result<Config, Vec<Problem>> {
    let mut check = Check { tree, problems };
    let time_zone = check.time_zone("timeZone", &file.time_zone.0);
    let schedule = check.schedule(&file.schedule.0, time_zone.as_ref());
    let windows = check.windows(&file.windows, time_zone.as_ref());
    let cloud_provider = check.cloud_provider(&file.cloud_provider);
    let selection = check.selection(&file.selection);
    let drain = check.drain(&file.drain);
    let back_off = check.back_off("backOff", file.back_off.initial, file.back_off.max);
    let exhaustion = &file.exhaustion.back_off;
    let exhaustion_back_off = check.back_off("exhaustion.backOff", exhaustion.initial, exhaustion.max);
    let interruption = check.interruption(&file.interruption, &file.cloud_provider.aws);
    let leader_election = check.leader_election(&file.leader_election);
    let state = check.state(&file.state.namespace, &file.state.config_map.0);
    let server_address = check.parsed("server.address", &file.server.address.0, address_remedy);

    if !check.problems.is_empty() {
        return Err(check.problems);
    }
    // Each `None` has left a problem behind, so from here on nothing is missing.
    let (Some(schedule), Some(time_zone), Some(windows), Some(cloud_provider), Some(selection), Some(server_address)) =
        (schedule, time_zone, windows, cloud_provider, selection, server_address)
    else {
        return Err(check.problems);
    };
    Ok(Config {
        schedule,
        time_zone,
        windows,
        dry_run: file.dry_run,
        cloud_provider,
        load_balancer: (&file.load_balancer).into(),
        selection,
        drain,
        settle_timeout: file.settle.timeout.get(),
        node_gone: (&file.node_gone).into(),
        back_off,
        exhaustion_back_off,
        interruption,
        leader_election,
        state,
        notifications: Notifications {
            webhook_url_file: some(&file.notifications.webhook_url_file).map(PathBuf::from),
            template_file: some(&file.notifications.template_file).map(PathBuf::from),
        },
        prices: some(&file.prices).map(PathBuf::from),
        shutdown_grace_period: file.shutdown.grace_period.get(),
        server_address,
        log: Log { format: file.log.format, level: file.log.level },
        effective: file,
    })
}

impl Check<'_> {
    fn time_zone(&mut self, key: &str, name: &str) -> Option<TimeZone> {
        self.noted(key, schedule::time_zone(name))
    }

    fn schedule(&mut self, expression: &str, time_zone: Option<&TimeZone>) -> Option<Schedule> {
        self.noted("schedule", Schedule::parse(expression, time_zone.unwrap_or(&TimeZone::UTC)))
    }

    fn windows(&mut self, windows: &[file::Window], time_zone: Option<&TimeZone>) -> Option<Vec<Window>> {
        // Items that were refused are not here any more, so positions are asked of the tree.
        let written = self.tree.get("windows").map(|tree| tree.indices().collect::<Vec<_>>()).unwrap_or_default();
        let windows: Vec<_> =
            written.iter().zip(windows).map(|(index, window)| self.window(*index, window, time_zone)).collect();
        windows.into_iter().collect()
    }

    fn window(&mut self, index: usize, window: &file::Window, time_zone: Option<&TimeZone>) -> Option<Window> {
        let key = |name| format!("windows[{index}].{name}");
        let start = time_of_day(&window.start);
        if start.is_none() {
            let message = format!("found {:?}: write a time of day such as \"22:00\"", window.start);
            self.refuse(&key("start"), message);
        }
        let duration = window.duration.get();
        if duration > Duration::from_hours(24) {
            self.refuse(&key("duration"), format!("found {}: write at most 24h", window.duration));
        }
        let time_zone = match window.time_zone.as_str() {
            "" => time_zone.cloned(),
            name => self.time_zone(&key("timeZone"), name),
        };
        let days: BTreeSet<_> = window.days.iter().map(|day| weekday(*day).into()).collect();
        let days = if days.is_empty() { every_day() } else { days };
        Some(Window { days, start: start?, duration, time_zone: time_zone? })
    }

    fn cloud_provider(&mut self, provider: &file::CloudProvider) -> Option<CloudProvider> {
        let aws = &provider.aws;
        self.url("cloudProvider.aws.endpointUrl", &aws.endpoint_url);
        match provider.name {
            file::Provider::NodeObject => Some(CloudProvider::NodeObject),
            file::Provider::Aws if !self.is_sound("cloudProvider.name") => None,
            // Without a cluster's name nobody meant it.
            file::Provider::Aws if cfg!(not(feature = "aws")) && aws.cluster_name.is_empty() => {
                self.refuse(
                    "cloudProvider.name",
                    "`aws` is not part of this build: write `node-object`, which deletes Node objects and leaves the \
                     machines to their owner (such as Karpenter), or build with the feature `aws`",
                );
                None
            }
            file::Provider::Aws => {
                if aws.cluster_name.is_empty() && self.is_sound("cloudProvider.aws.clusterName") {
                    self.refuse(
                        "cloudProvider.aws.clusterName",
                        "required with provider `aws`: write the cluster's name as in the tag \
                         `kubernetes.io/cluster/<name>` of its instances",
                    );
                }
                Some(CloudProvider::Aws(Aws {
                    region: some(&aws.region),
                    cluster_name: aws.cluster_name.clone(),
                    require_cluster_tag: aws.require_cluster_tag,
                    identity: aws.identity,
                    endpoint_url: some(&aws.endpoint_url),
                }))
            }
        }
    }

    fn selection(&mut self, selection: &file::Selection) -> Option<Selection> {
        let node_selector = LabelSelector::parse(&selection.node_selector)
            .map_err(|error| format!("{error}: write a label selector such as `pool=batch,!pinned`"));
        let node_selector = self.noted("selection.nodeSelector", node_selector);
        let nodes_at_once = NonZeroU32::new(selection.nodes_at_once);
        if nodes_at_once.is_none() {
            self.refuse("selection.nodesAtOnce", "found 0: write at least 1; to retire no node, `dryRun: true`");
        }
        let unlabelled = match selection.unlabelled_nodes {
            UnlabelledNodes::Unknown => Class::Unknown,
            UnlabelledNodes::OnDemand => Class::OnDemand,
        };
        let labels: Vec<_> = selection
            .capacity_labels
            .iter()
            .filter_map(|(label, class)| self.capacity_label(label).map(|label| (label, class_of(*class))))
            .collect();
        Some(Selection {
            node_selector: node_selector?,
            nodes_at_once: nodes_at_once?,
            max_nodes_per_run: NonZeroU32::new(selection.max_nodes_per_run),
            max_nodes_per_day: NonZeroU32::new(selection.max_nodes_per_day),
            min_remaining_nodes: selection.min_remaining_nodes,
            provisioned_nodes: selection.provisioned_nodes,
            capacity_labels: CapacityLabels::new(labels, unlabelled),
        })
    }

    fn capacity_label(&mut self, label: &str) -> Option<(String, String)> {
        let parsed = match label.split_once('=') {
            None => Err("no `=`".to_owned()),
            Some((key, value)) => match (key_fault(key), value_fault(value)) {
                (None, None) => Ok((key.to_owned(), value.to_owned())),
                (Some(fault), _) => Err(format!("the key `{key}` can't be one: {fault}")),
                (None, Some(fault)) => Err(format!("the value `{value}` can't be one: {fault}")),
            },
        };
        parsed
            .map_err(|reason| {
                let map = self.tree.get("selection").and_then(|tree| tree.get("capacityLabels"));
                let place = map.and_then(|map| map.key_place(label)).unwrap_or_default();
                let key = format!("selection.capacityLabels[{label:?}]");
                let message = format!("not a label with its value ({reason}): write it like `capacity=spot`");
                self.problems.push(Problem { place, key, message });
            })
            .ok()
    }

    fn back_off(&mut self, section: &str, initial: Timeout, max: Timeout) -> BackOff {
        let (initial_key, max_key) = (format!("{section}.initial"), format!("{section}.max"));
        self.ordered(&initial_key, initial.get(), Order::AtMost, &max_key, max.get());
        BackOff { initial: initial.get(), max: max.get() }
    }

    fn interruption(&mut self, interruption: &file::Interruption, aws: &file::Aws) -> Interruption {
        const DELETE: &str = "interruption.deleteBlockedPodsAfter";
        let url = some(&interruption.queue_url);
        if let Some(refused) = url.as_deref().and_then(|url| queue::fault(url, !aws.endpoint_url.is_empty())) {
            self.refuse("interruption.queueUrl", refused);
        }
        if url.is_none() && !interruption.complete_lifecycle_hooks.is_empty() {
            self.refuse(
                "interruption.completeLifecycleHooks",
                "nobody hears of lifecycle hooks without a queue: name it in `interruption.queueUrl`, or remove the key",
            );
        }
        let delete_blocked_pods_after = interruption.delete_blocked_pods_after.get();
        if let Err(refused) = within_notice(delete_blocked_pods_after) {
            self.refuse(DELETE, refused);
        }
        Interruption {
            queue: url.map(|url| Queue { url, region: some(&aws.region), endpoint_url: some(&aws.endpoint_url) }),
            rebalance_recommendation: interruption.rebalance_recommendation,
            scheduled_change_lead: interruption.scheduled_change_lead.get(),
            complete_lifecycle_hooks: interruption.complete_lifecycle_hooks.iter().cloned().collect(),
            delete_blocked_pods_after,
            pause_migration_for: interruption.pause_migration_for.get(),
        }
    }
}

fn time_of_day(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let two_digits = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    if !two_digits(hour) || !two_digits(minute) {
        return None;
    }
    Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
}

fn weekday(day: file::Day) -> Weekday {
    match day {
        file::Day::Mon => Weekday::Monday,
        file::Day::Tue => Weekday::Tuesday,
        file::Day::Wed => Weekday::Wednesday,
        file::Day::Thu => Weekday::Thursday,
        file::Day::Fri => Weekday::Friday,
        file::Day::Sat => Weekday::Saturday,
        file::Day::Sun => Weekday::Sunday,
    }
}

fn every_day() -> BTreeSet<super::Day> {
    Weekday::Monday.cycle_forward().take(7).map(Into::into).collect()
}

fn class_of(class: CapacityClass) -> Class {
    match class {
        CapacityClass::Spot => Class::Spot,
        CapacityClass::OnDemand => Class::OnDemand,
        CapacityClass::Reserved => Class::Reserved,
    }
}

fn address_remedy(text: &str) -> String {
    match text.strip_prefix(':').or_else(|| text.strip_prefix("localhost:")).map(str::parse::<u16>) {
        Some(Ok(port)) if text.starts_with(':') => format!("write \"0.0.0.0:{port}\""),
        Some(Ok(port)) => format!("write \"127.0.0.1:{port}\""),
        _ => "write an IP address and a port, such as \"0.0.0.0:8080\" or \"[::]:8080\"".to_owned(),
    }
}
