//! Whether the pods of a node could run elsewhere, as far as that is known.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::candidates::{Candidates, Others};
use super::{Judgement, Policy, is_usable};
use crate::capacity::Class;
use crate::cloud::CloudFact;
use crate::node::Node;
use crate::placement::{Needs, Terms};
use crate::pod::PodSnapshot;
use crate::reason::Reason;
use crate::volume::Reach;

/// Where demands were found to be met: most pods share theirs with many others.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// Of pods that demand nothing.
    plain: OnceCell<Fit>,
    /// By the addresses of what is demanded, which the view holds for as long as the judgement lives; zero: nothing.
    demanding: RefCell<BTreeMap<(usize, usize), Fit>>,
}

/// Where a pod could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// On the node at this position, and on no other.
    Only(usize),
    /// Nowhere.
    Nowhere,
    /// On more than one, or on one that may come.
    Anywhere,
}

/// Whether pods that have to move could run on this node.
pub(super) fn is_place(node: &impl Node, is_candidate: bool, fact: Option<&CloudFact>, policy: &Policy) -> bool {
    match &policy.candidates {
        Candidates::OnDemand => fact.is_some_and(|fact| fact.class == Class::Spot),
        Candidates::Pool(pool) => is_usable(node) && (!is_candidate || pool.others == Others::Stay),
    }
}

impl<'a, N: Node> Judgement<'a, N> {
    /// Why this pod of a node could not run elsewhere, as far as that is known.
    pub(super) fn placement(&self, node: &N, pod: &PodSnapshot) -> Option<Reason> {
        // Hardly ever more than one: a pod's volumes are in one zone.
        let mut zones: Vec<&'a Arc<Terms>> = Vec::new();
        for volume in self.facts.view.volumes_of(pod) {
            match &volume.reach {
                Reach::Anywhere => {}
                Reach::Nodes(terms) if zones.contains(&terms) => {}
                Reach::Nodes(terms) => zones.push(terms),
                Reach::Host => return Some(Reason::LocalVolume(pod.reference(), Arc::clone(&volume.name))),
            }
        }
        if self.is_nowhere_known(node) {
            return None;
        }
        let needs = pod.needs.as_deref();
        let fit = match (needs, &zones[..]) {
            (None, []) => *self.placed.plain.get_or_init(|| self.fit(None, &[])),
            (_, [] | [_]) => {
                let zone = zones.first().map_or(0, |terms| Arc::as_ptr(terms).addr());
                let key = (needs.map_or(0, |needs| std::ptr::from_ref(needs).addr()), zone);
                let known = self.placed.demanding.borrow().get(&key).copied();
                known.unwrap_or_else(|| {
                    let fit = self.fit(needs, &zones);
                    self.placed.demanding.borrow_mut().insert(key, fit);
                    fit
                })
            }
            (_, _) => self.fit(needs, &zones),
        };
        let fits = match fit {
            Fit::Nowhere => false,
            Fit::Only(at) => !self.is_at(node, at),
            Fit::Anywhere => true,
        };
        (!fits).then(|| Reason::NoSpotPlacement(pod.reference()))
    }

    fn is_at(&self, node: &N, at: usize) -> bool {
        self.nodes.get(at).is_some_and(|other| other.uid() == node.uid())
    }

    /// Whether nothing is known that pods of this node could move to: no node but this one, and no shape.
    fn is_nowhere_known(&self, node: &N) -> bool {
        let others = match &self.tally.places[..] {
            [] => false,
            [at] => !self.is_at(node, *at),
            [_, _, ..] => true,
        };
        !others && self.shapes().next().is_none()
    }

    /// What spot nodes that may come look like. What a pool loses does not come again for it.
    fn shapes(&self) -> impl Iterator<Item = &'a crate::placement::Shape> {
        let remembered = match self.policy.candidates {
            Candidates::OnDemand => &self.facts.memory.shapes[..],
            Candidates::Pool(_) => &[],
        };
        remembered.iter()
    }

    /// Nodes of which more like them are to come.
    fn followed(&self) -> impl Iterator<Item = &'a N> {
        let followed = match &self.policy.candidates {
            Candidates::Pool(pool) if pool.others == Others::Follow => &self.tally.candidates[..],
            Candidates::OnDemand | Candidates::Pool(_) => &[],
        };
        let nodes = self.nodes;
        followed.iter().filter_map(|(_, at)| nodes.get(*at))
    }

    /// Where all of this is met: on a node that is there, on one of a shape that was seen lately, or on one that is to come.
    fn fit(&self, needs: Option<&Needs>, zones: &[&Arc<Terms>]) -> Fit {
        let nothing = Needs::default();
        let needs = needs.unwrap_or(&nothing);
        if self.shapes().any(|shape| needs.met_by_shape(shape) && zones.iter().all(|terms| terms.met_by_shape(shape))) {
            return Fit::Anywhere;
        }
        let like = |node: &N| needs.met_by_like(node) && zones.iter().all(|terms| terms.met_by_like(node));
        if self.followed().any(like) {
            return Fit::Anywhere;
        }
        let meets = |node: &N| needs.met_by(node) && zones.iter().all(|terms| terms.met_by(node));
        let mut places = self.tally.places.iter().filter(|at| self.nodes.get(**at).is_some_and(meets));
        match (places.next(), places.next()) {
            (None, _) => Fit::Nowhere,
            (Some(at), None) => Fit::Only(*at),
            (Some(_), Some(_)) => Fit::Anywhere,
        }
    }
}
