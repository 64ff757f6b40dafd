//! What the rules of forgetting look at, and how what they decide is carried out. Every automatic step on a record ends in
//! [`carry_out`], which asks [`forgetting::permit`] once more over the record as it is in the transaction.

use super::insert::{self, Writing};
use super::row::{StoredRecord, by_id, id_bytes, id_from};
use super::{Sql, StoredOwner, corrupt, ledger, owner};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;
use strata_core::policy::forgetting::{self, Fate, ForgettingSettings, Permit, Reference, Subject, Verdict, Wanted};
use strata_core::policy::gate::GateSettings;
use strata_core::policy::quota::Quota;
use strata_core::policy::registry::Registry;
use strata_core::record::{Kind, Status, Tier};
use strata_core::time::DAY;
use strata_core::{AgentId, Fault, MemoryId, Owner, TenantId, Timestamp, UserId};

/// A user as the runner walks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUser {
    /// Inside the file.
    pub user_id: i64,
    /// Tenant.
    pub tenant: TenantId,
    /// User.
    pub user: UserId,
}

/// The next users after `after`, of one tenant and with one name if these are given.
///
/// # Errors
/// As the database says.
pub fn users(
    db: &Connection,
    after: i64,
    tenant: Option<&TenantId>,
    user: Option<&UserId>,
    limit: u32,
) -> Result<Vec<StoredUser>, Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT user_id, tenant, user FROM users WHERE user_id > ?1 AND (?2 IS NULL OR tenant = ?2) \
             AND (?3 IS NULL OR user = ?3) ORDER BY user_id LIMIT ?4",
        )
        .sql()?;
    let mut rows = statement.query(params![after, tenant.map(TenantId::as_str), user.map(UserId::as_str), limit]).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        let (tenant, user): (String, String) = (row.get(1).sql()?, row.get(2).sql()?);
        out.push(StoredUser { user_id: row.get(0).sql()?, tenant: TenantId::new(tenant)?, user: UserId::new(user)? });
    }
    Ok(out)
}

/// Levels of a user: the owner's row, with its agent.
///
/// # Errors
/// As the database says.
pub fn levels(db: &Connection, user: &StoredUser) -> Result<BTreeMap<i64, Owner>, Fault> {
    let mut statement = db.prepare_cached("SELECT owner_id, agent FROM owners WHERE user_id = ?1").sql()?;
    let rows = statement.query_map([user.user_id], |row| Ok((row.get(0)?, row.get::<_, String>(1)?))).sql()?;
    let mut out = BTreeMap::new();
    for row in rows {
        let (owner_id, agent) = row.sql()?;
        let agent = if agent.is_empty() { None } else { Some(AgentId::new(agent)?) };
        out.insert(owner_id, Owner { tenant: user.tenant.clone(), user: user.user.clone(), agent });
    }
    Ok(out)
}

/// Columns of [`subject`]. References are looked up by index: a summary that is there, a proposal that is open, a chain, a
/// question.
const SUBJECT: &str = "r.memory_id, r.owner_id, r.kind, r.tier, r.key, r.protected, r.confirmed, r.instruction, \
    r.confidence, r.importance, r.status, r.expire_time, r.expire_asked IS NOT NULL, r.event_time, r.create_time, \
    r.last_recalled_at, r.last_cited_at, r.topic, CASE WHEN r.tier = 'EVENT' AND r.key IS NOT NULL THEN coalesce(r.value, r.normal) END, \
    r.supersedes IS NOT NULL, EXISTS (SELECT 1 FROM exempt x WHERE x.memory_id = r.memory_id), \
    CASE WHEN r.status IN ('EXPIRED', 'ARCHIVED') THEN (SELECT max(h.time) FROM history h WHERE h.memory_id = r.memory_id AND h.to_status = r.status) END, \
    EXISTS (SELECT 1 FROM derivations d JOIN records s ON s.memory_id = d.derived_id WHERE d.member_id = r.memory_id \
      AND s.kind = 'SUMMARY' AND s.status IN ('ACTIVE', 'ARCHIVED')), \
    EXISTS (SELECT 1 FROM derivations d JOIN records s ON s.memory_id = d.derived_id WHERE d.member_id = r.memory_id \
      AND s.kind <> 'SUMMARY' AND s.status IN ('CANDIDATE', 'DISPUTED')), \
    (EXISTS (SELECT 1 FROM records s WHERE s.superseded_by = r.memory_id) \
      OR EXISTS (SELECT 1 FROM records s WHERE s.supersedes = r.memory_id)), \
    EXISTS (SELECT 1 FROM records c WHERE c.conflicts_with = r.memory_id AND c.status IN ('CANDIDATE', 'DISPUTED', 'ACTIVE')), \
    EXISTS (SELECT 1 FROM derivations d JOIN records s ON s.memory_id = d.derived_id WHERE d.member_id = r.memory_id AND s.kind = 'SUMMARY')";

