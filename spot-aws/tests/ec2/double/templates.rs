//! Launch templates. Stricter than EC2: what a template launches has to be there when it is made, tagged, and with version 2 of the metadata
//! service.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::state::State;
use super::wire::{Answer, Params, Refusal, Request, list, tag};

/// A launch template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) name: String,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) versions: BTreeMap<u32, Version>,
    pub(crate) latest: u32,
    told_from: Instant,
}

/// A version of one.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) description: String,
    /// What it launches, as it was asked for.
    pub(crate) data: Params,
    told_from: Instant,
}

/// A request that bore a token, and what was answered.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    asked: BTreeMap<String, String>,
    answer: String,
}

impl Template {
    /// One that was there already, with an empty first version.
    pub(crate) fn named(name: &str, tags: &[(&str, &str)]) -> Self {
        let told_from = Instant::now();
        let first = Version { description: String::new(), data: Params::default(), told_from };
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Self { name: name.to_owned(), tags, versions: [(1, first)].into(), latest: 1, told_from }
    }
}

pub(crate) fn answer(state: &mut State, request: &Request) -> Option<Result<Answer, Refusal>> {
    Some(match request.name.as_str() {
        "DescribeLaunchTemplates" => Ok(templates(state, request)),
        "DescribeLaunchTemplateVersions" => versions(state, request),
        "CreateLaunchTemplate" => create(state, request),
        "CreateLaunchTemplateVersion" => add(state, request),
        "DeleteLaunchTemplate" => delete(state, request),
        "DeleteLaunchTemplateVersions" => delete_versions(state, request),
        _ => return None,
    })
}

/// What a request with this token was answered before. The same token for something else is refused.
pub(super) fn repeated(
    state: &State,
    token: &str,
    asked: &BTreeMap<String, String>,
) -> Result<Option<String>, Refusal> {
    match state.tokens.get(token) {
        None => Ok(None),
        Some(made) if made.asked == *asked => Ok(Some(made.answer.clone())),
        Some(_) => {
            let words =
                "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).";
            Err(Refusal::new(400, "IdempotentParameterMismatch", words))
        }
    }
}

/// Has the token answered so from now on.
pub(super) fn remember(state: &mut State, token: &str, asked: &BTreeMap<String, String>, answer: &str) {
    assert!(!token.is_empty() && token.len() <= 64, "a token has 1 to 64 characters: {token:?}");
    state.tokens.insert(token.to_owned(), Made { asked: asked.clone(), answer: answer.to_owned() });
}

fn unknown(id: &str) -> Refusal {
    Refusal::new(400, "InvalidLaunchTemplateId.NotFound", format!("The launch template ID '{id}' does not exist"))
}

fn template<'a>(state: &'a mut State, request: &Request) -> Result<&'a mut Template, Refusal> {
    let id = request.params.get("LaunchTemplateId");
    assert!(!id.is_empty(), "templates are addressed by their IDs: names may be somebody else's");
    state.templates.get_mut(id).ok_or_else(|| unknown(id))
}

fn templates(state: &State, request: &Request) -> Answer {
    assert_eq!(request.params.get("Filter.1.Name"), "launch-template-name");
    let names = request.params.list("Filter.1.Value");
    let told = |template: &&Template| names.contains(&template.name) && Instant::now() >= template.told_from;
    let told = state.templates.iter().filter(|(_, template)| told(template));
    let all = told.map(|(id, template)| described(id, template));
    // The first page is an empty one: EC2 fills no page up with what passes a filter.
    if state.page > 0 && request.params.get("NextToken").is_empty() {
        return request.ec2(&(list("launchTemplates", "item", []) + &tag("nextToken", "more")));
    }
    request.ec2(&list("launchTemplates", "item", all))
}

fn described(id: &str, template: &Template) -> String {
    let tags = template.tags.iter().map(|(key, value)| tag("key", key) + &tag("value", value));
    tag("launchTemplateId", id)
        + &tag("launchTemplateName", &template.name)
        + &tag("defaultVersionNumber", 1)
        + &tag("latestVersionNumber", template.latest)
        + &list("tagSet", "item", tags)
}

fn versions(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let id = request.params.get("LaunchTemplateId").to_owned();
    let size = if state.page == 0 { 200 } else { state.page };
    let from: usize = request.params.get("NextToken").parse().unwrap_or_default();
    let template = template(state, request)?;
    let told: Vec<_> = template.versions.iter().filter(|(_, version)| Instant::now() >= version.told_from).collect();
    let page = told.iter().skip(from).take(size).map(|(number, version)| one_version(&id, **number, version));
    let mut content = list("launchTemplateVersionSet", "item", page);
    if from + size < told.len() {
        content += &tag("nextToken", from + size);
    }
    Ok(request.ec2(&content))
}

fn one_version(id: &str, number: u32, version: &Version) -> String {
    tag("launchTemplateId", id)
        + &tag("versionNumber", number)
        + &tag("versionDescription", &version.description)
        + &tag("defaultVersion", number == 1)
        + &tag("launchTemplateData", version.data.told("LaunchTemplateData", "Set"))
}

