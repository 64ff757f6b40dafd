//! Sessions in SQLite, for the embedded form. The same steps as in Redis, each one closure on the writer or a reader
//! thread; what Redis forgets by TTL is hidden by its time here and removed by [`SessionStore::sweep`].

use super::{
    Append, Appended, ArtifactPut, ArtifactWrite, Commit, Committed, Compressed, Ended, FactsWrite, Head, Picked, Redaction,
    RequestKey, SessionKey, SessionStore, State, TOMBSTONE, TurnsRead, UserTag, WINDOW_ANCHORS, WindowParts, WindowRead,
    artifact_gone, by_priority, damaged, ended, erased_artifact, no_artifact, no_fact, no_such_turn, not_found, other_agent,
    other_bytes, overlaid, read_json, read_turn, reused, stale, tail_tokens, too_many_artifacts, too_many_facts, with_pins,
    write_json,
};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strata_core::policy::erasure::{Medium, Physical, Purge, stale_header};
use strata_core::policy::session::{Accesses, Artifact, Role, SessionFact, Shape, Turn, Verdict};
use strata_core::time::SECOND;
use strata_core::{AgentId, FactKey, Fault, Reason, SessionId, Timestamp, limits};
use strata_runtime::sqlite::{Database, Migration, SqliteError};

/// Schema of the store.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "sessions",
        sql: "
CREATE TABLE session (
  user TEXT NOT NULL, id TEXT NOT NULL, agent TEXT NOT NULL, inc INTEGER NOT NULL, last INTEGER NOT NULL, bytes INTEGER NOT NULL,
  tok INTEGER NOT NULL, shape TEXT NOT NULL, decl INTEGER NOT NULL, ttl INTEGER NOT NULL, cre INTEGER NOT NULL, exp INTEGER NOT NULL,
  thr INTEGER NOT NULL, ttok INTEGER NOT NULL, ver INTEGER NOT NULL, sys INTEGER NOT NULL, anchors TEXT NOT NULL,
  PRIMARY KEY (user, id)) WITHOUT ROWID;
CREATE INDEX session_end ON session (exp);
CREATE TABLE turn (
  user TEXT NOT NULL, session TEXT NOT NULL, seq INTEGER NOT NULL, tokens INTEGER NOT NULL, pinned INTEGER NOT NULL, turn TEXT NOT NULL,
  PRIMARY KEY (user, session, seq)) WITHOUT ROWID;
CREATE INDEX turn_pinned ON turn (user, session, seq) WHERE pinned = 1;
CREATE TABLE summary (
  user TEXT NOT NULL, session TEXT NOT NULL, first INTEGER NOT NULL, summary TEXT NOT NULL,
  PRIMARY KEY (user, session, first)) WITHOUT ROWID;
CREATE TABLE verdict (
  user TEXT NOT NULL, session TEXT NOT NULL, seq INTEGER NOT NULL, verdict TEXT NOT NULL,
  PRIMARY KEY (user, session, seq)) WITHOUT ROWID;
CREATE TABLE compress_request (
  number INTEGER PRIMARY KEY, user TEXT NOT NULL, session TEXT NOT NULL, request TEXT NOT NULL, body TEXT NOT NULL, answer BLOB NOT NULL,
  UNIQUE (user, session, request));
CREATE TABLE tombstone (
  user TEXT NOT NULL, session TEXT NOT NULL, over INTEGER NOT NULL,
  PRIMARY KEY (user, session)) WITHOUT ROWID;
CREATE INDEX tombstone_end ON tombstone (over);
CREATE TABLE request (
  user TEXT NOT NULL, session TEXT NOT NULL, request TEXT NOT NULL, body TEXT NOT NULL, answer TEXT NOT NULL,
  PRIMARY KEY (user, session, request)) WITHOUT ROWID;
",
    },
    Migration {
        version: 2,
        name: "facts",
        sql: "
CREATE TABLE fact (
  user TEXT NOT NULL, session TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, seq INTEGER NOT NULL, epoch INTEGER NOT NULL,
  overlay INTEGER NOT NULL, time INTEGER NOT NULL,
  PRIMARY KEY (user, session, key)) WITHOUT ROWID;
",
    },
    Migration {
        version: 3,
        name: "artifacts",
        sql: "
CREATE TABLE artifact (
  user TEXT NOT NULL, session TEXT NOT NULL, trace TEXT NOT NULL, over INTEGER, bytes INTEGER NOT NULL, held INTEGER NOT NULL,
  artifact TEXT NOT NULL,
  PRIMARY KEY (user, session, trace)) WITHOUT ROWID;
CREATE INDEX artifact_end ON artifact (over) WHERE held = 1 AND over IS NOT NULL;
CREATE TABLE artifact_part (
  number INTEGER PRIMARY KEY, user TEXT NOT NULL, session TEXT NOT NULL, trace TEXT NOT NULL, part INTEGER NOT NULL, bytes BLOB NOT NULL,
  UNIQUE (user, session, trace, part));
",
    },
    Migration {
        version: 4,
        name: "erasure",
        sql: "
ALTER TABLE session ADD COLUMN red INTEGER NOT NULL DEFAULT 0;
CREATE TABLE erase_epoch (user TEXT PRIMARY KEY, epoch INTEGER NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX erase_epoch_end ON erase_epoch (until);
",
    },
    Migration { version: 5, name: "topics", sql: "ALTER TABLE session ADD COLUMN top INTEGER NOT NULL DEFAULT 0;" },
    Migration { version: 6, name: "look-ups", sql: "ALTER TABLE session ADD COLUMN acc TEXT NOT NULL DEFAULT '';" },
];

/// State of a fact that was erased, where an overlay has 1: of it the epoch is kept alone (rule P3).
const ERASED: i64 = 2;

/// An epoch as its column has it.
fn stored_epoch(epoch: u64) -> Result<i64, Fault> {
    i64::try_from(epoch).map_err(|_| Fault::new(Reason::Internal, "an epoch is out of range"))
}

/// Sessions and tombstones that one sweep removes at most.
const SWEEP_ROWS: u32 = 64;

/// Sessions in SQLite.
#[derive(Clone, Debug)]
pub struct EmbeddedSessions {
    database: Database,
}

impl EmbeddedSessions {
    /// In a database that was opened with [`MIGRATIONS`].
    #[must_use]
    pub const fn new(database: Database) -> Self {
        Self { database }
    }
}

/// A statement's failure as a fault.
fn sql(error: rusqlite::Error) -> Fault {
    SqliteError::from(error).into()
}

