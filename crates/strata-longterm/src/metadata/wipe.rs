//! What an erasure removes and redacts in this file (rules E2, E9). Every function works on a bounded number of rows inside the
//! caller's transaction; all of it may be repeated, and looking again ([`Sweep`] without `change`) is the same walk that
//! removes.

use super::derived::{made_from, merged_into};
use super::erasures::{self, Erasure, Item, Sight};
use super::ledger::{self, ERASED_METHOD};
use super::row::{by_id, id_bytes, id_from, json};
use super::{Sql, StoredOwner, corrupt, owner};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use strata_core::episode::EpisodeSentence;
use strata_core::limits::ERASE_ROWS;
use strata_core::policy::erasure::MARKER;
use strata_core::policy::gate::Tombstones;
use strata_core::policy::session::{Role, Turn};
use strata_core::{Fault, MemoryId, Owner, Timestamp};
use strata_text::clean::normal;
use strata_text::needles::Needles;
use strata_text::turn_rank::IndexedTurn;

/// Found and removed, by store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(pub BTreeMap<&'static str, (u64, u64)>);

impl Tally {
    fn add(&mut self, store: &'static str, found: u64, removed: u64) {
        let counts = self.0.entry(store).or_default();
        counts.0 += found;
        counts.1 += removed;
    }

    /// Adds another one.
    pub fn merge(&mut self, other: Self) {
        for (store, (found, removed)) in other.0 {
            self.add(store, found, removed);
        }
    }

    /// Items found, of every store.
    #[must_use]
    pub fn found(&self) -> u64 {
        self.0.values().map(|(found, _)| found).sum()
    }
}

/// Stores of this file, as receipts name them; each is in every receipt, found or not.
pub const STORES: [&str; 17] = [
    "longterm.records",
    "longterm.history",
    "longterm.evidence",
    "longterm.terms",
    "longterm.vectors",
    "longterm.outbox",
    "longterm.owner_keys",
    "longterm.quotes",
    "longterm.entities",
    "longterm.relations",
    "longterm.skills",
    "longterm.episodes",
    "longterm.archived_turns",
    "longterm.request_ids",
    "longterm.promotions",
    "longterm.recalls",
    "longterm.sync_cursors",
];

/// What stands in a row whose words were taken out.
const E9: &str = "E9: superseded by an erased record";

/// Hides records that are about to go: no answer shows them from now on, and what says the same may be said anew.
///
/// # Errors
/// As the database says.
pub fn hide(db: &Connection, id: MemoryId, now: Timestamp) -> Result<(), Fault> {
    let mut statement = db
        .prepare_cached(
            "UPDATE records SET status = 'DELETED', earlier_status = NULL, due = 0, version = version + 1, update_time = ?2, \
             reason = 'E2: being erased' WHERE memory_id = ?1",
        )
        .sql()?;
    statement.execute(params![id_bytes(id), now.micros()]).sql()?;
    Ok(())
}

/// Buries what a record says and its id: neither comes back from a turn or an export of before (rules E6, E7).
///
/// # Errors
/// As the database says.
pub fn bury(db: &Connection, erasure: &Erasure, tombstones: &Tombstones, id: MemoryId) -> Result<(), Fault> {
    let Some(found) = by_id(db, id)? else { return Ok(()) };
    let r = &found.record;
    let [words, identity] = tombstones.digests(&r.owner, r.kind, r.key.as_ref(), &r.normal, &found.dedup);
    let digests = [words, identity, erasures::id_digest(tombstones, &r.owner, id)];
    ledger::bury(db, found.owner.user_id, &digests, erasure.request_time)
}

fn count(db: &Connection, sql: &str, id: &[u8; 16]) -> Result<u64, Fault> {
    db.prepare_cached(sql).sql()?.query_row([id], |row| row.get(0)).sql()
}

