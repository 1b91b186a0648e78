//! What is only unwise is told, and stops nothing.

use spot_aws::fleet::Trouble;

use super::{FORBIDDEN, MACHINE, TARGET_GROUP, check, full, refuse, subnet, troubles};
use crate::double::State;

#[tokio::test(start_paused = true)]
async fn what_may_do_as_it_is_is_told_and_no_certain_trouble() {
    let advised: [fn(&mut State); 4] = [
        |state| subnet(state, ("available", 0)),
        |state| state.classic.get_mut("web").unwrap().tags.clear(),
        |state| state.target_groups.get_mut(TARGET_GROUP).unwrap().tags.clear(),
        |state| refuse(state, MACHINE, (403, "UnauthorizedOperation", FORBIDDEN)),
    ];
    for (at, of_aws) in advised.into_iter().enumerate() {
        let world = full();
        of_aws(&mut world.aws.state());
        let findings = check(&world).await;
        let [trouble] = &findings.iter().filter_map(|one| one.outcome.as_ref().err()).collect::<Vec<_>>()[..] else {
            panic!("{at}: {:?}", troubles(&findings));
        };
        assert!(!trouble.is_certain(), "{trouble}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_subnets_are_all_full_can_not_be() {
    let world = full();
    for id in ["subnet-a", "subnet-b"] {
        world.aws.state().network.subnets.insert(id.to_owned(), ("available", 0));
    }
    let findings = check(&world).await;
    let certain = findings.iter().filter(|one| one.outcome.as_ref().is_err_and(Trouble::is_certain));
    let certain: Vec<_> = certain.map(|one| one.what.as_str()).collect();
    assert_eq!(certain, ["subnet subnet-a", "subnet subnet-b"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_the_clusters_by_its_controllers_tag_or_by_its_name() {
    let world = full().with(|pool| pool.load_balancers = vec!["prod-web".to_owned()]);
    let mut state = world.aws.state();
    let mut balancer = state.classic.remove("web").unwrap();
    balancer.tags.clear();
    state.classic.insert("prod-web".to_owned(), balancer);
    let tags = &mut state.target_groups.get_mut(TARGET_GROUP).unwrap().tags;
    *tags = [("elbv2.k8s.aws/cluster".to_owned(), "prod".to_owned())].into();
    drop(state);
    assert_eq!(troubles(&check(&world).await), []);
}