const HEAD: &str = "id, agent, inc, last, bytes, tok, shape, decl, ttl, cre, exp, thr, ttok, ver, sys, red, top, acc";

/// A session's row before its ids are checked.
struct RawHead {
    id: String,
    agent: String,
    shape: String,
    accesses: String,
    head: [i64; 14],
}

fn raw_head(row: &Row<'_>) -> rusqlite::Result<RawHead> {
    let n = |i: usize| row.get::<_, i64>(i);
    Ok(RawHead {
        id: row.get(0)?,
        agent: row.get(1)?,
        shape: row.get(6)?,
        accesses: row.get(17)?,
        head: [n(2)?, n(3)?, n(4)?, n(5)?, n(7)?, n(8)?, n(9)?, n(10)?, n(11)?, n(12)?, n(13)?, n(14)?, n(15)?, n(16)?],
    })
}

impl RawHead {
    fn into_head(self) -> Result<Head, Fault> {
        let [inc, last, bytes, tok, decl, ttl, cre, exp, thr, ttok, ver, sys, red, top] = self.head;
        let small = |n: i64| u32::try_from(n).map_err(|_| damaged());
        let large = |n: i64| u64::try_from(n).map_err(|_| damaged());
        Ok(Head {
            session: SessionId::new(self.id)?,
            agent: if self.agent.is_empty() { None } else { Some(AgentId::new(self.agent)?) },
            incarnation: large(inc)?,
            last: small(last)?,
            bytes: large(bytes)?,
            tokens: large(tok)?,
            shape: Shape::from_name(&self.shape),
            declared: decl != 0,
            ttl,
            create_time: Timestamp(cre),
            expire_time: Timestamp(exp),
            through: small(thr)?,
            through_tokens: large(ttok)?,
            version: large(ver)?,
            system: small(sys)?,
            redactions: large(red)?,
            topic: small(top)?,
            accesses: Accesses::decode(&self.accesses),
        })
    }
}

/// One session inside a closure.
struct At<'c> {
    db: &'c Connection,
    user: &'c str,
    session: &'c str,
}

impl<'c> At<'c> {
    fn new(db: &'c Connection, key: &'c SessionKey) -> Self {
        Self { db, user: key.user().as_str(), session: key.session().as_str() }
    }

    /// The live session.
    fn head(&self, now: Timestamp) -> Result<Option<Head>, Fault> {
        let query = format!("SELECT {HEAD} FROM session WHERE user = ?1 AND id = ?2 AND exp > ?3");
        let mut statement = self.db.prepare_cached(&query).map_err(sql)?;
        let raw = statement.query_row(params![self.user, self.session, now.0], raw_head).optional().map_err(sql)?;
        raw.map(RawHead::into_head).transpose()
    }

    fn execute(&self, query: &str, values: impl rusqlite::Params) -> Result<usize, Fault> {
        self.db.prepare_cached(query).map_err(sql)?.execute(values).map_err(sql)
    }

    /// When the session ended or expired, while its tombstone stands.
    fn grave(&self, now: Timestamp) -> Result<Option<i64>, Fault> {
        let query = "SELECT over FROM tombstone WHERE user = ?1 AND session = ?2 AND over > ?3";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        statement.query_row(params![self.user, self.session, now.0 - TOMBSTONE], |row| row.get(0)).optional().map_err(sql)
    }

    /// Refuses what was signed before the user's last erasure (rule E2).
    fn check_epoch(&self, epoch: u64) -> Result<(), Fault> {
        let mut statement = self.db.prepare_cached("SELECT epoch FROM erase_epoch WHERE user = ?1").map_err(sql)?;
        let highest: Option<i64> = statement.query_row(params![self.user], |row| row.get(0)).optional().map_err(sql)?;
        match highest.map(|highest| u64::try_from(highest).map_err(|_| damaged())).transpose()? {
            Some(highest) if epoch < highest => Err(stale_header(highest)),
            _ => Ok(()),
        }
    }

    /// Takes the content out of the remembered answers.
    fn forget_answers(&self) -> Result<(), Fault> {
        let query = "UPDATE compress_request SET answer = x'' WHERE user = ?1 AND session = ?2";
        self.execute(query, params![self.user, self.session]).map(|_| ())
    }

    /// Puts redacted turns in the place of those with their numbers.
    fn redact(&self, redaction: &Redaction) -> Result<(), Fault> {
        for turn in &redaction.turns {
            let query = "UPDATE turn SET tokens = ?4, turn = ?5 WHERE user = ?1 AND session = ?2 AND seq = ?3";
            self.execute(query, params![self.user, self.session, turn.seq, turn.tokens, write_json(turn)?])?;
        }
        if !redaction.turns.is_empty() {
            let query = "UPDATE session SET bytes = bytes - ?3, tok = tok - ?4, red = red + 1 WHERE user = ?1 AND id = ?2";
            self.execute(query, params![self.user, self.session, redaction.bytes, redaction.tokens])?;
        }
        if redaction.answers { self.forget_answers() } else { Ok(()) }
    }

    /// Removes all but the tombstone.
    fn remove(&self) -> Result<(), Fault> {
        for query in [
            "DELETE FROM turn WHERE user = ?1 AND session = ?2",
            "DELETE FROM summary WHERE user = ?1 AND session = ?2",
            "DELETE FROM verdict WHERE user = ?1 AND session = ?2",
            "DELETE FROM compress_request WHERE user = ?1 AND session = ?2",
            "DELETE FROM fact WHERE user = ?1 AND session = ?2",
            "DELETE FROM artifact_part WHERE user = ?1 AND session = ?2",
            "DELETE FROM artifact WHERE user = ?1 AND session = ?2",
            "DELETE FROM session WHERE user = ?1 AND id = ?2",
        ] {
            self.execute(query, params![self.user, self.session])?;
        }
        Ok(())
    }

    fn unbury(&self) -> Result<(), Fault> {
        self.execute("DELETE FROM request WHERE user = ?1 AND session = ?2", params![self.user, self.session])?;
        self.execute("DELETE FROM tombstone WHERE user = ?1 AND session = ?2", params![self.user, self.session])?;
        Ok(())
    }

