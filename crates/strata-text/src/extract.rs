//! An extractor of memory commands behind `POST {base}/chat/completions`, as OpenAI, vLLM, Ollama and others serve it. It
//! proposes; whether a command is well formed is checked here, whether it may be stored is the gate's. Without one, or when it
//! fails, the rules decide.

use crate::chat::{Chat, Message};
use crate::http::Failure;
use crate::tokens;
use async_trait::async_trait;
use secrecy::SecretString;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;
use strata_core::policy::observe::{Command, RawCommand, checked};
use strata_core::policy::session::Role;

/// Bytes of an answer that are read: more than all commands of one turn.
const MAX_ANSWER_BYTES: usize = 256 * 1024;

/// What the model is told. It holds no words of a user.
const INSTRUCTIONS: &str = "You maintain the long-term memory of an assistant. Read the user's latest message. Answer with JSON \
    only: {\"commands\": [...]}. A command is {\"op\": \"create\" | \"update\" | \"delete\", \"type\": \"FACT\" | \"PREFERENCE\" | \
    \"CONSTRAINT\" | \"GOAL\" | \"EVENT\" | \"EXPERIENCE\" | \"ENTITY:<type>\", \"content\": one self-contained sentence about the \
    user, or an entity's name, \"importance\": 1-5, \"metadata\": {name: text}, \"target\": memory id or key, for update and delete \
    only, \"key\": dotted key or \"\", \"value\": its value or \"\", \"quote\": the user's literal words it follows from}. Keep only \
    what will still hold in half a year. No small talk, no passing moods, no secrets, nothing that the quote does not say. If \
    nothing is worth keeping, answer {\"commands\": []}.";

/// Why there are no commands. Says nothing of the texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The provider does not answer or answers with a failure that may pass.
    #[error("extractor: {0}")]
    Unavailable(String),
    /// The provider, its answer or the configuration is not what is expected.
    #[error("extractor: {0}")]
    Refused(String),
}

impl From<Failure> for ExtractError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unavailable { what, .. } => Self::Unavailable(what),
            Failure::Refused(what) => Self::Refused(what),
        }
    }
}

/// What an extractor is shown.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Earlier turns, oldest first, to understand the last one by.
    pub before: &'a [(Role, &'a str)],
    /// The turn of the user.
    pub turn: &'a str,
}

/// Proposes memory commands.
#[async_trait]
pub trait Extractor: Send + Sync + fmt::Debug {
    /// Commands whose schema has been checked; all or none.
    ///
    /// # Errors
    /// [`ExtractError`].
    async fn extract(&self, asked: &Asked<'_>) -> Result<Vec<Command>, ExtractError>;
}

/// How to reach the provider.
#[derive(Clone, Debug)]
pub struct HttpExtractorConfig {
    /// Up to and without `/chat/completions`, such as `http://localhost:11434/v1`.
    pub base_url: String,
    /// Bearer token; none for a provider without keys.
    pub api_key: Option<SecretString>,
    /// Name of the model.
    pub model: String,
    /// Tokens of all turns that are sent, by the documented estimator; older ones are left out, a longer turn is cut.
    pub max_tokens: u32,
    /// Of the one call that is made.
    pub timeout: Duration,
}

impl HttpExtractorConfig {
    /// A configuration with the usual values for the rest.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        let (base_url, model) = (base_url.into(), model.into());
        Self { base_url, api_key: None, model, max_tokens: 4_000, timeout: Duration::from_secs(30) }
    }
}

/// The client.
#[derive(Debug)]
pub struct HttpExtractor {
    chat: Chat,
    max_tokens: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commands {
    commands: Vec<RawCommand>,
}

impl HttpExtractor {
    /// Checks the configuration; calls nobody.
    ///
    /// # Errors
    /// [`ExtractError::Refused`] naming the setting that is out of range.
    pub fn new(config: HttpExtractorConfig) -> Result<Self, ExtractError> {
        let refused = |what: &str| ExtractError::Refused(what.to_owned());
        if config.max_tokens == 0 {
            return Err(refused("max_tokens is above 0"));
        }
        let chat = Chat::new(&config.base_url, config.api_key, &config.model, config.timeout).map_err(refused)?;
        Ok(Self { chat, max_tokens: config.max_tokens })
    }

    /// The conversation as the model is shown it: newest turns first into the budget, in their order.
    fn messages<'a>(&self, asked: &Asked<'a>) -> Vec<Message<'a>> {
        let turn = tokens::cut(asked.turn, self.max_tokens);
        let mut left = self.max_tokens - tokens::count(turn).min(self.max_tokens);
        let mut earlier = Vec::new();
        for (role, text) in asked.before.iter().rev() {
            let cost = tokens::count(text);
            if cost > left {
                break;
            }
            left -= cost;
            let role = if *role == Role::User { "user" } else { "assistant" };
            earlier.push(Message { role, content: text });
        }
        let mut messages = vec![Message { role: "system", content: INSTRUCTIONS }];
        messages.extend(earlier.into_iter().rev());
        messages.push(Message { role: "user", content: turn });
        messages
    }
}