fn create(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let name = request.params.get("LaunchTemplateName");
    if state.templates.values().any(|template| template.name == name) {
        let words = format!("Launch template name already in use: {name}");
        return Err(Refusal::new(400, "InvalidLaunchTemplateName.AlreadyExistsException", words));
    }
    let tags = request.params.tags("TagSpecification", "launch-template");
    assert!(!tags.is_empty(), "what is made is tagged by the same request");
    let version = version(state, request)?;
    let (latest, told_from) = (1, version.told_from);
    let template = Template { name: name.to_owned(), tags, versions: [(1, version)].into(), latest, told_from };
    state.made += 1;
    let id = format!("lt-{:017x}", state.made);
    let content = tag("launchTemplate", described(&id, &template));
    state.templates.insert(id, template);
    Ok(request.ec2(&content))
}

fn add(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let (id, token) = (request.params.get("LaunchTemplateId").to_owned(), request.params.get("ClientToken"));
    if let Some(number) = repeated(state, token, &request.params.0)? {
        let number: u32 = number.parse().unwrap();
        let one = tag("launchTemplateId", &id) + &tag("versionNumber", number);
        return Ok(request.ec2(&tag("launchTemplateVersion", one)));
    }
    let version = version(state, request)?;
    let template = template(state, request)?;
    template.latest += 1;
    let number = template.latest;
    let content = tag("launchTemplateVersion", one_version(&id, number, &version));
    template.versions.insert(number, version);
    remember(state, token, &request.params.0, &number.to_string());
    Ok(request.ec2(&content))
}

/// The version that is asked for, if what it launches is there.
fn version(state: &State, request: &Request) -> Result<Version, Refusal> {
    let params = &request.params;
    let data = |key: &str| params.get(&format!("LaunchTemplateData.{key}"));
    if !state.market.images.contains(data("ImageId")) {
        let words = format!("The image id '[{}]' does not exist", data("ImageId"));
        return Err(Refusal::new(400, "InvalidAMIID.NotFound", words));
    }
    let encoded = data("UserData");
    let user_data = aws_smithy_types::base64::decode(encoded).expect("user data in base 64");
    assert!(!user_data.is_empty() && user_data.len() <= 16 * 1024);
    assert_eq!(data("MetadataOptions.HttpTokens"), "required");
    assert_eq!(data("BlockDeviceMapping.1.DeviceName"), "/dev/xvda", "the AMI's root device");
    for kind in ["instance", "volume"] {
        let tags = params.tags("LaunchTemplateData.TagSpecification", kind);
        assert!(tags.contains_key("spot-migrator.io/pool"), "{kind}: {tags:?}");
    }
    let description = params.get("VersionDescription").to_owned();
    assert!(!description.is_empty() && description.len() <= 255, "{description:?}");
    Ok(Version { description, data: params.clone(), told_from: Instant::now() + state.lag })
}

fn delete(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    template(state, request)?;
    state.templates.remove(request.params.get("LaunchTemplateId"));
    Ok(request.ec2(""))
}

fn delete_versions(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let numbers = request.params.list("LaunchTemplateVersion");
    assert!(!numbers.is_empty() && numbers.len() <= 200);
    let template = template(state, request)?;
    for number in numbers {
        let number: u32 = number.parse().unwrap();
        assert_ne!(number, 1, "the default version can't be deleted");
        template.versions.remove(&number);
    }
    Ok(request.ec2(""))
}

impl Params {
    /// The tags of a kind of resource in a list of specifications.
    pub(super) fn tags(&self, list: &str, kind: &str) -> BTreeMap<String, String> {
        let of_kind = |at: &usize| self.get(&format!("{list}.{at}.ResourceType")) == kind;
        let Some(at) = (1..5).find(of_kind) else { return BTreeMap::new() };
        let tag = |number: usize| {
            let part = |name: &str| self.0.get(&format!("{list}.{at}.Tag.{number}.{name}")).cloned();
            Some((part("Key")?, part("Value")?))
        };
        (1..).map_while(tag).collect()
    }

    /// What is below `prefix`, as EC2 tells it back: lists of items, whose names end in `suffix`.
    pub(super) fn told(&self, prefix: &str, suffix: &str) -> String {
        let mut content = String::new();
        let mut names: Vec<&str> = self.below(prefix).filter_map(|rest| rest.split('.').next()).collect();
        names.sort_unstable_by_key(|name| (name.parse::<u32>().unwrap_or_default(), *name));
        names.dedup();
        for name in names {
            let path = format!("{prefix}.{name}");
            let told = self.0.get(&path).cloned().unwrap_or_else(|| self.told(&path, suffix));
            let is_list = self.below(&path).any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
            let camel = name[..1].to_lowercase() + &name[1..];
            content += &match name.parse::<u32>() {
                Ok(_) => tag("item", told),
                Err(_) if is_list => tag(&format!("{camel}{suffix}"), told),
                Err(_) => tag(&camel, told),
            };
        }
        content
    }

    fn below(&self, prefix: &str) -> impl Iterator<Item = &str> {
        self.0.keys().filter_map(move |key| key.strip_prefix(prefix)?.strip_prefix('.'))
    }
}
