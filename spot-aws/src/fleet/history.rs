//! What a fleet says of itself, and what it means.

use aws_sdk_ec2::types;
use aws_smithy_types::DateTime;
use jiff::Timestamp;
use spot_core::error::PortError;
use spot_core::ports::Instant;

use super::cause::Cause;
use super::existing::moment;
use super::node_pool::NodePool;
use crate::action::Action;
use crate::error::CallError;
use crate::provider::describe::more;

/// One thing that a fleet says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// Of what kind it is, in EC2's words: `error`, `information`, `instanceChange`, `fleetRequestChange`.
    pub kind: String,
    /// What it is, in EC2's words, as in `launchSpecUnusable`, with what EC2 says of it.
    pub words: String,
    /// What it means, and what helps; none: nothing is wrong.
    pub explained: Option<&'static str>,
}

impl NodePool {
    /// What a fleet says of itself since then, and which of its machines that were launched since have ended by themselves:
    /// of those, it says nothing. The oldest first. EC2 tells it some seconds late.
    ///
    /// # Errors
    /// When EC2 could not be asked.
    pub async fn history(&self, fleet: &str, since: Timestamp, by: Instant) -> Result<Vec<Event>, PortError> {
        let mut events = Vec::new();
        let mut token = None;
        loop {
            let request = self.api().ec2.describe_spot_fleet_request_history().spot_fleet_request_id(fleet);
            let request = request.start_time(DateTime::from_secs(since.as_second())).set_next_token(token);
            let page = self.api().call(Action::DescribeSpotFleetRequestHistory, by, request.send()).await?;
            events.extend(page.history_records().iter().filter_map(|record| {
                let (about, kind) = (record.event_information()?, record.event_type()?.as_str());
                let subtype = about.event_sub_type().unwrap_or_default();
                let said = [Some(subtype), about.instance_id(), about.event_description()];
                let said: Vec<_> = said.into_iter().flatten().filter(|said| !said.is_empty()).collect();
                let cause = Cause::of_event(kind, subtype, about.event_description().unwrap_or_default());
                Some(Event {
                    at: record.timestamp().and_then(moment)?,
                    kind: kind.to_owned(),
                    words: said.join(": "),
                    explained: cause.map(Cause::said),
                })
            }));
            token = more(page.next_token());
            if token.is_none() {
                events.extend(self.deaths(fleet, by).await?.into_iter().filter(|death| death.at >= since));
                events.sort_by_key(|event: &Event| event.at);
                return Ok(events);
            }
        }
    }

    /// The machines of a fleet that have ended, and neither as they were told to nor because EC2 took them back.
    async fn deaths(&self, fleet: &str, by: Instant) -> Result<Vec<Event>, CallError> {
        let death = |one: &types::Instance| {
            let said = one.state_reason();
            let code = said.and_then(types::StateReason::code).unwrap_or_default();
            let words = said.and_then(types::StateReason::message).unwrap_or_default();
            let cause = Cause::of_end(code, words)?;
            let words = if words.contains(code) { words.to_owned() } else { format!("{code}: {words}") };
            Some(Event {
                at: one.launch_time().and_then(moment)?,
                kind: "instanceChange".to_owned(),
                words: format!("{}: {words}", one.instance_id()?),
                explained: Some(cause.said()),
            })
        };
        self.instances(&[fleet], &["terminated"], death, by).await
    }
}
