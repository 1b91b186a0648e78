//! What was delivered, and what became of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use spot_core::claim::InstanceId;
use spot_core::interruption::{Delivery, Handled, Notice, Ticket};
use spot_core::ports::Instant;

use super::document::{Announced, Document};

/// When a notice that is to come later comes again.
const LATER: Duration = Duration::from_secs(30);

/// The notices of the process's life, which are a handful, but for those that were withdrawn before their time.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<Arc<str>, Entry>,
    deliveries: u64,
}

#[derive(Debug)]
struct Entry {
    document: Document,
    /// When it was made; where that is not said: when it was seen first.
    sent: Timestamp,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// It is delivered again from then on.
    Due(Instant),
    Delivered,
    Done,
}

impl Ledger {
    /// Learns what a document announces now, which is all that it announces. Returns what is to be delivered.
    pub(super) fn sight(
        &mut self,
        document: Document,
        announced: Vec<Announced>,
        instance: &InstanceId,
        (now, instant): (Timestamp, Instant),
    ) -> Vec<Delivery> {
        let announced: BTreeMap<Arc<str>, Announced> =
            announced.into_iter().map(|one| (format!("{document} {}", one.key).into(), one)).collect();
        // What was delivered once stays known: a service that loses it for a while announces nothing new.
        self.entries.retain(|message, entry| {
            let waits = entry.document == document && matches!(entry.state, State::Due(_));
            !waits || announced.contains_key(message)
        });
        let mut due = Vec::new();
        for (message, Announced { announcement, sent, .. }) in announced {
            let entry = self.entries.entry(Arc::clone(&message)).or_insert_with(|| Entry {
                document,
                sent: sent.unwrap_or(now),
                state: State::Due(instant),
            });
            if matches!(entry.state, State::Due(from) if from <= instant) {
                entry.state = State::Delivered;
                self.deliveries += 1;
                let ticket = Ticket { message, receipt: self.deliveries.to_string().into() };
                let notice = Notice { instance: instance.clone(), announcement, sent: entry.sent };
                due.push(Delivery { notice, ticket });
            }
        }
        due
    }

    /// Learns what became of one.
    pub(super) fn settle(&mut self, message: &str, handled: Handled, now: Instant) {
        if let Some(entry) = self.entries.get_mut(message) {
            entry.state = match handled {
                Handled::Done | Handled::Ignored => State::Done,
                Handled::Returned => State::Due(now),
                Handled::Later => State::Due(now + LATER),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use spot_core::interruption::Announcement;

    use super::*;

    const DOCUMENT: Document = Document::Rebalance;

    fn at(seconds: u64) -> (Timestamp, Instant) {
        (Timestamp::UNIX_EPOCH + Duration::from_secs(seconds), Instant(Duration::from_secs(seconds)))
    }

    /// The messages that are delivered when the document announces these.
    fn sight(ledger: &mut Ledger, keys: &[&str], seconds: u64) -> Vec<Delivery> {
        let announced =
            |key: &&str| Announced { key: (*key).to_owned(), announcement: Announcement::Rebalance, sent: None };
        ledger.sight(DOCUMENT, keys.iter().map(announced).collect(), &InstanceId::new("i-0"), at(seconds))
    }

    fn settle(ledger: &mut Ledger, delivery: &Delivery, handled: Handled, seconds: u64) {
        ledger.settle(&delivery.ticket.message, handled, at(seconds).1);
    }

    #[test]
    fn a_notice_is_delivered_once_until_it_is_settled_and_never_again_when_it_is_done() {
        let mut ledger = Ledger::default();
        let first = sight(&mut ledger, &["a"], 0).remove(0);
        assert!(sight(&mut ledger, &["a"], 2).is_empty());
        settle(&mut ledger, &first, Handled::Done, 3);
        assert!(sight(&mut ledger, &["a"], 4).is_empty());
        assert!(sight(&mut ledger, &["a"], 4_000).is_empty());
    }

    #[test]
    fn one_that_is_returned_comes_at_once_and_one_for_later_after_a_while_with_the_time_of_the_first_sight() {
        let mut ledger = Ledger::default();
        let first = sight(&mut ledger, &["a"], 7).remove(0);
        settle(&mut ledger, &first, Handled::Returned, 8);
        let second = sight(&mut ledger, &["a"], 8).remove(0);
        assert_eq!(second.ticket.message, first.ticket.message);
        assert_ne!(second.ticket.receipt, first.ticket.receipt);
        settle(&mut ledger, &second, Handled::Later, 10);
        assert!(sight(&mut ledger, &["a"], 39).is_empty());
        let third = sight(&mut ledger, &["a"], 40).remove(0);
        assert_eq!(third.notice.sent, at(7).0);
    }

    #[test]
    fn another_content_is_another_notice() {
        let mut ledger = Ledger::default();
        let first = sight(&mut ledger, &["at noon"], 0).remove(0);
        let second = sight(&mut ledger, &["at one"], 2).remove(0);
        assert_ne!(first.ticket.message, second.ticket.message);
    }

    #[test]
    fn what_is_withdrawn_is_forgotten_unless_it_is_being_answered_or_was() {
        let mut ledger = Ledger::default();
        let first = sight(&mut ledger, &["a"], 0).remove(0);
        assert!(sight(&mut ledger, &[], 2).is_empty());
        assert!(sight(&mut ledger, &["a"], 4).is_empty(), "it is being answered");
        settle(&mut ledger, &first, Handled::Later, 5);
        sight(&mut ledger, &[], 6);
        let anew = sight(&mut ledger, &["a"], 8).remove(0);
        assert_eq!(anew.notice.sent, at(8).0, "it was forgotten");
        settle(&mut ledger, &anew, Handled::Done, 9);
        sight(&mut ledger, &[], 10);
        assert!(sight(&mut ledger, &["a"], 12).is_empty(), "it was answered");
    }

    #[test]
    fn an_answer_of_one_document_withdraws_nothing_of_another() {
        let mut ledger = Ledger::default();
        let first = sight(&mut ledger, &["a"], 0).remove(0);
        settle(&mut ledger, &first, Handled::Returned, 1);
        ledger.sight(Document::InstanceAction, Vec::new(), &InstanceId::new("i-0"), at(2));
        assert_eq!(sight(&mut ledger, &["a"], 4).remove(0).notice.sent, at(0).0);
    }
}
