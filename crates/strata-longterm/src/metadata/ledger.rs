//! What a write leaves beside the record: the answer to repeat, the promotion's outcome, the outbox row, the audit entry.

use super::row::{id_bytes, id_from};
use super::{Sql, StoredOwner};
use rusqlite::{Connection, OptionalExtension};
use strata_core::limits::{OUTBOX_AGE_SECONDS, OUTBOX_ROWS, OUTBOX_TOTAL_ROWS, REQUEST_ID_SECONDS};
use strata_core::policy::authz::Principal;
use strata_core::time::SECOND;
use strata_core::{Fault, MemoryId, Reason, TenantId, Timestamp};
use uuid::Uuid;

/// A mutating request that carries an id: the same id gives the same answer for a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The id.
    pub request_id: Uuid,
    /// Method name.
    pub method: &'static str,
    /// Digest of owner, method and body.
    pub body: [u8; 32],
}

/// The stored answer of a request.
///
/// # Errors
/// `REQUEST_ID_REUSED` when the id was used for another request.
pub fn answered(db: &Connection, user_id: i64, request: &RequestKey, now: Timestamp) -> Result<Option<Vec<u8>>, Fault> {
    let mut statement = db
        .prepare_cached("SELECT method, body, response FROM idempotency WHERE user_id = ?1 AND request_id = ?2 AND time > ?3")
        .sql()?;
    let since = now.plus(-REQUEST_ID_SECONDS * SECOND).micros();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, [u8; 32]>(1)?, row.get::<_, Vec<u8>>(2)?));
    let found = statement.query_row((user_id, request.request_id.as_bytes(), since), read).optional().sql()?;
    match found {
        None => Ok(None),
        Some((method, ..)) if method == ERASED_METHOD => {
            Err(forgotten("the request was served, and what it wrote was erased since"))
        }
        Some((method, body, response)) if method == request.method && body == request.body => Ok(Some(response)),
        Some(_) => Err(Fault::new(Reason::RequestIdReused, "request_id: was used for another request; take a new one")),
    }
}

fn forgotten(because: &'static str) -> Fault {
    Fault::new(Reason::Forgotten, because).rule("E7", "request_id", "a new statement of the user goes under a new id")
}

/// Stores the answer of a request, and drops answers older than a day.
///
/// # Errors
/// As the database says.
pub fn remember_answer(
    db: &Connection,
    user_id: i64,
    request: &RequestKey,
    response: &[u8],
    now: Timestamp,
) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "INSERT OR REPLACE INTO idempotency (user_id, request_id, method, body, response, time) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .sql()?;
    let key = request.request_id.as_bytes();
    statement.execute((user_id, key, request.method, request.body, response, now.micros())).sql()?;
    // A few at a time, so that no write pays for a day's worth.
    let mut statement = db
        .prepare_cached(
            "DELETE FROM idempotency WHERE (user_id, request_id) IN \
             (SELECT user_id, request_id FROM idempotency WHERE time <= ?1 ORDER BY time LIMIT 8)",
        )
        .sql()?;
    statement.execute([now.plus(-REQUEST_ID_SECONDS * SECOND).micros()]).sql()?;
    Ok(())
}

/// What became of a promotion here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// Applied, with its answer.
    Applied(Vec<u8>),
    /// Aborted: a late apply is refused.
    Aborted,
}

/// The outcome of a promotion, if it has one.
///
/// # Errors
/// As the database says.
pub fn promotion(db: &Connection, user_id: i64, promotion_id: &str) -> Result<Option<Promotion>, Fault> {
    let mut statement =
        db.prepare_cached("SELECT state, response FROM promotions WHERE user_id = ?1 AND promotion_id = ?2").sql()?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Option<Vec<u8>>>(1)?));
    let found = statement.query_row((user_id, promotion_id), read).optional().sql()?;
    Ok(found.map(|(state, response)| match state.as_str() {
        "APPLIED" => Promotion::Applied(response.unwrap_or_default()),
        _ => Promotion::Aborted,
    }))
}

