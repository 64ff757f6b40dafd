//! Export and import as streams. An export reads a few rows at a time and holds its header true: when the memory changes
//! meanwhile, the stream ends with an error instead of a wrong count. An import is read whole, validated whole, judged line
//! by line, and then written in one transaction.

use crate::intake::{self, Submitter};
use crate::metadata::{Visible, ledger, owner, transfer};
use crate::scope::OwnerScope;
use crate::service::{Call, Service, revision};
use crate::state::State;
use crate::write::{self, Admitted, Landed};
use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use strata_api::convert::common::{self, wire_finding};
use strata_api::convert::{longterm as convert, transfer as wire};
use strata_api::error;
use strata_api::longterm::v1 as pb;
use strata_api::longterm::v1::export_line::Part;
use strata_core::policy::gate::{Attestation, Door, Seals};
use strata_core::record::Status;
use strata_core::rule::Finding;
use strata_core::{Fault, MemoryId, Reason, Timestamp, limits};
use strata_runtime::Claims;
use tonic::{Request, Response, Status as GrpcStatus, Streaming};
use uuid::Uuid;

/// Lines of an export as they are sent.
pub type Lines = BoxStream<'static, Result<pb::ExportMemoriesResponse, GrpcStatus>>;

/// An export under way.
struct Export {
    state: Arc<State>,
    scope: OwnerScope,
    statuses: &'static [Status],
    /// The instant it shows.
    now: Timestamp,
    /// The user's revision at the header: none for a user nothing is known of.
    revision: Option<u64>,
    after: Option<MemoryId>,
}

impl Export {
    fn changed() -> Fault {
        Fault::new(Reason::VersionMismatch, "the memory changed while it was exported; export again")
    }

    /// Runs a read in a snapshot of the revision the header speaks of.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&rusqlite::Connection, &Visible) -> Result<T, Fault> + Send + 'static,
    ) -> Result<Option<T>, Fault> {
        let Some(expected) = self.revision else { return Ok(None) };
        self.state
            .read(&self.scope, move |db, visible| {
                if visible.revision != expected {
                    return Err(Self::changed());
                }
                read(db, visible)
            })
            .await
    }

    async fn header(&mut self, asked: &pb::ExportMemoriesRequest, scope: pb::ExportScope) -> Result<pb::ExportHeader, Fault> {
        let (statuses, now) = (self.statuses, self.now);
        let found = self
            .state
            .read(&self.scope, move |db, visible| Ok((visible.revision, transfer::counts(db, visible, statuses, now)?)))
            .await?;
        let (revision, counts) = found.map_or((None, BTreeMap::new()), |(revision, counts)| (Some(revision), counts));
        self.revision = revision;
        let owner = self.scope.owner();
        Ok(pb::ExportHeader {
            format: wire::FORMAT,
            tenant_id: owner.tenant.as_str().to_owned(),
            user_id: owner.user.as_str().to_owned(),
            agent_id: asked.agent_id.clone(),
            scope: scope.into(),
            embedding_model: self.state.relay.model(),
            lines: counts.values().sum(),
            counts,
        })
    }

    fn signed(&self, part: Part) -> pb::ExportMemoriesResponse {
        let tenant = &self.scope.owner().tenant;
        let signature = self.state.seals.sign(tenant, wire::kind_of(&part), &wire::signed_bytes(&part));
        pb::ExportMemoriesResponse { line: Some(pb::ExportLine { part: Some(part), signature }) }
    }

    /// The next lines; none at the end.
    async fn next(&mut self) -> Result<Option<Vec<pb::ExportMemoriesResponse>>, Fault> {
        let (statuses, after, now) = (self.statuses, self.after, self.now);
        let page = self.read(move |db, visible| transfer::page(db, visible, statuses, after, limits::EXPORT_ROWS, now)).await?;
        let Some(page) = page.filter(|page| !page.is_empty()) else { return Ok(None) };
        self.after = page.last().map(|carried| carried.record.memory_id);
        Ok(Some(page.iter().map(|carried| self.signed(Part::Memory(wire::wire_carried(carried)))).collect()))
    }
}