/// Removes a record with all that hangs on it; the index is told. What it superseded stays superseded (rule E9).
///
/// # Errors
/// As the database says.
pub fn remove(
    db: &Connection,
    erasure: &Erasure,
    tombstones: &Tombstones,
    id: MemoryId,
    now: Timestamp,
    tally: &mut Tally,
) -> Result<(), Fault> {
    erasures::note(db, erasure.erasure_id, Item::Record, id, true)?;
    let Some(found) = by_id(db, id)? else { return Ok(()) };
    let key = id_bytes(id);
    // What says it again goes with it; a summary is made again of what is left (rule F5). Loosened first: two records may have
    // been merged into each other, one after the other.
    let mut again = made_from(db, id)?;
    again.extend(merged_into(db, id)?);
    db.prepare_cached("DELETE FROM derivations WHERE member_id = ?1").sql()?.execute([key]).sql()?;
    for said_again in &again {
        let mut loosen =
            db.prepare_cached("UPDATE records SET superseded_by = NULL WHERE memory_id = ?1 AND superseded_by = ?2").sql()?;
        loosen.execute([id_bytes(*said_again), key]).sql()?;
    }
    for said_again in again {
        remove(db, erasure, tombstones, said_again, now, tally)?;
    }
    for (store, sql) in [
        ("longterm.history", "SELECT count(*) FROM history WHERE memory_id = ?1"),
        ("longterm.evidence", "SELECT count(*) FROM evidence WHERE memory_id = ?1"),
        ("longterm.terms", "SELECT count(*) FROM record_terms WHERE memory_id = ?1"),
        ("longterm.vectors", "SELECT count(*) FROM vectors WHERE memory_id = ?1"),
        ("longterm.outbox", "SELECT count(*) FROM outbox WHERE memory_id = ?1"),
    ] {
        let rows = count(db, sql, &key)?;
        tally.add(store, rows, rows);
    }
    let r = &found.record;
    bury(db, erasure, tombstones, id)?;
    // Whoever points at it points at nothing now; no value comes back into force.
    for (column, sql) in [
        ("superseded_by", format!("UPDATE records SET superseded_by = NULL, reason = '{E9}'")),
        ("supersedes", "UPDATE records SET supersedes = NULL".to_owned()),
        ("conflicts_with", "UPDATE records SET conflicts_with = NULL".to_owned()),
    ] {
        let sql = format!(
            "{sql}, version = version + 1, update_time = ?2 WHERE {column} = ?1 AND user_id = ?3 RETURNING memory_id, owner_id, version"
        );
        let mut statement = db.prepare_cached(&sql).sql()?;
        let rows = statement
            .query_map(params![key, now.micros(), found.owner.user_id], |row| {
                Ok((row.get::<_, [u8; 16]>(0)?, row.get(1)?, row.get(2)?))
            })
            .sql()?;
        let changed = rows.collect::<rusqlite::Result<Vec<_>>>().sql()?;
        for (other, owner_id, version) in changed {
            let owner = StoredOwner { owner_id, user_id: found.owner.user_id };
            ledger::enqueue(db, owner, id_from(other), version, now)?;
        }
    }
    db.prepare_cached("DELETE FROM records WHERE memory_id = ?1").sql()?.execute([key]).sql()?;
    ledger::enqueue_delete(db, found.owner, id, now)?;
    if let Some(fact_key) = &r.key {
        let mut others = db.prepare_cached("SELECT EXISTS (SELECT 1 FROM records WHERE owner_id = ?1 AND key = ?2)").sql()?;
        if others.query_row(params![found.owner.owner_id, fact_key.as_str()], |row| row.get(0)).sql()? {
            owner::release_if_empty(db, found.owner, fact_key)?;
        } else {
            let gone = drop_key(db, found.owner.owner_id, Some(fact_key.as_str()))?;
            tally.add("longterm.owner_keys", gone, gone);
        }
    }
    erasures::audit(db, erasure, "ERASED", Some(id), &erasure.erasure_id.to_string(), now)?;
    tally.add("longterm.records", 1, 1);
    Ok(())
}

/// Takes a key out of the ownership rows, or every key that no record has; their highest epoch stays (rule P3).
fn drop_key(db: &Connection, owner_id: i64, key: Option<&str>) -> Result<u64, Fault> {
    let orphans = "owner_id = ?1 AND (?2 IS NULL OR key = ?2) \
        AND NOT EXISTS (SELECT 1 FROM records r WHERE r.owner_id = ?1 AND r.key = owner_keys.key)";
    let sql = format!(
        "UPDATE owners SET epoch_floor = max(epoch_floor, (SELECT coalesce(max(epoch), 0) FROM owner_keys WHERE {orphans})) \
         WHERE owner_id = ?1"
    );
    db.prepare_cached(&sql).sql()?.execute(params![owner_id, key]).sql()?;
    let gone =
        db.prepare_cached(&format!("DELETE FROM owner_keys WHERE {orphans}")).sql()?.execute(params![owner_id, key]).sql()?;
    Ok(gone as u64)
}

/// Where a walk stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    phase: Phase,
    after: Vec<u8>,
    seq: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Records,
    Entities,
    Relations,
    Skills,
    Episodes,
    Turns,
    Requests,
    Promotions,
    Rest,
}

impl Default for At {
    fn default() -> Self {
        Self { phase: Phase::Records, after: Vec::new(), seq: 0 }
    }
}

impl At {
    const fn next(phase: Phase) -> Option<Self> {
        let phase = match phase {
            Phase::Records => Phase::Entities,
            Phase::Entities => Phase::Relations,
            Phase::Relations => Phase::Skills,
            Phase::Skills => Phase::Episodes,
            Phase::Episodes => Phase::Turns,
            Phase::Turns => Phase::Requests,
            Phase::Requests => Phase::Promotions,
            Phase::Promotions => Phase::Rest,
            Phase::Rest => return None,
        };
        Some(Self { phase, after: Vec::new(), seq: 0 })
    }

    const fn behind(phase: Phase, after: Vec<u8>, seq: i64) -> Option<Self> {
        Some(Self { phase, after, seq })
    }
}

/// A walk over what an owner has in this file, looking for what an erasure is about.
#[derive(Clone, Copy, Debug)]
pub struct Sweep<'a> {
    /// The erasure.
    pub erasure: &'a Erasure,
    /// What is looked for beside ids.
    pub sight: &'a Sight,
    /// Digests of what goes.
    pub tombstones: &'a Tombstones,
    /// Now.
    pub now: Timestamp,
    /// Remove and redact; else only count.
    pub change: bool,
}

/// Column of an owner list that is made of the file's own numbers.
fn among(owner_ids: &[i64]) -> String {
    let ids: Vec<String> = owner_ids.iter().map(i64::to_string).collect();
    format!("owner_id IN ({})", ids.join(", "))
}

