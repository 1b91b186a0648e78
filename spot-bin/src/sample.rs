//! Values that the unit tests share.

use spot_core::node::{NodeRef, Uid};
use spot_core::progress::{Outcome, Report};

use crate::cli::Environment;

/// An environment of these variables.
pub(crate) fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A node.
pub(crate) fn node() -> NodeRef {
    NodeRef { name: "node-1".into(), uid: Uid::new("1"), resource_version: None }
}

/// The report of a run that did nothing and ended like this.
pub(crate) fn report(outcome: Outcome) -> Report {
    Report { outcome, retired: Vec::new(), failed: Vec::new(), undone: Vec::new(), departing: Vec::new(), evictions: 0 }
}
