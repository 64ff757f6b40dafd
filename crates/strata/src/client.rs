//! A client for every RPC of the product, by name and with JSON: what `ctl` and `replay` speak. It goes over the wire
//! like any other client, with messages built from the descriptor set, so an RPC that is served can be called the day
//! it is declared.

use crate::cli::CredentialArgs;
use anyhow::{Context as _, Result, anyhow, bail};
use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, EnumDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    SerializeOptions,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::{ffi::OsString, path::PathBuf, time::Duration};
use strata_api::codec::Raw;
use strata_core::{Fault, limits};
use strata_runtime::channel::{self, EndpointConfig, RpcChannel, transport_failure};
use strata_runtime::tls::{ClientTls, TlsFiles};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
};

/// Calls RPCs by name with JSON requests and answers.
#[derive(Clone)]
pub struct Api {
    url: String,
    channel: RpcChannel,
    pool: DescriptorPool,
    token: Option<MetadataValue<Ascii>>,
    timeout: Duration,
}

/// Credential and TLS of a client: what the flags say, and for the rest the environment.
#[derive(Debug, Default)]
pub struct Credential {
    token: Option<SecretString>,
    files: TlsFiles,
    /// A flag names a file of TLS.
    tls_asked: bool,
}

impl Credential {
    /// Puts flags and environment together; a flag takes the place of the variables that mean the same.
    ///
    /// # Errors
    /// When two of them exclude each other, one lacks its other half, or the file with the key cannot be read or is empty.
    pub fn resolve(args: &CredentialArgs) -> Result<Self> {
        Self::of(args, |name| std::env::var_os(name))
    }

    fn of(args: &CredentialArgs, env: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        let file = |flag: &Option<PathBuf>, name: &str| flag.clone().or_else(|| env(name).map(PathBuf::from));
        let by_flag = args.api_key.is_some() || args.api_key_file.is_some();
        let (key, key_file) = if by_flag {
            (args.api_key.clone(), args.api_key_file.clone())
        } else {
            let key = env("STRATA_API_KEY").map(OsString::into_string).transpose();
            (key.map_err(|_| anyhow!("STRATA_API_KEY is no text"))?, env("STRATA_API_KEY_FILE").map(PathBuf::from))
        };
        let token = match (key, key_file) {
            (Some(_), Some(_)) if by_flag => bail!("--api-key and --api-key-file: give one of them"),
            (Some(_), Some(_)) => bail!("STRATA_API_KEY and STRATA_API_KEY_FILE: set one of them"),
            (Some(key), None) => Some(key),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
                if text.trim().is_empty() {
                    bail!("{} is empty: it must hold an API key or a token", path.display());
                }
                Some(text)
            }
            (None, None) => None,
        };
        let files = TlsFiles {
            certificate: file(&args.certificate_file, "STRATA_CERTIFICATE_FILE"),
            key: file(&args.private_key_file, "STRATA_PRIVATE_KEY_FILE"),
            authorities: file(&args.ca_file, "STRATA_CA_FILE"),
        };
        match (&files.certificate, &files.key) {
            (Some(_), None) => {
                bail!("--certificate-file needs --private-key-file (STRATA_PRIVATE_KEY_FILE): the key of that certificate")
            }
            (None, Some(_)) => {
                bail!("--private-key-file needs --certificate-file (STRATA_CERTIFICATE_FILE): the certificate of that key")
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
        let tls_asked = args.certificate_file.is_some() || args.private_key_file.is_some() || args.ca_file.is_some();
        Ok(Self { token: token.map(|token| token.trim().to_owned().into()), files, tls_asked })
    }

    /// A channel to a server.
    ///
    /// # Errors
    /// When the address is none or a file cannot be used.
    pub fn dial(&self, url: &str) -> Result<RpcChannel> {
        let secure = url.starts_with("https://");
        if self.tls_asked && !secure {
            bail!("{url} is no https:// address: --ca-file, --certificate-file and --private-key-file are for servers with TLS");
        }
        let tls = secure.then(|| ClientTls::from_files(self.files.clone(), "tls")).transpose().map_err(anyhow::Error::new)?;
        channel::connect(&EndpointConfig { tls, ..EndpointConfig::new(url) }).map_err(anyhow::Error::new)
    }

    /// A client of a server.
    ///
    /// # Errors
    /// As [`Self::dial`]; when the key holds characters that no header can carry.
    pub fn api(&self, url: &str, timeout: Duration) -> Result<Api> {
        Api::new(url, self.dial(url)?, self.token.as_ref().map(ExposeSecret::expose_secret), timeout)
    }
}

impl Api {
    /// Over a channel to `url`, with an optional API key.
    ///
    /// # Errors
    /// When the key holds characters that no header can carry.
    pub fn new(url: &str, channel: RpcChannel, api_key: Option<&str>, timeout: Duration) -> Result<Self> {
        let pool = DescriptorPool::decode(strata_api::FILE_DESCRIPTOR_SET).context("the built-in descriptor set")?;
        let token = api_key
            .map(|key| {
                format!("Bearer {key}").parse().map_err(|_| anyhow!("the API key holds characters that no header can carry"))
            })
            .transpose()?;
        Ok(Self { url: url.to_owned(), channel, pool, token, timeout })
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
        let answer = self.client().await?.unary(call, route(&method)?, Raw).await.map_err(|status| self.refusal(&status))?;
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
        let answers = self.client().await?.server_streaming(call, route(&method)?, Raw).await;
        let answers = answers.map_err(|status| self.refusal(&status))?;
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
        let answer =
            self.client().await?.client_streaming(call, route(&method)?, Raw).await.map_err(|status| self.refusal(&status))?;
        json(&method, &answer.into_inner())
    }