fn texts(json_array: &str) -> Result<Vec<String>, Fault> {
    serde_json::from_str(json_array).map_err(|_| corrupt("texts of a part"))
}

fn redacted(needles: &Needles, text: &mut String) -> bool {
    match needles.redact(text) {
        Some(without) => {
            *text = without;
            true
        }
        None => false,
    }
}

/// [`redacted`] over a JSON array of texts.
fn redacted_list(needles: &Needles, json_array: &mut String) -> Result<bool, Fault> {
    let mut all = texts(json_array)?;
    let found = all.iter_mut().fold(false, |found, text| redacted(needles, text) | found);
    if found {
        *json_array = json(&all);
    }
    Ok(found)
}

/// [`redacted`] over a JSON object of texts; an entry whose name holds it goes.
fn redacted_map(needles: &Needles, json_object: &mut String) -> Result<bool, Fault> {
    let mut all: BTreeMap<String, String> = serde_json::from_str(json_object).map_err(|_| corrupt("metadata"))?;
    let before = all.len();
    all.retain(|name, _| !needles.matches(name));
    let named = all.len() < before;
    let found = all.values_mut().fold(named, |found, text| redacted(needles, text) | found);
    if found {
        *json_object = json(&all);
    }
    Ok(found)
}

impl Sweep<'_> {
    /// Looks at the next rows; answers where to go on, none at the end.
    ///
    /// # Errors
    /// As the database says.
    pub fn page(&self, db: &Connection, at: At, tally: &mut Tally) -> Result<Option<At>, Fault> {
        let owner_ids = erasures::owner_ids(db, self.erasure)?;
        if owner_ids.is_empty() {
            return Ok(None);
        }
        let owned = among(&owner_ids);
        match at.phase {
            Phase::Records => self.records(db, &owned, at.after, tally),
            Phase::Entities => self.entities(db, &owned, at.after, tally),
            Phase::Relations => self.relations(db, &owned, tally),
            Phase::Skills => self.skills(db, &owned, at.after, tally),
            Phase::Episodes => self.episodes(db, &owned, at.after, tally),
            Phase::Turns => self.turns(db, &owned, at, tally),
            Phase::Requests => self.requests(db, at.after, tally),
            Phase::Promotions => self.promotions(db, at.after, tally),
            Phase::Rest => self.rest(db, &owner_ids, tally),
        }
    }

    /// Whether something is from before the erasure: what the user says later is said anew (rule E7).
    const fn is_before(&self, made: i64) -> bool {
        made <= self.erasure.request_time.micros()
    }

    /// Whether a row of the owner goes because all of it goes.
    const fn goes_by_time(&self, made: i64) -> bool {
        self.erasure.everything && self.is_before(made)
    }

    fn records(&self, db: &Connection, owned: &str, after: Vec<u8>, tally: &mut Tally) -> Result<Option<At>, Fault> {
        struct Row {
            id: [u8; 16],
            waits: bool,
            summary: bool,
            content: String,
            texts: [String; 4],
            topic: Option<String>,
            made: i64,
            owner: StoredOwner,
        }
        let sql = format!(
            "SELECT memory_id, status, kind, content, source_quote, reason, tags, metadata, topic, create_time, owner_id, user_id \
             FROM records WHERE {owned} AND memory_id > ?1 ORDER BY memory_id LIMIT ?2"
        );
        let mut statement = db.prepare_cached(&sql).sql()?;
        let read = |row: &rusqlite::Row<'_>| {
            let status: String = row.get(1)?;
            Ok(Row {
                id: row.get(0)?,
                waits: matches!(status.as_str(), "CANDIDATE" | "DISPUTED" | "REJECTED"),
                summary: row.get::<_, String>(2)? == "SUMMARY",
                content: row.get(3)?,
                texts: [row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?],
                topic: row.get(8)?,
                made: row.get(9)?,
                owner: StoredOwner { owner_id: row.get(10)?, user_id: row.get(11)? },
            })
        };
        let rows = statement.query_map(params![after, ERASE_ROWS], read).sql()?;
        let rows = rows.collect::<rusqlite::Result<Vec<Row>>>().sql()?;
        let last = rows.last().map(|row| row.id.to_vec());
        for mut row in rows {
            let id = id_from(row.id);
            if !self.is_before(row.made) && !erasures::takes(db, self.erasure.erasure_id, id)? {
                continue;
            }
            let echo = (row.waits || row.summary) && self.sight.whole.matches(&row.content);
            if echo || self.goes_by_time(row.made) || erasures::takes(db, self.erasure.erasure_id, id)? {
                if self.change {
                    remove(db, self.erasure, self.tombstones, id, self.now, tally)?;
                } else {
                    tally.add("longterm.records", 1, 0);
                }
                continue;
            }
            if self.change && self.sight.strict.matches(&row.content) {
                erasures::note(db, self.erasure.erasure_id, Item::Mention, id, false)?;
            }
            let mut found = 0;
            let [quote, reason, tags, metadata] = &mut row.texts;
            for text in [quote, reason].into_iter().chain(row.topic.as_mut()) {
                found += u64::from(redacted(&self.sight.whole, text));
            }
            found += u64::from(redacted_list(&self.sight.whole, tags)?) + u64::from(redacted_map(&self.sight.whole, metadata)?);
            if found > 0 && self.change {
                let mut update = db
                    .prepare_cached(
                        "UPDATE records SET source_quote = ?2, reason = ?3, tags = ?4, metadata = ?5, topic = ?6, \
                         version = version + 1, update_time = ?7 WHERE memory_id = ?1 RETURNING version",
                    )
                    .sql()?;
                let [quote, reason, tags, metadata] = &row.texts;
                let version =
                    update.query_row(params![row.id, quote, reason, tags, metadata, row.topic, self.now.micros()], |r| r.get(0));
                ledger::enqueue(db, row.owner, id, version.sql()?, self.now)?;
            }
            found += self.redact_rows(db, ["evidence", "evidence_id", "quote"], &row.id)?;
            found += self.redact_rows(db, ["history", "history_id", "reason"], &row.id)?;
            if found > 0 {
                tally.add("longterm.quotes", found, if self.change { found } else { 0 });
                self.redacted_at(db, id)?;
            }
        }
        Ok(last.map_or_else(|| At::next(Phase::Records), |last| At::behind(Phase::Records, last, 0)))
    }

    /// Redacts a text column of the rows of a record: table, its key, the column.
    fn redact_rows(&self, db: &Connection, [table, id, column]: [&str; 3], memory_id: &[u8; 16]) -> Result<u64, Fault> {
        if self.sight.whole.is_empty() {
            return Ok(0);
        }
        let mut statement =
            db.prepare_cached(&format!("SELECT {id}, {column} FROM {table} WHERE memory_id = ?1 AND time <= ?2")).sql()?;
        let before = self.erasure.request_time.micros();
        let rows =
            statement.query_map(params![memory_id, before], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))).sql()?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>().sql()?;
        let mut found = 0;
        for (row, mut text) in rows {
            if redacted(&self.sight.whole, &mut text) {
                found += 1;
                if self.change {
                    let mut update = db.prepare_cached(&format!("UPDATE {table} SET {column} = ?2 WHERE {id} = ?1")).sql()?;
                    update.execute(params![row, text]).sql()?;
                }
            }
        }
        Ok(found)
    }

    /// Notes that words were taken out of something that stays.
    fn redacted_at(&self, db: &Connection, id: MemoryId) -> Result<(), Fault> {
        if !self.change {
            return Ok(());
        }
        erasures::note(db, self.erasure.erasure_id, Item::Redacted, id, false)
    }

    fn bury_part(&self, db: &Connection, owner_id: i64, kind: &str, name: &str) -> Result<(), Fault> {
        let mut statement = db.prepare_cached("SELECT user_id, agent FROM owners WHERE owner_id = ?1").sql()?;
        let (user_id, agent): (i64, String) = statement.query_row([owner_id], |row| Ok((row.get(0)?, row.get(1)?))).sql()?;
        let agent = if agent.is_empty() { None } else { Some(strata_core::AgentId::new(agent)?) };
        let owner = Owner { agent, ..self.erasure.owner.clone() };
        let digest = self.tombstones.digest(&owner, &["part", kind, &normal(name)]);
        ledger::bury(db, user_id, &[digest], self.erasure.request_time)
    }

    fn audit_part(&self, db: &Connection, id: MemoryId) -> Result<(), Fault> {
        erasures::audit(db, self.erasure, "ERASED", Some(id), &self.erasure.erasure_id.to_string(), self.now)
    }

    fn entities(&self, db: &Connection, owned: &str, after: Vec<u8>, tally: &mut Tally) -> Result<Option<At>, Fault> {
        let sql = format!(
            "SELECT entity_id, owner_id, kind, name, aliases, source_quote, update_time FROM entities WHERE {owned} AND entity_id > ?1 \
             ORDER BY entity_id LIMIT ?2"
        );
        let mut statement = db.prepare_cached(&sql).sql()?;
        let read = |row: &rusqlite::Row<'_>| {
            let text = |at: usize| row.get::<_, String>(at);
            Ok((row.get::<_, [u8; 16]>(0)?, row.get::<_, i64>(1)?, text(2)?, text(3)?, text(4)?, text(5)?, row.get::<_, i64>(6)?))
        };
        let rows = statement.query_map(params![after, ERASE_ROWS], read).sql()?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>().sql()?;
        let last = rows.last().map(|row| row.0.to_vec());
        for (id, owner_id, kind, name, aliases, mut quote, made) in rows {
            if !self.is_before(made) {
                continue;
            }
            let named = self.sight.strict.matches(&name) || texts(&aliases)?.iter().any(|alias| self.sight.strict.matches(alias));
            if named || self.goes_by_time(made) {
                let removed = u64::from(self.change);
                tally.add("longterm.entities", 1, removed);
                if self.change {
                    self.bury_part(db, owner_id, &kind, &name)?;
                    let relations = super::entities::remove(db, id_from(id))?;
                    tally.add("longterm.relations", relations.into(), relations.into());
                    erasures::note(db, self.erasure.erasure_id, Item::Entity, id_from(id), true)?;
                    self.audit_part(db, id_from(id))?;
                }
            } else if redacted(&self.sight.whole, &mut quote) {
                tally.add("longterm.quotes", 1, u64::from(self.change));
                if self.change {
                    let mut update = db
                        .prepare_cached("UPDATE entities SET source_quote = ?2, version = version + 1 WHERE entity_id = ?1")
                        .sql()?;
                    update.execute(params![id, quote]).sql()?;
                    self.redacted_at(db, id_from(id))?;
                }
            }
        }
        Ok(last.map_or_else(|| At::next(Phase::Entities), |last| At::behind(Phase::Entities, last, 0)))
    }

    /// Relations of an owner are few ([`strata_core::limits`]): one page.
    fn relations(&self, db: &Connection, owned: &str, tally: &mut Tally) -> Result<Option<At>, Fault> {
        let sql = format!("SELECT from_id, relation, to_id, owner_id, source_quote, create_time FROM relations WHERE {owned}");
        let mut statement = db.prepare_cached(&sql).sql()?;
        let read = |row: &rusqlite::Row<'_>| {
            let ends: ([u8; 16], String, [u8; 16], i64) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok((ends, row.get::<_, String>(4)?, row.get::<_, i64>(5)?))
        };
        let rows = statement.query_map([], read).sql()?.collect::<rusqlite::Result<Vec<_>>>().sql()?;
        let this = "WHERE from_id = ?1 AND relation = ?2 AND to_id = ?3 AND owner_id = ?4";
        for ((from, relation, to, owner_id), mut quote, made) in rows.into_iter().filter(|row| self.is_before(row.2)) {
            if self.goes_by_time(made) || self.sight.strict.matches(&relation) {
                tally.add("longterm.relations", 1, u64::from(self.change));
                if self.change {
                    let mut delete = db.prepare_cached(&format!("DELETE FROM relations {this}")).sql()?;
                    delete.execute(params![from, relation, to, owner_id]).sql()?;
                }
            } else if redacted(&self.sight.whole, &mut quote) {
                tally.add("longterm.quotes", 1, u64::from(self.change));
                if self.change {
                    let mut update = db.prepare_cached(&format!("UPDATE relations SET source_quote = ?5 {this}")).sql()?;
                    update.execute(params![from, relation, to, owner_id, quote]).sql()?;
                    self.redacted_at(db, id_from(from))?;
                }
            }
        }
        Ok(At::next(Phase::Relations))
    }

    fn skills(&self, db: &Connection, owned: &str, after: Vec<u8>, tally: &mut Tally) -> Result<Option<At>, Fault> {
        let sql = format!(
            "SELECT skill_id, owner_id, name, triggers, steps, source_quote, create_time FROM skills WHERE {owned} AND skill_id > ?1 \
             ORDER BY skill_id LIMIT ?2"
        );
        let mut statement = db.prepare_cached(&sql).sql()?;
        let read = |row: &rusqlite::Row<'_>| {
            let text = |at: usize| row.get::<_, String>(at);
            Ok((row.get::<_, [u8; 16]>(0)?, row.get::<_, i64>(1)?, text(2)?, text(3)?, text(4)?, text(5)?, row.get::<_, i64>(6)?))
        };
        let rows = statement.query_map(params![after, ERASE_ROWS], read).sql()?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>().sql()?;
        let last = rows.last().map(|row| row.0.to_vec());
        for (id, owner_id, name, triggers, steps, mut quote, made) in rows.into_iter().filter(|row| self.is_before(row.6)) {
            let mut words = texts(&triggers)?;
            words.extend(texts(&steps)?);
            words.push(name.clone());
            if self.goes_by_time(made) || words.iter().any(|text| self.sight.strict.matches(text)) {
                tally.add("longterm.skills", 1, u64::from(self.change));
                if self.change {
                    self.bury_part(db, owner_id, "skill", &name)?;
                    db.prepare_cached("DELETE FROM skills WHERE skill_id = ?1").sql()?.execute([id]).sql()?;
                    erasures::note(db, self.erasure.erasure_id, Item::Skill, id_from(id), true)?;
                    self.audit_part(db, id_from(id))?;
                }
            } else if redacted(&self.sight.whole, &mut quote) {
                tally.add("longterm.quotes", 1, u64::from(self.change));
                if self.change {
                    let mut update = db.prepare_cached("UPDATE skills SET source_quote = ?2 WHERE skill_id = ?1").sql()?;
                    update.execute(params![id, quote]).sql()?;
                    self.redacted_at(db, id_from(id))?;
                }
            }
        }
        Ok(last.map_or_else(|| At::next(Phase::Skills), |last| At::behind(Phase::Skills, last, 0)))
    }

    fn episodes(&self, db: &Connection, owned: &str, after: Vec<u8>, tally: &mut Tally) -> Result<Option<At>, Fault> {
        let sql = format!(
            "SELECT episode_id, session_id, summary, findings, to_time, kept FROM episodes WHERE {owned} AND episode_id > ?1 \
             ORDER BY episode_id LIMIT ?2"
        );
        let mut statement = db.prepare_cached(&sql).sql()?;
        let read = |row: &rusqlite::Row<'_>| {
            let text = |at: usize| row.get::<_, String>(at);
            Ok((row.get::<_, [u8; 16]>(0)?, text(1)?, text(2)?, text(3)?, row.get::<_, i64>(4)?, row.get::<_, u64>(5)?))
        };
        let rows = statement.query_map(params![after, ERASE_ROWS], read).sql()?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>().sql()?;
        let last = rows.last().map(|row| row.0.to_vec());
        for (id, session, summary, mut findings, to_time, kept) in rows.into_iter().filter(|row| self.is_before(row.4)) {
            // An episode is of the time of its turns, however late the session ended.
            if self.goes_by_time(to_time) {
                tally.add("longterm.episodes", 1, u64::from(self.change));
                tally.add("longterm.archived_turns", kept, if self.change { kept } else { 0 });
                if self.change {
                    db.prepare_cached("DELETE FROM episodes WHERE episode_id = ?1").sql()?.execute([id]).sql()?;
                    erasures::note(db, self.erasure.erasure_id, Item::Episode, id_from(id), true)?;
                    self.audit_part(db, id_from(id))?;
                }
                continue;
            }
            let mut sentences: Vec<EpisodeSentence> =
                serde_json::from_str(&summary).map_err(|_| corrupt("summary of an episode"))?;
            let before = sentences.len();
            let mut made_from: BTreeSet<u32> = BTreeSet::new();
            sentences.retain(|sentence| {
                let made_of = sentence.seqs.iter().any(|seq| self.sight.refers_to(&session, *seq));
                let gone = made_of || self.sight.all.matches(&sentence.text);
                if gone {
                    made_from.extend(&sentence.seqs);
                }
                !gone
            });
            let told = self.sight.all.matches(&findings);
            if told {
                "[]".clone_into(&mut findings);
            }
            let gone = (before - sentences.len()) as u64 + u64::from(told);
            if gone > 0 {
                tally.add("longterm.episodes", gone, if self.change { gone } else { 0 });
                if self.change {
                    let mut update =
                        db.prepare_cached("UPDATE episodes SET summary = ?2, findings = ?3 WHERE episode_id = ?1").sql()?;
                    update.execute(params![id, json(&sentences), findings]).sql()?;
                    if !made_from.is_empty() {
                        erasures::refer(db, self.erasure.erasure_id, &[(session, made_from)].into())?;
                    }
                }
            }
        }
        Ok(last.map_or_else(|| At::next(Phase::Episodes), |last| At::behind(Phase::Episodes, last, 0)))
    }

    fn turns(&self, db: &Connection, owned: &str, at: At, tally: &mut Tally) -> Result<Option<At>, Fault> {
        if self.sight.all.is_empty() && self.sight.turns.is_empty() {
            return Ok(At::next(Phase::Turns));
        }
        let sql = format!(
            "SELECT t.episode_id, t.seq, e.session_id, t.role, t.text, t.speaker, t.external_id, t.time, t.tokens FROM archived_turns t \
             JOIN episodes e ON e.episode_id = t.episode_id WHERE t.{owned} AND (t.episode_id, t.seq) > (?1, ?2) \
             ORDER BY t.episode_id, t.seq LIMIT ?3"
        );
        let mut statement = db.prepare_cached(&sql).sql()?;
        let read = |row: &rusqlite::Row<'_>| {
            let text = |at: usize| row.get::<_, String>(at);
            let place: ([u8; 16], u32, String) = (row.get(0)?, row.get(1)?, text(2)?);
            Ok((place, text(3)?, text(4)?, text(5)?, text(6)?, row.get::<_, i64>(7)?, row.get::<_, u32>(8)?))
        };
        let rows = statement.query_map(params![at.after, at.seq, ERASE_ROWS], read).sql()?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>().sql()?;
        let last = rows.last().map(|row| (row.0.0.to_vec(), i64::from(row.0.1)));
        let mut gone: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for ((episode, seq, session), role, mut text, mut speaker, mut external_id, time, tokens) in rows {
            if !self.is_before(time) {
                continue;
            }
            let held = redacted(&self.sight.all, &mut text);
            let said = redacted(&self.sight.all, &mut speaker) | redacted(&self.sight.all, &mut external_id);
            // Quoted by reference, and what was quoted is not to be found in it: all of it goes.
            let quoted = self.sight.refers_to(&session, seq) && !held && !text.contains(MARKER);
            if !(held || said || quoted) {
                continue;
            }
            tally.add("longterm.archived_turns", 1, u64::from(self.change));
            if !self.change {
                continue;
            }
            if quoted {
                MARKER.clone_into(&mut text);
            }
            let role = Role::from_name(&role).ok_or_else(|| corrupt("role of a turn"))?;
            let turn = Turn {
                seq,
                role,
                text,
                tool_call_id: None,
                pinned: false,
                time: Timestamp(time),
                client_time: None,
                tokens,
                speaker,
                external_id,
                redacted: 0,
            };
            put_redacted(db, &episode, &turn)?;
            if held || quoted {
                gone.entry(session).or_default().insert(seq);
            }
        }
        if self.change {
            erasures::refer(db, self.erasure.erasure_id, &gone)?;
        }
        Ok(last.map_or_else(|| At::next(Phase::Turns), |(after, seq)| At::behind(Phase::Turns, after, seq)))
    }

    /// Whether a stored answer holds something of it.
    fn answered(&self, db: &Connection, bytes: &[u8], time: i64) -> Result<bool, Fault> {
        if self.erasure.owner.agent.is_none() && self.goes_by_time(time) {
            return Ok(true);
        }
        if !self.is_before(time) {
            return Ok(false);
        }
        if self.sight.whole.matches_bytes(bytes) {
            return Ok(true);
        }
        for id in ids_in(bytes) {
            if erasures::takes(db, self.erasure.erasure_id, id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn requests(&self, db: &Connection, after: Vec<u8>, tally: &mut Tally) -> Result<Option<At>, Fault> {
        let mut statement = db
            .prepare_cached(
                "SELECT request_id, response, time FROM idempotency WHERE user_id = ?1 AND request_id > ?2 AND method <> ?4 \
                 ORDER BY request_id LIMIT ?3",
            )
            .sql()?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, i64>(2)?));
        let rows = statement.query_map(params![self.erasure.user_id, after, ERASE_ROWS, ERASED_METHOD], read).sql()?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>().sql()?;
        let last = rows.last().map(|row| row.0.clone());
        for (request_id, response, time) in rows {
            // The answer to the erasure itself names it and what it is about, by id.
            let own = response.windows(36).any(|w| w == self.erasure.erasure_id.to_string().as_bytes());
            if !own && self.answered(db, &response, time)? {
                tally.add("longterm.request_ids", 1, u64::from(self.change));
                if self.change {
                    let mut update = db
                        .prepare_cached(
                            "UPDATE idempotency SET method = ?3, body = zeroblob(32), response = zeroblob(0) \
                             WHERE user_id = ?1 AND request_id = ?2",
                        )
                        .sql()?;
                    update.execute(params![self.erasure.user_id, request_id, ERASED_METHOD]).sql()?;
                }
            }
        }
        Ok(last.map_or_else(|| At::next(Phase::Requests), |last| At::behind(Phase::Requests, last, 0)))
    }

    fn promotions(&self, db: &Connection, after: Vec<u8>, tally: &mut Tally) -> Result<Option<At>, Fault> {
        let after = String::from_utf8(after).unwrap_or_default();
        let mut statement = db
            .prepare_cached(
                "SELECT promotion_id, response, time FROM promotions WHERE user_id = ?1 AND promotion_id > ?2 AND response IS NOT NULL \
                 ORDER BY promotion_id LIMIT ?3",
            )
            .sql()?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, i64>(2)?));
        let rows = statement.query_map(params![self.erasure.user_id, after, ERASE_ROWS], read).sql()?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>().sql()?;
        let last = rows.last().map(|row| row.0.clone());
        for (promotion_id, response, time) in rows {
            if self.answered(db, &response, time)? {
                tally.add("longterm.promotions", 1, u64::from(self.change));
                if self.change {
                    // A late apply of it is refused.
                    let mut update = db
                        .prepare_cached(
                            "UPDATE promotions SET state = 'ABORTED', response = NULL WHERE user_id = ?1 AND promotion_id = ?2",
                        )
                        .sql()?;
                    update.execute(params![self.erasure.user_id, promotion_id]).sql()?;
                }
            }
        }
        Ok(last.map_or_else(|| At::next(Phase::Promotions), |last| At::behind(Phase::Promotions, last.into_bytes(), 0)))
    }

    /// Recalls of the last day, cursors of record systems, keys nobody has any more.
    fn rest(&self, db: &Connection, owner_ids: &[i64], tally: &mut Tally) -> Result<Option<At>, Fault> {
        let removed = |found: u64| if self.change { found } else { 0 };
        let mut statement =
            db.prepare_cached("SELECT recall_id, time, memory_ids, cited FROM recalls WHERE user_id = ?1").sql()?;
        let read = |row: &rusqlite::Row<'_>| {
            Ok((row.get::<_, [u8; 16]>(0)?, row.get::<_, i64>(1)?, row.get::<_, Vec<u8>>(2)?, row.get::<_, Vec<u8>>(3)?))
        };
        let rows = statement.query_map([self.erasure.user_id], read).sql()?.collect::<rusqlite::Result<Vec<_>>>().sql()?;
        for (recall_id, time, ids, cited) in rows {
            let all = self.erasure.owner.agent.is_none() && self.goes_by_time(time);
            let (ids, gone) = self.without_erased(db, &ids)?;
            let (cited, _) = self.without_erased(db, &cited)?;
            if !all && !gone {
                continue;
            }
            tally.add("longterm.recalls", 1, removed(1));
            if self.change && all {
                db.prepare_cached("DELETE FROM recalls WHERE recall_id = ?1").sql()?.execute([recall_id]).sql()?;
            } else if self.change {
                let mut update =
                    db.prepare_cached("UPDATE recalls SET memory_ids = ?2, cited = ?3 WHERE recall_id = ?1").sql()?;
                update.execute(params![recall_id, ids, cited]).sql()?;
            }
        }
        if self.erasure.everything {
            let before = self.erasure.request_time.micros();
            for owner_id in owner_ids {
                let mut count =
                    db.prepare_cached("SELECT count(*) FROM sync_cursors WHERE owner_id = ?1 AND time <= ?2").sql()?;
                let cursors: u64 = count.query_row(params![owner_id, before], |row| row.get(0)).sql()?;
                tally.add("longterm.sync_cursors", cursors, removed(cursors));
                if self.change {
                    let mut delete = db.prepare_cached("DELETE FROM sync_cursors WHERE owner_id = ?1 AND time <= ?2").sql()?;
                    delete.execute(params![owner_id, before]).sql()?;
                    let keys = drop_key(db, *owner_id, None)?;
                    tally.add("longterm.owner_keys", keys, keys);
                }
            }
        }
        Ok(None)
    }

    fn without_erased(&self, db: &Connection, packed: &[u8]) -> Result<(Vec<u8>, bool), Fault> {
        let mut kept = Vec::with_capacity(packed.len());
        for id in packed.as_chunks::<16>().0 {
            if !erasures::takes(db, self.erasure.erasure_id, id_from(*id))? {
                kept.extend(id);
            }
        }
        let gone = kept.len() < packed.len();
        Ok((kept, gone))
    }
}

