//! The agent of one node, as its pod runs it: a process with a token that is bound to the node.

use std::path::PathBuf;

use serde_json::json;

use crate::{
    Metadata,
    control_plane::{User, free_port},
    migrator::{Running, binary, product},
    process::Process,
    programs,
    world::World,
};

/// `spot-agent`, ready to be started on a node.
#[derive(Clone, Debug)]
pub struct Agent {
    kubeconfig: PathBuf,
    node: String,
    folder: PathBuf,
}

impl Agent {
    /// Grants what `deploy/agent` grants, confined as there, and has a token made for `node`.
    ///
    /// # Panics
    /// If the world refuses.
    #[must_use]
    pub fn install(world: &World, node: &str) -> Self {
        let control_plane = world.control_plane();
        for manifest in ["rbac.yaml", "policy.yaml"] {
            let manifest = programs::repository().join("deploy/agent").join(manifest);
            let manifest = manifest.to_str().expect("the path is UTF-8");
            let _applied: String = control_plane.kubectl(&["apply", "--validate=strict", "-f", manifest]);
        }
        let bound = ["--bound-object-kind=Node".to_owned(), format!("--bound-object-name={node}")];
        let token = control_plane.kubectl(&["create", "token", "spot-agent", "-n", "spot-agent", &bound[0], &bound[1]]);
        let folder = control_plane.folder().to_owned();
        let kubeconfig = folder.join(format!("agent-of-{node}.kubeconfig"));
        let text = std::fs::read(control_plane.kubeconfig(User::Admin)).expect("it was written");
        let mut config: serde_json::Value = serde_json::from_slice(&text).expect("ours are JSON");
        config["users"][0]["user"] = json!({"token": token.trim()});
        std::fs::write(&kubeconfig, config.to_string()).expect("the folder is writable");
        Self { kubeconfig, node: node.to_owned(), folder }
    }

    /// Starts it beside the metadata service of its machine, with further arguments.
    #[must_use]
    pub fn run(&self, metadata: &Metadata, arguments: &[&str]) -> Running {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = product(&binary("spot-agent"), &self.kubeconfig, &self.folder);
        command
            .env("NODE_NAME", &self.node)
            .args(["--imds-endpoint", metadata.endpoint(), "--server-address", &address])
            .args(["--log-format", "text", "--log-level", "debug"])
            .args(arguments);
        let process = Process::start(&format!("spot-agent-{}", self.node), &mut command, &self.folder).shown_whole();
        Running::new(process, address)
    }
}