    async fn client(&self) -> Result<tonic::client::Grpc<RpcChannel>> {
        let mut client = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(limits::MESSAGE_BYTES);
        client.ready().await.map_err(|status| self.refusal(&status))?;
        Ok(client)
    }

    /// What the service refused, or that none answers at that address.
    fn refusal(&self, status: &Status) -> anyhow::Error {
        transport_failure(status).map_or_else(|| refusal(status), |_| no_answer(&self.url, status))
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
        let answer = self.stream.message().await.map_err(|status| refusal(&status))?;
        answer.map(|bytes| json(&self.method, &bytes)).transpose()
    }
}

fn refusal(status: &Status) -> anyhow::Error {
    anyhow!(strata_api::error::fault(status))
}

/// That no server answers at an address, and what to look at: whether one runs there, and the scheme.
pub fn no_answer(url: &str, status: &Status) -> anyhow::Error {
    let secure = url.starts_with("https:");
    let (why, other) = match status.message() {
        handshake if handshake.contains("TLS handshake") => (handshake, "one without TLS is http://"),
        _ if secure => ("is a server with TLS running there?", "one without TLS is http://"),
        _ => ("is a server running there? `strata serve` starts one", "one with TLS is https://"),
    };
    anyhow!("{url} does not answer: {why}; {other}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What comes of flags and variables: the token, or what is wrong.
    fn resolved(flags: &[&str], variables: &[(&str, &str)]) -> Result<String, String> {
        use clap::Parser as _;
        let all = ["strata", "ctl", "status"].iter().chain(flags);
        let cli = crate::cli::Cli::try_parse_from(all).map_err(|error| error.to_string())?;
        let crate::cli::Command::Ctl(ctl) = cli.command else { unreachable!("ctl was asked for") };
        let env = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        let credential = Credential::of(&ctl.server.credential, env).map_err(|error| format!("{error:#}"))?;
        Ok(credential.token.as_ref().map_or("none", ExposeSecret::expose_secret).to_owned())
    }

    #[test]
    fn each_combination_of_credentials_is_taken_or_says_what_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let (kept, empty) = (file("key", "of-the-file\n"), file("empty", "\n"));
        let absent = folder.path().join("absent").display().to_string();
        let key = ["--api-key", "of-the-flag"];
        let (in_file, in_env) = (["--api-key-file", kept.as_str()], ("STRATA_API_KEY", "of-the-env"));
        let (certificate, private) = (["--certificate-file", "c"], ["--private-key-file", "k"]);
        for (flags, variables, wanted) in [
            (&[][..], &[][..], Ok("none")),
            (&key, &[], Ok("of-the-flag")),
            (&in_file, &[], Ok("of-the-file")),
            (&[], &[in_env], Ok("of-the-env")),
            (&[], &[("STRATA_API_KEY_FILE", kept.as_str())], Ok("of-the-file")),
            // A flag overrides the variable of its sibling; an empty variable is none.
            (&key, &[("STRATA_API_KEY_FILE", kept.as_str())], Ok("of-the-flag")),
            (&in_file, &[in_env], Ok("of-the-file")),
            (&[], &[("STRATA_API_KEY", ""), ("STRATA_API_KEY_FILE", kept.as_str())], Ok("of-the-file")),
            (&[key, in_file].concat(), &[], Err("--api-key and --api-key-file")),
            (&[], &[in_env, ("STRATA_API_KEY_FILE", kept.as_str())], Err("STRATA_API_KEY and STRATA_API_KEY_FILE")),
            (&["--api-key-file", absent.as_str()], &[], Err("cannot be read")),
            (&["--api-key-file", empty.as_str()], &[], Err("is empty")),
            (&certificate, &[], Err("--private-key-file")),
            (&private, &[], Err("--certificate-file")),
            (&[certificate, private].concat(), &[], Ok("none")),
            (&certificate, &[("STRATA_PRIVATE_KEY_FILE", "k")], Ok("none")),
            (&[], &[("STRATA_CERTIFICATE_FILE", "c")], Err("STRATA_PRIVATE_KEY_FILE")),
            (&[], &[("STRATA_PRIVATE_KEY_FILE", "k")], Err("STRATA_CERTIFICATE_FILE")),
            (&["--ca-file", "ca"], &[], Ok("none")),
        ] {
            match (resolved(flags, variables), wanted) {
                (Ok(token), Ok(wanted)) => assert_eq!(token, wanted, "{flags:?} {variables:?}"),
                (Err(error), Err(says)) => assert!(error.contains(says), "{flags:?} {variables:?}: {error}"),
                (other, _) => panic!("{flags:?} {variables:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn files_of_tls_are_for_addresses_of_tls() {
        let credential = |flag: bool| Credential { tls_asked: flag, ..Credential::default() };
        assert!(credential(true).dial("http://127.0.0.1:1").is_err_and(|error| error.to_string().contains("https://")));
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let _entered = runtime.enter();
        credential(false).dial("http://127.0.0.1:1").expect("a variable may be there for other servers");
    }

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