/// Writes the outcome of a promotion; the first one stands.
///
/// # Errors
/// As the database says.
pub fn settle_promotion(
    db: &Connection,
    user_id: i64,
    promotion_id: &str,
    outcome: &Promotion,
    now: Timestamp,
) -> Result<(), Fault> {
    let (state, response) = match outcome {
        Promotion::Applied(response) => ("APPLIED", Some(response)),
        Promotion::Aborted => ("ABORTED", None),
    };
    let mut statement = db
        .prepare_cached(
            "INSERT OR IGNORE INTO promotions (user_id, promotion_id, state, response, time) VALUES (?1, ?2, ?3, ?4, ?5)",
        )
        .sql()?;
    statement.execute((user_id, promotion_id, state, response, now.micros())).sql()?;
    Ok(())
}

/// When a statement with one of these digests was erased last, or everything of its owner was, if it was (rule E7).
///
/// # Errors
/// As the database says.
pub fn erased_at(db: &Connection, owner: StoredOwner, digests: &[[u8; 32]]) -> Result<Option<Timestamp>, Fault> {
    let mut statement = db.prepare_cached("SELECT time FROM tombstones WHERE user_id = ?1 AND digest = ?2").sql()?;
    let mut last = super::owner::erased_before(db, owner)?;
    for digest in digests {
        let found = statement.query_row((owner.user_id, digest), |row| row.get(0)).optional().sql()?;
        last = last.max(found.map(Timestamp));
    }
    Ok(last)
}

/// Remembers that a statement was forgotten now: evidence from before brings it back no more (rule E7).
///
/// # Errors
/// As the database says.
pub fn bury(db: &Connection, user_id: i64, digests: &[[u8; 32]], now: Timestamp) -> Result<(), Fault> {
    let mut statement =
        db.prepare_cached("INSERT OR REPLACE INTO tombstones (user_id, digest, time) VALUES (?1, ?2, ?3)").sql()?;
    for digest in digests {
        statement.execute((user_id, digest, now.micros())).sql()?;
    }
    Ok(())
}

/// Takes [`bury`] back: the record was restored.
///
/// # Errors
/// As the database says.
pub fn unbury(db: &Connection, user_id: i64, digests: &[[u8; 32]]) -> Result<(), Fault> {
    let mut statement = db.prepare_cached("DELETE FROM tombstones WHERE user_id = ?1 AND digest = ?2").sql()?;
    for digest in digests {
        statement.execute((user_id, digest)).sql()?;
    }
    Ok(())
}

/// Refuses new statements of a tenant while the index is too far behind with what that tenant said (decision 2 of the
/// architecture), and of every tenant while it is with what all of them said. Forgetting is never refused.
///
/// # Errors
/// `OVERLOADED` with the time to wait.
pub fn check_outbox(db: &Connection, tenant: &TenantId, now: Timestamp) -> Result<(), Fault> {
    let behind = |limit: &dyn std::fmt::Display, unit: &str| {
        Err(Fault::new(Reason::Overloaded, "the search index is behind; nothing was written")
            .with("field", "outbox")
            .with("limit", limit.to_string())
            .with("unit", unit)
            .retry_after(1_000))
    };
    let mut oldest = db.prepare_cached("SELECT time FROM outbox WHERE tenant = ?1 ORDER BY seq LIMIT 1").sql()?;
    let oldest = oldest.query_row([tenant.as_str()], |row| row.get::<_, i64>(0)).optional().sql()?;
    if let Some(oldest) = oldest {
        let mut full = db.prepare_cached("SELECT 1 FROM outbox WHERE tenant = ?1 LIMIT 1 OFFSET ?2").sql()?;
        if full.query_row((tenant.as_str(), OUTBOX_ROWS - 1), |_| Ok(())).optional().sql()?.is_some() {
            return behind(&OUTBOX_ROWS, "rows");
        }
        if now.since(Timestamp(oldest)) > OUTBOX_AGE_SECONDS * SECOND {
            return behind(&OUTBOX_AGE_SECONDS, "seconds");
        }
    }
    // There are as many numbers between the first and the last row as there are rows, or more: they are counted only then.
    let mut span = db.prepare_cached("SELECT (SELECT max(seq) FROM outbox) - (SELECT min(seq) FROM outbox)").sql()?;
    let span = span.query_row([], |row| row.get::<_, Option<u64>>(0)).sql()?;
    if span.is_some_and(|span| span >= OUTBOX_TOTAL_ROWS - 1) {
        let mut full = db.prepare_cached("SELECT 1 FROM outbox LIMIT 1 OFFSET ?1").sql()?;
        if full.query_row([OUTBOX_TOTAL_ROWS - 1], |_| Ok(())).optional().sql()?.is_some() {
            return behind(&OUTBOX_TOTAL_ROWS, "rows");
        }
    }
    Ok(())
}

