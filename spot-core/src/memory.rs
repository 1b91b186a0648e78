//! What outlives a process, for the whole cluster. What outlives it for one node is on the node.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::civil::Date;

use crate::claim::BackOff;
use crate::placement::{self, Shape};

/// The cluster's memory. A missing or unreadable one is an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Since and until when spot counts as exhausted.
    pub exhausted: Option<Exhaustion>,
    /// How many nodes were retired on this day.
    pub retired: Option<Retired>,
    /// Whether a person paused us.
    pub paused: bool,
    /// Shapes of spot nodes that were seen, oldest first: pods may fit there though no such node is left.
    pub shapes: Vec<Shape>,
    /// The version that was read; none: there was nothing to read.
    pub version: Option<String>,
}

/// A shortage of spot capacity, as a run found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhaustion {
    /// When it was found.
    pub since: Timestamp,
    /// Until when runs wait, and how often in a row they had to.
    pub back_off: BackOff,
}

/// How many nodes a day has seen retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// The day, in the schedule's time zone.
    pub day: Date,
    /// The nodes.
    pub nodes: u32,
}

impl Memory {
    /// Until when spot counts as exhausted, if that has not passed.
    #[must_use]
    pub fn exhausted_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.exhausted.map(|exhaustion| exhaustion.back_off.until).filter(|until| *until > now)
    }

    /// How many nodes were retired on this day.
    #[must_use]
    pub fn retired_on(&self, day: Date) -> u32 {
        self.retired.filter(|retired| retired.day == day).map_or(0, |retired| retired.nodes)
    }

    /// The memory after `nodes` more were retired on this day.
    #[must_use]
    pub fn with_retired(&self, day: Date, nodes: u32) -> Self {
        let nodes = self.retired_on(day).saturating_add(nodes);
        Self { retired: Some(Retired { day, nodes }), ..self.clone() }
    }

    /// The memory after these shapes of spot nodes were seen.
    #[must_use]
    pub fn with_shapes(&self, present: &BTreeSet<Shape>) -> Self {
        Self { shapes: placement::remembered(&self.shapes, present), ..self.clone() }
    }
}
