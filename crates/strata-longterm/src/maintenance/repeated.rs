//! Events that repeat (rule F10): three on one slot that say the same propose a fact. The proposal is an inference of the
//! service and goes through the gate like any; the user is asked, and what is confirmed is always in the context.

use super::Maintenance;
use super::plan::Proposal;
use crate::intake::{self, Submitter};
use crate::metadata::row::StoredRecord;
use crate::metadata::{query, row};
use crate::scope::OwnerScope;
use std::collections::BTreeSet;
use strata_core::id::join;
use strata_core::policy::authz::Role;
use strata_core::policy::forgetting::Repeated;
use strata_core::policy::gate::{Attestation, Door, Statement};
use strata_core::record::{Kind, Record, Source, Status, Tier, Trigger};
use strata_core::{Fault, MemoryId, Timestamp};
use uuid::Uuid;

/// Events that one proposal quotes; more say nothing new.
const QUOTED: usize = 8;

impl Maintenance {
    /// The fact that events propose; none where it is held, proposed or rejected already, or the gate refuses it.
    pub(super) async fn proposal(&self, repeated: Repeated, now: Timestamp) -> Result<Option<Proposal>, Fault> {
        let asked = repeated.events.clone();
        let read = move |db: &rusqlite::Connection| {
            let mut events: Vec<StoredRecord> = Vec::new();
            for id in &asked {
                events.extend(row::by_id(db, *id)?);
            }
            // The newest words stand for all.
            events.reverse();
            let Some(first) = events.first() else { return Ok(None) };
            let Some(key) = first.record.key.clone() else { return Ok(None) };
            let known = query::of_slot(db, first.owner, &key)?;
            let same = |other: &StoredRecord| {
                let r = &other.record;
                let lives = matches!(r.status, Status::Candidate | Status::Active | Status::Disputed | Status::Rejected);
                lives && r.tier != Tier::Event && says_same(r, &first.record)
            };
            if known.iter().any(same) { Ok::<_, Fault>(None) } else { Ok(Some(events)) }
        };
        let Some(events) = self.state.database.read(read).await? else { return Ok(None) };
        let state = std::sync::Arc::clone(&self.state);
        let work = self.tasks.blocking("maintenance words", move || word(&state, &events, now));
        Ok(work.await.ok().flatten())
    }
}

/// Whether two records of a slot hold the same value.
fn says_same(a: &Record, b: &Record) -> bool {
    let of = |r: &Record| r.value.as_ref().map_or_else(|| r.normal.clone(), |value| strata_text::clean::normal(value.as_text()));
    of(a) == of(b)
}

fn word(state: &crate::state::State, events: &[StoredRecord], now: Timestamp) -> Option<Proposal> {
    let first = events.first()?;
    let scope = OwnerScope::of_service(first.record.owner.clone());
    let settings = state.settings.load().gate.clone();
    let ids: Vec<String> = events.iter().map(|found| found.record.memory_id.to_string()).collect();
    let parts: Vec<&str> = std::iter::once("fact").chain(ids.iter().map(String::as_str)).collect();
    let memory_id = MemoryId(Uuid::new_v5(&Uuid::NAMESPACE_OID, join(&parts).as_bytes()));
    let mut passed = Vec::new();
    for found in events.iter().take(QUOTED) {
        let by = Submitter {
            scope: &scope,
            roles: &BTreeSet::from([Role::MemoryWriter]),
            attestation: Attestation::default(),
            door: Door::Maintenance,
            request_id: None,
            now,
        };
        // Of an event that the gate would not take as a fact nothing is proposed.
        let (mut one, _) = intake::submit(state, &settings, &by, statement(&found.record)).ok()?;
        one.1.memory_id = memory_id;
        passed.push(one);
    }
    Some(Proposal {
        owner: first.record.owner.clone(),
        stored: first.owner,
        scope,
        memory_id,
        passed,
        events: events.iter().map(|found| (found.record.memory_id, found.record.status)).collect(),
        span: {
            let times = || events.iter().map(|found| found.record.event_time);
            (times().min()?, times().max()?)
        },
    })
}

/// What an event says, as a fact that the service infers.
fn statement(event: &Record) -> Statement {
    Statement {
        kind: Kind::Fact,
        key: event.key.clone(),
        value: event.value.clone(),
        content: event.content.clone(),
        source: Source::ModelInference,
        source_ref: event.source_ref.clone(),
        source_quote: event.source_quote.clone(),
        trigger: Some(Trigger::Maintenance),
        importance: Some(event.importance.max(3)),
        confidence: None,
        tier: Some(Tier::Stable),
        // What the user confirms of what returns again and again is always in the context (rules C9, F10).
        protected: true,
        valid_from: None,
        valid_to: None,
        expire_time: None,
        topic: event.topic.clone(),
        tags: event.tags.clone(),
        metadata: std::collections::BTreeMap::new(),
        vector: Vec::new(),
        consent: None,
    }
}
