//! Several replicas of a role behind one channel: each call goes to the one that serves its key (rule W10), and to the next in
//! the key's order while that one cannot be reached or does not serve.
//!
//! A call is sent again only when nothing was done: it could not be sent, or was refused as not serving. Any other failure is the
//! caller's to repeat. Routers that know different replicas, or see others as dead, may send the same key to different ones: which
//! of them may answer is decided where the state is, never here.

use crate::RpcChannel;
use crate::channel::{self, transport_failure};
use crate::ports::pause;
use crate::signing::Signer;
use crate::task::TaskGroup;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strata_core::policy::placement::rendezvous;
use strata_core::{Fault, Reason};
use tonic::Status;
use tonic::body::Body;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower::util::BoxCloneSyncService;

/// Between two looks at a replica's health.
const PROBE: Duration = Duration::from_millis(500);
/// Longest wait for what it says.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a call goes; in the extensions of the request. A call without goes where the empty key goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// To the replica that serves what these words name, such as tenant and task.
    Key(Vec<String>),
    /// To this replica alone, by its place in the list.
    Member(usize),
}

/// One replica.
struct Member {
    /// The same to every router: its URL.
    name: String,
    channel: RpcChannel,
    up: AtomicBool,
}

impl Member {
    fn note(&self, up: bool) {
        if self.up.swap(up, Ordering::Relaxed) != up {
            if up {
                tracing::info!(replica = self.name, "the replica serves");
            } else {
                tracing::warn!(replica = self.name, "the replica does not serve; its calls go to others");
            }
        }
    }
}

/// A channel over all `members`, each with its name and its channel. Calls are signed, anew for each attempt. `service` is the full
/// name whose health tells whether a replica serves; it is asked in `tasks`.
#[must_use]
pub fn placed(members: Vec<(String, RpcChannel)>, service: &'static str, signer: &Signer, tasks: &TaskGroup) -> RpcChannel {
    let members: Arc<[Arc<Member>]> = members
        .into_iter()
        .map(|(name, channel)| {
            let member = Arc::new(Member { name, channel: signer.sign(channel.clone()), up: AtomicBool::new(true) });
            let (probed, token) = (Arc::clone(&member), tasks.token().clone());
            tasks.spawn("replica health", async move {
                tokio::select! {
                    () = watch(&probed, channel, service) => {}
                    () = token.cancelled() => {}
                }
            });
            member
        })
        .collect();
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        let members = Arc::clone(&members);
        async move { send(&members, request).await }
    }))
}

async fn watch(member: &Member, channel: RpcChannel, service: &str) {
    let mut client = HealthClient::new(channel);
    loop {
        let asked = client.check(HealthCheckRequest { service: service.to_owned() });
        let answer = tokio::time::timeout(PROBE_TIMEOUT, asked).await;
        member.note(matches!(answer, Ok(Ok(answer)) if answer.get_ref().status() == ServingStatus::Serving));
        pause(PROBE).await;
    }
}

/// Members in the order in which they are tried.
fn order(members: &[Arc<Member>], place: Option<&Place>) -> Vec<usize> {
    let words = match place {
        Some(Place::Member(member)) => return vec![*member],
        Some(Place::Key(words)) => words.iter().map(String::as_str).collect(),
        None => Vec::new(),
    };
    let mut order = rendezvous(&words, members.iter().map(|member| member.name.as_str()));
    // Stable: those that are down last, when all others were tried.
    order.sort_by_key(|at| members.get(*at).is_none_or(|member| !member.up.load(Ordering::Relaxed)));
    order
}

async fn send(members: &[Arc<Member>], request: Request<Body>) -> Result<Response<Body>, Status> {
    let order = order(members, request.extensions().get());
    let (head, body) = request.into_parts();
    // Bounded by the client that made it.
    let body = body.collect().await?.to_bytes();
    let mut answer = Err(crate::layer::status(Fault::unavailable("replicas")));
    for member in order.iter().filter_map(|at| members.get(*at)) {
        let body = Body::new(Full::new(body.clone()));
        answer = channel::call(member.channel.clone(), Request::from_parts(head.clone(), body)).await;
        if !is_undone(&answer) {
            break;
        }
        member.note(false);
    }
    answer
}

/// Whether the call certainly had no effect and another replica may have one.
fn is_undone(answer: &Result<Response<Body>, Status>) -> bool {
    match answer {
        Ok(response) => Status::from_header_map(response.headers())
            .is_some_and(|status| strata_api::error::fault(&status).reason == Reason::NotServing),
        Err(status) => transport_failure(status).is_some_and(|failed| !failed.sent),
    }
}