fn subject(row: &Row<'_>, registry: &Registry) -> Result<Subject, Fault> {
    fn named<T>(row: &Row<'_>, at: usize, from: impl Fn(&str) -> Option<T>) -> Result<T, Fault> {
        let text: String = row.get(at).sql()?;
        from(&text).ok_or_else(|| corrupt("a vocabulary column"))
    }
    let time = |at: usize| row.get::<_, Option<i64>>(at).sql().map(|time| time.map(Timestamp));
    let instant = |at: usize| row.get::<_, i64>(at).sql().map(Timestamp);
    let flag = |at: usize| row.get::<_, bool>(at).sql();
    let key: Option<String> = row.get(4).sql()?;
    let value: Option<String> = row.get(18).sql()?;
    let create_time = instant(14)?;
    let references =
        [(22, Reference::Derivation), (23, Reference::Evidence), (24, Reference::Supersession), (25, Reference::Question)];
    let mut reference = None;
    for (at, kind) in references {
        if flag(at)? {
            reference = Some(kind);
        }
    }
    Ok(Subject {
        memory_id: id_from(row.get(0).sql()?),
        level: row.get(1).sql()?,
        kind: named(row, 2, Kind::from_name)?,
        tier: named(row, 3, Tier::from_name)?,
        keyed: key.is_some(),
        identity: key
            .as_deref()
            .and_then(|key| registry.spec(key))
            .is_some_and(strata_core::policy::registry::KeySpec::is_identity),
        protected: flag(5)?,
        confirmed: flag(6)?,
        instruction: flag(7)?,
        confidence: row.get(8).sql()?,
        importance: row.get(9).sql()?,
        status: named(row, 10, Status::from_name)?,
        expire_time: time(11)?,
        asked: flag(12)?,
        event_time: instant(13)?,
        create_time,
        last_recalled_at: time(15)?,
        last_cited_at: time(16)?,
        topic: row.get::<_, Option<String>>(17).sql()?.map(|topic| strata_text::clean::normal(&topic)),
        slot: key.zip(value).map(|(key, value)| strata_core::id::join(&[&key, &strata_text::clean::normal(&value)])),
        chained: flag(19)?,
        exempt: flag(20)?,
        since: time(21)?.unwrap_or(create_time),
        condensed: flag(26)?,
        reference,
    })
}

/// Every record of a user that a rule may be about.
///
/// # Errors
/// As the database says.
pub fn subjects(db: &Connection, user_id: i64, registry: &Registry) -> Result<Vec<Subject>, Fault> {
    let sql = format!(
        "SELECT {SUBJECT} FROM records r WHERE r.user_id = ?1 AND r.status IN ('CANDIDATE', 'ACTIVE', 'DISPUTED', 'EXPIRED', 'ARCHIVED')"
    );
    let mut statement = db.prepare_cached(&sql).sql()?;
    let mut rows = statement.query([user_id]).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        out.push(subject(row, registry)?);
    }
    Ok(out)
}

/// Members, by summary.
fn by_summary(db: &Connection, sql: &str, user_id: i64) -> Result<BTreeMap<MemoryId, Vec<MemoryId>>, Fault> {
    let mut statement = db.prepare_cached(sql).sql()?;
    let rows =
        statement.query_map([user_id], |row| Ok((row.get::<_, [u8; 16]>(0)?, row.get::<_, Option<[u8; 16]>>(1)?))).sql()?;
    let mut out: BTreeMap<MemoryId, Vec<MemoryId>> = BTreeMap::new();
    for row in rows {
        let (summary, member) = row.sql()?;
        out.entry(id_from(summary)).or_default().extend(member.map(id_from));
    }
    Ok(out)
}

