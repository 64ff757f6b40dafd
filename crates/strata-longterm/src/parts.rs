//! Entities, relations and skills: the handlers. Their words make a statement, which goes through the gate like any other.
use crate::call::{Call, Pager, Service, asked_too_much, binding, etag, parts, revision, wire_outcome};
use crate::in_force::in_force;
use crate::intake::{self, Submitter};
use crate::metadata::insert::Material;
use crate::metadata::{Visible, entities, query, skills};
use crate::shown::item_of_key;
use crate::state::State;
use crate::write::{self, Meant, Outcome, Put};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strata_api::convert::common::{self, wire_finding};
use strata_api::convert::{longterm as convert, parts as wires};
use strata_api::longterm::v1 as pb;
use strata_core::part::{Entity, Relation, RelationDraft, SkillDraft, trigger_score};
use strata_core::policy::gate::{Door, Gated, Statement};
use strata_core::record::Status;
use strata_core::text::Negation;
use strata_core::{Fault, MemoryId, limits};
use strata_text::clean::normal;
use strata_text::{features, terms};
use tonic::Request;

/// The gate for a part.
fn judged(
    state: &State,
    call: &Call,
    door: Door,
    statement: Statement,
    request_id: Option<uuid::Uuid>,
) -> Result<(Gated, Material, String), Fault> {
    let challenge = state.challenges.mint(call.scope.owner(), &statement);
    let by = Submitter {
        scope: &call.scope,
        roles: &call.claims.caller.roles,
        attestation: convert::attestation(&call.claims.attestation)?,
        door,
        request_id,
        now: call.now,
    };
    let (gated, material) = intake::part(state, &call.settings, &by, statement)?;
    Ok((gated, material, challenge))
}

fn challenge_of<T>(put: &Put<T>, challenge: String) -> String {
    if put.outcome == Outcome::NeedsConsent { challenge } else { String::new() }
}

fn optional_kind(kind: &str) -> Result<Option<String>, Fault> {
    if kind.is_empty() {
        return Ok(None);
    }
    strata_core::part::prefix(kind, "x", "x", "x").map(|_| Some(kind.to_owned()))
}

fn optional_name(name: &str) -> Result<Option<String>, Fault> {
    if name.is_empty() { Ok(None) } else { common::text("name", name, limits::NAME_CHARS).map(|name| Some(normal(&name))) }
}

