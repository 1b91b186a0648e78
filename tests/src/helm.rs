//! The chart, as its users take it: rendered and installed by `helm`, and its containers as processes.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
};

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, VolumeMount};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::{
    control_plane::User,
    migrator::{Running, binary, product},
    process::Process,
    programs,
    world::World,
};

/// `helm`, with a home of its own: nothing of the tester's settings is read.
#[derive(Debug)]
pub struct Helm {
    kubeconfig: Option<PathBuf>,
    home: tempfile::TempDir,
}

impl Helm {
    /// One without a cluster.
    ///
    /// # Panics
    /// If it can't have a home.
    #[must_use]
    pub fn offline() -> Self {
        Self { kubeconfig: None, home: tempfile::tempdir().expect("temporary folders can be made") }
    }

    /// One that works on this world, and may do everything there.
    #[must_use]
    pub fn on(world: &World) -> Self {
        Self { kubeconfig: Some(world.control_plane().kubeconfig(User::Admin)), ..Self::offline() }
    }

    /// Runs it with these arguments, and returns what it printed: on standard output, or where it failed, on standard
    /// error.
    ///
    /// # Errors
    /// When it ends with another code than 0.
    ///
    /// # Panics
    /// If it does not start.
    pub fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(programs::path("helm"));
        command.args(arguments).env_clear().env("HOME", self.home.path()).stdin(Stdio::null());
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        let output = command.output().expect("helm starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// The same with the chart and a file of `values`, behind `arguments`.
    ///
    /// # Errors
    /// When it ends with another code than 0.
    ///
    /// # Panics
    /// If the values can't be written, or it does not start.
    pub fn with_chart(&self, arguments: &[&str], values: &Value) -> Result<String, String> {
        let file = self.home.path().join("values.json");
        std::fs::write(&file, values.to_string()).expect("the home is writable");
        let (chart, file) = (chart(), file.display().to_string());
        self.run(&[arguments, &[chart.to_str().expect("the path is UTF-8"), "--values", &file]].concat())
    }
}

/// The chart's folder.
#[must_use]
pub fn chart() -> PathBuf {
    programs::repository().join("deploy/chart")
}

/// A container of a pod as its kubelet would start it, but for the paths: what is mounted lies in a folder of the test.
#[derive(Debug)]
pub struct Kubelet<'w> {
    world: &'w World,
    pod: Pod,
    folder: PathBuf,
}

impl<'w> Kubelet<'w> {
    /// The one of this pod.
    ///
    /// # Panics
    /// If it can't have a folder.
    #[must_use]
    pub fn of(world: &'w World, pod: Pod) -> Self {
        let folder = world.control_plane().folder().join(pod.name_any());
        std::fs::create_dir_all(&folder).expect("the world's folder is writable");
        Self { world, pod, folder }
    }

    /// Starts a container: its command, arguments and variables, what is mounted into it, and the token of the pod's
    /// account.
    ///
    /// # Panics
    /// If something of it is not there.
    pub async fn start(&self, container: &Container) -> Running {
        let mut paths = BTreeMap::new();
        for mount in container.volume_mounts.iter().flatten() {
            paths.insert(mount.mount_path.clone(), self.mounted(mount).await);
        }
        let here = |text: &str| {
            paths.iter().fold(text.to_owned(), |text, (path, folder)| {
                if text.starts_with(path.as_str()) {
                    text.replacen(path.as_str(), &folder.display().to_string(), 1)
                } else {
                    text
                }
            })
        };
        let Some([program]) = container.command.as_deref() else {
            panic!("a program and no more: {:?}", container.command)
        };
        let mut command = product(&binary(program), &self.kubeconfig(), &self.folder);
        for variable in container.env.iter().flatten() {
            let value = match &variable.value_from {
                Some(from) => self.field(&from.field_ref.as_ref().expect("only fields of the pod").field_path),
                None => variable.value.clone().unwrap_or_default(),
            };
            command.env(&variable.name, here(&value));
        }
        command.args(container.args.iter().flatten().map(|argument| here(argument)));
        let process = Process::start(&container.name, &mut command, &self.folder).shown_whole();
        Running::new(process, format!("127.0.0.1:{}", port(container).unwrap_or_default()))
    }

    /// The pod's token, bound to it as a kubelet's request binds it.
    fn kubeconfig(&self) -> PathBuf {
        let spec = self.pod.spec.as_ref().expect("a pod has a spec");
        let account = spec.service_account_name.as_deref().expect("the chart names the account");
        let name = self.pod.name_any();
        let namespace = self.pod.namespace().expect("a pod has a namespace");
        let token = self.world.control_plane().kubectl(&[
            "create",
            "token",
            account,
            "--namespace",
            &namespace,
            "--bound-object-kind=Pod",
            &format!("--bound-object-name={name}"),
        ]);
        let text = std::fs::read(self.world.control_plane().kubeconfig(User::Admin)).expect("it was written");
        let mut config: Value = serde_json::from_slice(&text).expect("ours are JSON");
        config["users"][0]["user"] = json!({"token": token.trim()});
        let path = self.folder.join("token.kubeconfig");
        std::fs::write(&path, config.to_string()).expect("the folder is writable");
        path
    }

    /// A folder with what the kubelet would mount.
    async fn mounted(&self, mount: &VolumeMount) -> PathBuf {
        let folder = self.folder.join(&mount.name);
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        for (name, content) in self.volume(&mount.name).await {
            std::fs::write(folder.join(name), content).expect("the folder is writable");
        }
        folder
    }

    async fn volume(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let volumes = self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let volume = volumes.into_iter().find(|volume| volume.name == name).expect("what is mounted is a volume");
        let (client, namespace) = (self.world.client(), self.pod.namespace().expect("a pod has a namespace"));
        if let Some(source) = &volume.config_map {
            let found = Api::<ConfigMap>::namespaced(client, &namespace).get(&source.name).await;
            let data = found.expect("the ConfigMap is there").data.unwrap_or_default();
            return data.into_iter().map(|(name, content)| (name, content.into_bytes())).collect();
        }
        let source = volume.secret.as_ref().expect("a volume is a ConfigMap or a Secret");
        let name = source.secret_name.as_deref().expect("it is named");
        let found = Api::<Secret>::namespaced(client, &namespace).get(name).await.expect("the Secret is there");
        found.data.unwrap_or_default().into_iter().map(|(name, content)| (name, content.0)).collect()
    }

    /// What the downward API says.
    fn field(&self, path: &str) -> String {
        match path {
            "metadata.name" => Some(self.pod.name_any()),
            "metadata.namespace" => self.pod.namespace(),
            "metadata.uid" => self.pod.uid(),
            "spec.nodeName" => self.pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            _ => None,
        }
        .unwrap_or_else(|| panic!("the pod has no {path}"))
    }
}

/// The one port of a container.
fn port(container: &Container) -> Option<i32> {
    container.ports.iter().flatten().map(|port| port.container_port).next()
}
