//! What the cloud announces, in a queue that delivers at least once; and the machines that it takes back.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures::future;
use jiff::Timestamp;

use crate::claim::InstanceId;
use crate::error::{ErrorClass, PortError};
use crate::interruption::{Announcement, Delivery, Handled, Notice, Reclaim, Source, Ticket};
use crate::ports::{Clock, Instant, NoticeSource};

use super::cloud::{InstanceNo, Life};
use super::process::Process;
use super::record::{Answer, Call};
use super::world::{World, later};

/// How long a message that was delivered is kept from others.
const VISIBILITY: Duration = Duration::from_secs(15);
/// After how long one that was put off is delivered again.
const PUT_OFF: Duration = Duration::from_secs(10);
/// How long a receiver waits for a message.
const LONG_POLL: Duration = Duration::from_secs(20);
/// How many messages one answer carries at most.
const AT_ONCE: usize = 10;
/// How long a receiver waits for its answer beyond that.
const SLACK: Duration = Duration::from_secs(10);
/// From a notice to the end of a spot machine.
const TWO_MINUTES: Duration = Duration::from_mins(2);

/// The queue.
#[derive(Default)]
pub(super) struct Queue {
    messages: BTreeMap<Arc<str>, Message>,
    sent: u64,
    wakers: Vec<Waker>,
}

/// One message.
struct Message {
    notice: Notice,
    /// From when on it is delivered.
    visible: Instant,
    /// How often it was delivered.
    deliveries: u32,
    /// What it was settled as for good.
    settled: bool,
}

impl Message {
    fn receipt(&self) -> Arc<str> {
        self.deliveries.to_string().into()
    }
}

impl World {
    /// Sends a notice now. Returns the message that carries it.
    pub fn announce(&mut self, instance: InstanceId, announcement: Announcement) -> Arc<str> {
        let sent = self.wall();
        self.send_notice(Notice { instance, announcement, sent })
    }

    /// Sends this notice, whenever it says that it was sent.
    pub fn send_notice(&mut self, notice: Notice) -> Arc<str> {
        let queue = &mut self.queue;
        queue.sent += 1;
        let id: Arc<str> = format!("message-{}", queue.sent).into();
        let message = Message { notice, visible: self.now(), deliveries: 0, settled: false };
        self.queue.messages.insert(Arc::clone(&id), message);
        self.to_wake.append(&mut self.queue.wakers);
        id
    }

    /// A message is delivered once more, though it was settled, or somebody is at it.
    pub fn deliver_again(&mut self, message: &str) {
        let now = self.now();
        if let Some(message) = self.queue.messages.get_mut(message) {
            message.visible = now;
            message.settled = false;
        }
        self.to_wake.append(&mut self.queue.wakers);
    }

    /// The cloud takes the spot machine of this node back, and says so two minutes before; one that hibernates is gone
    /// at once. Returns the message.
    pub fn interrupt(&mut self, node: &str, action: Reclaim) -> Option<Arc<str>> {
        let instance = self.machine_of(node)?;
        let no = self.instance_no(&instance)?;
        let ahead = match action {
            Reclaim::Terminate | Reclaim::Stop => TWO_MINUTES,
            Reclaim::Hibernate => Duration::ZERO,
        };
        let at = later(self.wall(), ahead);
        self.later(ahead, move |world| match action {
            Reclaim::Terminate => world.lose_machine(no),
            Reclaim::Stop | Reclaim::Hibernate => world.stop_machine(no),
        });
        Some(self.announce(instance, Announcement::Interruption { action, at }))
    }

    /// A machine that was stopped runs again: it boots, or, after hibernation, goes on where it was.
    pub fn start_machine(&mut self, node: &str, boots: bool) {
        if boots {
            self.reboot(node);
        }
        self.set_kubelet(node, true);
    }

    /// The machine of the node of this name.
    #[must_use]
    pub fn machine_of(&self, node: &str) -> Option<InstanceId> {
        self.node(node).and_then(|node| self.instance_of_uid(node.uid.as_str())).cloned()
    }

    /// Messages that are not settled for good.
    #[must_use]
    pub fn unsettled(&self) -> Vec<Arc<str>> {
        self.queue.messages.iter().filter(|(_, message)| !message.settled).map(|(id, _)| Arc::clone(id)).collect()
    }

    /// What was announced of this machine so far.
    pub fn announced(&self, instance: &InstanceId) -> impl Iterator<Item = &Notice> {
        let notices = self.queue.messages.values().map(|message| &message.notice);
        notices.filter(move |notice| notice.instance == *instance)
    }

    /// Whether it was announced that this spot machine is taken back.
    #[must_use]
    pub fn is_taken_back(&self, instance: &InstanceId) -> bool {
        self.taken_back_since(instance).is_some()
    }

    /// When it was announced last that this spot machine is taken back, if it was.
    pub(super) fn taken_back_since(&self, instance: &InstanceId) -> Option<Timestamp> {
        let notices = self.announced(instance);
        let taken_back = notices.filter(|notice| matches!(notice.announcement, Announcement::Interruption { .. }));
        taken_back.map(|notice| notice.sent).max()
    }