/// An import, read to its end.
struct Import {
    call: Call,
    seals: Seals,
    dry_run: bool,
    remap: bool,
    request_id: String,
    /// Lines in order; the first is the header.
    lines: Vec<pb::ExportLine>,
    /// Digest of all messages, for the request id.
    digest: [u8; 32],
}

impl Service {
    pub(crate) async fn export_memories(&self, request: Request<pb::ExportMemoriesRequest>) -> Result<Response<Lines>, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let (scope, statuses) = wire::scope(r.scope)?;
        let mut export =
            Export { state: Arc::clone(state), scope: call.scope, statuses, now: call.now, revision: None, after: None };
        let header = export.header(r, scope).await?;
        let header = pb::ExportMemoriesResponse {
            line: Some(pb::ExportLine { part: Some(Part::Header(header)), signature: String::new() }),
        };
        let rest = futures::stream::try_unfold(export, |mut export| async move {
            let lines = export.next().await.map_err(error::status)?;
            Ok::<_, GrpcStatus>(lines.map(|lines| (futures::stream::iter(lines.into_iter().map(Ok)), export)))
        });
        let all = futures::StreamExt::chain(futures::stream::once(async { Ok(header) }), rest.try_flatten());
        Ok(Response::new(Box::pin(all)))
    }

    pub(crate) async fn import_memories(
        &self,
        request: Request<Streaming<pb::ImportMemoriesRequest>>,
    ) -> Result<pb::ImportMemoriesResponse, Fault> {
        let state = &self.state;
        let claims = Claims::of(&request)?.clone();
        let import = received(state, claims, request.into_inner()).await?;
        let key = match common::request_id(&import.request_id)? {
            Some(request_id) => Some(ledger::RequestKey { request_id, method: "ImportMemories", body: import.digest }),
            None => None,
        };
        if let Some(answer) = state.replay(&import.call, key.as_ref()).await? {
            return Ok(answer);
        }
        let staged = stage(&import)?;
        let lines = import.lines.len() as u64;
        let mut out = pb::ImportMemoriesResponse { lines, dry_run: import.dry_run, ..Default::default() };
        let mut admitted = Vec::with_capacity(staged.len());
        for staged in staged {
            let number = staged.number;
            match admit(state, &import.call, staged) {
                Ok(line) => admitted.push((number, line)),
                Err(fault) if fault.reason == Reason::Internal => return Err(fault),
                Err(fault) => refuse(&mut out, number, &fault, &[]),
            }
            // Judging is language work: others get their turn between two lines.
            tokio::task::yield_now().await;
        }
        if import.dry_run {
            return Ok(out);
        }
        let registry = Arc::clone(&state.registry);
        state
            .once(&import.call, key, move |db, context| {
                ledger::check_outbox(db, context.now)?;
                for (number, line) in &admitted {
                    match write::land(db, context, &registry, &line.scope, &line.what)? {
                        Landed::Added => out.added += 1,
                        Landed::Merged => out.merged += 1,
                        Landed::Known => out.known += 1,
                        Landed::Refused(fault, findings) => refuse(&mut out, *number, &fault, &findings),
                    }
                }
                out.refusals.sort_by_key(|refusal| refusal.line);
                let stored = owner::ensure(db, context.scope)?;
                let changed = out.added + out.merged > 0;
                let at = if changed {
                    owner::next_revision(db, stored.user_id)?
                } else {
                    Visible::of(db, context.scope)?.map_or(0, |visible| visible.revision)
                };
                out.revision = revision(at);
                Ok((out, true))
            })
            .await
    }
}