impl Service {
    pub(crate) async fn put_entity(&self, request: Request<pb::PutEntityRequest>) -> Result<pb::PutEntityResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("PutEntity", &r.request_id, r)?;
        if let Some(answer) = state.replay(&call, key.as_ref()).await? {
            return Ok(answer);
        }
        let mut kind = r.r#type.clone();
        let mut existing = None;
        if r.entity_id.is_empty() {
            if !r.etag.is_empty() {
                return Err(Fault::field("etag", "goes with entity_id"));
            }
        } else {
            let id = wires::part_id("entity_id", &r.entity_id)?;
            let found = self.visible_entity(&call, id).await?;
            if !kind.is_empty() && kind != found.kind {
                return Err(Fault::field("type", "is not the entity's"));
            }
            if !r.handle.is_empty() {
                return Err(Fault::field("handle", "is fixed when the entity is made"));
            }
            kind = found.kind;
            existing = Some((id, etag(&r.etag)?));
        }
        let draft = wires::entity_draft(&kind, &r.name, &r.aliases)?;
        strata_core::part::prefix(&kind, &r.handle, &draft.name, &normal(&draft.name))?;
        let meant = Meant { existing, handle: r.handle.clone() };
        let statement = draft.statement(wires::provenance(r.provenance.as_ref())?);
        let request_id = key.as_ref().map(|key| key.request_id);
        let (gated, material, challenge) = judged(state, &call, Door::Entity, statement, request_id)?;
        state
            .once(&call, key, move |db, context| {
                let put = write::put_entity(db, context, &gated, material.memory_id, &meant)?;
                let answer = pb::PutEntityResponse {
                    outcome: wire_outcome(put.outcome).into(),
                    entity: put.part.as_ref().map(|found| wires::wire_entity(&found.entity)),
                    findings: put.findings.iter().map(wire_finding).collect(),
                    revision: revision(put.revision),
                    consent_challenge: challenge_of(&put, challenge),
                };
                Ok((answer, put.outcome != Outcome::NeedsConsent))
            })
            .await
    }

    async fn visible_entity(&self, call: &Call, id: MemoryId) -> Result<Entity, Fault> {
        let found = self.state.read(&call.scope, move |db, visible| entities::get(db, visible, id)).await?.flatten();
        found.map(|found| found.entity).ok_or_else(|| Fault::not_found("entity", id.to_string()))
    }

    pub(crate) async fn get_entity(&self, request: Request<pb::GetEntityRequest>) -> Result<pb::GetEntityResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let hops = match r.hops {
            0 => 1,
            hops @ 1..=2 => hops,
            _ => return Err(Fault::field("hops", "is 0, 1 or 2")),
        };
        let id = match (r.entity_id.is_empty(), r.name.is_empty()) {
            (false, true) => Some(wires::part_id("entity_id", &r.entity_id)?),
            (true, false) => None,
            (true, true) => return Err(Fault::field("entity_id", "or name is required")),
            (false, false) => return Err(Fault::field("entity_id", "and name exclude each other")),
        };
        let asked = entities::Asked { kind: optional_kind(&r.r#type)?, name: optional_name(&r.name)?, candidates: false };
        let missing =
            || Fault::not_found("entity", if r.name.is_empty() { r.entity_id.clone() } else { "by that name".to_owned() });
        let (now, by_agent) = (call.now, call.scope.owner().agent.is_some());
        let registry = Arc::clone(&state.registry);
        let answer = state
            .read(&call.scope, move |db, visible| {
                let found = match id {
                    Some(id) => entities::get(db, visible, id)?,
                    None => named(db, visible, &asked, by_agent)?,
                };
                let Some(found) = found else { return Ok(None) };
                let (related, relations, capped) = around(db, visible, found.entity.entity_id, hops)?;
                let mut properties = Vec::new();
                for (key, records) in query::under(db, visible, &found.entity.prefix, now)? {
                    for (record, labels) in in_force(records, registry.is_set(&key), by_agent) {
                        properties.push(item_of_key(db, &record, &labels)?);
                    }
                }
                Ok(Some(pb::GetEntityResponse {
                    entity: Some(wires::wire_entity(&found.entity)),
                    relations: relations.iter().map(wires::wire_relation).collect(),
                    related: related.iter().map(wires::wire_entity).collect(),
                    properties,
                    capped,
                }))
            })
            .await?
            .flatten();
        answer.ok_or_else(missing)
    }

    pub(crate) async fn list_entities(
        &self,
        request: Request<pb::ListEntitiesRequest>,
    ) -> Result<pb::ListEntitiesResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let asked = entities::Asked { kind: optional_kind(&r.r#type)?, name: optional_name(&r.name)?, candidates: r.candidates };
        let mut pager = Pager::new(r.page_size)?;
        let binding = binding(&call.scope, "ListEntities", &format!("{asked:?}"));
        let after =
            state.tokens.open(&parts(&binding), &r.page_token)?.map(|text| MemoryId::parse("page_token", &text)).transpose()?;
        let tokens = state.tokens.clone();
        let answer = state
            .read(&call.scope, move |db, visible| {
                let rows = entities::list(db, visible, &asked, after, pager.rows())?;
                let (entities, last) = pager.fill(rows, |found| Ok(wires::wire_entity(&found.entity)))?;
                let next_page_token =
                    last.map(|found| tokens.mint(&parts(&binding), &found.entity.entity_id.to_string())).unwrap_or_default();
                Ok(pb::ListEntitiesResponse { entities, next_page_token, capped: pager.page.capped })
            })
            .await?;
        Ok(answer.unwrap_or_else(|| pb::ListEntitiesResponse { capped: asked_too_much(r.page_size), ..Default::default() }))
    }

    pub(crate) async fn link_entities(
        &self,
        request: Request<pb::LinkEntitiesRequest>,
    ) -> Result<pb::LinkEntitiesResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("LinkEntities", &r.request_id, r)?;
        if let Some(answer) = state.replay(&call, key.as_ref()).await? {
            return Ok(answer);
        }
        let (from, to) = (wires::part_id("from_id", &r.from_id)?, wires::part_id("to_id", &r.to_id)?);
        if from == to {
            return Err(Fault::field("to_id", "is the same entity"));
        }
        let relation = wires::relation_name(&r.relation)?;
        if r.unlink {
            return state
                .once(&call, key, move |db, context| {
                    let put = write::unrelate(db, context, from, &relation, to)?;
                    Ok((linked(&put, String::new()), true))
                })
                .await;
        }
        let provenance = wires::provenance(r.provenance.as_ref())?;
        let draft = RelationDraft {
            from: self.visible_entity(&call, from).await?.name,
            to: self.visible_entity(&call, to).await?.name,
            relation,
        };
        let request_id = key.as_ref().map(|key| key.request_id);
        let (gated, _, challenge) = judged(state, &call, Door::Relation, draft.statement(provenance), request_id)?;
        state
            .once(&call, key, move |db, context| {
                let put = write::relate(db, context, &gated, from, to)?;
                let kept = put.outcome != Outcome::NeedsConsent;
                Ok((linked(&put, challenge), kept))
            })
            .await
    }

    pub(crate) async fn delete_entity(
        &self,
        request: Request<pb::DeleteEntityRequest>,
    ) -> Result<pb::DeleteEntityResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("DeleteEntity", &r.request_id, r)?;
        let id = wires::part_id("entity_id", &r.entity_id)?;
        state
            .once(&call, key, move |db, context| {
                let (relations, at) = write::delete_entity(db, context, id)?;
                Ok((pb::DeleteEntityResponse { relations, revision: revision(at) }, true))
            })
            .await
    }

    pub(crate) async fn put_skill(&self, request: Request<pb::PutSkillRequest>) -> Result<pb::PutSkillResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("PutSkill", &r.request_id, r)?;
        if let Some(answer) = state.replay(&call, key.as_ref()).await? {
            return Ok(answer);
        }
        let draft: SkillDraft = wires::skill_draft(&r.name, &r.triggers, &r.steps)?;
        let seen = r.seen_version;
        let statement = draft.statement(wires::provenance(r.provenance.as_ref())?);
        let request_id = key.as_ref().map(|key| key.request_id);
        let (gated, material, challenge) = judged(state, &call, Door::Skill, statement, request_id)?;
        state
            .once(&call, key, move |db, context| {
                let put = write::put_skill(db, context, &gated, material.memory_id, seen)?;
                let answer = pb::PutSkillResponse {
                    outcome: wire_outcome(put.outcome).into(),
                    skill: put.part.as_ref().map(|found| wires::wire_skill(&found.skill)),
                    findings: put.findings.iter().map(wire_finding).collect(),
                    revision: revision(put.revision),
                    consent_challenge: challenge_of(&put, challenge),
                };
                Ok((answer, put.outcome != Outcome::NeedsConsent))
            })
            .await
    }

    pub(crate) async fn get_skill(&self, request: Request<pb::GetSkillRequest>) -> Result<pb::GetSkillResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let name = common::text("name", &r.name, limits::NAME_CHARS)?;
        let version = r.version;
        let found = state
            .read(&call.scope, move |db, visible| {
                let mut all = skills::named(db, visible, &name)?;
                // Of several owners the first one's word counts: the agent's, else the user's.
                let first = all.first().map(|found| found.owner);
                all.retain(|found| Some(found.owner) == first);
                let at = match version {
                    0 => all.iter().position(|found| found.skill.status == Status::Active).or(Some(0)),
                    version => all.iter().position(|found| found.skill.version == version),
                };
                Ok(at.and_then(|at| all.into_iter().nth(at)))
            })
            .await?
            .flatten();
        let found = found.ok_or_else(|| Fault::not_found("skill", "by that name"))?;
        Ok(pb::GetSkillResponse { skill: Some(wires::wire_skill(&found.skill)) })
    }

    pub(crate) async fn list_skills(&self, request: Request<pb::ListSkillsRequest>) -> Result<pb::ListSkillsResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let (name, all) = (optional_name(&r.name)?, r.all_versions);
        let mut pager = Pager::new(r.page_size)?;
        let binding = binding(&call.scope, "ListSkills", &format!("{name:?} {all}"));
        let after =
            state.tokens.open(&parts(&binding), &r.page_token)?.map(|text| MemoryId::parse("page_token", &text)).transpose()?;
        let tokens = state.tokens.clone();
        let answer = state
            .read(&call.scope, move |db, visible| {
                let rows = skills::list(db, visible, name.as_deref(), all, after, pager.rows())?;
                let (skills, last) = pager.fill(rows, |found| Ok(wires::wire_skill(&found.skill)))?;
                let next_page_token =
                    last.map(|found| tokens.mint(&parts(&binding), &found.skill.skill_id.to_string())).unwrap_or_default();
                Ok(pb::ListSkillsResponse { skills, next_page_token, capped: pager.page.capped })
            })
            .await?;
        Ok(answer.unwrap_or_else(|| pb::ListSkillsResponse { capped: asked_too_much(r.page_size), ..Default::default() }))
    }

    pub(crate) async fn match_skills(&self, request: Request<pb::MatchSkillsRequest>) -> Result<pb::MatchSkillsResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::read(state, &request, &r.user_id, &r.agent_id)?;
        let text = common::text("text", &r.text, limits::QUERY_CHARS)?;
        let page = limits::page("k", r.k, limits::RECALL_K, limits::RECALL_K_MAX)?;
        let found = state.read(&call.scope, skills::in_force).await?.unwrap_or_default();
        let said = (normal(&text), sorted_terms(&text));
        // "Don't book an invoice" is no occasion to book one: what a clause denies is not said.
        let denied: Vec<(String, Vec<u32>)> = features(&text)
            .clauses
            .into_iter()
            .filter(|clause| clause.negation == Negation::Full)
            .map(|clause| (clause.normal.clone(), sorted_terms(&clause.normal)))
            .collect();
        let mut matches = Vec::new();
        let mut seen = BTreeSet::new();
        for found in found {
            // The agent's skill comes first and shadows the user's of the same name.
            if !seen.insert(normal(&found.skill.name)) {
                continue;
            }
            let scored = found.skill.triggers.iter().map(|trigger| {
                let asked = (normal(trigger), sorted_terms(trigger));
                let score = |text: &(String, Vec<u32>)| trigger_score((&asked.0, &asked.1), (&text.0, &text.1));
                let denies = || features(trigger).negation == Negation::None && denied.iter().any(|clause| score(clause) > 0.0);
                let score = score(&said);
                (if score > 0.0 && denies() { 0.0 } else { score }, trigger)
            });
            let best =
                scored.fold((0.0, None), |best, (score, trigger)| if score > best.0 { (score, Some(trigger)) } else { best });
            if let (score, Some(trigger)) = best {
                matches.push(pb::SkillMatch { trigger: trigger.clone(), score, skill: Some(wires::wire_skill(&found.skill)) });
            }
        }
        let name = |found: &pb::SkillMatch| found.skill.as_ref().map(|skill| skill.name.clone());
        matches.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| name(a).cmp(&name(b))));
        matches.truncate(page.size as usize);
        Ok(pb::MatchSkillsResponse { matches, capped: page.capped })
    }

    pub(crate) async fn delete_skill(&self, request: Request<pb::DeleteSkillRequest>) -> Result<pb::DeleteSkillResponse, Fault> {
        let (state, r) = (&self.state, request.get_ref());
        let call = Call::write(state, &request, &r.user_id, &r.agent_id)?;
        let key = call.key("DeleteSkill", &r.request_id, r)?;
        let name = common::text("name", &r.name, limits::NAME_CHARS)?;
        state
            .once(&call, key, move |db, context| {
                let (versions, at) = write::delete_skill(db, context, &name)?;
                Ok((pb::DeleteSkillResponse { versions, revision: revision(at) }, true))
            })
            .await
    }
}

