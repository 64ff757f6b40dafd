//! An agent in Rust: what the user says becomes a turn, then a fact, then context for a model.
//!
//! ```sh
//! cargo run -p strata-api --example agent          # against STRATA_SERVER, default http://127.0.0.1:7420
//! ```
//!
//! `STRATA_API_KEY` is an API key or a JWT. For an `https://` server `STRATA_CA_FILE` is the PEM file of the authority that signed
//! its certificate, `STRATA_CERTIFICATE_FILE` and `STRATA_PRIVATE_KEY_FILE` are our own for mutual TLS.
#![expect(clippy::print_stdout, reason = "it shows what happens")]
#![expect(clippy::disallowed_methods, reason = "a program outside of the services has its own clock and ids")]

use std::error::Error;
use std::time::Duration;
use strata_api::{
    longterm::v1::{
        Kind, RememberRequest, Source, SourceRef, Statement, Trigger, TurnRef,
        long_term_memory_service_client::LongTermMemoryServiceClient, source_ref,
    },
    router::v1::{AssembleContextRequest, router_service_client::RouterServiceClient},
    session::v1::{AppendTurnsRequest, NewTurn, Role, session_memory_service_client::SessionMemoryServiceClient},
};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Response, Status};

/// Time for one attempt.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts of a call, the first included.
const ATTEMPTS: u32 = 4;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

async fn connect() -> Result<Channel> {
    let server = variable("STRATA_SERVER").unwrap_or_else(|| "http://127.0.0.1:7420".into());
    let mut endpoint = Endpoint::from_shared(server.clone())?.connect_timeout(TIMEOUT);
    if server.starts_with("https://") {
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = variable("STRATA_CA_FILE") {
            tls = tls.ca_certificate(Certificate::from_pem(std::fs::read(ca)?));
        }
        if let (Some(certificate), Some(key)) = (variable("STRATA_CERTIFICATE_FILE"), variable("STRATA_PRIVATE_KEY_FILE")) {
            tls = tls.identity(Identity::from_pem(std::fs::read(certificate)?, std::fs::read(key)?));
        }
        endpoint = endpoint.tls_config(tls)?;
    }
    Ok(endpoint.connect().await?)
}

/// Sends a request until it is answered or fails for good. Every request here has a request id or writes nothing, so that what
/// the reason calls safe is safe.
async fn call<Q: Clone, A, F>(request: Q, mut send: impl FnMut(Request<Q>) -> F) -> Result<A>
where
    F: Future<Output = std::result::Result<Response<A>, Status>>,
{
    let token = variable("STRATA_API_KEY").map(|key| format!("Bearer {key}").parse::<MetadataValue<Ascii>>()).transpose()?;
    let mut attempt = 1;
    loop {
        let mut message = Request::new(request.clone());
        message.set_timeout(TIMEOUT);
        if let Some(token) = &token {
            message.metadata_mut().insert("authorization", token.clone());
        }
        let fault = match send(message).await {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) => strata_api::error::fault(&status),
        };
        if attempt == ATTEMPTS || !fault.reason.retry_safe() {
            return Err(fault.into());
        }
        let grown = 50 << attempt;
        tokio::time::sleep(Duration::from_millis(fault.retry_after_ms.unwrap_or_default().max(grown))).await;
        attempt += 1;
    }
}

fn request_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

#[tokio::main]
async fn main() -> Result<()> {
    let channel = connect().await?;
    let sessions = SessionMemoryServiceClient::new(channel.clone());
    let memories = LongTermMemoryServiceClient::new(channel.clone());
    let router = RouterServiceClient::new(channel);

    let user_id = format!("rust-{}", request_id());
    let said = "From now on, my cost centre is A-100.";
    let turn = NewTurn { role: Role::User.into(), text: said.into(), ..NewTurn::default() };
    let append = AppendTurnsRequest {
        user_id: user_id.clone(),
        session_id: "monday".into(),
        turns: vec![turn],
        request_id: request_id(),
        ..AppendTurnsRequest::default()
    };
    let appended = call(append, |request| {
        let mut sessions = sessions.clone();
        async move { sessions.append_turns(request).await }
    })
    .await?;

    let place = TurnRef { session_id: "monday".into(), seq: appended.seqs.first().copied().ok_or("no turn was stored")? };
    let statement = Statement {
        kind: Kind::Fact.into(),
        key: "work.cost_centre".into(),
        content: said.into(),
        source: Source::UserStatement.into(),
        source_quote: said.into(),
        source_ref: Some(SourceRef { kind: Some(source_ref::Kind::Turn(place)) }),
        trigger: Trigger::UserRequest.into(),
        ..Statement::default()
    };
    let remember = RememberRequest {
        user_id: user_id.clone(),
        statement: Some(statement),
        request_id: request_id(),
        ..RememberRequest::default()
    };
    let remembered = call(remember, |request| {
        let mut memories = memories.clone();
        async move { memories.remember(request).await }
    })
    .await?;
    for finding in remembered.result.unwrap_or_default().findings {
        println!("{} {}: {}", finding.rule, finding.outcome, finding.because);
    }

    let ask = AssembleContextRequest { user_id, input: "Which cost centre is mine?".into(), ..AssembleContextRequest::default() };
    let context = call(ask, |request| {
        let mut router = router.clone();
        async move { router.assemble_context(request).await }
    })
    .await?;
    println!("{}", context.text);
    if context.text.contains("A-100") { Ok(()) } else { Err("the context does not hold the cost centre".into()) }
}
