//! The journal of erasures: what was asked for, what is looked for, which steps are not done, and what each store said. One
//! row of `erasures` is one receipt; nothing here removes a memory, that is [`super::wipe`].

use super::row::{by_id, id_bytes, id_from};
use super::{Sql, Visible, corrupt, derived, ledger, query};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use strata_core::limits::{ERASE_OPEN_PAGE, ERASE_SCOPE_RECORDS, ERASE_SCOPE_TEXTS, ERASE_SCOPE_TURNS};
use strata_core::policy::gate::Tombstones;
use strata_core::record::{SourceRef, Value};
use strata_core::text::ValueKind;
use strata_core::{AgentId, Fault, MemoryId, Owner, TenantId, Timestamp, UserId};
use strata_text::needles::{LONG, Needles};
use strata_text::values::protected_values;
use uuid::Uuid;

/// Part of an erasure that is done or not done as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The line in the erasure log (rule E8).
    Log,
    /// The records, with all that hangs on them.
    Records,
    /// What was derived from them in this file.
    Derived,
    /// The search index.
    Index,
    /// Promotions and claims, at the router.
    Ledger,
    /// Session memory.
    Session,
    /// Working memory.
    Working,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 7] = [Self::Log, Self::Records, Self::Derived, Self::Index, Self::Ledger, Self::Session, Self::Working];

    /// Stable lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Records => "records",
            Self::Derived => "derived",
            Self::Index => "index",
            Self::Ledger => "ledger",
            Self::Session => "session",
            Self::Working => "working",
        }
    }

    /// From the stable name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    /// Whether a router does it.
    #[must_use]
    pub const fn is_outside(self) -> bool {
        matches!(self, Self::Ledger | Self::Session | Self::Working)
    }
}

/// What an erasure looks for, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Records.
    pub memory_ids: BTreeSet<Uuid>,
    /// Turns that they quote, by session.
    pub turns: BTreeMap<String, BTreeSet<u32>>,
    /// Contents, quotes, values.
    pub texts: BTreeSet<String>,
    /// Protected values of [`LONG`] or more characters that are no names.
    pub values: BTreeSet<String>,
    /// Such values that are names: of themselves they make no entity or skill part of what is erased.
    pub names: BTreeSet<String>,
    /// Shorter ones.
    pub short: BTreeSet<String>,
    /// Keys.
    pub keys: BTreeSet<String>,
}

impl Scope {
    fn add_text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.texts.insert(text.to_owned());
        }
        for value in protected_values(text) {
            let long = value.text.chars().count() >= LONG;
            match (long, value.kind) {
                (true, ValueKind::Name) => self.names.insert(value.text),
                (true, _) => self.values.insert(value.text),
                (false, _) => self.short.insert(value.text),
            };
        }
    }

    fn add_reference(&mut self, reference: Option<&SourceRef>) {
        if let Some(SourceRef::Turn { session_id, seq }) = reference {
            self.turns.entry(session_id.clone()).or_default().insert(*seq);
        }
    }

    /// Words that a caller names.
    #[must_use]
    pub fn of_words(words: &[String]) -> Self {
        Self { texts: words.iter().cloned().collect(), ..Self::default() }
    }

    /// What stays when it is closed: references, no content.
    #[must_use]
    pub fn references(self) -> Self {
        Self { memory_ids: self.memory_ids, turns: self.turns, ..Self::default() }
    }

    fn is_full(&self) -> bool {
        let turns: usize = self.turns.values().map(BTreeSet::len).sum();
        self.texts.len() + self.values.len() + self.names.len() >= ERASE_SCOPE_TEXTS
            || self.short.len() >= ERASE_SCOPE_TEXTS
            || self.keys.len() >= ERASE_SCOPE_TEXTS
            || turns >= ERASE_SCOPE_TURNS
            || self.memory_ids.len() >= ERASE_SCOPE_RECORDS
    }
}

/// The needles of an erasure, by how much they have to say.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// Texts alone: what another record holds of them is not its own.
    pub whole: Needles,
    /// With protected values that are no names: for entities and skills.
    pub strict: Needles,
    /// With everything: for turns and their summaries.
    pub all: Needles,
    /// Turns by reference.
    pub turns: BTreeMap<String, BTreeSet<u32>>,
}