    fn seen(&self, request: RequestKey) -> Result<Option<String>, Fault> {
        let query = "SELECT body, answer FROM request WHERE user = ?1 AND session = ?2 AND request = ?3";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let row = statement
            .query_row(params![self.user, self.session, request.id_hex()], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })
            .optional()
            .map_err(sql)?;
        match row {
            Some((body, _)) if body != request.body_hex() => Err(reused()),
            row => Ok(row.map(|(_, answer)| answer)),
        }
    }

    fn remember(&self, request: RequestKey, answer: &str) -> Result<(), Fault> {
        let query = "INSERT INTO request (user, session, request, body, answer) VALUES (?1, ?2, ?3, ?4, ?5)";
        self.execute(query, params![self.user, self.session, request.id_hex(), request.body_hex(), answer])?;
        Ok(())
    }

    /// The encoded answer of another write than an append.
    fn answered(&self, request: RequestKey) -> Result<Option<Vec<u8>>, Fault> {
        let query = "SELECT body, answer FROM compress_request WHERE user = ?1 AND session = ?2 AND request = ?3";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let row = statement
            .query_row(params![self.user, self.session, request.id_hex()], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
            })
            .optional()
            .map_err(sql)?;
        match row {
            Some((body, _)) if body != request.body_hex() => Err(reused()),
            row => Ok(row.map(|(_, answer)| answer)),
        }
    }

    /// The live session of a write that only its own agents make.
    fn writable(&self, agent: Option<&AgentId>, now: Timestamp, session: &SessionId) -> Result<Head, Fault> {
        match self.head(now)? {
            Some(head) if head.visible_to(agent) => Ok(head),
            None if self.grave(now)?.is_some() => Err(ended(session)),
            Some(_) | None => Err(not_found(session)),
        }
    }

    fn facts(&self) -> Result<Vec<SessionFact>, Fault> {
        let query = "SELECT key, value, seq, epoch, overlay, time FROM fact WHERE user = ?1 AND session = ?2 AND overlay <> ?3
                     ORDER BY key";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let mut rows = statement.query(params![self.user, self.session, ERASED]).map_err(sql)?;
        let mut facts = Vec::new();
        while let Some(row) = rows.next().map_err(sql)? {
            facts.push(SessionFact {
                key: FactKey::new(row.get::<_, String>(0).map_err(sql)?)?,
                value: row.get(1).map_err(sql)?,
                seq: row.get(2).map_err(sql)?,
                epoch: u64::try_from(row.get::<_, i64>(3).map_err(sql)?).map_err(|_| damaged())?,
                overlay: row.get(4).map_err(sql)?,
                time: Timestamp(row.get(5).map_err(sql)?),
            });
        }
        Ok(facts)
    }

    /// Epoch and state of every key that has one, erased ones too.
    fn epochs(&self) -> Result<BTreeMap<String, (u64, i64)>, Fault> {
        let query = "SELECT key, epoch, overlay FROM fact WHERE user = ?1 AND session = ?2";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let mut rows = statement.query(params![self.user, self.session]).map_err(sql)?;
        let mut known = BTreeMap::new();
        while let Some(row) = rows.next().map_err(sql)? {
            let epoch = u64::try_from(row.get::<_, i64>(1).map_err(sql)?).map_err(|_| damaged())?;
            known.insert(row.get(0).map_err(sql)?, (epoch, row.get(2).map_err(sql)?));
        }
        Ok(known)
    }

    fn artifact(&self, trace_id: &str) -> Result<Option<Artifact>, Fault> {
        let query = "SELECT artifact FROM artifact WHERE user = ?1 AND session = ?2 AND trace = ?3";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let json: Option<String> =
            statement.query_row(params![self.user, self.session, trace_id], |row| row.get(0)).optional().map_err(sql)?;
        json.map(|json| read_json(&json)).transpose()
    }

    fn drop_parts(&self, trace_id: &str) -> Result<(), Fault> {
        let query = "DELETE FROM artifact_part WHERE user = ?1 AND session = ?2 AND trace = ?3";
        self.execute(query, params![self.user, self.session, trace_id])?;
        let query = "UPDATE artifact SET held = 0 WHERE user = ?1 AND session = ?2 AND trace = ?3";
        self.execute(query, params![self.user, self.session, trace_id])?;
        Ok(())
    }

    fn put_artifact(&self, write: &ArtifactWrite) -> Result<ArtifactPut, Fault> {
        self.check_epoch(write.erase_epoch)?;
        self.writable(write.agent.as_ref(), write.now, write.key.session())?;
        if let Some((request, _)) = &write.request
            && let Some(answer) = self.answered(*request)?
        {
            return Ok(ArtifactPut::Replay(answer));
        }
        let trace_id = write.artifact.trace_id.as_str();
        match self.artifact(trace_id)? {
            Some(known) if known.is_gone(write.now) => self.drop_parts(trace_id)?,
            Some(known) if known.hash == write.artifact.hash => return Ok(ArtifactPut::Known(known)),
            Some(_) => return Err(other_bytes()),
            None => {}
        }
        let query = "SELECT count(*), coalesce(sum(bytes), 0) FROM artifact
                     WHERE user = ?1 AND session = ?2 AND (over IS NULL OR over > ?3)";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let (count, bytes): (i64, i64) = statement
            .query_row(params![self.user, self.session, write.now.0], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(sql)?;
        if count as usize + 1 > limits::SESSION_ARTIFACTS {
            return Err(too_many_artifacts(false));
        }
        if bytes as u64 + write.artifact.stored_bytes > limits::SESSION_ARTIFACT_BYTES {
            return Err(too_many_artifacts(true));
        }
        let query = "INSERT OR REPLACE INTO artifact (user, session, trace, over, bytes, held, artifact) VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6)";
        let over = write.artifact.expire_time.map(|over| over.0);
        let stored = write.artifact.stored_bytes as i64;
        self.execute(query, params![self.user, self.session, trace_id, over, stored, write_json(&write.artifact)?])?;
        for (number, part) in write.parts.iter().enumerate() {
            let query = "INSERT INTO artifact_part (user, session, trace, part, bytes) VALUES (?1, ?2, ?3, ?4, ?5)";
            self.execute(query, params![self.user, self.session, trace_id, number as i64, part])?;
        }
        if let Some((request, answer)) = &write.request {
            self.remember_answer(*request, answer)?;
        }
        Ok(ArtifactPut::Stored)
    }

    fn put_facts(&self, write: &FactsWrite) -> Result<Option<Vec<u8>>, Fault> {
        self.check_epoch(write.erase_epoch)?;
        let head = self.writable(write.agent.as_ref(), write.now, write.key.session())?;
        if let Some((request, _)) = &write.request
            && let Some(answer) = self.answered(*request)?
        {
            return Ok(Some(answer));
        }
        let known = self.epochs()?;
        let mut count = known.len();
        for fact in &write.facts {
            if fact.seq > head.last {
                return Err(no_such_turn(fact.seq, head.last));
            }
            match known.get(fact.key.as_str()) {
                Some((epoch, 1)) => return Err(overlaid(fact.key.as_str(), *epoch)),
                Some((epoch, _)) if *epoch > fact.epoch => return Err(stale(fact.key.as_str(), *epoch)),
                Some(_) => {}
                None => count += 1,
            }
        }
        if count > limits::SESSION_FACTS {
            return Err(too_many_facts());
        }
        for SessionFact { key, value, seq, epoch, overlay, time } in &write.facts {
            let query = "INSERT OR REPLACE INTO fact (user, session, key, value, seq, epoch, overlay, time) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            let epoch = stored_epoch(*epoch)?;
            self.execute(query, params![self.user, self.session, key.as_str(), value, seq, epoch, overlay, time.0])?;
        }
        if let Some((request, answer)) = &write.request {
            self.remember_answer(*request, answer)?;
        }
        Ok(None)
    }

    /// Remembers the encoded answer of another write than an append; the oldest ones make room. Dies with the session.
    fn remember_answer(&self, request: RequestKey, answer: &[u8]) -> Result<(), Fault> {
        let query = "INSERT OR REPLACE INTO compress_request (user, session, request, body, answer) VALUES (?1, ?2, ?3, ?4, ?5)";
        self.execute(query, params![self.user, self.session, request.id_hex(), request.body_hex(), answer])?;
        let query = "DELETE FROM compress_request WHERE number IN (
                       SELECT number FROM (
                         SELECT number, row_number() OVER newest AS place, sum(length(answer)) OVER newest AS bytes
                         FROM compress_request WHERE user = ?1 AND session = ?2 WINDOW newest AS (ORDER BY number DESC))
                       WHERE place > 1 AND (place > ?3 OR bytes > ?4))";
        self.execute(query, params![self.user, self.session, limits::SESSION_REQUESTS, limits::SESSION_ANSWER_BYTES])?;
        Ok(())
    }

    /// Renews the life; the tombstone follows (rules S10, S12). Answers the new end.
    fn renew(&self, head: &Head, now: Timestamp) -> Result<Timestamp, Fault> {
        let over = now.plus(head.ttl).max(head.expire_time);
        self.execute("UPDATE session SET exp = ?3 WHERE user = ?1 AND id = ?2", params![self.user, self.session, over.0])?;
        let query =
            "INSERT INTO tombstone (user, session, over) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET over = excluded.over";
        self.execute(query, params![self.user, self.session, over.0])?;
        Ok(over)
    }

    fn turn(&self, seq: u32) -> Result<Option<Turn>, Fault> {
        let query = "SELECT turn FROM turn WHERE user = ?1 AND session = ?2 AND seq = ?3";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let json: Option<String> =
            statement.query_row(params![self.user, self.session, seq], |row| row.get(0)).optional().map_err(sql)?;
        json.map(|json| read_turn(&json, seq)).transpose()
    }

    fn verdict(&self, seq: u32) -> Result<Option<Verdict>, Fault> {
        let query = "SELECT verdict FROM verdict WHERE user = ?1 AND session = ?2 AND seq = ?3";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let json: Option<String> =
            statement.query_row(params![self.user, self.session, seq], |row| row.get(0)).optional().map_err(sql)?;
        json.map(|json| read_json(&json)).transpose()
    }

    fn rows<T>(&self, query: &str, from: u32, map: impl Fn(&Row<'_>) -> rusqlite::Result<T>) -> Result<Vec<T>, Fault> {
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let rows = statement.query_map(params![self.user, self.session, from], map).map_err(sql)?;
        rows.collect::<Result<_, _>>().map_err(sql)
    }

    fn compressed(&self) -> Result<Compressed, Fault> {
        let query = "SELECT summary FROM summary WHERE user = ?1 AND session = ?2 AND first >= ?3 ORDER BY first";
        let summaries = self.rows(query, 0, |row| row.get::<_, String>(0))?;
        let summaries = summaries.iter().map(|json| read_json(json)).collect::<Result<_, _>>()?;
        let mut statement = self.db.prepare_cached("SELECT anchors FROM session WHERE user = ?1 AND id = ?2").map_err(sql)?;
        let anchors: String = statement.query_row(params![self.user, self.session], |row| row.get(0)).map_err(sql)?;
        let query = "SELECT seq FROM turn WHERE user = ?1 AND session = ?2 AND seq >= ?3 AND pinned = 1 ORDER BY seq";
        let pins: BTreeSet<u32> = self.rows(query, 0, |row| row.get::<_, u32>(0))?.into_iter().collect();
        Ok((summaries, with_pins(read_json(&anchors)?, &pins), pins))
    }

    fn append(&self, append: &Append) -> Result<Appended, Fault> {
        self.check_epoch(append.erase_epoch)?;
        let live = self.head(append.now)?;
        let grave = self.grave(append.now)?;
        if live.is_none() {
            // Over, whether swept or not.
            self.remove()?;
            if grave.is_none() {
                self.unbury()?;
            }
        }
        if let Some(request) = append.request
            && let Some(answer) = self.seen(request)?
        {
            return Appended::decode(&answer, true).ok_or_else(damaged);
        }
        if live.is_none() && grave.is_some() {
            return Err(ended(&append_session(append)));
        }
        let head = match live {
            Some(head) if !head.visible_to(append.agent.as_ref()) => return Err(other_agent()),
            Some(head) => head,
            None => self.create(append)?,
        };
        let count = u32::try_from(append.turns.len()).map_err(|_| damaged())?;
        let bytes = head.bytes + append.turns.iter().map(Turn::bytes).sum::<u64>();
        let tokens = head.tokens + append.turns.iter().map(|t| u64::from(t.tokens)).sum::<u64>();
        let last = head.last + count;
        if last > limits::SESSION_TURNS {
            return Err(Fault::limit("turns", limits::SESSION_TURNS, "turns of a session"));
        }
        if bytes > limits::SESSION_BYTES {
            return Err(Fault::limit("turns", limits::SESSION_BYTES, "bytes of a session"));
        }
        let mut system = head.system;
        for (seq, turn) in (head.last + 1..).zip(&append.turns) {
            let query = "INSERT INTO turn (user, session, seq, tokens, pinned, turn) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            self.execute(query, params![self.user, self.session, seq, turn.tokens, turn.pinned, write_json(turn)?])?;
            if turn.role == Role::System {
                system = seq;
            }
        }
        let query = "UPDATE session SET last = ?3, bytes = ?4, tok = ?5, sys = ?6 WHERE user = ?1 AND id = ?2";
        self.execute(query, params![self.user, self.session, last, bytes as i64, tokens as i64, system])?;
        let expire_time = self.renew(&head, append.now)?;
        let pending = last - head.through;
        let pending_tokens = tokens - head.through_tokens;
        let appended = Appended {
            first: head.last + 1,
            count,
            incarnation: head.incarnation,
            due: pending >= append.due_turns || (pending_tokens > append.due_tokens && pending > 2),
            expire_time,
            time: append.now,
            replayed: false,
            topic: head.topic,
        };
        if let Some(request) = append.request {
            self.remember(request, &appended.encode())?;
        }
        Ok(appended)
    }

    fn create(&self, append: &Append) -> Result<Head, Fault> {
        let count: u32 = self
            .db
            .prepare_cached("SELECT count(*) FROM session WHERE user = ?1 AND exp > ?2")
            .and_then(|mut s| s.query_row(params![self.user, append.now.0], |row| row.get(0)))
            .map_err(sql)?;
        if count >= limits::SESSIONS_PER_USER {
            return Err(Fault::limit("session_id", limits::SESSIONS_PER_USER, "live sessions of a user"));
        }
        let shape = append.shape.map_or("", Shape::name);
        let agent = append.agent.as_ref().map_or("", AgentId::as_str);
        let query = "INSERT INTO session (user, id, agent, inc, last, bytes, tok, shape, decl, ttl, cre, exp, thr, ttok, ver, sys, anchors)
                     VALUES (?1, ?2, ?3, ?4, 0, 0, 0, ?5, ?6, ?7, ?4, ?8, 0, 0, 0, 0, '[]')";
        let over = append.now.plus(append.ttl);
        self.execute(
            query,
            params![self.user, self.session, agent, append.now.0, shape, append.shape.is_some(), append.ttl, over.0],
        )?;
        self.head(append.now)?.ok_or_else(damaged)
    }

    fn commit(&self, commit: &Commit) -> Result<Committed, Fault> {
        if let Some(epoch) = commit.erase_epoch {
            self.check_epoch(epoch)?;
        }
        let Some(head) = self.head(commit.now)?.filter(|h| h.incarnation == commit.incarnation) else {
            return Ok(Committed::Gone);
        };
        if head.version != commit.version {
            return Ok(Committed::Raced);
        }
        let query = "UPDATE session SET ver = ver + 1, thr = ?3, ttok = ?4, anchors = ?5 WHERE user = ?1 AND id = ?2";
        let anchors = write_json(&commit.anchors)?;
        self.execute(query, params![self.user, self.session, commit.through, commit.through_tokens as i64, anchors])?;
        self.redact(&commit.redaction)?;
        if let Some(shape) = commit.shape {
            let query = "UPDATE session SET shape = ?3 WHERE user = ?1 AND id = ?2 AND decl = 0";
            self.execute(query, params![self.user, self.session, shape.name()])?;
        }
        if let Some(topic) = commit.topic {
            self.execute("UPDATE session SET top = ?3 WHERE user = ?1 AND id = ?2", params![self.user, self.session, topic])?;
        }
        for from in &commit.removed {
            self.execute(
                "DELETE FROM summary WHERE user = ?1 AND session = ?2 AND first = ?3",
                params![self.user, self.session, from],
            )?;
        }
        for summary in &commit.added {
            let query = "INSERT OR REPLACE INTO summary (user, session, first, summary) VALUES (?1, ?2, ?3, ?4)";
            self.execute(query, params![self.user, self.session, summary.from, write_json(summary)?])?;
        }
        for verdict in &commit.verdicts {
            let query = "INSERT OR REPLACE INTO verdict (user, session, seq, verdict) VALUES (?1, ?2, ?3, ?4)";
            self.execute(query, params![self.user, self.session, verdict.seq, write_json(verdict)?])?;
        }
        for (seqs, pinned) in [(&commit.pinned, true), (&commit.unpinned, false)] {
            for seq in seqs {
                let query = "UPDATE turn SET pinned = ?4 WHERE user = ?1 AND session = ?2 AND seq = ?3";
                self.execute(query, params![self.user, self.session, seq, pinned])?;
            }
        }
        if let Some((request, answer)) = &commit.request {
            self.remember_answer(*request, answer)?;
        }
        Ok(Committed::Yes)
    }

    fn end(
        &self,
        agent: Option<&AgentId>,
        now: Timestamp,
        request: Option<RequestKey>,
        session: &SessionId,
    ) -> Result<Ended, Fault> {
        let live = self.head(now)?;
        let grave = self.grave(now)?;
        if live.is_none() {
            self.remove()?;
            if grave.is_none() {
                self.unbury()?;
            }
        }
        if let Some(request) = request
            && let Some(answer) = self.seen(request)?
        {
            return Ended::decode(&answer).ok_or_else(damaged);
        }
        let Some(head) = live else {
            let over = grave.ok_or_else(|| not_found(session))?;
            return Ok(Ended { time: Timestamp(over), turns: 0, already: true });
        };
        if !head.visible_to(agent) {
            return Err(other_agent());
        }
        self.remove()?;
        self.execute("UPDATE tombstone SET over = ?3 WHERE user = ?1 AND session = ?2", params![self.user, self.session, now.0])?;
        let ended = Ended { time: now, turns: head.last, already: false };
        if let Some(request) = request {
            self.remember(request, &ended.encode())?;
        }
        Ok(ended)
    }

    fn window(&self, head: Head, read: WindowRead) -> Result<WindowParts, Fault> {
        let (summaries, anchors, _) = self.compressed()?;
        let floor = if head.shape == Some(Shape::Chat) { 0 } else { head.through };
        let mut tail = Vec::new();
        let (mut shown, mut spent, mut bytes) = (0_u32, 0_u64, 0);
        let query = "SELECT seq, turn FROM turn WHERE user = ?1 AND session = ?2 AND seq > ?3 ORDER BY seq DESC";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let mut rows = statement.query(params![self.user, self.session, floor]).map_err(sql)?;
        while shown < read.turns && spent <= u64::from(read.tokens) && bytes < limits::TURNS_ANSWER_BYTES {
            let Some(row) = rows.next().map_err(sql)? else { break };
            let json: String = row.get(1).map_err(sql)?;
            let turn = read_turn(&json, row.get(0).map_err(sql)?)?;
            let cost = tail_tokens(&turn);
            shown += u32::from(cost > 0);
            spent += u64::from(cost);
            bytes += json.len();
            tail.push(turn);
        }
        tail.reverse();
        let mut anchored = Vec::new();
        let mut room = limits::TURNS_ANSWER_BYTES;
        for seq in by_priority(&anchors).into_iter().take(WINDOW_ANCHORS as usize) {
            if room == 0 {
                break;
            }
            if let Some(turn) = self.turn(seq)? {
                room = room.saturating_sub(turn.text.len());
                anchored.push(turn);
            }
        }
        let system = if head.system > 0 { self.turn(head.system)? } else { None };
        Ok(WindowParts { head, summaries, anchors, anchored, tail, system })
    }

    fn turns(&self, head: Head, from: u32, to: u32) -> Result<TurnsRead, Fault> {
        let query = "SELECT seq, turn FROM turn WHERE user = ?1 AND session = ?2 AND seq BETWEEN ?3 AND ?4 ORDER BY seq";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let mut rows = statement.query(params![self.user, self.session, from, to]).map_err(sql)?;
        let (mut turns, mut bytes) = (Vec::new(), 0);
        while bytes < limits::TURNS_ANSWER_BYTES {
            let Some(row) = rows.next().map_err(sql)? else { break };
            let json: String = row.get(1).map_err(sql)?;
            bytes += json.len();
            turns.push(read_turn(&json, row.get(0).map_err(sql)?)?);
        }
        let last = turns.last().map_or(0, |t| t.seq);
        let query = "SELECT verdict FROM verdict WHERE user = ?1 AND session = ?2 AND seq BETWEEN ?3 AND ?4 ORDER BY seq";
        let mut statement = self.db.prepare_cached(query).map_err(sql)?;
        let rows =
            statement.query_map(params![self.user, self.session, from, last], |row| row.get::<_, String>(0)).map_err(sql)?;
        let verdicts = rows.map(|json| read_json::<Verdict>(&json.map_err(sql)?)).collect::<Result<_, _>>()?;
        Ok(TurnsRead { head, turns, verdicts })
    }
}

