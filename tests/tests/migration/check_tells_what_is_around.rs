//! `check` on a real cluster: who leads, what is remembered, and the autoscaler that buys the nodes.

use serde_json::{Value, json};
use spot_tests::{
    Migrator, World, rights,
    wait::{PATIENCE, until},
};

/// cluster-autoscaler's Deployment as its chart makes it, with this expander.
fn autoscaler(expander: &str) -> Value {
    let labels = json!({"app.kubernetes.io/name": "aws-cluster-autoscaler"});
    let command = ["./cluster-autoscaler", "--cloud-provider=aws", &format!("--expander={expander}")];
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system", "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "autoscaler", "image": "autoscaler", "command": command}]},
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn check_finds_nothing_wrong_then_who_leads_a_pause_and_an_autoscaler_that_does_not_prefer_spot() {
    let world = World::start().await;
    let migrator = Migrator::install(&world, json!({"schedule": "@daily"})).await;
    let healthy = migrator.check();
    healthy.assert_code(0);
    for words in ["the API server is v1.", "this clock and the API server's agree", "lease spot-migrator is free"] {
        assert!(healthy.output.contains(words), "{words} is not told in\n{}", healthy.output);
    }
    // The manifests let nobody list Deployments, which no run needs: that is told, with what would allow it.
    let rest: Vec<_> = healthy.output.lines().filter(|line| !line.starts_with("ok ")).collect();
    let [unknown, remedy] = &rest[..] else { panic!("something else is amiss:\n{}", healthy.output) };
    assert!(
        unknown.starts_with("advice") && unknown.contains("cluster-autoscaler prefers spot is not known"),
        "{unknown}"
    );
    assert!(remedy.contains("→") && remedy.contains("--resource=deployments.apps"), "{remedy}");

    let running = migrator.run(&[]);
    until("a process to lead", PATIENCE, || async {
        let check = migrator.check();
        let leads = |line: &str| line.contains(" leads since 20") && line.contains(": it renewed lease spot-migrator");
        if check.output.lines().any(leads) { Ok(()) } else { Err(check.output) }
    })
    .await;
    running.kill();
    // The lease of a process that ended without a word runs out, and that is told.
    until("the lease to run out", PATIENCE, || async {
        let check = migrator.check();
        let stale = check.output.lines().find(|line| line.contains("lease spot-migrator has run out: "));
        stale.filter(|line| line.starts_with("advice")).map(drop).ok_or(check.output)
    })
    .await;

    let paused = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "spot-migrator", "namespace": rights::NAMESPACE},
        "data": {"paused": "true"},
    });
    world.apply(&[paused]);
    world.apply(&[autoscaler("least-waste")]);
    let administrator = migrator.clone().as_administrator(&world).check();
    administrator.assert_code(0);
    for words in ["kube-system/cluster-autoscaler", "--expander=least-waste", "planned work is paused"] {
        assert!(administrator.output.contains(words), "{words} is not told in\n{}", administrator.output);
    }
    world.apply(&[autoscaler("priority")]);
    let preferred = migrator.as_administrator(&world).check();
    let line = preferred.output.lines().find(|line| line.contains("--expander=priority")).expect("it is told");
    assert!(line.starts_with("ok "), "{line}");
}