impl Sight {
    /// Of all parts together.
    #[must_use]
    pub fn of(scopes: &[Scope]) -> Self {
        let texts = || scopes.iter().flat_map(|s| &s.texts).map(String::as_str);
        let values = || scopes.iter().flat_map(|s| &s.values).map(String::as_str);
        let names = || scopes.iter().flat_map(|s| &s.names).map(String::as_str);
        let short = || scopes.iter().flat_map(|s| &s.short).map(String::as_str);
        let mut turns: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for scope in scopes {
            for (session, seqs) in &scope.turns {
                turns.entry(session.clone()).or_default().extend(seqs);
            }
        }
        Self {
            whole: Needles::new(texts(), []),
            strict: Needles::new(texts().chain(values()), []),
            all: Needles::new(texts().chain(values()).chain(names()), short()),
            turns,
        }
    }

    /// Whether a turn is one of those that are referred to.
    #[must_use]
    pub fn refers_to(&self, session: &str, seq: u32) -> bool {
        self.turns.get(session).is_some_and(|seqs| seqs.contains(&seq))
    }
}

/// A row of `erasures`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Erasure {
    /// Id.
    pub erasure_id: Uuid,
    /// Of the user.
    pub user_id: i64,
    /// Whose memory: with an agent, that one's only.
    pub owner: Owner,
    /// All of it.
    pub everything: bool,
    /// Erase epoch of the user that it set.
    pub epoch: u64,
    /// Who asked.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When it was asked for.
    pub request_time: Timestamp,
    /// When it was out of every store.
    pub close_time: Option<Timestamp>,
    /// When the file was rid of it.
    pub file_time: Option<Timestamp>,
}

const COLUMNS: &str = "e.erasure_id, e.user_id, u.tenant, u.user, e.agent, e.everything, e.epoch, e.actor, e.reason, e.request_time, \
    e.close_time, e.file_time";
const FROM: &str = "erasures e JOIN users u ON u.user_id = e.user_id";

fn read(row: &Row<'_>) -> Result<Erasure, Fault> {
    let text = |at: usize| row.get::<_, String>(at).sql();
    let agent = text(4)?;
    Ok(Erasure {
        erasure_id: Uuid::from_bytes(row.get(0).sql()?),
        user_id: row.get(1).sql()?,
        owner: Owner {
            tenant: TenantId::new(text(2)?)?,
            user: UserId::new(text(3)?)?,
            agent: if agent.is_empty() { None } else { Some(AgentId::new(agent)?) },
        },
        everything: row.get(5).sql()?,
        epoch: row.get(6).sql()?,
        actor: text(7)?,
        reason: text(8)?,
        request_time: Timestamp(row.get(9).sql()?),
        close_time: row.get::<_, Option<i64>>(10).sql()?.map(Timestamp),
        file_time: row.get::<_, Option<i64>>(11).sql()?.map(Timestamp),
    })
}

fn select(db: &Connection, rest: &str, parameters: impl rusqlite::Params) -> Result<Vec<Erasure>, Fault> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM {FROM} {rest}")).sql()?;
    let mut rows = statement.query(parameters).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        out.push(read(row)?);
    }
    Ok(out)
}

/// An erasure by id, whoever's it is: for callers that hold the owner against it.
///
/// # Errors
/// As the database says.
pub fn any(db: &Connection, erasure_id: Uuid) -> Result<Option<Erasure>, Fault> {
    Ok(select(db, "WHERE e.erasure_id = ?1", [erasure_id.as_bytes()])?.pop())
}

/// Erasures that are not closed, oldest first.
///
/// # Errors
/// As the database says.
pub fn open(db: &Connection) -> Result<Vec<Erasure>, Fault> {
    select(db, "WHERE e.close_time IS NULL ORDER BY e.request_time, e.erasure_id LIMIT ?1", [ERASE_OPEN_PAGE])
}

/// Closed ones whose file still holds what the journal held.
///
/// # Errors
/// As the database says.
pub fn unfolded(db: &Connection) -> Result<Vec<Uuid>, Fault> {
    let mut statement =
        db.prepare_cached("SELECT erasure_id FROM erasures WHERE close_time IS NOT NULL AND file_time IS NULL").sql()?;
    let rows = statement.query_map([], |row| row.get::<_, [u8; 16]>(0)).sql()?;
    rows.map(|row| row.sql().map(Uuid::from_bytes)).collect()
}

/// Every erasure there is, closed or not.
///
/// # Errors
/// As the database says.
pub fn all(db: &Connection) -> Result<Vec<Erasure>, Fault> {
    select(db, "ORDER BY e.request_time, e.erasure_id", [])
}