fn append_session(append: &Append) -> SessionId {
    append.key.session().clone()
}

#[async_trait]
impl SessionStore for EmbeddedSessions {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn append(&self, append: Append) -> Result<Appended, Fault> {
        self.database.write(move |db| At::new(db, &append.key).append(&append)).await
    }

    async fn window(&self, key: &SessionKey, read: WindowRead) -> Result<Option<WindowParts>, Fault> {
        let key = key.clone();
        let step = move |db: &Connection| {
            let at = At::new(db, &key);
            let Some(mut head) = at.head(read.now)? else { return Ok(None) };
            if read.renew {
                head.expire_time = at.renew(&head, read.now)?;
            }
            at.window(head, read).map(Some)
        };
        if read.renew { self.database.write(step).await } else { self.database.read(step).await }
    }

    async fn state(&self, key: &SessionKey, now: Timestamp) -> Result<Option<State>, Fault> {
        let key = key.clone();
        self.database
            .read(move |db| {
                let at = At::new(db, &key);
                let Some(head) = at.head(now)? else { return Ok(None) };
                let (summaries, anchors, pins) = at.compressed()?;
                Ok(Some(State { head, summaries, anchors, pins }))
            })
            .await
    }

    async fn turns(&self, key: &SessionKey, now: Timestamp, from: u32, to: u32) -> Result<Option<TurnsRead>, Fault> {
        let key = key.clone();
        self.database
            .read(move |db| {
                let at = At::new(db, &key);
                at.head(now)?.map(|head| at.turns(head, from, to)).transpose()
            })
            .await
    }

