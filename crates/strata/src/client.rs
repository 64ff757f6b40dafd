//! A client for every RPC of the product, by name and with JSON: what `ctl` and `replay` speak. It goes over the wire
//! like any other client, with messages built from the descriptor set, so an RPC that is served can be called the day
//! it is declared.

use crate::cli::CredentialArgs;
use anyhow::{Context as _, Result, anyhow};
use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, EnumDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    SerializeOptions,
};
use serde_json::Value;
use std::time::Duration;
use strata_core::{Fault, limits};
use strata_runtime::channel::{self, EndpointConfig, RpcChannel};
use strata_runtime::tls::{ClientTls, TlsFiles};
use tonic::{
    Request, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    metadata::{Ascii, MetadataValue},
};

/// Calls RPCs by name with JSON requests and answers.
#[derive(Clone)]
pub struct Api {
    channel: RpcChannel,
    pool: DescriptorPool,
    token: Option<MetadataValue<Ascii>>,
    timeout: Duration,
}

/// A channel to a server, as the flags say.
///
/// # Errors
/// When the address is none or a file cannot be used.
pub fn dial(url: &str, credential: &CredentialArgs) -> Result<RpcChannel> {
    let files = TlsFiles {
        certificate: credential.certificate_file.clone(),
        key: credential.private_key_file.clone(),
        authorities: credential.ca_file.clone(),
    };
    let tls = url.starts_with("https://").then(|| ClientTls::from_files(files, "tls")).transpose().map_err(anyhow::Error::new)?;
    channel::connect(&EndpointConfig { tls, ..EndpointConfig::new(url) }).map_err(anyhow::Error::new)
}

/// The API key or token, if one is given.
///
/// # Errors
/// When its file cannot be read.
pub fn secret(credential: &CredentialArgs) -> Result<Option<String>> {
    match (&credential.api_key, &credential.api_key_file) {
        (Some(key), _) => Ok(Some(key.clone())),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
            Ok(Some(text.trim().to_owned()))
        }
        (None, None) => Ok(None),
    }
}

impl Api {
    /// Over a channel, with an optional API key.
    ///
    /// # Errors
    /// When the key holds characters that no header can carry.
    pub fn new(channel: RpcChannel, api_key: Option<&str>, timeout: Duration) -> Result<Self> {
        let pool = DescriptorPool::decode(strata_api::FILE_DESCRIPTOR_SET).context("the built-in descriptor set")?;
        let token = api_key
            .map(|key| {
                format!("Bearer {key}").parse().map_err(|_| anyhow!("the API key holds characters that no header can carry"))
            })
            .transpose()?;
        Ok(Self { channel, pool, token, timeout })
    }