/// Members in force of summaries in force: to be archived once the summary is searchable.
///
/// # Errors
/// As the database says.
pub fn pending_members(db: &Connection, user_id: i64) -> Result<BTreeMap<MemoryId, Vec<MemoryId>>, Fault> {
    let sql = "SELECT s.memory_id, d.member_id FROM summaries s JOIN records r ON r.memory_id = s.memory_id \
         JOIN derivations d ON d.derived_id = s.memory_id JOIN records m ON m.memory_id = d.member_id \
         WHERE r.user_id = ?1 AND s.state = 'CURRENT' AND r.status = 'ACTIVE' AND m.status = 'ACTIVE'";
    by_summary(db, sql, user_id)
}

/// Summaries that are to be made anew, with the members they had. One that its owner forgot is not.
///
/// # Errors
/// As the database says.
pub fn stale_members(db: &Connection, user_id: i64) -> Result<BTreeMap<MemoryId, Vec<MemoryId>>, Fault> {
    let sql = "SELECT s.memory_id, d.member_id FROM summaries s JOIN records r ON r.memory_id = s.memory_id \
         LEFT JOIN derivations d ON d.derived_id = s.memory_id WHERE r.user_id = ?1 AND s.state = 'STALE' AND r.status = 'ARCHIVED'";
    by_summary(db, sql, user_id)
}

/// Records of a user in force, in order of their ids.
///
/// # Errors
/// As the database says.
pub fn in_force(db: &Connection, user_id: i64, after: Option<MemoryId>, limit: u32) -> Result<Vec<StoredRecord>, Fault> {
    let rest = format!("WHERE r.user_id = ?1 AND r.memory_id > ?2 AND r.status = 'ACTIVE' ORDER BY r.memory_id LIMIT {limit}");
    let after: Vec<u8> = after.map(|id| id_bytes(id).to_vec()).unwrap_or_default();
    super::row::select(db, &rest, params![user_id, after])
}

/// Keyless records in force that were learned since a user's records were compared last, oldest first.
///
/// # Errors
/// As the database says.
pub fn unmerged(db: &Connection, user_id: i64, limit: u32) -> Result<Vec<StoredRecord>, Fault> {
    let rest = format!(
        "WHERE r.user_id = ?1 AND r.status = 'ACTIVE' AND r.key IS NULL AND r.kind <> 'SUMMARY' \
         AND r.create_time > coalesce((SELECT until FROM merged WHERE user_id = ?1), -9223372036854775808) \
         ORDER BY r.create_time, r.memory_id LIMIT {limit}"
    );
    super::row::select(db, &rest, [user_id])
}

/// Notes until when a user's records are compared.
///
/// # Errors
/// As the database says.
pub fn merged_until(db: &Connection, user_id: i64, until: Timestamp) -> Result<(), Fault> {
    let mut statement = db.prepare_cached("INSERT OR REPLACE INTO merged (user_id, until) VALUES (?1, ?2)").sql()?;
    statement.execute((user_id, until.micros())).sql()?;
    Ok(())
}

/// Of these records, those that the index has still to be told of.
///
/// # Errors
/// As the database says.
pub fn untold(db: &Connection, ids: &[MemoryId]) -> Result<Vec<MemoryId>, Fault> {
    let mut statement = db.prepare_cached("SELECT EXISTS (SELECT 1 FROM outbox WHERE memory_id = ?1)").sql()?;
    let mut out = Vec::new();
    for id in ids {
        if statement.query_row([id_bytes(*id)], |row| row.get(0)).sql()? {
            out.push(*id);
        }
    }
    Ok(out)
}

fn subject_of(db: &Connection, id: MemoryId, registry: &Registry) -> Result<Option<Subject>, Fault> {
    let mut statement = db.prepare_cached(&format!("SELECT {SUBJECT} FROM records r WHERE r.memory_id = ?1")).sql()?;
    let found = statement.query_row([id_bytes(id)], |row| Ok(subject(row, registry))).optional().sql()?;
    found.transpose()
}

/// What a step needs beside its permit.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a> {
    /// Numbers of forgetting.
    pub settings: &'a ForgettingSettings,
    /// Numbers of the gate.
    pub gate: &'a GateSettings,
    /// Known keys.
    pub registry: &'a Registry,
}