/// What routers have to do: erasures with steps of theirs that none took up after `?1`, and closed ones whose stores outside of
/// this file waited for their medium when a router looked last, before `?2`.
const OUTSIDE: &str = "(e.close_time IS NULL AND e.taken_time <= ?1 AND EXISTS (SELECT 1 FROM erasure_steps s \
    WHERE s.erasure_id = e.erasure_id AND s.step IN ('ledger', 'session', 'working'))) \
    OR (e.close_time IS NOT NULL AND e.taken_time <= ?2 AND EXISTS (SELECT 1 FROM erasure_stores s \
    WHERE s.erasure_id = e.erasure_id AND s.medium = 'PENDING' AND s.store NOT LIKE 'longterm.%'))";

/// Since when a router may have an erasure in hand without being asked for it again: one with steps, one whose media are waited
/// for.
#[derive(Clone, Copy, Debug)]
pub struct Since {
    /// With steps.
    pub open: Timestamp,
    /// Closed.
    pub closed: Timestamp,
}

/// Erasures that routers have something to do for, and takes them up now.
///
/// # Errors
/// As the database says.
pub fn take_up(db: &Connection, since: Since, now: Timestamp) -> Result<Vec<Erasure>, Fault> {
    let found = select(
        db,
        &format!("WHERE {OUTSIDE} ORDER BY e.taken_time, e.erasure_id LIMIT ?3"),
        params![since.open.micros(), since.closed.micros(), ERASE_OPEN_PAGE],
    )?;
    for erasure in &found {
        taken(db, erasure.erasure_id, now)?;
    }
    Ok(found)
}

/// A router has it in hand.
///
/// # Errors
/// As the database says.
pub fn taken(db: &Connection, erasure_id: Uuid, now: Timestamp) -> Result<(), Fault> {
    let mut statement = db.prepare_cached("UPDATE erasures SET taken_time = ?2 WHERE erasure_id = ?1").sql()?;
    statement.execute(params![erasure_id.as_bytes(), now.micros()]).sql()?;
    Ok(())
}

/// Enters an erasure with its steps.
///
/// # Errors
/// As the database says.
pub fn enter(db: &Connection, erasure: &Erasure, scopes: &[Scope], steps: &[Step]) -> Result<(), Fault> {
    let id = erasure.erasure_id.as_bytes();
    let agent = erasure.owner.agent.as_ref().map_or("", |agent| agent.as_str());
    db.prepare_cached(
        "INSERT INTO erasures (erasure_id, user_id, agent, everything, epoch, actor, reason, request_time, taken_time, close_time) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9)",
    )
    .sql()?
    .execute(params![
        id,
        erasure.user_id,
        agent,
        erasure.everything,
        erasure.epoch,
        erasure.actor,
        erasure.reason,
        erasure.request_time.micros(),
        erasure.close_time.map(Timestamp::micros),
    ])
    .sql()?;
    for (part, scope) in (0_i64..).zip(scopes) {
        put_scope(db, erasure.erasure_id, part, scope)?;
    }
    let mut step = db.prepare_cached("INSERT INTO erasure_steps (erasure_id, step) VALUES (?1, ?2)").sql()?;
    for one in steps {
        step.execute(params![id, one.name()]).sql()?;
    }
    Ok(())
}

fn put_scope(db: &Connection, erasure_id: Uuid, part: i64, scope: &Scope) -> Result<(), Fault> {
    let text = serde_json::to_string(scope).map_err(|_| corrupt("a scope"))?;
    let mut statement =
        db.prepare_cached("INSERT OR REPLACE INTO erasure_scopes (erasure_id, part, scope) VALUES (?1, ?2, ?3)").sql()?;
    statement.execute(params![erasure_id.as_bytes(), part, text]).sql()?;
    Ok(())
}

