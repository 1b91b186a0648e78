//! What an Event says in one word: a closed list, of which the manual is made.

macro_rules! reasons {
    ($($reason:ident: $on:literal, $type:literal, $meaning:literal;)*) => {
        /// The reason of an Event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum EventReason { $(#[doc = $meaning] $reason,)* }

        impl EventReason {
            /// Every reason.
            pub const ALL: [Self; [$(Self::$reason),*].len()] = [$(Self::$reason),*];

            /// Its word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$reason => stringify!($reason),)* }
            }

            /// What it is about: `node`, `pod` or both.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$reason => $on,)* }
            }

            /// The type of its Events.
            #[must_use]
            pub const fn kind(self) -> &'static str {
                match self { $(Self::$reason => $type,)* }
            }

            /// What happened.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$reason => $meaning,)* }
            }
        }
    };
}

reasons! {
    Claimed: "node", "Normal", "The node is cordoned and marked: its pods are moved off it.";
    Drained: "node", "Normal", "The node's pods are gone.";
    Retired: "node", "Normal", "The node and its machine are gone.";
    Released: "node", "Warning", "A step failed: mark, cordon and taint are off again, and the node is left alone for a while.";
    Postponed: "node", "Normal", "The node was given back, to go another time.";
    Undone: "node", "Normal", "A person took the node back.";
    Departing: "node", "Warning", "The deletion of the machine was accepted, or its answer is not known, and the node is still there.";
    SpotExhausted: "node", "Warning", "The node is on-demand and came while others were retired: the run ends.";
    Refused: "node", "Normal", "The node may not be retired now; the text has the reasons.";
    Evicted: "pod", "Normal or Warning", "The pod was moved off its node; a warning if something of it is lost.";
    PodBlocked: "node and pod", "Warning", "The pod could not be moved for a minute or more; the text says what is in the way.";
    Exposed: "pod", "Warning", "All pods of one controller are on nodes that are to go at once.";
    SpotInterruption: "node", "Warning", "EC2 takes the spot machine back: the node was cordoned.";
    RebalanceRecommendation: "node", "Normal or Warning", "EC2 may take the spot machine back soon.";
    ScheduledChange: "node", "Warning", "The machine is scheduled to be retired, rebooted or worked on: the node was cordoned.";
    MachineTerminating: "node", "Warning", "The Auto Scaling group terminates the machine: the node was cordoned.";
    MachineLaunched: "node", "Warning", "The Auto Scaling group launched the machine.";
    MachineStopping: "node", "Warning", "The machine stops, or is gone: the node was cordoned.";
    Emptied: "node", "Normal", "The node of a machine that goes is empty.";
    NotEmptied: "node", "Warning", "Not all pods could be moved in time off the node of a machine that goes.";
    RebalanceOver: "node", "Normal", "Nothing followed the recommendation to rebalance.";
    Returned: "node", "Normal", "The machine came back: the node takes pods again.";
}