/// The tenant of the owner `?2`, for rows of the outbox.
const TENANT_OF_OWNER: &str =
    "coalesce((SELECT u.tenant FROM owners o JOIN users u ON u.user_id = o.user_id WHERE o.owner_id = ?2), '')";

/// Tells the index, later, that a record changed.
///
/// # Errors
/// As the database says.
pub fn enqueue(db: &Connection, owner: StoredOwner, memory_id: MemoryId, version: u64, now: Timestamp) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(&format!(
            "INSERT INTO outbox (memory_id, owner_id, version, op, time, tenant) \
             VALUES (?1, ?2, ?3, 'UPSERT', ?4, {TENANT_OF_OWNER})"
        ))
        .sql()?;
    statement.execute((id_bytes(memory_id), owner.owner_id, version, now.micros())).sql()?;
    Ok(())
}

/// Tells the index, later, that a record is gone for good.
///
/// # Errors
/// As the database says.
pub fn enqueue_delete(db: &Connection, owner: StoredOwner, memory_id: MemoryId, now: Timestamp) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(&format!(
            "INSERT INTO outbox (memory_id, owner_id, version, op, time, tenant) \
             VALUES (?1, ?2, 0, 'DELETE', ?3, {TENANT_OF_OWNER})"
        ))
        .sql()?;
    statement.execute((id_bytes(memory_id), owner.owner_id, now.micros())).sql()?;
    Ok(())
}

/// One entry of the audit. It has no place for content (A172).
#[derive(Clone, Copy, Debug)]
pub struct AuditEntry<'a> {
    /// When.
    pub time: Timestamp,
    /// Tenant.
    pub tenant: &'a str,
    /// User.
    pub user: &'a str,
    /// What happened, such as `ACTIVE`, `DELETED`, `NEEDS_CONSENT`.
    pub action: &'a str,
    /// Record, where there is one.
    pub memory_id: Option<MemoryId>,
    /// Who.
    pub actor: &'a str,
    /// Rule.
    pub rule: &'a str,
    /// What else it is about: an erasure, a backup.
    pub subject: &'a str,
    /// Why, where somebody said so; checked against what is erased.
    pub reason: &'a str,
}

/// Appends an entry whose hash covers the entry before it.
///
/// # Errors
/// As the database says.
pub fn audit(db: &Connection, entry: &AuditEntry<'_>) -> Result<(), Fault> {
    let mut last = db.prepare_cached("SELECT hash FROM audit ORDER BY seq DESC LIMIT 1").sql()?;
    let previous: Option<[u8; 32]> = last.query_row([], |row| row.get(0)).optional().sql()?;
    let hash = chain(&previous.unwrap_or_default(), entry);
    let mut statement = db
        .prepare_cached(
            "INSERT INTO audit (time, tenant, user, action, memory_id, actor, rule, hash, subject, reason) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )
        .sql()?;
    let id = entry.memory_id.map(id_bytes);
    let AuditEntry { tenant, user, action, actor, rule, subject, reason, .. } = *entry;
    statement.execute((entry.time.micros(), tenant, user, action, id, actor, rule, hash, subject, reason)).sql()?;
    Ok(())
}

/// Appends what somebody administered; `user` is whom it is about, empty for the tenant.
///
/// # Errors
/// As the database says.
pub fn administered(
    db: &Connection,
    time: Timestamp,
    by: &Principal,
    action: &str,
    user: &str,
    subject: &str,
) -> Result<(), Fault> {
    let (tenant, actor) = (by.tenant.as_str(), by.id.as_str());
    audit(db, &AuditEntry { time, tenant, user, action, memory_id: None, actor, rule: "", subject, reason: "" })
}

fn chain(previous: &[u8; 32], entry: &AuditEntry<'_>) -> [u8; 32] {
    let id = entry.memory_id.map_or_else(String::new, |id| id.to_string());
    let time = entry.time.micros().to_string();
    let mut parts = vec![time.as_str(), entry.tenant, entry.user, entry.action, &id, entry.actor, entry.rule];
    // Entries from before there were these two keep their hash.
    if !entry.subject.is_empty() || !entry.reason.is_empty() {
        parts.extend([entry.subject, entry.reason]);
    }
    let text = strata_core::id::join(&parts);
    let mut hasher = blake3::Hasher::new();
    hasher.update(previous);
    hasher.update(text.as_bytes());
    *hasher.finalize().as_bytes()
}

/// An entry as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// Number.
    pub seq: i64,
    /// When.
    pub time: Timestamp,
    /// Tenant.
    pub tenant: String,
    /// User.
    pub user: String,
    /// What happened.
    pub action: String,
    /// Record.
    pub memory_id: Option<MemoryId>,
    /// Who.
    pub actor: String,
    /// Rule.
    pub rule: String,
    /// What else it is about.
    pub subject: String,
    /// Why.
    pub reason: String,
    /// Over this entry and the one before it.
    pub hash: [u8; 32],
}

