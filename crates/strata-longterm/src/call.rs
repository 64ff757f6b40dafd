//! What every method of the public service stands on: the service over the role's state, one verified call, the transaction that
//! runs once per request id, and what answers are made of.

use crate::intake::{self, Submitter};
use crate::metadata::Visible;
use crate::metadata::insert::Passed;
use crate::metadata::ledger::{self, RequestKey};
use crate::scope::OwnerScope;
use crate::shown::wire;
use crate::state::State;
use crate::write::{Context, Outcome, Written};
use prost::Message;
use rusqlite::Connection;
use std::sync::Arc;
use strata_api::convert::common::{self, wire_finding};
use strata_api::convert::longterm as convert;
use strata_api::error;
use strata_api::longterm::v1 as pb;
use strata_core::limits::{self, Page};
use strata_core::policy::gate::{Door, GateSettings};
use strata_core::{Fault, MemoryId, Reason, Timestamp};
use strata_runtime::Claims;
use strata_runtime::task::detached_write;
use tonic::{Request, Response, Status as GrpcStatus};

/// Bytes of records in one answer: below the largest message, with room for what goes around them (case C087).
pub(crate) const ANSWER_BYTES: usize = limits::MESSAGE_BYTES - 256 * 1024;

/// The service.
#[derive(Clone, Debug)]
pub struct Service {
    pub(crate) state: Arc<State>,
}

impl Service {
    /// Over the role's state.
    #[must_use]
    pub const fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

/// One verified call.
pub(crate) struct Call {
    pub(crate) claims: Claims,
    pub(crate) scope: OwnerScope,
    pub(crate) now: Timestamp,
    pub(crate) settings: GateSettings,
}

impl Call {
    pub(crate) fn read<T>(state: &State, request: &Request<T>, user_id: &str, agent_id: &str) -> Result<Self, Fault> {
        let claims = Claims::of(request)?.clone();
        let scope = OwnerScope::of(&claims, user_id, agent_id)?;
        Ok(Self { scope, now: state.ports.clock.now(), settings: state.settings.load().gate.clone(), claims })
    }

    pub(crate) fn write<T>(state: &State, request: &Request<T>, user_id: &str, agent_id: &str) -> Result<Self, Fault> {
        Self::writing(state, Claims::of(request)?.clone(), user_id, agent_id)
    }

    /// [`Call::write`] for a stream, whose first message names the owner.
    pub(crate) fn writing(state: &State, claims: Claims, user_id: &str, agent_id: &str) -> Result<Self, Fault> {
        let scope = OwnerScope::writing(&claims, user_id, agent_id)?;
        Ok(Self { scope, now: state.ports.clock.now(), settings: state.settings.load().gate.clone(), claims })
    }