fn linked(put: &Put<Relation>, challenge: String) -> pb::LinkEntitiesResponse {
    pb::LinkEntitiesResponse {
        outcome: wire_outcome(put.outcome).into(),
        relation: put.part.as_ref().map(wires::wire_relation),
        findings: put.findings.iter().map(wire_finding).collect(),
        revision: revision(put.revision),
        consent_challenge: challenge_of(put, challenge),
    }
}

fn sorted_terms(text: &str) -> Vec<u32> {
    let mut terms: Vec<u32> = terms(text).counts.iter().map(|(term, _)| *term).collect();
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// The entity a name means: the agent's before the user's.
fn named(
    db: &Connection,
    visible: &Visible,
    asked: &entities::Asked,
    by_agent: bool,
) -> Result<Option<entities::StoredEntity>, Fault> {
    let mut found = entities::list(db, visible, asked, None, limits::PAGE)?;
    if by_agent && found.iter().any(|found| found.entity.owner.agent.is_some()) {
        found.retain(|found| found.entity.owner.agent.is_some());
    }
    if found.len() > 1 {
        return Err(Fault::field("name", "names several entities; list them by name and take an id"));
    }
    Ok(found.pop())
}

/// What an entity is related to within some steps: entities nearest first, and the relations among them.
fn around(db: &Connection, visible: &Visible, id: MemoryId, hops: i32) -> Result<(Vec<Entity>, Vec<Relation>, bool), Fault> {
    let mut relations: BTreeMap<(MemoryId, String, MemoryId), Relation> = BTreeMap::new();
    let (mut seen, mut out, mut capped) = (BTreeSet::from([id]), Vec::new(), false);
    let mut edge = vec![id];
    for _ in 0..hops {
        let mut next = Vec::new();
        for id in std::mem::take(&mut edge) {
            let found = entities::relations_of(db, visible, id, limits::RELATED + 1)?;
            capped |= found.len() > limits::RELATED as usize;
            for relation in found.into_iter().take(limits::RELATED as usize).filter(|r| r.status == Status::Active) {
                let other = if relation.from == id { relation.to } else { relation.from };
                if !seen.contains(&other) {
                    let Some(entity) = entities::get(db, visible, other)?.filter(|e| e.entity.status == Status::Active) else {
                        continue;
                    };
                    if out.len() >= limits::RELATED as usize {
                        capped = true;
                        continue;
                    }
                    seen.insert(other);
                    out.push(entity.entity);
                    next.push(other);
                }
                relations.entry((relation.from, relation.relation.clone(), relation.to)).or_insert(relation);
            }
        }
        edge = next;
    }
    Ok((out, relations.into_values().collect(), capped))
}
