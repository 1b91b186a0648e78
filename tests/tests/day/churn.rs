//! What people, controllers and the market do to a cluster all day.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use spot_tests::{Machine, notice};
use tokio::time::Instant;

use crate::{
    foreign::{self, Held, Thing, is_cordoned},
    scene::{CLAIM, DEPLOYMENTS, Day, is_control_plane, is_spot},
};

/// How many nodes of each class there may be, and how many spot nodes have to be left.
const MOST: usize = 6;
const LEAST_SPOT: usize = 2;

/// How long a machine is there after its notice: less than EC2's two minutes, so that some are not drained in time.
const NOTICE: Duration = Duration::from_secs(8);

/// Something that happens. The more often it is here, the likelier it is.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Roll,
    Scale,
    OnDemandJoins,
    SpotJoins,
    Notice,
    Lost,
    Put(Thing),
    TakeOff,
    Uncordon,
    Pause,
    Resume,
}

const DEEDS: [Deed; 21] = [
    Deed::Roll,
    Deed::Scale,
    Deed::Scale,
    Deed::OnDemandJoins,
    Deed::OnDemandJoins,
    Deed::OnDemandJoins,
    Deed::SpotJoins,
    Deed::SpotJoins,
    Deed::Notice,
    Deed::Lost,
    Deed::Put(Thing::Cordon),
    Deed::Put(Thing::OptOut),
    Deed::Put(Thing::Taint),
    Deed::Put(Thing::Label),
    Deed::TakeOff,
    Deed::TakeOff,
    Deed::TakeOff,
    Deed::Uncordon,
    Deed::Pause,
    Deed::Resume,
    Deed::Resume,
];

impl Day {
    /// Something happens, or nothing where it can't.
    pub(crate) async fn churn(&mut self) {
        self.take_back(Some(Instant::now())).await;
        let deed = DEEDS[self.chance.below(DEEDS.len())];
        let done = match deed {
            Deed::Roll => self.roll().await,
            Deed::Scale => self.scale().await,
            Deed::OnDemandJoins => self.grow().await,
            Deed::SpotJoins => self.joins(true).await,
            Deed::Notice => self.notice().await,
            Deed::Lost => self.lost().await,
            Deed::Put(thing) => self.put(thing).await,
            Deed::TakeOff => self.take_off().await,
            Deed::Uncordon => self.uncordon().await,
            Deed::Pause => (!self.paused).then(|| self.operate("pause")).map(|()| "of planned work".to_owned()),
            Deed::Resume => self.paused.then(|| self.operate("resume")).map(|()| "of planned work".to_owned()),
        };
        if let Some(done) = done {
            self.deeds += 1;
            println!("{:6.1} s {deed:?} {done}", self.began.elapsed().as_secs_f32());
        }
    }

    /// The end of the churn: everything that people put on is taken off, and there is room.
    pub(crate) async fn calm(&mut self) {
        self.take_back(None).await;
        while self.take_off().await.is_some() {}
        if self.paused {
            self.operate("resume");
        }
        while self.nodes(is_spot).await.len() < LEAST_SPOT {
            self.joins(true).await;
        }
    }

    async fn roll(&mut self) -> Option<String> {
        let name = *self.chance.one_of(&DEPLOYMENTS)?;
        let annotations = json!({"operator.test/rolled": self.deeds.to_string()});
        self.deploy(name, &json!({"spec": {"template": {"metadata": {"annotations": annotations}}}})).await;
        Some(name.to_owned())
    }

    async fn scale(&mut self) -> Option<String> {
        let name = *self.chance.one_of(&DEPLOYMENTS)?;
        let replicas = 3 + self.chance.below(12);
        self.deploy(name, &json!({"spec": {"replicas": replicas}})).await;
        Some(format!("{name} to {replicas}"))
    }

    async fn deploy(&self, name: &str, change: &serde_json::Value) {
        let deployments = Api::<Deployment>::namespaced(self.world.client(), "default");
        let patched = deployments.patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
        let _deployment = patched.expect("deployments can be changed");
    }

    async fn joins(&mut self, spot: bool) -> Option<String> {
        if self.nodes(|node| is_spot(node) == spot && !is_control_plane(node)).await.len() >= MOST {
            return None;
        }
        self.machines += 1;
        let number = self.machines;
        let machine = if spot {
            Machine::spot(&format!("spot-{number}")).instance(&notice::instance(number))
        } else {
            Machine::on_demand(&format!("on-demand-{number}"))
        };
        let nodes = Api::<Node>::all(self.world.client());
        let _node = nodes.create(&kube::api::PostParams::default(), &machine.node()).await.expect("a Node can join");
        Some(machine.name().to_owned())
    }

