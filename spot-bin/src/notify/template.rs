//! How a message is written: as JSON, by a template of the user's or for a chat.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use minijinja::{AutoEscape, Environment, UndefinedBehavior};

use super::message::Message;
use crate::text;

/// What chats that are compatible with Slack take, which reads three characters as its own.
const CHAT: &str = r#"{"text": {{ text | replace("&", "&amp;") | replace("<", "&lt;") | replace(">", "&gt;") }}}"#;

/// The name by which the engine knows it.
const NAME: &str = "template";

/// A template that makes JSON of every message.
#[derive(Debug)]
pub(super) struct Template(Environment<'static>);

impl Template {
    /// That of a file, or the one for chats.
    ///
    /// # Errors
    /// When the file can't be read, or does not make JSON of every kind of message.
    pub(super) fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = file else { return Self::parse(CHAT.to_owned()) };
        let name = path.display();
        let what = || format!("`notifications.templateFile`: {name}");
        Self::parse(text::read(path).with_context(what)?).with_context(what)
    }

    fn parse(source: String) -> anyhow::Result<Self> {
        let mut engine = Environment::new();
        // A variable stands for a value of JSON: text has its quotes with it.
        engine.set_auto_escape_callback(|_| AutoEscape::Json);
        engine.set_undefined_behavior(UndefinedBehavior::Strict);
        engine.add_template_owned(NAME, source).map_err(|error| anyhow!("{error:#}"))?;
        let template = Self(engine);
        for sample in Message::samples() {
            let kind = sample.kind.as_str();
            let text =
                template.render(&sample).map_err(|why| anyhow!("it can't be made of a message {kind}: {why}"))?;
            let _json: serde_json::Value = serde_json::from_str(&text).with_context(|| {
                format!(
                    "what it makes of a message {kind} is no JSON: variables bring their own quotes, as in {{\"text\": \
                     {{{{ text }}}}}}"
                )
            })?;
        }
        Ok(template)
    }

    /// The message as JSON.
    pub(super) fn render(&self, message: &Message) -> Result<String, String> {
        let template = self.0.get_template(NAME).map_err(|error| error.to_string())?;
        template.render(message).map_err(|error| format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::notify::message::Kind;

    fn made(source: &str) -> Vec<Value> {
        let template = Template::parse(source.to_owned()).unwrap_or_else(|error| panic!("{error:#}"));
        let text = |sample| template.render(&sample).unwrap_or_else(|error| panic!("{error}"));
        Message::samples().map(|sample| serde_json::from_str(&text(sample)).expect("it is JSON")).collect()
    }

    #[test]
    fn a_chat_is_told_one_sentence_whatever_is_in_it() {
        let made = made(CHAT);
        assert_eq!(made[0], json!({"text": "text"}));
        assert_eq!(made[Kind::ALL.len()], json!({"text": "&lt;!text&gt; &amp; \"quotes\", a \\ and\na line"}));
    }

    #[test]
    fn a_template_has_every_variable_as_json() {
        let source = r#"{"k": {{ kind }}, "w": {{ is_warning }}, "at": {{ at }}, "n": {{ node }}, "y": {{ why }},
            "o": {{ outcome }}, "s": {{ saves_a_month }}, "r": {{ retired }}, "f": {{ failed }}{% if node %}, "has": true{% endif %}}"#;
        let made = made(source);
        let bare = json!({"k": "node_claimed", "w": false, "at": "1970-01-01T00:00:00Z", "n": null, "y": null, "o": null,
            "s": null, "r": [], "f": []});
        assert_eq!(made[0], bare);
        let full = &made[Kind::ALL.len() + 2];
        assert_eq!((&full["k"], &full["r"]), (&json!("run_ended"), &json!(["a", "b"])));
        assert_eq!((&full["s"], &full["has"]), (&json!(1234.5), &json!(true)));
    }

    #[rstest]
    #[case::no_json(r"text: {{ text }}", "no JSON")]
    #[case::quoted_twice(r#"{"text": "{{ text }}"}"#, "bring their own quotes")]
    #[case::another_variable(r#"{"text": {{ cluster }}}"#, "undefined")]
    #[case::unclosed(r#"{"text": {{ text }"#, "syntax error")]
    #[case::only_of_some(r"{% if node %}{}{% endif %}", "no JSON")]
    fn what_does_not_make_json_of_every_message_is_refused(#[case] source: &str, #[case] said: &str) {
        let error = Template::parse(source.to_owned()).expect_err("it is refused");
        assert!(format!("{error:#}").contains(said), "{error:#}");
    }
}