/// Ids that stand in the bytes of a message, in their text form.
fn ids_in(bytes: &[u8]) -> HashSet<MemoryId> {
    let dashes = [8, 13, 18, 23];
    let looks = |w: &&[u8]| dashes.iter().all(|at| w[*at] == b'-');
    let texts = bytes.windows(36).filter(looks).filter_map(|w| std::str::from_utf8(w).ok());
    texts.filter_map(|text| uuid::Uuid::parse_str(text).ok()).map(MemoryId).collect()
}

/// Writes a redacted turn back: its analysis is made anew, its vector is gone.
fn put_redacted(db: &Connection, episode: &[u8; 16], turn: &Turn) -> Result<(), Fault> {
    let analysis = IndexedTurn::new(turn).analysis();
    let names: Vec<u8> = analysis.speaker.iter().flat_map(|term| term.to_le_bytes()).collect();
    let terms: Vec<u8> =
        analysis.weights.iter().flat_map(|(term, weight)| [term.to_le_bytes(), weight.to_le_bytes()]).flatten().collect();
    let mut update = db
        .prepare_cached(
            "UPDATE archived_turns SET text = ?3, speaker = ?4, external_id = ?5, words = ?6, asking = ?7, names = ?8, terms = ?9, \
             model = NULL, vector = NULL WHERE episode_id = ?1 AND seq = ?2",
        )
        .sql()?;
    let row =
        params![episode, turn.seq, turn.text, turn.speaker, turn.external_id, analysis.words, analysis.asking, names, terms];
    update.execute(row).sql()?;
    Ok(())
}