    /// The machine ends at once, with whatever runs on it.
    fn lose_machine(&mut self, no: InstanceNo) {
        let Some(instance) = self.instances.get_mut(no.0).filter(|instance| instance.life == Life::Running) else {
            return;
        };
        let group = instance.spec.group.clone();
        self.machine_gone(no);
        self.let_go_of_a_machine(group.as_deref());
    }

    fn stop_machine(&mut self, no: InstanceNo) {
        let Some(instance) = self.instances.get(no.0) else { return };
        let name = Arc::clone(&instance.node_name);
        self.set_kubelet(&name, false);
    }

    fn poll_queue(&mut self, waker: &Waker) -> Poll<()> {
        let now = self.now();
        if self.queue.messages.values().any(|message| !message.settled && message.visible <= now) {
            return Poll::Ready(());
        }
        if !self.queue.wakers.iter().any(|known| known.will_wake(waker)) {
            self.queue.wakers.push(waker.clone());
        }
        Poll::Pending
    }

    /// When the next message is to be delivered that is not now.
    fn next_visible(&self) -> Option<Instant> {
        self.queue.messages.values().filter(|message| !message.settled).map(|message| message.visible).min()
    }

    fn receive(&mut self) -> Vec<Delivery> {
        let now = self.now();
        let visible = self.queue.messages.iter_mut().filter(|(_, one)| !one.settled && one.visible <= now);
        let deliver = |(id, message): (&Arc<str>, &mut Message)| {
            message.visible = now + VISIBILITY;
            message.deliveries += 1;
            let ticket = Ticket { message: Arc::clone(id), receipt: message.receipt() };
            Delivery { notice: message.notice.clone(), ticket }
        };
        visible.take(AT_ONCE).map(deliver).collect()
    }

    fn keep(&mut self, ticket: &Ticket) -> Result<(), PortError> {
        let now = self.now();
        let message = self.queue.messages.get_mut(&ticket.message);
        match message.filter(|message| !message.settled && message.receipt() == ticket.receipt) {
            Some(message) => {
                message.visible = now + VISIBILITY;
                Ok(())
            }
            None => Err(PortError::new(ErrorClass::Permanent, format!("{} is not in flight", ticket.message))),
        }
    }

    fn settle_notice(&mut self, ticket: &Ticket, handled: Handled) {
        let now = self.now();
        let Some(message) = self.queue.messages.get_mut(&ticket.message) else { return };
        match handled {
            Handled::Done | Handled::Ignored => message.settled = true,
            // a late word about an earlier delivery
            Handled::Returned | Handled::Later if message.receipt() != ticket.receipt => {}
            Handled::Returned => message.visible = now,
            Handled::Later => message.visible = now + PUT_OFF,
        }
        self.to_wake.append(&mut self.queue.wakers);
    }
}

#[async_trait]
impl NoticeSource for Process {
    fn kind(&self) -> Source {
        Source::Queue
    }

    fn receivers(&self) -> usize {
        2
    }

    fn instance_of(&self, provider_id: &str) -> Option<InstanceId> {
        provider_id.strip_prefix("model:///").map(InstanceId::new)
    }

    async fn next(&self) -> Result<Vec<Delivery>, PortError> {
        let until = self.instant() + LONG_POLL;
        loop {
            let due = self.model.with(|world| world.next_visible()).map_or(until, |at| at.min(until));
            let due = due.max(self.instant());
            let arrived = poll_fn(|context| self.model.with(|world| world.poll_queue(context.waker())));
            future::select(pin!(arrived), pin!(self.sleep_until(due))).await;
            let ready = self.model.with(|world| world.next_visible().is_some_and(|at| at <= world.now()));
            if ready || self.instant() >= until {
                break;
            }
        }
        let effect = |world: &mut World| {
            let deliveries = world.receive();
            let messages = deliveries.iter().map(|one| Arc::clone(&one.ticket.message)).collect();
            Ok((deliveries, Answer::Delivered(messages)))
        };
        self.call(Call::Receive, self.instant() + SLACK, effect).await
    }

    async fn extend(&self, delivery: &Delivery, by: Instant) -> Result<(), PortError> {
        let ticket = delivery.ticket.clone();
        let call = Call::Extend(Arc::clone(&ticket.message));
        self.call(call, by, move |world: &mut World| world.keep(&ticket).map(|()| ((), Answer::Done))).await
    }

    async fn settle(&self, delivery: &Delivery, handled: Handled, by: Instant) -> Result<(), PortError> {
        let ticket = delivery.ticket.clone();
        let call = Call::Settle { message: Arc::clone(&ticket.message), handled };
        let effect = move |world: &mut World| {
            world.settle_notice(&ticket, handled);
            Ok(((), Answer::Done))
        };
        self.call(call, by, effect).await
    }
}
