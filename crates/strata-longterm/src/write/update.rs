//! Changes of a record: other labels in place, other words as a new record that supersedes it.

use super::revive::{held, revive};
use super::{
    Context, Outcome, Written, activate, check_etag, create, is_apart, overlapping, replacing, same_statement, support,
    user_authority, visible_record, written,
};
use crate::metadata::insert::{self, Material, Writing, derived};
use crate::metadata::row::StoredRecord;
use crate::metadata::{Visible, ledger, owner, query};
use rusqlite::Connection;
use strata_api::convert::update::Patch;
use strata_core::policy::conflict::{Decision, Ruling};
use strata_core::policy::gate::{self, Gated, Standing};
use strata_core::policy::registry::Registry;
use strata_core::policy::status;
use strata_core::record::{Kind, Source, Status, Tier};
use strata_core::rule::Finding;
use strata_core::time::DAY;
use strata_core::{Fault, MemoryId, Reason};

/// Which record is to change, as the caller saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Record.
    pub memory_id: MemoryId,
    /// Version the caller saw; none skips the check.
    pub etag: Option<u64>,
}

/// What the caller saw of a record whose words are to be replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Replaced(StoredRecord);

impl Replaced {
    /// Checks that the record can be replaced: it holds, and is no event (rule K6, A80).
    ///
    /// # Errors
    /// `STATUS_MOVE`.
    pub fn check(found: StoredRecord) -> Result<Self, Fault> {
        let r = &found.record;
        let refused = |rule, because: &str| {
            Err(Fault::new(Reason::StatusMove, format!("the record is not replaced: {because}"))
                .with("state", r.status.name())
                .rule(rule, "memory", because.to_owned()))
        };
        if r.tier == Tier::Event {
            return refused("K6", "events append; remember a new one");
        }
        // What a summary stands for is corrected like what holds: the summary says it no longer (rule F5).
        if !matches!(r.status, Status::Active | Status::Archived) || is_apart(r.kind) {
            return refused("STATUS", "only a record that holds, or is archived, says something else");
        }
        if r.kind == Kind::Summary {
            return refused("F5", "a summary says what its members say; correct one of them");
        }
        Ok(Self(found))
    }

    /// The record.
    #[must_use]
    pub const fn record(&self) -> &strata_core::record::Record {
        &self.0.record
    }
}

/// Replaces what a record says: the new statement went through the gate like any other.
///
/// # Errors
/// `NOT_FOUND`, `STATUS_MOVE`, `VERSION_MISMATCH`, `FORGOTTEN`, `FACT_OWNED_BY_OTHER_LAYER`, `OVERLOADED`.
pub fn replace(db: &Connection, c: &Context<'_>, change: Change, gated: &Gated, material: &Material) -> Result<Written, Fault> {
    let mut findings = gated.findings().to_vec();
    let mut old = Replaced::check(visible_record(db, c, change.memory_id)?)?.0;
    check_etag(&old, change.etag)?;
    if gated.standing() == Standing::NeedsConsent {
        return Ok(needs_consent(findings, Visible::of(db, c.scope)?.map_or(0, |visible| visible.revision)));
    }
    ledger::check_outbox(db, &c.scope.owner().tenant, c.now)?;
    let holder = old.record.owner.clone();
    let w = Writing { owner: &holder, ..c.writing(old.owner, gated.door().name()) };
    let s = gated.statement();
    let digests = c.tombstones.digests(&holder, s.kind, gated.key(), gated.normal(), &gated.identity());
    gate::check_forgotten(ledger::erased_at(db, old.owner, &digests)?, gated.statement_time().unwrap_or(c.now))?;

    if old.record.status == Status::Archived {
        let moved = revive(db, c, &w, gated.user_authority(), &mut old, &mut findings)?;
        if !moved || old.record.status != Status::Active {
            return Err(Fault::new(
                Reason::StatusMove,
                "the record is archived and does not come back; see the findings of RestoreMemories",
            )
            .with("state", old.record.status.name())
            .rule("K7", "memory", "it does not hold again"));
        }
    }
    let done = match same_statement(db, &w, gated)? {
        // It says so already.
        Some(found) if found.record.memory_id == old.record.memory_id => {
            support(db, c, &w, found, gated, material, &mut findings)?
        }
        Some(found) => {
            let done = support(db, c, &w, found, gated, material, &mut findings)?;
            retire(db, &w, old, s.source, done, &mut findings)?
        }
        None => create(db, c, &w, gated, material, Some(&old), &mut findings)?,
    };
    let revision = owner::next_revision(db, w.stored.user_id)?;
    Ok(Written { findings, revision, ..done })
}