    /// Finds a method by its full name (`strata.longterm.v1.LongTermMemoryService/Recall`), or by any unique ending of
    /// it, such as `Recall`.
    ///
    /// # Errors
    /// When no method has that name, or several do; the message lists them.
    pub fn method(&self, name: &str) -> Result<MethodDescriptor> {
        let wanted = name.trim_start_matches('/');
        let found: Vec<MethodDescriptor> = self
            .methods()
            .filter(|m| {
                let path = path(m);
                path == wanted || path.ends_with(&format!("/{wanted}")) || path.ends_with(&format!(".{wanted}"))
            })
            .collect();
        match found.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(anyhow!("no RPC is called {name}; `strata ctl methods` lists them")),
            many => Err(anyhow!("{name} is not unique: {}", many.iter().map(path).collect::<Vec<_>>().join(", "))),
        }
    }

    /// Every public method, in the order of the protos.
    pub fn methods(&self) -> impl Iterator<Item = MethodDescriptor> {
        let services: Vec<_> = self.pool.services().filter(|s| !s.full_name().starts_with("strata.internal.")).collect();
        services.into_iter().flat_map(|service| service.methods().collect::<Vec<_>>())
    }

    /// Calls a method. Field names may be in either spelling of the JSON mapping; unknown ones are refused.
    ///
    /// # Errors
    /// A [`Fault`] inside the error chain when the server refused; otherwise what is wrong with the request.
    pub async fn call(&self, name: &str, request: Value) -> Result<Value> {
        let method = self.method(name)?;
        if method.is_server_streaming() || method.is_client_streaming() {
            return Err(anyhow!(
                "{} is a stream, which needs a generated client; those of long-term memory are `strata ctl export` and `import`",
                path(&method)
            ));
        }
        let request = message(&method, request)?;
        let mut call = self.request(request.encode_to_vec());
        call.set_timeout(self.timeout);
        let answer = self.client().await?.unary(call, route(&method)?, Bytes).await.map_err(refusal)?;
        json(&method, &answer.into_inner())
    }

    /// Calls a method that answers with a stream. The server's own limit of time holds, since a stream grows with what it
    /// carries.
    ///
    /// # Errors
    /// As [`Api::call`].
    pub async fn download(&self, name: &str, request: Value) -> Result<Answers> {
        let method = self.method(name)?;
        let request = message(&method, request)?;
        let call = self.request(request.encode_to_vec());
        let answers = self.client().await?.server_streaming(call, route(&method)?, Bytes).await.map_err(refusal)?;
        Ok(Answers { method, stream: answers.into_inner() })
    }

    /// An encoded message of a method that takes a stream.
    ///
    /// # Errors
    /// When the method is not known or the message is none of its.
    pub fn encoded(&self, name: &str, request: Value) -> Result<Vec<u8>> {
        Ok(message(&self.method(name)?, request)?.encode_to_vec())
    }

    /// Calls a method that takes a stream of messages made by [`Api::encoded`].
    ///
    /// # Errors
    /// As [`Api::call`].
    pub async fn upload<S>(&self, name: &str, messages: S) -> Result<Value>
    where
        S: futures::Stream<Item = Vec<u8>> + Send + 'static,
    {
        let method = self.method(name)?;
        let call = self.request(messages);
        let answer = self.client().await?.client_streaming(call, route(&method)?, Bytes).await.map_err(refusal)?;
        json(&method, &answer.into_inner())
    }

    async fn client(&self) -> Result<tonic::client::Grpc<RpcChannel>> {
        let mut client = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(limits::MESSAGE_BYTES);
        client.ready().await.map_err(refusal)?;
        Ok(client)
    }

    fn request<T>(&self, body: T) -> Request<T> {
        let mut call = Request::new(body);
        if let Some(token) = &self.token {
            call.metadata_mut().insert("authorization", token.clone());
        }
        call
    }
}

/// The answers of a stream, one after the other.
#[derive(Debug)]
pub struct Answers {
    method: MethodDescriptor,
    stream: tonic::Streaming<Vec<u8>>,
}

impl Answers {
    /// The next answer; none at the end.
    ///
    /// # Errors
    /// A [`Fault`] inside the error chain when the server ended it with one.
    pub async fn next(&mut self) -> Result<Option<Value>> {
        let answer = self.stream.message().await.map_err(refusal)?;
        answer.map(|bytes| json(&self.method, &bytes)).transpose()
    }
}

fn refusal(status: Status) -> anyhow::Error {
    anyhow!(strata_api::error::fault(&status))
}

fn route(method: &MethodDescriptor) -> Result<http::uri::PathAndQuery> {
    Ok(http::uri::PathAndQuery::try_from(format!("/{}", path(method)))?)
}

fn json(method: &MethodDescriptor, bytes: &[u8]) -> Result<Value> {
    let answer = DynamicMessage::decode(method.output(), bytes)?;
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
    Ok(answer.serialize_with_options(serde_json::value::Serializer, &options)?)
}

/// `package.Service/Method`.
pub fn path(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
}

/// The fault inside an error of [`Api::call`], if the server refused.
pub fn refused(error: &anyhow::Error) -> Option<&Fault> {
    error.downcast_ref::<Fault>()
}

