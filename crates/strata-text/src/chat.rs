//! Asks a chat model for JSON behind `POST {base}/chat/completions`, as OpenAI, vLLM, Ollama and others serve it.

use crate::http::{Failure, Provider};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The client.
#[derive(Debug)]
pub(crate) struct Chat {
    provider: Provider,
    model: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Message<'a> {
    pub(crate) role: &'static str,
    pub(crate) content: &'a str,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    messages: &'a [Message<'a>],
    temperature: f32,
    response_format: Format,
}

#[derive(Serialize)]
struct Format {
    r#type: &'static str,
}

#[derive(Deserialize)]
struct Answer {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Said,
}

#[derive(Deserialize)]
struct Said {
    content: String,
}

impl Chat {
    /// Checks what it is given; calls nobody.
    ///
    /// # Errors
    /// What is out of range.
    pub(crate) fn new(base: &str, key: Option<SecretString>, model: &str, timeout: Duration) -> Result<Self, &'static str> {
        if timeout.is_zero() || model.is_empty() {
            return Err("timeout is above 0, the model has a name");
        }
        Ok(Self { provider: Provider::new(base, "chat/completions", key, timeout)?, model: model.to_owned() })
    }

    /// What the model says, of at most `most` bytes of answer: JSON, if it does as it is told.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn ask(&self, messages: &[Message<'_>], most: usize) -> Result<String, Failure> {
        let format = Format { r#type: "json_object" };
        let body = Request { model: &self.model, messages, temperature: 0.0, response_format: format };
        let answer: Answer = self.provider.post(&body, most).await?;
        let said = answer.choices.into_iter().next().ok_or_else(|| Failure::refused("the answer has another form"))?;
        Ok(unfenced(&said.message.content).to_owned())
    }
}

/// JSON without the fence that some models put around it.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    inner.strip_prefix("json").unwrap_or(inner).trim()
}