/// Removes an entity, a version of a skill, or an episode by id.
///
/// # Errors
/// As the database says.
pub fn remove_part(
    db: &Connection,
    erasure: &Erasure,
    item: Item,
    id: MemoryId,
    now: Timestamp,
    tally: &mut Tally,
) -> Result<(), Fault> {
    let (store, sql) = match item {
        Item::Entity => ("longterm.entities", "DELETE FROM entities WHERE entity_id = ?1"),
        Item::Skill => ("longterm.skills", "DELETE FROM skills WHERE skill_id = ?1"),
        Item::Episode => ("longterm.episodes", "DELETE FROM episodes WHERE episode_id = ?1"),
        Item::Record | Item::Redacted | Item::Mention => return Ok(()),
    };
    erasures::note(db, erasure.erasure_id, item, id, true)?;
    if db.prepare_cached(sql).sql()?.execute([id_bytes(id)]).sql()? > 0 {
        erasures::audit(db, erasure, "ERASED", Some(id), &erasure.erasure_id.to_string(), now)?;
        tally.add(store, 1, 1);
    }
    Ok(())
}

/// Takes every quote out of a record, an entity, its relations or a skill: what was in it when it was redacted is not known any
/// more.
///
/// # Errors
/// As the database says.
pub fn blank_quotes(db: &Connection, id: MemoryId, tally: &mut Tally) -> Result<(), Fault> {
    let mut found = 0;
    for sql in [
        "UPDATE records SET source_quote = ?2, reason = ?2, tags = '[]', metadata = '{}', topic = NULL, version = version + 1 \
         WHERE memory_id = ?1",
        "UPDATE evidence SET quote = ?2 WHERE memory_id = ?1",
        "UPDATE history SET reason = ?2 WHERE memory_id = ?1",
        "UPDATE entities SET source_quote = ?2, version = version + 1 WHERE entity_id = ?1",
        "UPDATE relations SET source_quote = ?2 WHERE from_id = ?1",
        "UPDATE skills SET source_quote = ?2 WHERE skill_id = ?1",
    ] {
        found += db.prepare_cached(sql).sql()?.execute(params![id_bytes(id), MARKER]).sql()? as u64;
    }
    tally.add("longterm.quotes", found, found);
    Ok(())
}