/// Refers to turns that were redacted: what finds them again where they come back.
///
/// # Errors
/// As the database says.
pub fn refer(db: &Connection, erasure_id: Uuid, turns: &BTreeMap<String, BTreeSet<u32>>) -> Result<(), Fault> {
    /// The part that is made by the sweep.
    const SWEPT: i64 = -1;
    if turns.is_empty() {
        return Ok(());
    }
    let mut statement = db.prepare_cached("SELECT scope FROM erasure_scopes WHERE erasure_id = ?1 AND part = ?2").sql()?;
    let known: Option<String> = statement.query_row(params![erasure_id.as_bytes(), SWEPT], |row| row.get(0)).optional().sql()?;
    let mut scope: Scope = match known {
        Some(text) => serde_json::from_str(&text).map_err(|_| corrupt("a scope"))?,
        None => Scope::default(),
    };
    for (session, seqs) in turns {
        scope.turns.entry(session.clone()).or_default().extend(seqs);
    }
    put_scope(db, erasure_id, SWEPT, &scope)
}

/// What an erasure looks for: without content once it is closed.
///
/// # Errors
/// As the database says.
pub fn scopes(db: &Connection, erasure_id: Uuid) -> Result<Vec<Scope>, Fault> {
    let mut statement = db.prepare_cached("SELECT scope FROM erasure_scopes WHERE erasure_id = ?1 ORDER BY part").sql()?;
    let rows = statement.query_map([erasure_id.as_bytes()], |row| row.get::<_, String>(0)).sql()?;
    rows.map(|row| serde_json::from_str(&row.sql()?).map_err(|_| corrupt("a scope"))).collect()
}

/// What to look for so that nothing of these records stays, in parts; echoes of them, records of the same owner that say the
/// same, and near-duplicates that were merged into them, included. Those that are gone are passed over. With each its version: a record that gains evidence has another.
///
/// # Errors
/// As the database says.
pub fn gather(
    db: &Connection,
    visible: &Visible,
    ids: &BTreeSet<MemoryId>,
) -> Result<(BTreeMap<MemoryId, u64>, Vec<Scope>), Fault> {
    let mut versions = BTreeMap::new();
    let mut parts: Vec<Scope> = Vec::new();
    let mut waiting: Vec<MemoryId> = ids.iter().copied().collect();
    while let Some(id) = waiting.pop() {
        if versions.contains_key(&id) {
            continue;
        }
        let Some(found) = by_id(db, id)?.filter(|found| visible.sees(found.owner)) else { continue };
        versions.insert(id, found.record.version);
        waiting.extend(same_words(db, found.owner.owner_id, found.record.kind.name(), &found.record.normal)?);
        waiting.extend(derived::merged_into(db, id)?);
        if parts.last().is_none_or(Scope::is_full) {
            parts.push(Scope::default());
        }
        let Some(part) = parts.last_mut() else { continue };
        let r = &found.record;
        part.memory_ids.insert(id.0);
        part.keys.extend(r.key.as_ref().map(|key| key.as_str().to_owned()));
        match &r.value {
            Some(Value::Bool(_)) | None => {}
            Some(value) => {
                let text = value.as_text();
                let long = text.chars().count() >= LONG;
                if long {
                    part.texts.insert(text.to_owned())
                } else {
                    part.short.insert(text.to_owned())
                };
            }
        }
        part.add_reference(r.source_ref.as_ref());
        for text in [&r.content, &r.source_quote] {
            part.add_text(text);
        }
        for piece in query::evidence(db, id)? {
            if parts.last().is_none_or(Scope::is_full) {
                parts.push(Scope { memory_ids: [id.0].into(), ..Scope::default() });
            }
            let Some(part) = parts.last_mut() else { continue };
            part.add_reference(piece.source_ref.as_ref());
            part.add_text(&piece.quote);
        }
    }
    Ok((versions, parts))
}

fn same_words(db: &Connection, owner_id: i64, kind: &str, normal: &str) -> Result<Vec<MemoryId>, Fault> {
    let mut statement =
        db.prepare_cached("SELECT memory_id FROM records WHERE owner_id = ?1 AND kind = ?2 AND normal = ?3").sql()?;
    let rows = statement.query_map(params![owner_id, kind, normal], |row| row.get::<_, [u8; 16]>(0)).sql()?;
    rows.map(|row| row.sql().map(id_from)).collect()
}

/// The digest that stands for the id of a record among the erased ones (rule E6).
#[must_use]
pub fn id_digest(tombstones: &Tombstones, owner: &Owner, id: MemoryId) -> [u8; 32] {
    tombstones.digest(&owner.user_level(), &["memory", &id.to_string()])
}

/// Kind of something that an erasure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// A record.
    Record,
    /// An entity.
    Entity,
    /// A version of a skill.
    Skill,
    /// An episode.
    Episode,
    /// A record, entity or skill whose quotes had words taken out.
    Redacted,
    /// A record that was not asked for and holds some of the same words.
    Mention,
}

