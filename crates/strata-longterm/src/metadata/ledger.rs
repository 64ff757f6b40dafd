//! What a write leaves beside the record: the answer to repeat, the promotion's outcome, the outbox row, the audit entry.

use super::row::{id_bytes, id_from};
use super::{Sql, StoredOwner};
use rusqlite::{Connection, OptionalExtension};
use strata_core::limits::{OUTBOX_AGE_SECONDS, OUTBOX_ROWS, REQUEST_ID_SECONDS};
use strata_core::time::SECOND;
use strata_core::{Fault, MemoryId, Reason, Timestamp};
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
        Some((method, body, response)) if method == request.method && body == request.body => Ok(Some(response)),
        Some(_) => Err(Fault::new(Reason::RequestIdReused, "request_id: was used for another request; take a new one")),
    }
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

/// When a statement with one of these digests was erased last, if it was (rule E7).
///
/// # Errors
/// As the database says.
pub fn erased_at(db: &Connection, user_id: i64, digests: &[[u8; 32]]) -> Result<Option<Timestamp>, Fault> {
    let mut statement = db.prepare_cached("SELECT time FROM tombstones WHERE user_id = ?1 AND digest = ?2").sql()?;
    let mut last = None;
    for digest in digests {
        let found = statement.query_row((user_id, digest), |row| row.get(0)).optional().sql()?;
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

/// Refuses new statements while the index is too far behind (decision 2 of the architecture). Forgetting is never refused.
///
/// # Errors
/// `OVERLOADED` with the time to wait.
pub fn check_outbox(db: &Connection, now: Timestamp) -> Result<(), Fault> {
    let mut oldest = db.prepare_cached("SELECT time FROM outbox ORDER BY seq LIMIT 1").sql()?;
    let Some(oldest) = oldest.query_row([], |row| row.get::<_, i64>(0)).optional().sql()? else { return Ok(()) };
    let mut full = db.prepare_cached("SELECT 1 FROM outbox LIMIT 1 OFFSET ?1").sql()?;
    let is_full = full.query_row([OUTBOX_ROWS - 1], |_| Ok(())).optional().sql()?.is_some();
    let is_old = now.since(Timestamp(oldest)) > OUTBOX_AGE_SECONDS * SECOND;
    if is_full || is_old {
        let limit = if is_full { OUTBOX_ROWS.to_string() } else { OUTBOX_AGE_SECONDS.to_string() };
        let unit = if is_full { "rows" } else { "seconds" };
        return Err(Fault::new(Reason::Overloaded, "the search index is behind; nothing was written")
            .with("field", "outbox")
            .with("limit", limit)
            .with("unit", unit)
            .retry_after(1_000));
    }
    Ok(())
}

/// Tells the index, later, that a record changed.
///
/// # Errors
/// As the database says.
pub fn enqueue(db: &Connection, owner: StoredOwner, memory_id: MemoryId, version: u64, now: Timestamp) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached("INSERT INTO outbox (memory_id, owner_id, version, op, time) VALUES (?1, ?2, ?3, 'UPSERT', ?4)")
        .sql()?;
    statement.execute((id_bytes(memory_id), owner.owner_id, version, now.micros())).sql()?;
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
        .prepare_cached("INSERT INTO audit (time, tenant, user, action, memory_id, actor, rule, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")
        .sql()?;
    let id = entry.memory_id.map(id_bytes);
    statement.execute((entry.time.micros(), entry.tenant, entry.user, entry.action, id, entry.actor, entry.rule, hash)).sql()?;
    Ok(())
}

fn chain(previous: &[u8; 32], entry: &AuditEntry<'_>) -> [u8; 32] {
    let id = entry.memory_id.map_or_else(String::new, |id| id.to_string());
    let text = strata_core::id::join(&[
        &entry.time.micros().to_string(),
        entry.tenant,
        entry.user,
        entry.action,
        &id,
        entry.actor,
        entry.rule,
    ]);
    let mut hasher = blake3::Hasher::new();
    hasher.update(previous);
    hasher.update(text.as_bytes());
    *hasher.finalize().as_bytes()
}

/// Checks the chain of the audit from its beginning; answers how many entries it has.
///
/// # Errors
/// `INTERNAL` at the first entry that was altered, removed or inserted.
pub fn verify_audit(db: &Connection) -> Result<u64, Fault> {
    let mut statement =
        db.prepare("SELECT time, tenant, user, action, memory_id, actor, rule, hash FROM audit ORDER BY seq").sql()?;
    let mut rows = statement.query([]).sql()?;
    let (mut previous, mut entries) = ([0; 32], 0);
    while let Some(row) = rows.next().sql()? {
        let text = |at| row.get::<_, String>(at).sql();
        let (tenant, user, action, actor, rule) = (text(1)?, text(2)?, text(3)?, text(5)?, text(6)?);
        let memory_id = row.get::<_, Option<[u8; 16]>>(4).sql()?.map(id_from);
        let time = Timestamp(row.get(0).sql()?);
        let entry = AuditEntry { time, tenant: &tenant, user: &user, action: &action, memory_id, actor: &actor, rule: &rule };
        previous = chain(&previous, &entry);
        if previous != row.get::<_, [u8; 32]>(7).sql()? {
            return Err(super::corrupt("the audit chain"));
        }
        entries += 1;
    }
    Ok(entries)
}