    /// An on-demand machine joins, and pods find their way to it.
    async fn grow(&mut self) -> Option<String> {
        let machine = self.joins(false).await?;
        let rolled = self.roll().await?;
        Some(format!("{machine}, and {rolled} is rolled"))
    }

    /// A spot machine is about to be taken back.
    async fn notice(&mut self) -> Option<String> {
        let node = self.spare_spot().await?;
        let number = node.strip_prefix("spot-").and_then(|number| number.parse().ok()).expect("it has a number");
        let _id: String = self.queue.send(notice::interruption(&notice::instance(number), "terminate"));
        self.noticed.push((node.clone(), Some(Instant::now() + NOTICE)));
        Some(node)
    }

    /// A spot machine is gone at once.
    async fn lost(&mut self) -> Option<String> {
        let node = self.spare_spot().await?;
        self.lose(&node).await;
        Some(node)
    }

    /// A spot node that the cluster can do without.
    async fn spare_spot(&mut self) -> Option<String> {
        let mut all = self.nodes(is_spot).await;
        all.retain(|name| self.noticed.iter().all(|(noticed, _)| noticed != name));
        if all.len() <= LEAST_SPOT { None } else { self.chance.one_of(&all).cloned() }
    }

    /// The machines whose time is over go; without a `now`, all that were announced.
    async fn take_back(&mut self, now: Option<Instant>) {
        let due = |at: &Option<Instant>| at.is_some_and(|at| now.is_none_or(|now| at <= now));
        let mut gone = Vec::new();
        for (node, at) in &mut self.noticed {
            if due(at) {
                *at = None;
                gone.push(node.clone());
            }
        }
        for node in gone {
            self.lose(&node).await;
        }
    }

    /// The cloud removes the Node, and whoever collects garbage its pods.
    async fn lose(&mut self, node: &str) {
        let nodes = Api::<Node>::all(self.world.client());
        let _deleted = nodes.delete(node, &DeleteParams::default()).await.expect("a Node can go");
        let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
        for pod in Api::<Pod>::all(self.world.client()).list(&there).await.expect("pods can be listed") {
            let pods = Api::<Pod>::namespaced(self.world.client(), &pod.namespace().expect("a pod has a namespace"));
            // It may be gone already.
            drop(pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await);
        }
        self.lost += 1;
    }

    async fn put(&mut self, thing: Thing) -> Option<String> {
        let all = self.nodes(|node| !thing.is_on(node) && !is_control_plane(node)).await;
        let node = self.chance.one_of(&all)?.clone();
        let from = foreign::set(&self.world, &node, thing, true).await?;
        self.held.push(Held { node: node.clone(), thing, from, to: None });
        Some(node)
    }

    /// Something that a person put on is taken off again; nothing if nothing is left.
    async fn take_off(&mut self) -> Option<String> {
        let there = self.nodes(|_| true).await;
        let open: Vec<_> = (0..self.held.len())
            .filter(|place| self.held[*place].to.is_none() && there.contains(&self.held[*place].node))
            .collect();
        let place = *self.chance.one_of(&open)?;
        let (node, thing) = (self.held[place].node.clone(), self.held[place].thing);
        // Where it is gone already, it is known to be from now on only.
        let to = foreign::set(&self.world, &node, thing, false).await;
        self.held[place].to = Some(to.unwrap_or(u64::MAX));
        Some(format!("{thing:?} of {node}"))
    }

    /// A person takes a node back that is being retired.
    async fn uncordon(&mut self) -> Option<String> {
        let all = self.nodes(|node| is_cordoned(node) && node.annotations().contains_key(CLAIM)).await;
        let node = self.chance.one_of(&all)?.clone();
        let to = foreign::set(&self.world, &node, Thing::Cordon, false).await?;
        let open = self.held.iter_mut().filter(|held| held.node == node && held.to.is_none());
        for held in open.filter(|held| held.thing == Thing::Cordon) {
            held.to = Some(to);
        }
        Some(node)
    }

    fn operate(&mut self, command: &str) {
        let ended = tokio::task::block_in_place(|| self.person.operate(command));
        ended.assert_code(0);
        self.paused = command == "pause";
    }

    async fn nodes(&self, holds: impl Fn(&Node) -> bool) -> Vec<String> {
        let nodes = self.world.nodes().await;
        nodes.into_iter().filter(|(_, node)| holds(node)).map(|(name, _)| name).collect()
    }
}