    /// The request's key, when it carries an id.
    pub(crate) fn key(&self, method: &'static str, request_id: &str, body: &impl Message) -> Result<Option<RequestKey>, Fault> {
        let Some(request_id) = common::request_id(request_id)? else { return Ok(None) };
        let mut hasher = blake3::Hasher::new();
        let [tenant, user, agent] = self.scope.binding();
        hasher.update(strata_core::id::join(&[method, tenant, user, agent]).as_bytes());
        hasher.update(&body.encode_to_vec());
        Ok(Some(RequestKey { request_id, method, body: *hasher.finalize().as_bytes() }))
    }
}

impl State {
    /// Runs a write in one transaction, once per request id; `answer` says whether it is to be remembered.
    pub(crate) async fn once<T, F>(&self, call: &Call, key: Option<RequestKey>, work: F) -> Result<T, Fault>
    where
        T: Message + Default + Send + 'static,
        F: FnOnce(&Connection, &Context<'_>) -> Result<(T, bool), Fault> + Send + 'static,
    {
        let (scope, actor, settings) = (call.scope.clone(), call.claims.caller.id.clone(), call.settings.clone());
        let (tombstones, now) = (self.tombstones.clone(), call.now);
        let quota = self.quotas.load().of(&scope.owner().tenant);
        let (database, relay) = (self.database.clone(), self.relay.clone());
        // A caller that goes away takes neither the write nor the news of it along: an outbox nobody is told of would grow
        // old and push writes back.
        detached_write(async move {
            let answer = database
                .write(move |db| {
                    if let Some(answer) = replayed(db, &scope, key.as_ref(), now)? {
                        return Ok(answer);
                    }
                    let context =
                        Context { scope: &scope, actor: &actor, settings: &settings, tombstones: &tombstones, quota, now };
                    let (answer, remember) = work(db, &context)?;
                    if let (true, Some(key), Some(visible)) = (remember, &key, Visible::of(db, &scope)?) {
                        ledger::remember_answer(db, visible.user_id, key, &answer.encode_to_vec(), now)?;
                    }
                    Ok::<_, Fault>(answer)
                })
                .await;
            relay.wake();
            answer
        })
        .await
    }

    /// The answer of a request that was served before: looked for before anything else, so that a retry is answered alike
    /// whatever has changed since.
    pub(crate) async fn replay<T: Message + Default + Send + 'static>(
        &self,
        call: &Call,
        key: Option<&RequestKey>,
    ) -> Result<Option<T>, Fault> {
        let Some(key) = key.cloned() else { return Ok(None) };
        let (scope, now) = (call.scope.clone(), call.now);
        self.database.read(move |db| replayed(db, &scope, Some(&key), now)).await
    }
}

fn replayed<T: Message + Default>(
    db: &Connection,
    scope: &OwnerScope,
    key: Option<&RequestKey>,
    now: Timestamp,
) -> Result<Option<T>, Fault> {
    let Some(key) = key else { return Ok(None) };
    let Some(visible) = Visible::of(db, scope)? else { return Ok(None) };
    let Some(bytes) = ledger::answered(db, visible.user_id, key, now)? else { return Ok(None) };
    let damaged = |_| Fault::new(Reason::Internal, "a stored answer is damaged");
    T::decode(bytes.as_slice()).map(Some).map_err(damaged)
}

/// An outcome on the wire.
pub(crate) const fn wire_outcome(outcome: Outcome) -> pb::Outcome {
    match outcome {
        Outcome::Active => pb::Outcome::Active,
        Outcome::Candidate => pb::Outcome::Candidate,
        Outcome::Disputed => pb::Outcome::Disputed,
        Outcome::NeedsConsent => pb::Outcome::NeedsConsent,
        Outcome::EvidenceAdded => pb::Outcome::EvidenceAdded,
        Outcome::History => pb::Outcome::History,
        Outcome::Updated => pb::Outcome::Updated,
    }
}

/// A write's result on the wire.
pub(crate) fn wire_result(db: &Connection, written: &Written, challenge: String) -> Result<pb::WriteResult, Fault> {
    let id = |id: Option<MemoryId>| id.map(|id| id.to_string()).unwrap_or_default();
    Ok(pb::WriteResult {
        outcome: wire_outcome(written.outcome).into(),
        memory: written.record.as_ref().map(|found| wire(db, found)).transpose()?,
        findings: written.findings.iter().map(wire_finding).collect(),
        superseded: id(written.superseded),
        conflicts_with: id(written.conflicts_with),
        consent_challenge: if written.outcome == Outcome::NeedsConsent { challenge } else { String::new() },
        revision: revision(written.revision),
    })
}

/// The token of a revision, for `at_least_as_fresh`.
pub(crate) fn revision(revision: u64) -> String {
    revision.to_string()
}

pub(crate) fn finish<T>(answer: Result<T, Fault>) -> Result<Response<T>, GrpcStatus> {
    answer.map(Response::new).map_err(error::status)
}

/// A page under construction: as many rows as were asked for, as long as the answer fits into one message.
pub(crate) struct Pager {
    pub(crate) page: Page,
    bytes: usize,
}

impl Pager {
    pub(crate) fn new(asked: i32) -> Result<Self, Fault> {
        Ok(Self { page: limits::page("page_size", asked, limits::PAGE, limits::PAGE_MAX)?, bytes: 0 })
    }

    /// Rows to read: one more than the page, to know whether there is a next one.
    pub(crate) const fn rows(&self) -> u32 {
        self.page.size + 1
    }

    /// Takes the rows that fit, converted; answers them and the last one taken when more are left.
    pub(crate) fn fill<R, M: Message>(
        &mut self,
        rows: Vec<R>,
        mut to_wire: impl FnMut(&R) -> Result<M, Fault>,
    ) -> Result<(Vec<M>, Option<R>), Fault> {
        let (mut out, mut last) = (Vec::new(), None);
        for row in rows {
            if out.len() >= self.page.size as usize {
                return Ok((out, last));
            }
            let message = to_wire(&row)?;
            self.bytes += message.encoded_len() + 16;
            if self.bytes > ANSWER_BYTES && !out.is_empty() {
                return Ok((out, last));
            }
            out.push(message);
            last = Some(row);
        }
        Ok((out, None))
    }
}

/// What passed the gate, with the challenge that a want of consent is answered with.
pub(crate) struct Submitted {
    pub(crate) first: Passed,
    pub(crate) others: Vec<Passed>,
    pub(crate) challenge: String,
}

/// Conversion, language work and the gate for one statement.
pub(crate) fn submit(
    state: &State,
    call: &Call,
    door: Door,
    statement: Option<&pb::Statement>,
    request_id: Option<uuid::Uuid>,
) -> Result<Submitted, Fault> {
    let statement = convert::statement(statement, call.now)?;
    let attestation = convert::attestation(&call.claims.attestation)?;
    let challenge = state.challenges.mint(call.scope.owner(), &statement);
    let roles = &call.claims.caller.roles;
    let by = Submitter { scope: &call.scope, roles, attestation, door, request_id, now: call.now };
    let (first, others) = intake::submit(state, &call.settings, &by, statement)?;
    Ok(Submitted { first, others, challenge })
}

/// The version a caller saw; none when it asks for no check.
pub(crate) fn etag(text: &str) -> Result<Option<u64>, Fault> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| Fault::field("etag", "is not an etag of this service")),
    }
}

pub(crate) fn binding(scope: &OwnerScope, method: &str, filter: &str) -> Vec<String> {
    let mut parts: Vec<String> = scope.binding().iter().map(|part| (*part).to_owned()).collect();
    parts.extend([method.to_owned(), filter.to_owned()]);
    parts
}

pub(crate) fn parts(binding: &[String]) -> Vec<&str> {
    binding.iter().map(String::as_str).collect()
}

pub(crate) fn asked_too_much(asked: i32) -> bool {
    u32::try_from(asked).is_ok_and(|asked| asked > limits::PAGE_MAX)
}