impl Item {
    const fn name(self) -> &'static str {
        match self {
            Self::Record => "RECORD",
            Self::Entity => "ENTITY",
            Self::Skill => "SKILL",
            Self::Episode => "EPISODE",
            Self::Redacted => "REDACTED",
            Self::Mention => "MENTION",
        }
    }
}

/// Notes an item.
///
/// # Errors
/// As the database says.
pub fn note(db: &Connection, erasure_id: Uuid, item: Item, id: MemoryId, gone: bool) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "INSERT INTO erasure_items (erasure_id, kind, item_id, gone) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (erasure_id, kind, item_id) DO UPDATE SET gone = max(gone, ?4)",
        )
        .sql()?;
    statement.execute(params![erasure_id.as_bytes(), item.name(), id_bytes(id), gone]).sql()?;
    Ok(())
}

/// Items of one kind, at most `limit`; only those that are not gone when `waiting`.
///
/// # Errors
/// As the database says.
pub fn items(db: &Connection, erasure_id: Uuid, item: Item, waiting: bool, limit: u32) -> Result<Vec<MemoryId>, Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT item_id FROM erasure_items WHERE erasure_id = ?1 AND kind = ?2 AND (gone = 0 OR NOT ?3) ORDER BY item_id LIMIT ?4",
        )
        .sql()?;
    let rows = statement
        .query_map(params![erasure_id.as_bytes(), item.name(), waiting, limit], |row| row.get::<_, [u8; 16]>(0))
        .sql()?;
    rows.map(|row| row.sql().map(id_from)).collect()
}

/// Records that an erasure removed or is about to.
///
/// # Errors
/// As the database says.
pub fn count_records(db: &Connection, erasure_id: Uuid) -> Result<u64, Fault> {
    let mut statement =
        db.prepare_cached("SELECT count(*) FROM erasure_items WHERE erasure_id = ?1 AND kind = 'RECORD'").sql()?;
    statement.query_row([erasure_id.as_bytes()], |row| row.get(0)).sql()
}

/// Whether an erasure has a record among those that go.
///
/// # Errors
/// As the database says.
pub fn takes(db: &Connection, erasure_id: Uuid, id: MemoryId) -> Result<bool, Fault> {
    let mut statement = db
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM erasure_items WHERE erasure_id = ?1 AND kind = 'RECORD' AND item_id = ?2)")
        .sql()?;
    statement.query_row(params![erasure_id.as_bytes(), id_bytes(id)], |row| row.get(0)).sql()
}

/// Whether a record is on its way out: it does not come back by a restore (rule E1).
///
/// # Errors
/// As the database says.
pub fn is_going(db: &Connection, id: MemoryId) -> Result<bool, Fault> {
    let mut statement = db
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM erasure_items WHERE item_id = ?1 AND kind = 'RECORD' AND gone = 0)")
        .sql()?;
    statement.query_row([id_bytes(id)], |row| row.get(0)).sql()
}

/// The medium behind a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// Not known yet.
    #[default]
    Unknown,
    /// Rid of it.
    Gone,
    /// Not yet.
    Pending,
    /// The store refuses.
    NotPermitted,
}

impl Medium {
    const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Gone => "GONE",
            Self::Pending => "PENDING",
            Self::NotPermitted => "NOT_PERMITTED",
        }
    }

    fn from_name(name: &str) -> Result<Self, Fault> {
        [Self::Unknown, Self::Gone, Self::Pending, Self::NotPermitted]
            .into_iter()
            .find(|medium| medium.name() == name)
            .ok_or_else(|| corrupt("a medium"))
    }
}

/// What an erasure did in one store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreRow {
    /// Store.
    pub store: String,
    /// Items that held it.
    pub found: u64,
    /// Of these, removed or redacted.
    pub removed: u64,
    /// Found when looked for again.
    pub remaining: u64,
    /// Whether it was looked for again.
    pub verified: bool,
    /// The medium.
    pub medium: Medium,
    /// By when.
    pub gone_by: Option<Timestamp>,
    /// What it waits for.
    pub detail: String,
}