/// Another record says already what this one is to say: it takes the place, if it holds.
fn retire(
    db: &Connection,
    w: &Writing<'_>,
    old: StoredRecord,
    source: Source,
    done: Written,
    findings: &mut Vec<Finding>,
) -> Result<Written, Fault> {
    let Some(other) = done.record.as_ref().filter(|other| other.record.status == Status::Active) else { return Ok(done) };
    let plain = Ruling {
        decision: Decision::Active {
            supersede: Vec::new(),
            close: Vec::new(),
            valid_to: None,
            queue: Vec::new(),
            may_replace: None,
        },
        rule: "K1",
        reason: String::new(),
        findings: Vec::new(),
    };
    let ruling = replacing(&old, source, plain, findings);
    let id = old.record.memory_id;
    if !matches!(&ruling.decision, Decision::Active { supersede, .. } if supersede.contains(&id)) {
        return Ok(done);
    }
    // The slot may have been given to the other one by the conflict rules already.
    let still = insert::expire_due(db, w, crate::metadata::row::by_id(db, id)?.into_iter().collect())?;
    if still.iter().any(|found| found.record.status == Status::Active) {
        insert::supersede(db, w, id, other.record.memory_id, &ruling)?;
    }
    Ok(Written { superseded: Some(id), ..done })
}

fn needs_consent(findings: Vec<Finding>, revision: u64) -> Written {
    Written { outcome: Outcome::NeedsConsent, record: None, findings, superseded: None, conflicts_with: None, revision }
}

/// Changes fields of a record in place: `gated` is its statement with the new labels, through the gate once more.
///
/// # Errors
/// `NOT_FOUND`, `VERSION_MISMATCH`, `STATUS_MOVE`, `INVALID_FIELD` where a time does not fit the record, `OVERLOADED`.
pub fn amend(
    db: &Connection,
    c: &Context<'_>,
    registry: &Registry,
    change: Change,
    patch: &Patch,
    gated: &Gated,
) -> Result<Written, Fault> {
    let mut findings = gated.findings().to_vec();
    let mut found = visible_record(db, c, change.memory_id)?;
    check_etag(&found, change.etag)?;
    if gated.standing() == Standing::NeedsConsent {
        return Ok(needs_consent(findings, Visible::of(db, c.scope)?.map_or(0, |visible| visible.revision)));
    }
    ledger::check_outbox(db, &c.scope.owner().tenant, c.now)?;
    let holder = found.record.owner.clone();
    let w = Writing { owner: &holder, ..c.writing(found.owner, gated.door().name()) };
    let renews = patch.expire_time.flatten().is_some();
    match found.record.status {
        Status::Active | Status::Candidate | Status::Disputed => {}
        Status::Expired | Status::Archived if renews && held(db, &found)? => {}
        other @ (Status::Superseded | Status::Expired | Status::Archived | Status::Rejected | Status::Deleted) => {
            return Err(Fault::new(Reason::StatusMove, format!("the record is {}; what is over does not change", other.name()))
                .with("state", other.name())
                .rule("STATUS", "memory", "only a record that holds or waits is changed"));
        }
    }
    // Written down as expired before it is renewed: both moves stand in its history (A148).
    if let Some(stored) = crate::metadata::row::by_id(db, change.memory_id)? {
        found = match insert::expire_due(db, &w, vec![stored])?.pop() {
            Some(live) => live,
            None => visible_record(db, c, change.memory_id)?,
        };
    }
    check_times(db, &found, patch, c)?;
    apply(&mut found, patch, gated, c);
    let reason = format!("UPDATE: {}", patch.names().join(", "));
    if matches!(found.record.status, Status::Expired | Status::Archived) {
        if query::twin(db, found.owner, &found.dedup)?.is_some() {
            return Err(Fault::new(Reason::StatusMove, "the same statement was made again since; change that record")
                .with("state", found.record.status.name())
                .rule("G10", "memory", "another record says the same"));
        }
        let authority = user_authority(registry, found.record.key.as_ref());
        let standing = if found.record.tier == Tier::Temporary { Standing::Temporary } else { Standing::Active };
        let ruling = activate(db, c, &w, &mut found, authority, standing, None, &[], &mut findings)?;
        derived::exempt(db, &found)?;
        let done = written(&ruling, found);
        let revision = owner::next_revision(db, w.stored.user_id)?;
        return Ok(Written { findings, revision, ..done });
    }
    insert::amend(db, &w, &mut found, gated, &reason)?;
    findings.push(Finding::new("UPDATE", "UPDATED", "fields of the record were changed"));
    let conflicts_with = found.conflicts_with;
    let revision = owner::next_revision(db, w.stored.user_id)?;
    Ok(Written { outcome: Outcome::Updated, record: Some(found), findings, superseded: None, conflicts_with, revision })
}