#[async_trait]
impl Extractor for HttpExtractor {
    async fn extract(&self, asked: &Asked<'_>) -> Result<Vec<Command>, ExtractError> {
        let refused = |what: &str| ExtractError::Refused(what.to_owned());
        let said = self.chat.ask(&self.messages(asked), MAX_ANSWER_BYTES).await?;
        let commands: Commands = serde_json::from_str(&said).map_err(|_| refused("the model's answer is no list of commands"))?;
        checked(commands.commands).map_err(|fault| {
            let field = fault.fields.first().map_or("commands", |first| first.field.as_str());
            ExtractError::Refused(format!("the model's answer breaks the schema at {field}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::provider;
    use serde_json::{Value, json};
    use strata_core::policy::observe::{Op, Subject};
    use strata_core::record::Kind;

    fn extractor(base: &str) -> HttpExtractor {
        let key = Some(SecretString::from("k-123"));
        HttpExtractor::new(HttpExtractorConfig {
            api_key: key,
            timeout: Duration::from_secs(5),
            ..HttpExtractorConfig::new(base, "m")
        })
        .expect("config")
    }

    fn said(content: &str) -> Value {
        json!({"choices": [{"message": {"role": "assistant", "content": content}}]})
    }

    const ASKED: Asked<'_> =
        Asked { before: &[(Role::User, "Hi"), (Role::Assistant, "Where do you live?")], turn: "我住在杭州。" };

    #[tokio::test]
    async fn a64_a_model_answers_with_commands() {
        let commands = json!({"commands": [
            {"op": "create", "type": "FACT", "content": "The user lives in Hangzhou.", "importance": 4, "quote": "我住在杭州。"},
            {"op": "delete", "target": "profile.city", "quote": "我住在杭州。"},
        ]});
        let (base, seen) = provider(vec![("200 OK", said(&commands.to_string()))], Value::clone);
        let extractor = extractor(&base);
        assert!(!format!("{extractor:?}").contains("k-123"));
        let commands = extractor.extract(&ASKED).await.expect("commands");
        assert_eq!((commands[0].op, &commands[0].subject), (Op::Create, &Some(Subject::Record(Kind::Fact))));
        assert_eq!((commands[0].importance, commands[1].op), (Some(4), Op::Delete));
        let seen = seen.lock().expect("lock");
        let (head, body) = &seen[0];
        assert!(head.starts_with("post /v1/chat/completions") && head.contains("authorization: bearer k-123"));
        let roles: Vec<&str> = body["messages"].as_array().expect("a list").iter().filter_map(|m| m["role"].as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        assert_eq!(body["messages"][3]["content"], "我住在杭州。");
        assert_eq!((&body["model"], &body["temperature"]), (&json!("m"), &json!(0.0)));
    }

    #[tokio::test]
    async fn a64_what_is_no_command_is_none() {
        let refused = |text: &str| ExtractError::Refused(text.into());
        let no_list = "the model's answer is no list of commands";
        for (status, answer, error) in [
            ("503 Service Unavailable", json!({}), ExtractError::Unavailable("status 503".into())),
            ("401 Unauthorized", json!({"error": "k-123"}), refused("status 401")),
            ("200 OK", json!([]), refused("the answer has another form")),
            ("200 OK", json!({"choices": []}), refused("the answer has another form")),
            ("200 OK", said("I would remember that."), refused(no_list)),
            ("200 OK", said("{\"commands\": [{\"op\": \"create\", \"sudo\": true}]}"), refused(no_list)),
            (
                "200 OK",
                said("{\"commands\": [{\"op\": \"merge\", \"type\": \"FACT\", \"content\": \"x\"}]}"),
                refused("the model's answer breaks the schema at commands[0].op"),
            ),
        ] {
            let (base, _) = provider(vec![(status, answer)], Value::clone);
            assert_eq!(extractor(&base).extract(&ASKED).await, Err(error), "{status}");
        }
        let (base, _) = provider(vec![("200 OK", said(" {\"commands\": []}\n"))], Value::clone);
        assert_eq!(extractor(&base).extract(&ASKED).await, Ok(vec![]));
    }

    #[test]
    fn settings_are_checked_and_the_conversation_is_bounded() {
        for config in [
            HttpExtractorConfig::new("nonsense", "m"),
            HttpExtractorConfig::new("https://user:pw@host", "m"),
            HttpExtractorConfig::new("https://host", ""),
            HttpExtractorConfig { max_tokens: 0, ..HttpExtractorConfig::new("https://host", "m") },
        ] {
            assert!(matches!(HttpExtractor::new(config), Err(ExtractError::Refused(_))));
        }
        let config = HttpExtractorConfig { max_tokens: 20, ..HttpExtractorConfig::new("https://host", "m") };
        let extractor = HttpExtractor::new(config).expect("config");
        let long = "one two three four five six seven eight nine ten ".repeat(5);
        let before = [(Role::User, long.as_str()), (Role::Assistant, "ok")];
        let messages = extractor.messages(&Asked { before: &before, turn: "我住在杭州。" });
        assert_eq!(messages.len(), 3, "the long one is left out, and what is older than it");
    }
}