/// Adds to the counts of a store, and takes the rest over.
///
/// # Errors
/// As the database says.
pub fn add_store(db: &Connection, erasure_id: Uuid, row: &StoreRow) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "INSERT INTO erasure_stores (erasure_id, store, found, removed, remaining, verified, medium, gone_by, detail) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (erasure_id, store) DO UPDATE SET found = found + ?3, \
             removed = removed + ?4, remaining = ?5, verified = ?6, medium = ?7, gone_by = ?8, detail = ?9",
        )
        .sql()?;
    let gone_by = row.gone_by.map(Timestamp::micros);
    let values = params![
        erasure_id.as_bytes(),
        row.store,
        row.found,
        row.removed,
        row.remaining,
        row.verified,
        row.medium.name(),
        gone_by,
        row.detail
    ];
    statement.execute(values).sql()?;
    Ok(())
}

/// The receipt, by store.
///
/// # Errors
/// As the database says.
pub fn stores(db: &Connection, erasure_id: Uuid) -> Result<Vec<StoreRow>, Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT store, found, removed, remaining, verified, medium, gone_by, detail FROM erasure_stores WHERE erasure_id = ?1 \
             ORDER BY store",
        )
        .sql()?;
    let mut rows = statement.query([erasure_id.as_bytes()]).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        out.push(StoreRow {
            store: row.get(0).sql()?,
            found: row.get(1).sql()?,
            removed: row.get(2).sql()?,
            remaining: row.get(3).sql()?,
            verified: row.get(4).sql()?,
            medium: Medium::from_name(&row.get::<_, String>(5).sql()?)?,
            gone_by: row.get::<_, Option<i64>>(6).sql()?.map(Timestamp),
            detail: row.get(7).sql()?,
        });
    }
    Ok(out)
}

/// A step that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which.
    pub step: Step,
    /// Times it was tried.
    pub attempts: u32,
    /// Why it is not done.
    pub problem: String,
}

/// Steps that are not done, in their order.
///
/// # Errors
/// As the database says.
pub fn waiting(db: &Connection, erasure_id: Uuid) -> Result<Vec<Waiting>, Fault> {
    let mut statement = db.prepare_cached("SELECT step, attempts, problem FROM erasure_steps WHERE erasure_id = ?1").sql()?;
    let mut rows = statement.query([erasure_id.as_bytes()]).sql()?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().sql()? {
        let name: String = row.get(0).sql()?;
        let step = Step::from_name(&name).ok_or_else(|| corrupt("a step of an erasure"))?;
        out.push(Waiting { step, attempts: row.get(1).sql()?, problem: row.get(2).sql()? });
    }
    out.sort_by_key(|waiting| Step::ALL.iter().position(|step| *step == waiting.step));
    Ok(out)
}

/// A step is done; answers whether it was not done before.
///
/// # Errors
/// As the database says.
pub fn done(db: &Connection, erasure_id: Uuid, step: Step) -> Result<bool, Fault> {
    let mut statement = db.prepare_cached("DELETE FROM erasure_steps WHERE erasure_id = ?1 AND step = ?2").sql()?;
    Ok(statement.execute(params![erasure_id.as_bytes(), step.name()]).sql()? > 0)
}

/// A step has to be done again.
///
/// # Errors
/// As the database says.
pub fn again(db: &Connection, erasure_id: Uuid, step: Step) -> Result<(), Fault> {
    let mut statement = db.prepare_cached("INSERT OR IGNORE INTO erasure_steps (erasure_id, step) VALUES (?1, ?2)").sql()?;
    statement.execute(params![erasure_id.as_bytes(), step.name()]).sql()?;
    Ok(())
}

/// A step could not be done now.
///
/// # Errors
/// As the database says.
pub fn stuck(db: &Connection, erasure_id: Uuid, step: Step, problem: &str) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached("UPDATE erasure_steps SET attempts = attempts + 1, problem = ?3 WHERE erasure_id = ?1 AND step = ?2")
        .sql()?;
    statement.execute(params![erasure_id.as_bytes(), step.name(), problem]).sql()?;
    Ok(())
}