/// Times that a patch may give this record (A75; at most one value of a slot at any instant).
fn check_times(db: &Connection, found: &StoredRecord, patch: &Patch, c: &Context<'_>) -> Result<(), Fault> {
    let r = &found.record;
    if patch.expire_time == Some(None) && r.tier != Tier::Stable {
        return Err(Fault::field("memory.expire_time", format!("a {} record always expires; give another time", r.tier.name())));
    }
    let Some(valid_to) = patch.valid_to else { return Ok(()) };
    if let (Some(from), Some(to)) = (r.valid_from, valid_to)
        && to <= from
    {
        return Err(Fault::field("memory.valid_to", "must lie after valid_from"));
    }
    let (Some(key), false, Status::Active) = (&r.key, found.is_set || r.tier == Tier::Event, r.status) else { return Ok(()) };
    for other in query::live_of_slot(db, found.owner, key, r.tier)? {
        let o = &other.record;
        let holds = status::at(o.status, o.tier, o.expire_time, c.now) == Status::Active && o.memory_id != r.memory_id;
        if holds && overlapping(o, r.valid_from, valid_to) {
            return Err(Fault::field("memory.valid_to", "reaches into the time of another value of the key"));
        }
    }
    Ok(())
}

fn apply(found: &mut StoredRecord, patch: &Patch, gated: &Gated, c: &Context<'_>) {
    let r = &mut found.record;
    let s = gated.statement();
    r.importance = patch.importance.unwrap_or(r.importance);
    if let Some(protected) = patch.protected.filter(|protected| *protected != r.protected) {
        r.protected = protected;
        // Rule F8: its tier sets no end to a protected record.
        if r.status == Status::Active && found.expire_asked.is_none() {
            r.expire_time = insert::tier_end(c.settings, r.kind, protected, r.tier, c.now);
        }
    }
    r.topic.clone_from(&s.topic);
    r.tags.clone_from(&s.tags);
    r.metadata.clone_from(&s.metadata);
    if let Some(end) = patch.valid_to {
        r.valid_to = end;
    }
    if let Some(asked) = patch.expire_time {
        found.expire_asked = asked;
        let waits = matches!(r.status, Status::Candidate | Status::Disputed);
        // A candidate does not wait longer for being labelled (rule F2).
        let limit = r.create_time.plus(i64::from(c.settings.candidate_days) * DAY);
        r.expire_time = if waits { Some(asked.map_or(limit, |asked| asked.min(limit))) } else { asked };
    }
}
