//! Export and import as streams. An export reads a few rows at a time and holds its header true: when the memory changes
//! meanwhile, the stream ends with an error instead of a wrong count. An import is read whole, validated whole, judged line
//! by line, and then written in one transaction.
use crate::call::{Call, Service, revision};
use crate::intake::{self, Submitter};
use crate::metadata::{Visible, entities, ledger, owner, skills, transfer};
use crate::scope::OwnerScope;
use crate::state::State;
use crate::write::{self, Admitted, Landed};
use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use strata_api::convert::common::{self, wire_finding};
use strata_api::convert::{longterm as convert, parts as wires, transfer as wire};
use strata_api::error;
use strata_api::longterm::v1 as pb;
use strata_api::longterm::v1::export_line::Part;
use strata_core::part::{Entity, EntityDraft, Relation, RelationDraft, Skill, SkillDraft};
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
    /// What comes next.
    phase: Phase,
    /// Lines of the phase that were sent, after the records.
    sent: u64,
}

/// The parts of an export, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Records,
    Entities,
    Relations,
    Skills,
    Over,
}

impl Phase {
    const fn next(self) -> Self {
        match self {
            Self::Records => Self::Entities,
            Self::Entities => Self::Relations,
            Self::Relations => Self::Skills,
            Self::Skills | Self::Over => Self::Over,
        }
    }
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
            .read(&self.scope, move |db, visible| {
                let counts = transfer::counts(db, visible, statuses, now)?;
                Ok((visible.revision, counts, entities::counts(db, visible, statuses)?))
            })
            .await?;
        let (revision, counts, [entities, relations, skills]) = match found {
            Some((revision, counts, parts)) => (Some(revision), counts, parts),
            None => (None, BTreeMap::new(), [0; 3]),
        };
        self.revision = revision;
        let owner = self.scope.owner();
        Ok(pb::ExportHeader {
            format: wire::FORMAT,
            tenant_id: owner.tenant.as_str().to_owned(),
            user_id: owner.user.as_str().to_owned(),
            agent_id: asked.agent_id.clone(),
            scope: scope.into(),
            embedding_model: self.state.relay.model(),
            lines: counts.values().sum::<u64>() + entities + relations + skills,
            counts,
            entities,
            relations,
            skills,
        })
    }

    fn signed(&self, part: Part) -> pb::ExportMemoriesResponse {
        let tenant = &self.scope.owner().tenant;
        let signature = self.state.seals.sign(tenant, wire::kind_of(&part), &wire::signed_bytes(&part));
        pb::ExportMemoriesResponse { line: Some(pb::ExportLine { part: Some(part), signature }) }
    }

    /// The next lines; none at the end.
    async fn next(&mut self) -> Result<Option<Vec<pb::ExportMemoriesResponse>>, Fault> {
        while self.phase != Phase::Over {
            let parts = self.page().await?;
            if !parts.is_empty() {
                self.sent += parts.len() as u64;
                return Ok(Some(parts.into_iter().map(|part| self.signed(part)).collect()));
            }
            self.phase = self.phase.next();
            self.sent = 0;
        }
        Ok(None)
    }

    /// The next lines of this phase, unsigned; none at its end.
    async fn page(&mut self) -> Result<Vec<Part>, Fault> {
        const ROWS: u32 = limits::EXPORT_ROWS;
        let (statuses, after, now, sent) = (self.statuses, self.after, self.now, self.sent);
        Ok(match self.phase {
            Phase::Records => {
                let page = self.read(move |db, visible| transfer::page(db, visible, statuses, after, ROWS, now)).await?;
                let page = page.unwrap_or_default();
                self.after = page.last().map(|carried| carried.record.memory_id).or(self.after);
                page.iter().map(|carried| Part::Memory(wire::wire_carried(carried))).collect()
            }
            Phase::Entities => {
                let page = self.read(move |db, visible| entities::exported(db, visible, statuses, sent, ROWS)).await?;
                page.iter().flatten().map(|entity| Part::Entity(wires::exported_entity(entity))).collect()
            }
            Phase::Relations => {
                let page = self.read(move |db, visible| entities::exported_relations(db, visible, statuses, sent, ROWS)).await?;
                let line = |(owner, relation): &(_, _)| Part::Relation(wires::exported_relation(owner, relation));
                page.iter().flatten().map(line).collect()
            }
            Phase::Skills => {
                let page = self.read(move |db, visible| skills::exported(db, visible, statuses, sent, ROWS)).await?;
                page.iter().flatten().map(|skill| Part::Skill(wires::exported_skill(skill))).collect()
            }
            Phase::Over => Vec::new(),
        })
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
        let mut export = Export {
            state: Arc::clone(state),
            scope: call.scope,
            statuses,
            now: call.now,
            revision: None,
            after: None,
            phase: Phase::Records,
            sent: 0,
        };
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
                ledger::check_outbox(db, &context.scope.owner().tenant, context.now)?;
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
    /// With whether it is signed.
    Entity(Box<Entity>, bool),
    /// Signed, with its words: the names of its ends are the store's.
    Relation(Box<Relation>),
    /// With whether it is signed.
    Skill(Box<Skill>, bool),
    /// A relation that nobody signed: its entities have other ids here.
    Unsigned,
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
        Some(Part::Memory(_) | Part::Entity(_) | Part::Relation(_) | Part::Skill(_)) | None => {
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
                let name = match &line.part {
                    Some(Part::Memory(exported)) => {
                        let status = exported.memory.as_ref().and_then(|m| convert::status("status", m.status).ok());
                        status.map_or("", Status::name)
                    }
                    Some(Part::Entity(_)) => "entities",
                    Some(Part::Relation(_)) => "relations",
                    Some(Part::Skill(_)) => "skills",
                    Some(Part::Header(_)) | None => "",
                };
                *counts.entry(name).or_default() += 1;
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
        let parts = [("entities", header.entities), ("relations", header.relations), ("skills", header.skills)];
        let records = header.counts.iter().map(|(name, count)| (name.as_str(), *count));
        let said: BTreeMap<&str, u64> = records.chain(parts.into_iter().filter(|(_, count)| *count > 0)).collect();
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
    let missing = |what: &'static str| Fault::field(what, "is required");
    let (user, agent, field) = match part {
        Part::Header(_) => return Err(Fault::field("header", "stands in the first line only")),
        Part::Memory(exported) => {
            let memory = exported.memory.as_ref().ok_or_else(|| missing("memory"))?;
            (&memory.user_id, &memory.agent_id, ["memory.user_id", "memory.agent_id"])
        }
        Part::Entity(exported) => {
            let entity = exported.entity.as_ref().ok_or_else(|| missing("entity"))?;
            (&exported.user_id, &entity.agent_id, ["entity.user_id", "entity.agent_id"])
        }
        Part::Relation(exported) => (&exported.user_id, &exported.agent_id, ["relation.user_id", "relation.agent_id"]),
        Part::Skill(exported) => {
            let skill = exported.skill.as_ref().ok_or_else(|| missing("skill"))?;
            (&exported.user_id, &skill.agent_id, ["skill.user_id", "skill.agent_id"])
        }
    };
    let [user_field, agent_field] = field;
    let scope = &import.call.scope;
    let own = user == scope.owner().user.as_str();
    if !own && !import.remap {
        return Err(Fault::field(user_field, "is another user's; set remap to take it over"));
    }
    let tenant = &scope.owner().tenant;
    let signed = !import.remap && import.seals.verify(tenant, wire::kind_of(part), &wire::signed_bytes(part), &line.signature);
    let agent = match &scope.owner().agent {
        // The caller's own level takes what it was given; another agent's line is not its.
        Some(own) if import.remap => Some(own.clone()),
        _ => wire::agent(agent)?,
    };
    let elsewhere = if agent.is_none() { "is at the user's level; import it without an agent" } else { "is another agent's" };
    let scope = scope.at(agent.as_ref()).map_err(|_| Fault::field(agent_field, elsewhere))?;
    let what = match part {
        Part::Header(_) => return Err(missing("memory")),
        Part::Memory(exported) if signed => What::Carried(Box::new(wire::carried(exported, scope.owner())?)),
        Part::Memory(exported) => {
            let memory = exported.memory.as_ref().ok_or_else(|| missing("memory"))?;
            wire::restated(memory, import.call.now)?;
            convert::status("memory.status", memory.status)?;
            What::Stated(Box::new(memory.clone()), wire::line_request(part))
        }
        Part::Entity(exported) => {
            let entity = exported.entity.as_ref().ok_or_else(|| missing("entity"))?;
            What::Entity(Box::new(wires::carried_entity(entity, scope.owner()).map_err(|f| within("entity", f))?), signed)
        }
        Part::Relation(exported) => {
            let relation = exported.relation.as_ref().ok_or_else(|| missing("relation"))?;
            let relation = wires::carried_relation(relation).map_err(|f| within("relation", f))?;
            if !signed {
                return Ok(Staged { number, scope, what: What::Unsigned });
            }
            What::Relation(Box::new(relation))
        }
        Part::Skill(exported) => {
            let skill = exported.skill.as_ref().ok_or_else(|| missing("skill"))?;
            What::Skill(Box::new(wires::carried_skill(skill, scope.owner()).map_err(|f| within("skill", f))?), signed)
        }
    };
    Ok(Staged { number, scope, what })
}

/// A fault of a field of one part of the line, under its full name.
fn within(part: &str, mut fault: Fault) -> Fault {
    for violation in &mut fault.fields {
        let field = violation.field.strip_prefix("statement.").unwrap_or(&violation.field);
        violation.field = format!("{part}.{field}");
    }
    fault
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
            // One line is one record.
            let ((gated, material), _) = intake::submit(state, &call.settings, &by(Some(request)), statement)?;
            let id = wire::optional_id("memory.memory_id", &memory.memory_id)?;
            Admitted::Stated(gated, material, id, wire::last_said(&memory)?)
        }
        What::Unsigned => {
            return Err(Fault::new(Reason::GateProvenance, "an unsigned relation is not taken over; link the entities anew")
                .rule("G2", "relation", "its entities have other ids here"));
        }
        What::Entity(entity, signed) => {
            let draft = EntityDraft { kind: entity.kind.clone(), name: entity.name.clone(), aliases: entity.aliases.clone() };
            let statement = draft.statement(wires::provenance_of(&entity.origin));
            if signed {
                Admitted::Entity(entity, intake::readmit(state, &call.settings, &by(None), statement)?.0)
            } else {
                held("entity", entity.status)?;
                let (gated, material) = intake::part(state, &call.settings, &by(None), statement)?;
                Admitted::NamedEntity(gated, material.memory_id)
            }
        }
        What::Relation(relation) => {
            // Its ends were judged with their own lines; here its own name and words are.
            let draft = RelationDraft { from: String::new(), relation: relation.relation.clone(), to: String::new() };
            let statement = draft.statement(wires::provenance_of(&relation.origin));
            Admitted::Relation(relation, intake::readmit(state, &call.settings, &by(None), statement)?.0)
        }
        What::Skill(skill, signed) => {
            let draft = SkillDraft { name: skill.name.clone(), triggers: skill.triggers.clone(), steps: skill.steps.clone() };
            let statement = draft.statement(wires::provenance_of(&skill.origin));
            if signed {
                Admitted::Skill(skill, intake::readmit(state, &call.settings, &by(None), statement)?.0)
            } else {
                held("skill", skill.status)?;
                let (gated, material) = intake::part(state, &call.settings, &by(None), statement)?;
                Admitted::TaughtSkill(gated, material.memory_id)
            }
        }
    };
    Ok(Line { scope: staged.scope, what })
}

/// Whether a line that nobody signed may be stated again: its state does not count, so nothing old must come back.
fn held(what: &'static str, status: Status) -> Result<(), Fault> {
    if matches!(status, Status::Active | Status::Candidate | Status::Disputed) {
        return Ok(());
    }
    Err(Fault::new(Reason::StatusMove, format!("an unsigned line that is {} is not taken over", status.name()))
        .with("state", status.name())
        .rule("STATUS", what, "only what held or waited is stated again"))
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