/// Closes an erasure: what it looked for is forgotten, the audit says so (A173).
///
/// # Errors
/// As the database says.
pub fn close(db: &Connection, erasure: &Erasure, now: Timestamp) -> Result<(), Fault> {
    let mut statement = db.prepare_cached("SELECT part, scope FROM erasure_scopes WHERE erasure_id = ?1").sql()?;
    let rows = statement
        .query_map([erasure.erasure_id.as_bytes()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
        .sql()?;
    for (part, scope) in rows.collect::<rusqlite::Result<Vec<_>>>().sql()? {
        let scope: Scope = serde_json::from_str(&scope).map_err(|_| corrupt("a scope"))?;
        put_scope(db, erasure.erasure_id, part, &scope.references())?;
    }
    let mut statement =
        db.prepare_cached("UPDATE erasures SET close_time = ?2 WHERE erasure_id = ?1 AND close_time IS NULL").sql()?;
    if statement.execute(params![erasure.erasure_id.as_bytes(), now.micros()]).sql()? == 0 {
        return Ok(());
    }
    let subject = erasure.erasure_id.to_string();
    audit(db, erasure, "ERASE_CLOSED", None, &subject, now)
}

/// Notes that the file holds nothing of closed erasures any more: their stores in it are rid of it, the index with them where
/// it has no file of its own.
///
/// # Errors
/// As the database says.
pub fn folded(db: &Connection, ids: &[Uuid], index_in_file: bool, now: Timestamp) -> Result<(), Fault> {
    let mut time = db.prepare_cached("UPDATE erasures SET file_time = ?2 WHERE erasure_id = ?1").sql()?;
    let mut gone = db
        .prepare_cached(
            "UPDATE erasure_stores SET medium = 'GONE', gone_by = NULL, detail = '' \
             WHERE erasure_id = ?1 AND store LIKE 'longterm.%' AND (?2 OR store <> 'longterm.index')",
        )
        .sql()?;
    for id in ids {
        time.execute(params![id.as_bytes(), now.micros()]).sql()?;
        gone.execute(params![id.as_bytes(), index_in_file]).sql()?;
    }
    Ok(())
}

/// When the oldest erasure was closed whose content may still be in the files of an index server.
///
/// # Errors
/// As the database says.
pub fn index_waits_since(db: &Connection) -> Result<Option<Timestamp>, Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT min(e.close_time) FROM erasure_stores s JOIN erasures e ON e.erasure_id = s.erasure_id \
             WHERE s.store = 'longterm.index' AND s.medium = 'PENDING' AND e.close_time IS NOT NULL",
        )
        .sql()?;
    Ok(statement.query_row([], |row| row.get::<_, Option<i64>>(0)).sql()?.map(Timestamp))
}

/// Notes that every copy of the index from before `since` is dropped: it is rid of what was erased until then.
///
/// # Errors
/// As the database says.
pub fn index_gone(db: &Connection, since: Timestamp) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "UPDATE erasure_stores SET medium = 'GONE', gone_by = NULL, detail = '' WHERE store = 'longterm.index' \
             AND medium = 'PENDING' AND erasure_id IN (SELECT erasure_id FROM erasures WHERE close_time < ?1)",
        )
        .sql()?;
    statement.execute([since.micros()]).sql()?;
    Ok(())
}

/// What was found of a store when it was looked for again.
///
/// # Errors
/// As the database says.
pub fn set_remaining(db: &Connection, erasure_id: Uuid, store: &str, remaining: u64) -> Result<(), Fault> {
    let mut statement =
        db.prepare_cached("UPDATE erasure_stores SET remaining = ?3, verified = 1 WHERE erasure_id = ?1 AND store = ?2").sql()?;
    statement.execute(params![erasure_id.as_bytes(), store, remaining]).sql()?;
    Ok(())
}

/// Whether the index has still to be told that a record of an erasure is gone.
///
/// # Errors
/// As the database says.
pub fn in_outbox(db: &Connection, erasure_id: Uuid) -> Result<bool, Fault> {
    let mut statement = db
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM outbox x JOIN erasure_items i ON i.item_id = x.memory_id \
             WHERE i.erasure_id = ?1 AND i.kind = 'RECORD')",
        )
        .sql()?;
    statement.query_row([erasure_id.as_bytes()], |row| row.get(0)).sql()
}

/// Tells the index of every record that the owners of an erasure have now.
///
/// # Errors
/// As the database says.
pub fn tell_index_again(db: &Connection, erasure: &Erasure, now: Timestamp) -> Result<(), Fault> {
    for owner_id in owner_ids(db, erasure)? {
        let mut statement = db
            .prepare_cached(
                "INSERT INTO outbox (memory_id, owner_id, version, op, time, tenant) \
                 SELECT r.memory_id, r.owner_id, r.version, 'UPSERT', ?2, u.tenant FROM records r \
                 JOIN users u ON u.user_id = r.user_id WHERE r.owner_id = ?1",
            )
            .sql()?;
        statement.execute(params![owner_id, now.micros()]).sql()?;
    }
    Ok(())
}