    async fn pick(&self, key: &SessionKey, now: Timestamp, incarnation: u64, seqs: &[u32]) -> Result<Vec<Picked>, Fault> {
        let (key, seqs) = (key.clone(), seqs.to_vec());
        self.database
            .read(move |db| {
                let at = At::new(db, &key);
                if at.head(now)?.is_none_or(|head| head.incarnation != incarnation) {
                    return Ok(Vec::new());
                }
                let mut turns = Vec::with_capacity(seqs.len());
                for seq in seqs {
                    if let Some(turn) = at.turn(seq)? {
                        turns.push((turn, at.verdict(seq)?));
                    }
                }
                Ok(turns)
            })
            .await
    }

    async fn sessions(&self, user: &UserTag, now: Timestamp) -> Result<Vec<Head>, Fault> {
        let user = user.as_str().to_owned();
        self.database
            .read(move |db| {
                let query =
                    format!("SELECT {HEAD} FROM session WHERE user = ?1 AND exp > ?2 ORDER BY exp DESC, id DESC LIMIT ?3");
                let mut statement = db.prepare_cached(&query).map_err(sql)?;
                let rows = statement.query_map(params![user, now.0, limits::SESSIONS_PER_USER], raw_head).map_err(sql)?;
                rows.map(|raw| raw.map_err(sql).and_then(RawHead::into_head)).collect()
            })
            .await
    }