fn message(method: &MethodDescriptor, mut request: Value) -> Result<DynamicMessage> {
    full_names(&method.input(), &mut request, "")?;
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    DynamicMessage::deserialize_with_options(method.input(), request, &options)
        .with_context(|| format!("the request is no {}", method.input().full_name()))
}

/// Lets a value of an enum be written without its prefix, in any case: `USER` for `ROLE_USER`. A word that is no value is
/// an error that names the field and the values.
fn full_names(descriptor: &MessageDescriptor, value: &mut Value, within: &str) -> Result<()> {
    let Value::Object(fields) = value else { return Ok(()) };
    for (name, value) in fields {
        let known = descriptor.get_field_by_name(name).or_else(|| descriptor.get_field_by_json_name(name));
        let Some(kind) = known.filter(|field| !field.is_map()).map(|field| field.kind()) else { continue };
        let at = format!("{within}{name}");
        let each =
            if value.is_array() { value.as_array_mut().map_or(&mut [][..], |all| all) } else { std::slice::from_mut(value) };
        for value in each {
            if let Kind::Message(inner) = &kind {
                full_names(inner, value, &format!("{at}."))?;
            } else if let (Kind::Enum(kind), Value::String(word)) = (&kind, value) {
                *word = full_name(kind, word).map_err(|values| anyhow!("{at}: {word:?} is none of {values}"))?;
            }
        }
    }
    Ok(())
}

/// The full name of a value, or the values there are.
fn full_name(kind: &EnumDescriptor, word: &str) -> Result<String, String> {
    let wanted = word.to_ascii_uppercase();
    // By convention the zero value is PREFIX_UNSPECIFIED.
    let zero = kind.default_value();
    let prefix = zero.name().strip_suffix("UNSPECIFIED").unwrap_or_default();
    let full = |name: &str| name == wanted || name.strip_prefix(prefix) == Some(wanted.as_str());
    let found = kind.values().find(|value| full(value.name()));
    found.map(|value| value.name().to_owned()).ok_or_else(|| {
        let names: Vec<String> = kind.values().skip(1).map(|v| v.name().trim_start_matches(prefix).to_owned()).collect();
        names.join(", ")
    })
}

/// Encoded messages in, encoded messages out: the messages themselves are dynamic.
#[derive(Clone, Copy)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;
    fn encode(&mut self, item: Vec<u8>, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        use bytes::BufMut as _;
        dst.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;
    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        use bytes::Buf as _;
        Ok(Some(src.copy_to_bytes(src.remaining()).to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn method(name: &str) -> MethodDescriptor {
        let pool = DescriptorPool::decode(strata_api::FILE_DESCRIPTOR_SET).expect("the descriptor set");
        pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()).find(|m| m.name() == name).expect("a method")
    }

    #[test]
    fn values_of_enums_may_be_written_short() {
        let turns = json!({"turns": [{"role": "user", "text": "hi"}, {"role": "ROLE_TOOL"}]});
        let appended = message(&method("AppendTurns"), turns).expect("understood");
        let role = |at: usize| {
            let turns = appended.get_field_by_name("turns").expect("turns").into_owned();
            turns.as_list().expect("a list")[at]
                .as_message()
                .expect("a turn")
                .get_field_by_name("role")
                .expect("a role")
                .into_owned()
        };
        assert_eq!((role(0).as_enum_number(), role(1).as_enum_number()), (Some(1), Some(4)));
        let filter = json!({"filter": {"kinds": ["fact", "KIND_EVENT"]}});
        assert!(message(&method("Recall"), filter).is_ok());
    }

    #[test]
    fn a_word_that_is_no_value_names_the_field_and_the_values() {
        let wrong = json!({"statement": {"kind": "FACTS"}});
        let error = message(&method("Remember"), wrong).expect_err("no kind").to_string();
        assert!(error.starts_with("statement.kind: \"FACTS\" is none of FACT, PREFERENCE"), "{error}");
    }
}