/// Reads the stream to its end: its first message says what is to be done.
async fn received(state: &State, claims: Claims, mut stream: Streaming<pb::ImportMemoriesRequest>) -> Result<Import, Fault> {
    let broken = |status: GrpcStatus| error::fault(&status);
    let first = stream.message().await.map_err(broken)?.ok_or_else(|| Fault::field("line", "is required"))?;
    let call = Call::writing(state, claims, &first.user_id, &first.agent_id)?;
    let (dry_run, remap, request_id) = (first.dry_run, first.remap, first.request_id.clone());
    let mut hasher = blake3::Hasher::new();
    hasher.update(strata_core::id::join(&call.scope.binding()).as_bytes());
    let mut lines = Vec::new();
    let mut next = Some(first);
    while let Some(message) = next {
        let bytes = message.encode_to_vec();
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(&bytes);
        lines.extend(message.line);
        if lines.len() > limits::IMPORT_LINES {
            return Err(Fault::limit("line", limits::IMPORT_LINES, "lines"));
        }
        next = stream.message().await.map_err(broken)?;
    }
    Ok(Import { call, seals: state.seals.clone(), dry_run, remap, request_id, lines, digest: *hasher.finalize().as_bytes() })
}

/// A line, understood.
struct Staged {
    number: u64,
    scope: OwnerScope,
    what: What,
}

enum What {
    Carried(Box<wire::Carried>),
    /// With the request id of the line.
    Stated(Box<pb::Memory>, Uuid),
}

/// A line that passed the gate, and the level it goes to.
struct Line {
    scope: OwnerScope,
    what: Admitted,
}

/// Checks the whole file before anything of it is judged: a header that is true, and lines that can be read.
fn stage(import: &Import) -> Result<Vec<Staged>, Fault> {
    let header = match import.lines.first().and_then(|line| line.part.as_ref()) {
        Some(Part::Header(header)) => header,
        Some(Part::Memory(_)) | None => {
            return Err(Fault::field("lines[1].header", "is required: the first line says what follows"));
        }
    };
    check_header(import, header)?;
    let mut violations = Vec::new();
    let mut out = Vec::with_capacity(import.lines.len());
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (line, number) in import.lines.iter().zip(1_u64..).skip(1) {
        match staged(import, line, number) {
            Ok(staged) => {
                if let Some(Part::Memory(exported)) = &line.part {
                    let status = exported.memory.as_ref().and_then(|m| convert::status("status", m.status).ok());
                    *counts.entry(status.map_or("", Status::name)).or_default() += 1;
                }
                out.push(staged);
            }
            Err(fault) => {
                for violation in fault.fields {
                    violations.push((format!("lines[{number}].{}", violation.field), violation.description));
                }
            }
        }
        if violations.len() >= limits::IMPORT_VIOLATIONS {
            break;
        }
    }
    if violations.is_empty() {
        let said: BTreeMap<&str, u64> = header.counts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        if said != counts {
            violations.push(("lines[1].header.counts".to_owned(), "are not those of the lines that follow".to_owned()));
        }
    }
    let mut all = violations.into_iter();
    let Some((field, description)) = all.next() else { return Ok(out) };
    let mut fault = Fault::field(field, description);
    for (field, description) in all {
        fault.fields.extend(Fault::field(field, description).fields);
    }
    "the file is malformed; nothing was written".clone_into(&mut fault.message);
    Err(fault)
}

fn check_header(import: &Import, header: &pb::ExportHeader) -> Result<(), Fault> {
    if header.format != wire::FORMAT {
        return Err(Fault::field("lines[1].header.format", format!("is not {}, the one this version reads", wire::FORMAT)));
    }
    let follow = import.lines.len() as u64 - 1;
    if header.lines != follow {
        return Err(Fault::field(
            "lines[1].header.lines",
            format!("says that {} lines follow, and {follow} do: the file is not whole", header.lines),
        ));
    }
    let owner = import.call.scope.owner();
    let foreign = if header.tenant_id != owner.tenant.as_str() {
        "tenant_id"
    } else if header.user_id != owner.user.as_str() {
        "user_id"
    } else {
        return Ok(());
    };
    if import.remap {
        return Ok(());
    }
    Err(Fault::field(format!("lines[1].header.{foreign}"), "is another one's export; set remap to take it over as this one's"))
}