/// Whether routers have something to do.
///
/// # Errors
/// As the database says.
pub fn any_outside(db: &Connection, since: Since) -> Result<bool, Fault> {
    let mut statement = db.prepare_cached(&format!("SELECT EXISTS (SELECT 1 FROM erasures e WHERE {OUTSIDE})")).sql()?;
    statement.query_row(params![since.open.micros(), since.closed.micros()], |row| row.get(0)).sql()
}

/// Steps of routers whose stores wait for their medium.
///
/// # Errors
/// As the database says.
pub fn pending_media(db: &Connection, erasure_id: Uuid) -> Result<BTreeSet<&'static str>, Fault> {
    let rows = stores(db, erasure_id)?.into_iter().filter(|row| row.medium == Medium::Pending);
    let outside = Step::ALL.into_iter().filter(|step| step.is_outside());
    let names: Vec<&'static str> = outside.map(Step::name).collect();
    Ok(rows.filter_map(|row| names.iter().copied().find(|name| row.store.starts_with(name))).collect())
}

/// An entry of the audit about an erasure.
///
/// # Errors
/// As the database says.
pub fn audit(
    db: &Connection,
    erasure: &Erasure,
    action: &str,
    memory_id: Option<MemoryId>,
    subject: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    let entry = ledger::AuditEntry {
        time: now,
        tenant: erasure.owner.tenant.as_str(),
        user: erasure.owner.user.as_str(),
        action,
        memory_id,
        actor: &erasure.actor,
        rule: "E2",
        subject,
        reason: &erasure.reason,
    };
    ledger::audit(db, &entry)
}

/// Raises the user's erase epoch; it never goes back (rule E2).
///
/// # Errors
/// As the database says.
pub fn raise_epoch(db: &Connection, user_id: i64, epoch: u64) -> Result<u64, Fault> {
    let mut statement = db
        .prepare_cached("UPDATE users SET erase_epoch = max(erase_epoch, ?2) WHERE user_id = ?1 RETURNING erase_epoch")
        .sql()?;
    statement.query_row(params![user_id, epoch], |row| row.get(0)).sql()
}

/// Refuses statements from up to `time` for all of a user, or for one owner of it.
///
/// # Errors
/// As the database says.
pub fn close_past(db: &Connection, user_id: i64, owner_id: Option<i64>, time: Timestamp) -> Result<(), Fault> {
    let (sql, id) = match owner_id {
        None => ("UPDATE users SET erased_before = max(erased_before, ?2) WHERE user_id = ?1", user_id),
        Some(owner_id) => ("UPDATE owners SET erased_before = max(erased_before, ?2) WHERE owner_id = ?1", owner_id),
    };
    db.prepare_cached(sql).sql()?.execute(params![id, time.micros()]).sql()?;
    Ok(())
}

/// The owners an erasure is about.
///
/// # Errors
/// As the database says.
pub fn owner_ids(db: &Connection, erasure: &Erasure) -> Result<Vec<i64>, Fault> {
    let agent = erasure.owner.agent.as_ref().map_or("", |agent| agent.as_str());
    // By ids an agent may name the user's records too; by everything only its own.
    let sql = match (agent.is_empty(), erasure.everything) {
        (true, _) => "SELECT owner_id FROM owners WHERE user_id = ?1 AND ?2 = '' ORDER BY agent",
        (false, true) => "SELECT owner_id FROM owners WHERE user_id = ?1 AND agent = ?2",
        (false, false) => "SELECT owner_id FROM owners WHERE user_id = ?1 AND agent IN ('', ?2) ORDER BY agent",
    };
    let mut statement = db.prepare_cached(sql).sql()?;
    let rows = statement.query_map(params![erasure.user_id, agent], |row| row.get(0)).sql()?;
    rows.collect::<rusqlite::Result<Vec<_>>>().sql()
}

/// Whether the id of this record was erased (rule E6).
///
/// # Errors
/// As the database says.
pub fn id_was_erased(db: &Connection, user_id: i64, digest: &[u8; 32]) -> Result<bool, Fault> {
    let mut statement = db.prepare_cached("SELECT 1 FROM tombstones WHERE user_id = ?1 AND digest = ?2").sql()?;
    Ok(statement.query_row(params![user_id, digest], |_| Ok(())).optional().sql()?.is_some())
}
