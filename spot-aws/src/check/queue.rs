//! Whether the queue answers as a reader of notices needs it.

use aws_sdk_sqs::types::QueueAttributeName;
use spot_core::error::PortError;
use spot_core::ports::Instant;

use super::Checked;
use crate::action::Action;
use crate::error::{CallError, Kind};
use crate::interruption::queue::{Queue, elsewhere, unless_unknown};

/// More messages than SQS hands out at once: a request for so many is refused, and has no effect.
const TOO_MANY: i32 = 11;
/// What is the receipt of no message.
const NO_RECEIPT: &str = "none";
/// What is no group: that there is none such is the answer of somebody who may ask.
const NO_GROUP: &str = "none";

impl Queue {
    /// Finds out whether the queue is there, in our region, and whether we may read it, change and delete its messages:
    /// by requests that are refused for what they say by whoever may make them; and whether we may look at hooks. Nothing
    /// is changed. The rights to answer hooks can't be asked for without using them: they are limited to the cluster's
    /// groups, and Auto Scaling has no dry run.
    pub async fn check(&self, by: Instant) -> Vec<Checked> {
        let there = self.find(by).await;
        let is_there = there.is_ok();
        let note = |action, outcome| Checked { action, outcome, dispensable: false };
        let mut checked = vec![note(Action::GetQueueAttributes, there)];
        if !is_there {
            return checked;
        }
        let (sqs, call) = (&self.api.sqs, &self.api);
        let request = sqs.receive_message().queue_url(&self.url).max_number_of_messages(TOO_MANY);
        let answer = call.call(Action::ReceiveMessage, by, request.send()).await.map(|_| ());
        checked.push(note(Action::ReceiveMessage, self.may(answer)));
        let request = sqs.change_message_visibility().queue_url(&self.url).receipt_handle(NO_RECEIPT);
        let request = request.visibility_timeout(0);
        let answer = call.call(Action::ChangeMessageVisibility, by, request.send()).await.map(|_| ());
        checked.push(note(Action::ChangeMessageVisibility, self.may(unless_unknown(answer))));
        let request = sqs.delete_message().queue_url(&self.url).receipt_handle(NO_RECEIPT);
        let answer = call.call(Action::DeleteMessage, by, request.send()).await.map(|_| ());
        checked.push(note(Action::DeleteMessage, self.may(unless_unknown(answer))));
        let request = call.autoscaling.describe_lifecycle_hooks().auto_scaling_group_name(NO_GROUP);
        let answer = call.call(Action::DescribeLifecycleHooks, by, request.send()).await.map(|_| ());
        checked.push(Checked { action: Action::DescribeLifecycleHooks, outcome: self.may(answer), dispensable: true });
        checked
    }

    /// Whether it is there, and in our region by its own word.
    async fn find(&self, by: Instant) -> Result<(), PortError> {
        let request = self.api.sqs.get_queue_attributes().queue_url(&self.url);
        let request = request.attribute_names(QueueAttributeName::QueueArn);
        let answer = self.api.call(Action::GetQueueAttributes, by, request.send()).await;
        let answer = answer.map_err(|error| self.explained(error))?;
        let arn = answer.attributes().and_then(|all| all.get(&QueueAttributeName::QueueArn));
        let region = arn.and_then(|arn| arn.split(':').nth(3));
        match (region, &self.home.region) {
            (Some(region), Some(ours)) if region != ours => Err(elsewhere(&self.url, region, ours)),
            _ => Ok(()),
        }
    }

    /// That a request is refused for what it says is the answer of somebody who may make it.
    fn may(&self, answer: Result<(), CallError>) -> Result<(), PortError> {
        match answer {
            Err(error) if error.kind == Kind::Refused => Ok(()),
            answer => answer.map_err(|error| self.explained(error)),
        }
    }
}