fn staged(import: &Import, line: &pb::ExportLine, number: u64) -> Result<Staged, Fault> {
    let part = line.part.as_ref().ok_or_else(|| Fault::field("part", "is missing or unknown"))?;
    let Part::Memory(exported) = part else { return Err(Fault::field("header", "stands in the first line only")) };
    let memory = exported.memory.as_ref().ok_or_else(|| Fault::field("memory", "is required"))?;
    let scope = &import.call.scope;
    let tenant = &scope.owner().tenant;
    let own = memory.user_id == scope.owner().user.as_str();
    let signed =
        !import.remap && own && import.seals.verify(tenant, wire::kind_of(part), &wire::signed_bytes(part), &line.signature);
    if !own && !import.remap {
        return Err(Fault::field("memory.user_id", "is another user's; set remap to take it over"));
    }
    let agent = match &scope.owner().agent {
        // The caller's own level takes what it was given; another agent's line is not its.
        Some(own) if import.remap => Some(own.clone()),
        _ => wire::agent(memory)?,
    };
    let scope = scope.at(agent.as_ref()).map_err(|_| Fault::field("memory.agent_id", "is another agent's"))?;
    let what = if signed {
        What::Carried(Box::new(wire::carried(exported, scope.owner())?))
    } else {
        wire::restated(memory, import.call.now)?;
        convert::status("memory.status", memory.status)?;
        What::Stated(Box::new(memory.clone()), wire::line_request(part))
    };
    Ok(Staged { number, scope, what })
}

/// The gate for one line.
fn admit(state: &State, call: &Call, staged: Staged) -> Result<Line, Fault> {
    let by = |request_id| Submitter {
        scope: &staged.scope,
        roles: &call.claims.caller.roles,
        attestation: Attestation::default(),
        door: Door::Import,
        request_id,
        now: call.now,
    };
    let what = match staged.what {
        What::Carried(carried) => {
            let (gated, material) = intake::readmit(state, &call.settings, &by(None), wire::statement_of(&carried.record))?;
            Admitted::Carried(carried, gated, material)
        }
        What::Stated(memory, request) => {
            let status = convert::status("memory.status", memory.status)?;
            if !matches!(status, Status::Active | Status::Candidate | Status::Disputed) {
                return Err(Fault::new(
                    Reason::StatusMove,
                    format!("an unsigned line that is {} is not taken over", status.name()),
                )
                .with("state", status.name())
                .rule("STATUS", "memory", "only what held or waited is stated again"));
            }
            let statement = wire::restated(&memory, call.now)?;
            let (gated, material) = intake::submit(state, &call.settings, &by(Some(request)), statement)?;
            Admitted::Stated(gated, material)
        }
    };
    Ok(Line { scope: staged.scope, what })
}

fn refuse(out: &mut pb::ImportMemoriesResponse, line: u64, fault: &Fault, findings: &[Finding]) {
    out.refused += 1;
    if out.refusals.len() >= limits::IMPORT_REFUSALS {
        out.capped = true;
        return;
    }
    let consent = findings.iter().any(|finding| finding.outcome == "NEEDS_CONSENT");
    let rules = fault.preconditions.iter().map(|p| strata_api::common::v1::Finding {
        rule: p.rule.clone(),
        outcome: "REFUSED".to_owned(),
        because: p.description.clone(),
    });
    out.refusals.push(pb::RefusedLine {
        line,
        reason: if consent { "NEEDS_CONSENT".to_owned() } else { fault.reason.name().to_owned() },
        message: fault.message.clone(),
        findings: rules.chain(findings.iter().map(wire_finding)).collect(),
    });
}