    async fn session_page(
        &self,
        user: &UserTag,
        agent: Option<&AgentId>,
        now: Timestamp,
        after: Option<&SessionId>,
        count: u32,
    ) -> Result<Vec<Head>, Fault> {
        let user = user.as_str().to_owned();
        let agent = agent.map(|agent| agent.as_str().to_owned());
        let after = after.map(|after| after.as_str().to_owned()).unwrap_or_default();
        self.database
            .read(move |db| {
                let query = format!(
                    "SELECT {HEAD} FROM session WHERE user = ?1 AND exp > ?2 AND id > ?3 AND (?4 IS NULL OR agent IN ('', ?4))
                     ORDER BY id LIMIT ?5"
                );
                let mut statement = db.prepare_cached(&query).map_err(sql)?;
                let rows = statement.query_map(params![user, now.0, after, agent, count], raw_head).map_err(sql)?;
                rows.map(|raw| raw.map_err(sql).and_then(RawHead::into_head)).collect()
            })
            .await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, Fault> {
        self.database.write(move |db| At::new(db, &commit.key).commit(&commit)).await
    }

    async fn put_facts(&self, write: FactsWrite) -> Result<Option<Vec<u8>>, Fault> {
        self.database.write(move |db| At::new(db, &write.key).put_facts(&write)).await
    }

    async fn facts(&self, key: &SessionKey, now: Timestamp) -> Result<Option<Vec<SessionFact>>, Fault> {
        let key = key.clone();
        self.database
            .read(move |db| {
                let at = At::new(db, &key);
                if at.head(now)?.is_none() { Ok(None) } else { at.facts().map(Some) }
            })
            .await
    }

    async fn seal_fact(&self, key: &SessionKey, now: Timestamp, name: &FactKey, epoch: u64) -> Result<SessionFact, Fault> {
        let (key, name) = (key.clone(), name.clone());
        self.database
            .write(move |db| {
                let at = At::new(db, &key);
                if at.head(now)?.is_none() {
                    return Err(not_found(key.session()));
                }
                let fact = at.facts()?.into_iter().find(|fact| fact.key == name).ok_or_else(|| no_fact(&name))?;
                if fact.overlay {
                    return Err(overlaid(name.as_str(), fact.epoch));
                }
                if fact.epoch > epoch {
                    return Err(stale(name.as_str(), fact.epoch));
                }
                let query = "UPDATE fact SET epoch = ?4 WHERE user = ?1 AND session = ?2 AND key = ?3";
                at.execute(query, params![at.user, at.session, name.as_str(), stored_epoch(epoch)?])?;
                Ok(SessionFact { epoch, ..fact })
            })
            .await
    }

    async fn overlay_facts(&self, key: &SessionKey, now: Timestamp, names: &[FactKey]) -> Result<u32, Fault> {
        let (key, names) = (key.clone(), names.to_vec());
        self.database
            .write(move |db| {
                let at = At::new(db, &key);
                if at.head(now)?.is_none() {
                    return Ok(0);
                }
                let mut known = 0;
                for name in &names {
                    let query = "UPDATE fact SET overlay = 1 WHERE user = ?1 AND session = ?2 AND key = ?3 AND overlay < 2";
                    known += u32::from(at.execute(query, params![at.user, at.session, name.as_str()])? > 0);
                }
                Ok(known)
            })
            .await
    }

    async fn touch(
        &self,
        key: &SessionKey,
        now: Timestamp,
        incarnation: u64,
        was: &Accesses,
        becomes: &Accesses,
    ) -> Result<(), Fault> {
        let (key, was, becomes) = (key.clone(), was.encode(), becomes.encode());
        self.database
            .write(move |db| {
                let at = At::new(db, &key);
                if at.head(now)?.is_some_and(|head| head.incarnation == incarnation) {
                    let query = "UPDATE session SET acc = ?4 WHERE user = ?1 AND id = ?2 AND acc = ?3";
                    at.execute(query, params![at.user, at.session, was, becomes])?;
                }
                Ok(())
            })
            .await
    }

    async fn put_artifact(&self, write: ArtifactWrite) -> Result<ArtifactPut, Fault> {
        self.database.write(move |db| At::new(db, &write.key).put_artifact(&write)).await
    }

    async fn artifact(
        &self,
        key: &SessionKey,
        agent: Option<&AgentId>,
        now: Timestamp,
        trace_id: &str,
    ) -> Result<Artifact, Fault> {
        let (key, agent, trace_id) = (key.clone(), agent.cloned(), trace_id.to_owned());
        self.database
            .read(move |db| {
                let at = At::new(db, &key);
                if at.head(now)?.is_none_or(|head| !head.visible_to(agent.as_ref())) {
                    return Err(not_found(key.session()));
                }
                match at.artifact(&trace_id)? {
                    None => Err(no_artifact(&trace_id)),
                    Some(artifact) if artifact.is_gone(now) => Err(artifact_gone(&trace_id)),
                    Some(artifact) => Ok(artifact),
                }
            })
            .await
    }

    async fn artifact_part(&self, key: &SessionKey, now: Timestamp, trace_id: &str, part: u32) -> Result<Vec<u8>, Fault> {
        let (key, trace_id) = (key.clone(), trace_id.to_owned());
        self.database
            .read(move |db| {
                let at = At::new(db, &key);
                let live = at.head(now)?.is_some() && at.artifact(&trace_id)?.is_some_and(|artifact| !artifact.is_gone(now));
                let query = "SELECT bytes FROM artifact_part WHERE user = ?1 AND session = ?2 AND trace = ?3 AND part = ?4";
                let mut statement = db.prepare_cached(query).map_err(sql)?;
                let bytes: Option<Vec<u8>> = statement
                    .query_row(params![at.user, at.session, trace_id, part], |row| row.get(0))
                    .optional()
                    .map_err(sql)?;
                bytes.filter(|_| live).ok_or_else(|| artifact_gone(&trace_id))
            })
            .await
    }

    async fn committed(&self, key: &SessionKey, now: Timestamp, request: RequestKey) -> Result<Option<Vec<u8>>, Fault> {
        let key = key.clone();
        self.database
            .read(move |db| {
                let at = At::new(db, &key);
                if at.head(now)?.is_none() {
                    return if at.grave(now)?.is_some() { Err(ended(key.session())) } else { Ok(None) };
                }
                at.answered(request)
            })
            .await
    }

    async fn end(
        &self,
        key: &SessionKey,
        agent: Option<&AgentId>,
        now: Timestamp,
        request: Option<RequestKey>,
    ) -> Result<Ended, Fault> {
        let (key, agent) = (key.clone(), agent.cloned());
        self.database.write(move |db| At::new(db, &key).end(agent.as_ref(), now, request, key.session())).await
    }

    async fn raise_erase_epoch(&self, user: &UserTag, epoch: u64, now: Timestamp) -> Result<u64, Fault> {
        let user = user.as_str().to_owned();
        let epoch = stored_epoch(epoch)?;
        let until = now.plus(limits::ERASE_EPOCH_SECONDS * SECOND);
        self.database
            .write(move |db| {
                let query = "INSERT INTO erase_epoch (user, epoch, until) VALUES (?1, ?2, ?3)
                             ON CONFLICT DO UPDATE SET epoch = max(epoch, excluded.epoch), until = max(until, excluded.until)
                             RETURNING epoch";
                let highest: i64 = db
                    .prepare_cached(query)
                    .and_then(|mut statement| statement.query_row(params![user, epoch, until.0], |row| row.get(0)))
                    .map_err(sql)?;
                u64::try_from(highest).map_err(|_| damaged())
            })
            .await
    }

    async fn drop_expired(&self, user: &UserTag, now: Timestamp) -> Result<bool, Fault> {
        let user = user.as_str().to_owned();
        self.database
            .write(move |db| {
                let query = "SELECT id FROM session WHERE user = ?1 AND exp <= ?2 LIMIT ?3";
                let mut statement = db.prepare_cached(query).map_err(sql)?;
                let over = statement
                    .query_map(params![user, now.0, SWEEP_ROWS], |row| row.get(0))
                    .map_err(sql)?
                    .collect::<Result<Vec<String>, _>>()
                    .map_err(sql)?;
                for session in &over {
                    At { db, user: &user, session }.remove()?;
                }
                Ok(over.len() >= SWEEP_ROWS as usize)
            })
            .await
    }

    async fn answers(&self, key: &SessionKey, now: Timestamp) -> Result<Vec<Vec<u8>>, Fault> {
        let key = key.clone();
        self.database
            .read(move |db| {
                let at = At::new(db, &key);
                if at.head(now)?.is_none() {
                    return Ok(Vec::new());
                }
                let query = "SELECT answer FROM compress_request WHERE user = ?1 AND session = ?2 AND length(answer) > 0";
                let mut statement = db.prepare_cached(query).map_err(sql)?;
                let answers = statement.query_map(params![at.user, at.session], |row| row.get(0)).map_err(sql)?;
                answers.collect::<Result<_, _>>().map_err(sql)
            })
            .await
    }

    async fn forget_answers(&self, key: &SessionKey, _now: Timestamp) -> Result<(), Fault> {
        let key = key.clone();
        self.database.write(move |db| At::new(db, &key).forget_answers()).await
    }

    async fn erase_facts(
        &self,
        key: &SessionKey,
        _now: Timestamp,
        emptied: &[FactKey],
        removed: &[FactKey],
    ) -> Result<(), Fault> {
        let (key, emptied, removed) = (key.clone(), emptied.to_vec(), removed.to_vec());
        self.database
            .write(move |db| {
                let at = At::new(db, &key);
                for name in &emptied {
                    let query = "UPDATE fact SET value = '', seq = 0, time = 0, overlay = ?4 WHERE user = ?1 AND session = ?2 AND key = ?3";
                    at.execute(query, params![at.user, at.session, name.as_str(), ERASED])?;
                }
                for name in &removed {
                    let query = "DELETE FROM fact WHERE user = ?1 AND session = ?2 AND key = ?3";
                    at.execute(query, params![at.user, at.session, name.as_str()])?;
                }
                at.forget_answers()
            })
            .await
    }

    async fn artifacts(&self, key: &SessionKey, now: Timestamp) -> Result<Vec<Artifact>, Fault> {
        let key = key.clone();
        self.database
            .read(move |db| {
                let at = At::new(db, &key);
                if at.head(now)?.is_none() {
                    return Ok(Vec::new());
                }
                let query = "SELECT artifact FROM artifact WHERE user = ?1 AND session = ?2 AND held = 1 ORDER BY trace";
                let mut statement = db.prepare_cached(query).map_err(sql)?;
                let rows = statement.query_map(params![at.user, at.session], |row| row.get::<_, String>(0)).map_err(sql)?;
                rows.map(|json| read_json(&json.map_err(sql)?)).collect()
            })
            .await
    }

    async fn erase_artifact(&self, key: &SessionKey, now: Timestamp, artifact: &Artifact, whole: bool) -> Result<(), Fault> {
        let (key, erased) = (key.clone(), erased_artifact(artifact, now));
        self.database
            .write(move |db| {
                let at = At::new(db, &key);
                at.drop_parts(&erased.trace_id)?;
                if whole {
                    let query = "DELETE FROM artifact WHERE user = ?1 AND session = ?2 AND trace = ?3";
                    at.execute(query, params![at.user, at.session, erased.trace_id])?;
                } else {
                    let query =
                        "UPDATE artifact SET over = ?4, bytes = 0, artifact = ?5 WHERE user = ?1 AND session = ?2 AND trace = ?3";
                    at.execute(query, params![at.user, at.session, erased.trace_id, now.0, write_json(&erased)?])?;
                }
                Ok(())
            })
            .await
    }

    async fn medium(&self, _user: &UserTag, _purge: Purge, _patience: Duration) -> Result<Medium, Fault> {
        // Deleted rows are overwritten in the file; what is left of them stands in the log until it is moved into the file.
        Ok(if self.database.checkpoint().await? {
            Medium { state: Physical::Gone, detail: "rows were overwritten and the write-ahead log emptied" }
        } else {
            Medium { state: Physical::Pending, detail: "waits for a reader to let go of the write-ahead log" }
        })
    }

    async fn sweep(&self, now: Timestamp) -> Result<bool, Fault> {
        self.database
            .write(move |db| {
                let doomed = |query: &str, until: i64| -> Result<Vec<(String, String)>, Fault> {
                    let mut statement = db.prepare_cached(query).map_err(sql)?;
                    let rows =
                        statement.query_map(params![until, SWEEP_ROWS], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql)?;
                    rows.collect::<Result<_, _>>().map_err(sql)
                };
                let sessions = doomed("SELECT user, id FROM session WHERE exp <= ?1 LIMIT ?2", now.0)?;
                for (user, session) in &sessions {
                    At { db, user, session }.remove()?;
                }
                let graves = doomed("SELECT user, session FROM tombstone WHERE over <= ?1 LIMIT ?2", now.0 - TOMBSTONE)?;
                for (user, session) in &graves {
                    At { db, user, session }.unbury()?;
                }
                let query = "SELECT user, session, trace FROM artifact WHERE held = 1 AND over <= ?1 LIMIT ?2";
                let mut statement = db.prepare_cached(query).map_err(sql)?;
                let gone = statement
                    .query_map(params![now.0, SWEEP_ROWS], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                    .map_err(sql)?
                    .collect::<Result<Vec<(String, String, String)>, _>>()
                    .map_err(sql)?;
                for (user, session, trace_id) in &gone {
                    At { db, user, session }.drop_parts(trace_id)?;
                }
                let query = "DELETE FROM erase_epoch WHERE user IN (SELECT user FROM erase_epoch WHERE until <= ?1 LIMIT ?2)";
                db.prepare_cached(query).map_err(sql)?.execute(params![now.0, SWEEP_ROWS]).map_err(sql)?;
                Ok(sessions.len().max(graves.len()).max(gone.len()) >= SWEEP_ROWS as usize)
            })
            .await
    }

    async fn ping(&self) -> Result<(), Fault> {
        self.database.read(|db| db.query_row("SELECT 1", [], |_| Ok(())).map_err(sql)).await
    }
}