/// Records that say one of these words, of every status. Where only a quote holds them the sweep takes them out of it, and it
/// finds entities and skills.
///
/// # Errors
/// As the database says.
pub fn mentioning(db: &Connection, owner_ids: &[i64], words: &Needles) -> Result<BTreeSet<MemoryId>, Fault> {
    if owner_ids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let sql =
        format!("SELECT memory_id, content, coalesce(value, ''), coalesce(key, '') FROM records WHERE {}", among(owner_ids));
    let mut statement = db.prepare_cached(&sql).sql()?;
    let mut rows = statement.query([]).sql()?;
    let mut out = BTreeSet::new();
    while let Some(row) = rows.next().sql()? {
        for at in 1..=3 {
            if words.matches(&row.get::<_, String>(at).sql()?) {
                out.insert(id_from(row.get(0).sql()?));
                break;
            }
        }
    }
    Ok(out)
}

/// Ids of every record of these owners.
///
/// # Errors
/// As the database says.
pub fn all_of(db: &Connection, owner_ids: &[i64]) -> Result<Vec<MemoryId>, Fault> {
    if owner_ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut statement = db.prepare_cached(&format!("SELECT memory_id FROM records WHERE {}", among(owner_ids))).sql()?;
    let rows = statement.query_map([], |row| row.get::<_, [u8; 16]>(0)).sql()?;
    rows.map(|row| row.sql().map(id_from)).collect()
}
