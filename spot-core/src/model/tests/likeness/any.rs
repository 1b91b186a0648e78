//! Any cluster that a file can hold.

use proptest::prelude::*;

use super::*;

/// Any cluster: everything that a saved file can say, and more odd things than usual.
fn any_cluster(seed: u64) -> Cluster {
    let mut dice = Dice(SplitMix64::new(seed));
    let mut cluster = Cluster::default();
    let nodes = 1 + dice.below(7);
    let with_node = dice.one_in(3);
    for number in 0..nodes {
        let (node, fact) = dice.node(number, with_node);
        cluster.facts.insert(node.uid.clone(), fact);
        cluster.view.apply(Change::Node(Arc::new(node)));
    }
    for number in 0..dice.below(6) {
        let name = ["web", "db", "log", "job", "odd", "solo"][usize::try_from(number).unwrap()];
        let kind = *dice.pick(&["ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CloneSet", ""]);
        let of = (!kind.is_empty()).then(|| controller(kind, name));
        let shared = dice.needs();
        for pod in 0..dice.below(7) {
            cluster = dice.pod(cluster, &format!("{name}-{pod}"), of.clone(), shared.clone(), nodes);
        }
        if dice.one_in(2) {
            let (expected, desired) = (dice.number() - 1, dice.number() - 1);
            let mut budget = budget(name, expected, desired);
            budget.current = !dice.one_in(6);
            budget.unhealthy_pods = if dice.one_in(2) { UnhealthyPods::AlwaysAllow } else { UnhealthyPods::default() };
            cluster = cluster.budget(budget);
        }
    }
    cluster
}

struct Dice(SplitMix64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.0.below(many) == 0
    }

    fn number(&mut self) -> i32 {
        i32::try_from(self.below(8)).unwrap()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    fn ago(&mut self) -> Timestamp {
        START.saturating_sub(Duration::from_secs(self.below(2_000))).unwrap()
    }

    fn node(&mut self, number: u64, with_node: bool) -> (NodeSnapshot, CloudFact) {
        let class = *self.pick(&[
            Class::OnDemand,
            Class::OnDemand,
            Class::OnDemand,
            Class::Spot,
            Class::Reserved,
            Class::Unknown,
        ]);
        let mut node = node(&format!("n{number}"), class);
        node.labels.insert(ZONE.to_owned(), (*self.pick(&["a", "b"])).to_owned());
        node.labels.insert(TYPE.to_owned(), (*self.pick(&["m5.large", "c5.large"])).to_owned());
        node.unschedulable = self.one_in(6);
        if self.one_in(5) {
            node.taints.push(Taint::new("dedicated", "db", Effect::NoSchedule));
        }
        if self.one_in(8) {
            node.labels.insert(key::CONTROL_PLANE.to_owned(), String::new());
        }
        if self.one_in(8) {
            node.taints.push(Taint::new(key::TO_BE_DELETED, self.ago().as_second().to_string(), Effect::NoSchedule));
        }
        if self.one_in(6) {
            let since = self.ago();
            node.readiness =
                if self.one_in(2) { Readiness::NotReady { since } } else { Readiness::Unreachable { since } };
        }
        if self.one_in(10) {
            node.deleting_since = Some(self.ago());
        }
        if with_node && self.one_in(2) {
            node.finalizers.push(key::KARPENTER_FINALIZER.to_owned());
        }
        if self.one_in(12) {
            node.provider_id = "aws:///a/i-n0".to_owned();
        }
        if self.one_in(8) {
            node.back_off = Some(BackOff { until: START, count: 2 });
        }
        if self.one_in(6) {
            let owner = if self.one_in(3) { Owner::Interruption } else { Owner::Migrator };
            node.claim = ClaimAnnotation::Valid(Box::new(claim(&node, owner)));
            node.unschedulable |= self.one_in(2);
        } else if self.one_in(10) {
            node.claim = ClaimAnnotation::Unreadable("it is not".to_owned());
        }
        let instance = node.provider_id.rsplit('/').next().unwrap_or_default().to_owned();
        let machine = match (with_node, self.one_in(6)) {
            (_, true) => None,
            (true, false) => Some(Machine::WithNode),
            (false, false) => Some(Machine::Instance(InstanceId::new(instance))),
        };
        let refusal = Reason::Cloud(ReasonKind::NoMachineOwner, "nobody".to_owned());
        let refusals = if machine.is_none() { vec![refusal] } else { Vec::new() };
        (node, CloudFact { class, machine, group: None, refusals })
    }

    fn needs(&mut self) -> Option<Arc<Needs>> {
        let selector: Vec<_> = self.one_in(4).then(|| Requirement::equals(ZONE, "b")).into_iter().collect();
        let affinity = self.one_in(6).then(|| in_zone("a"));
        let toleration = Toleration { key: Some("dedicated".to_owned()), value: None, effect: None };
        let tolerations: Vec<_> = self.one_in(3).then_some(toleration).into_iter().collect();
        Needs::new(selector, affinity, tolerations).map(Arc::new)
    }

    fn pod(
        &mut self,
        cluster: Cluster,
        name: &str,
        of: Option<Controller>,
        needs: Option<Arc<Needs>>,
        nodes: u64,
    ) -> Cluster {
        // some of the last are on a node that nobody has seen, some on none
        let on = match self.below(nodes + 2) {
            on if on < nodes + 1 => format!("n{on}"),
            _ => String::new(),
        };
        let mut pod = pod(name, of, &on);
        pod.needs = needs;
        pod.phase = if on.is_empty() {
            PodPhase::Pending
        } else {
            *self.pick(&[
                PodPhase::Running,
                PodPhase::Running,
                PodPhase::Running,
                PodPhase::Pending,
                PodPhase::Failed,
                PodPhase::Unknown,
            ])
        };
        pod.ready = pod.phase == PodPhase::Running && !self.one_in(8);
        pod.created_at = self.ago();
        pod.deletion = self.one_in(8).then(|| self.ago());
        pod.mirror = self.one_in(12);
        pod.opted_out = self.one_in(12).then_some(key::DO_NOT_EVICT);
        pod.empty_dir = self.one_in(5);
        let reach = match self.below(10) {
            0 => Reach::Host,
            1 => Reach::Anywhere,
            2 => Reach::Nodes(Arc::new(in_zone("a"))),
            _ => return cluster.pod(pod),
        };
        cluster.with_volume(pod, reach)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_run_on_a_world_like_any_cluster_comes_to_an_end_and_keeps_every_promise(
        seed in any::<u64>(),
        scenario in prop::sample::select(&Scenario::ALL[..]),
    ) {
        let cluster = any_cluster(seed);
        let ran = cluster.run_as(scenario, seed);
        prop_assert_eq!(&ran.broken, &Vec::<String>::new(), "{:#?}", ran.heard);
        // what was seen is what the model begins with
        let likeness = cluster.like(scenario, seed);
        let (nodes, pods) = likeness.model.with(|world| (world.view().nodes().len(), world.view().pods().count()));
        prop_assert_eq!((nodes, pods), (cluster.view.nodes().len(), cluster.view.pods().count()));
    }
}
