//! What no fleet launches any more is removed: versions of the launch template, and at last the template.

use std::collections::BTreeSet;

use spot_core::error::PortError;
use spot_core::ports::Write;

use super::cause::explained;
use super::node_pool::NodePool;
use super::request::Version;
use crate::action::Action;
use crate::client::once;

/// The number of a template's first version, which is its default one as nobody here makes another the default.
const DEFAULT: u64 = 1;
/// The most versions that are deleted by one call.
const VERSIONS: usize = 200;

impl NodePool {
    /// Deletes the versions of the pool's launch template that neither a fleet launches nor a hash in `keep` names; where
    /// there is no fleet and nothing to keep, the template as a whole. A version that bears no description of ours stays.
    /// Idempotent. The template's first version stays as
    /// long as it does: EC2 keeps the default one.
    ///
    /// # Errors
    /// When EC2 could not be asked, or refuses; what is left over then does no harm.
    pub async fn clean_up(&self, keep: &BTreeSet<String>, write: &Write) -> Result<(), PortError> {
        let existing = self.existing(write.by).await?;
        let Some(template) = existing.template.as_ref().filter(|template| template.ours) else { return Ok(()) };
        let live: Vec<_> = existing.fleets.iter().filter(|fleet| fleet.ours && !fleet.has_ended).collect();
        if live.is_empty() && keep.is_empty() {
            let request = self.api().ec2.delete_launch_template().launch_template_id(&template.id);
            let request = request.customize().config_override(once()).send();
            return match self.api().write(Action::DeleteLaunchTemplate, write, request).await? {
                Err(error) if !error.is_not_found() => Err(explained(error)),
                Ok(_) | Err(_) => Ok(()),
            };
        }
        let launched = live.iter().filter_map(|fleet| fleet.request.as_ref()).flat_map(|request| &request.launches);
        let launched: BTreeSet<_> = launched.map(|launches| launches.version.as_str()).collect();
        let hashes: BTreeSet<_> =
            live.iter().map(|fleet| fleet.hash.as_str()).chain(keep.iter().map(String::as_str)).collect();
        let is_kept = |description: &str| match Version::hash_of(description) {
            Some(hash) => launched.contains(description) || hashes.contains(hash),
            // Somebody else made it.
            None => true,
        };
        let unused = template.versions.iter().filter(|version| !is_kept(&version.description));
        let unused: Vec<_> =
            unused.filter(|version| version.number != DEFAULT).map(|version| version.number.to_string()).collect();
        for versions in unused.chunks(VERSIONS) {
            let request = self.api().ec2.delete_launch_template_versions().launch_template_id(&template.id);
            let request = request.set_versions(Some(versions.to_vec())).customize().config_override(once()).send();
            match self.api().write(Action::DeleteLaunchTemplateVersions, write, request).await? {
                Err(error) if !error.is_not_found() => return Err(explained(error)),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }
}