const AUDITED: &str = "SELECT seq, time, tenant, user, action, memory_id, actor, rule, subject, reason, hash FROM audit";

impl Audited {
    fn read(row: &rusqlite::Row<'_>) -> Result<Self, Fault> {
        Ok(Self {
            seq: row.get(0).sql()?,
            time: Timestamp(row.get(1).sql()?),
            tenant: row.get(2).sql()?,
            user: row.get(3).sql()?,
            action: row.get(4).sql()?,
            memory_id: row.get::<_, Option<[u8; 16]>>(5).sql()?.map(id_from),
            actor: row.get(6).sql()?,
            rule: row.get(7).sql()?,
            subject: row.get(8).sql()?,
            reason: row.get(9).sql()?,
            hash: row.get(10).sql()?,
        })
    }

    fn entry(&self) -> AuditEntry<'_> {
        AuditEntry {
            time: self.time,
            tenant: &self.tenant,
            user: &self.user,
            action: &self.action,
            memory_id: self.memory_id,
            actor: &self.actor,
            rule: &self.rule,
            subject: &self.subject,
            reason: &self.reason,
        }
    }
}

/// Which entries of one tenant are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditAsked {
    /// Only about this user.
    pub user: Option<String>,
    /// Only this action.
    pub action: Option<String>,
}

/// Entries of a tenant, and those that are about the deployment and no tenant, in order, the first `limit` after number `after`.
///
/// # Errors
/// As the database says.
pub fn audited(db: &Connection, tenant: &str, asked: &AuditAsked, after: i64, limit: u64) -> Result<Vec<Audited>, Fault> {
    let sql = format!(
        "{AUDITED} WHERE seq > ?1 AND tenant IN (?2, '') AND (?3 IS NULL OR user = ?3) AND (?4 IS NULL OR action = ?4) ORDER BY seq LIMIT ?5"
    );
    let mut statement = db.prepare_cached(&sql).sql()?;
    let mut rows = statement.query(rusqlite::params![after, tenant, asked.user, asked.action, limit]).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        out.push(Audited::read(row)?);
    }
    Ok(out)
}

/// Checks the chain of the audit from its beginning; answers how many entries it has, and the hash of the last one.
///
/// # Errors
/// `INTERNAL` naming the first entry that was altered, or that follows one that was removed or inserted.
pub fn verify_audit(db: &Connection) -> Result<(u64, [u8; 32]), Fault> {
    let mut statement = db.prepare(&format!("{AUDITED} ORDER BY seq")).sql()?;
    let mut rows = statement.query([]).sql()?;
    let (mut previous, mut entries) = ([0; 32], 0);
    while let Some(row) = rows.next().sql()? {
        let found = Audited::read(row)?;
        previous = chain(&previous, &found.entry());
        if previous != found.hash {
            tracing::error!(seq = found.seq, "the audit chain is broken");
            return Err(Fault::new(Reason::Internal, format!("the audit chain is broken at entry {}", found.seq)));
        }
        entries += 1;
    }
    Ok((entries, previous))
}

/// Marks what a request wrote as erased: sent again, it is refused instead of being done again (rule E7). Nothing of it is
/// kept but its id.
pub const ERASED_METHOD: &str = "ERASED";