/// Does one automatic step, if it still holds; answers whether it did. The record is judged again as it is now: one that was
/// used, protected or changed since the plan stays.
///
/// # Errors
/// As the database says.
pub fn carry_out(db: &Connection, who: &Job, means: Means<'_>, permit: &Permit, wanted: Wanted) -> Result<bool, Fault> {
    let id = permit.memory_id();
    let Some(now_is) = subject_of(db, id, means.registry)? else { return Ok(false) };
    let Verdict::Permit(permit) = forgetting::permit(means.settings, permit.rule(), wanted, &now_is, who.now) else {
        return Ok(false);
    };
    let Some(mut found) = by_id(db, id)? else { return Ok(false) };
    if found.owner.user_id != who.user_id {
        return Ok(false);
    }
    let holder = found.record.owner.clone();
    let w = who.writing(&holder, found.owner);
    let rule = permit.rule().name();
    let reason = format!("{rule}: {}", permit.because());
    match permit.fate() {
        Fate::Move(Status::Candidate) => {
            // It keeps key and state, and waits like any candidate.
            found.earlier_status = Some(found.record.status);
            let limit = who.now.plus(i64::from(means.gate.candidate_days) * DAY);
            found.record.expire_time = Some(found.expire_asked.map_or(limit, |asked| asked.min(limit)));
            insert::move_to(db, &w, &mut found, Status::Candidate, &reason, rule)?;
        }
        Fate::Move(to) => insert::move_to(db, &w, &mut found, to, &reason, rule)?,
        Fate::Condense(_) if found.record.status == Status::Archived => {}
        Fate::Condense(_) => insert::move_to(db, &w, &mut found, Status::Archived, &reason, rule)?,
        Fate::MergeInto(survivor) => return insert::derived::merge(db, &w, survivor, found, &reason),
        Fate::Purge => return purge(db, &w, &found, &reason).map(|()| true),
    }
    if let Some(key) = &found.record.key {
        owner::release_if_empty(db, found.owner, key)?;
    }
    Ok(true)
}

/// Gives up a stale summary of which too little is left.
///
/// # Errors
/// As the database says.
pub fn retire_summary(db: &Connection, who: &Job, id: MemoryId) -> Result<(), Fault> {
    use insert::derived::{SummaryState, retire, state};
    let found = by_id(db, id)?.filter(|found| found.owner.user_id == who.user_id);
    if let (Some(found), Some(SummaryState::Stale)) = (found, state(db, id)?) {
        let holder = found.record.owner.clone();
        let w = who.writing(&holder, found.owner);
        retire(db, &w, found, "F5: too few of its members are left")?;
    }
    Ok(())
}

/// Who runs, over which user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The user, inside the file.
    pub user_id: i64,
    /// Now.
    pub now: Timestamp,
}

impl Job {
    /// Who the service is in history and audit.
    pub const ACTOR: &'static str = "strata:maintenance";

    /// As the insert path wants it.
    #[must_use]
    pub fn writing<'a>(&self, owner: &'a Owner, stored: StoredOwner) -> Writing<'a> {
        Writing { owner, stored, actor: Self::ACTOR, path: Writing::MAINTENANCE, quota: Quota::default(), now: self.now }
    }
}

/// Removes a record with all that belongs to it (rule F6): row, evidence, history, terms, vector. The index is told, the audit
/// keeps the id.
fn purge(db: &Connection, w: &Writing<'_>, found: &StoredRecord, because: &str) -> Result<(), Fault> {
    let r = &found.record;
    let id = id_bytes(r.memory_id);
    // What a summary stood for goes after it, not into another one.
    let free = "INSERT OR IGNORE INTO exempt (memory_id, owner_id) SELECT m.memory_id, m.owner_id FROM derivations d \
         JOIN records m ON m.memory_id = d.member_id WHERE d.derived_id = ?1";
    db.prepare_cached(free).sql()?.execute([id]).sql()?;
    db.prepare_cached("DELETE FROM derivations WHERE member_id = ?1").sql()?.execute([id]).sql()?;
    db.prepare_cached("DELETE FROM records WHERE memory_id = ?1").sql()?.execute([id]).sql()?;
    ledger::enqueue(db, found.owner, r.memory_id, r.version + 1, w.now)?;
    let entry = ledger::AuditEntry {
        time: w.now,
        tenant: w.owner.tenant.as_str(),
        user: w.owner.user.as_str(),
        action: "PURGED",
        memory_id: Some(r.memory_id),
        actor: w.actor,
        rule: "F6",
        subject: "",
        reason: because,
    };
    ledger::audit(db, &entry)
}

/// Rows of the outbox and the age of the oldest, in microseconds: how far the index is behind.
///
/// # Errors
/// As the database says.
pub fn backlog(db: &Connection, now: Timestamp) -> Result<(u64, i64), Fault> {
    let (rows, oldest) = super::search::outbox_state(db)?;
    Ok((rows, oldest.map_or(0, |oldest| now.since(oldest))))
}
