//! What the tests of index, relay and recall share: a database with rows put straight into it, and an embedder whose
//! vectors can be reasoned about.

use crate::metadata::{MIGRATIONS, row::id_bytes, search};
use async_trait::async_trait;
use parking_lot::Mutex;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strata_core::record::{Kind, Status, Tier};
use strata_core::{MemoryId, Owner, Timestamp};
use strata_runtime::sqlite::{Database, Location, SqliteError, SqliteSettings};
use strata_text::embed::{EmbedError, Embedder, EmbedderIdentity, Purpose, normalise};
use uuid::Uuid;

/// A moment to count from.
pub const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

/// A database in a file of its own.
#[derive(Debug)]
pub struct Store {
    pub database: Database,
    next: AtomicU64,
    _dir: tempfile::TempDir,
}

/// A row to put.
#[derive(Clone, Debug)]
pub struct Put {
    pub owner: Owner,
    pub content: String,
    pub kind: Kind,
    pub tier: Tier,
    pub status: Status,
    pub key: Option<String>,
    pub value: Option<String>,
    pub event_time: Timestamp,
    pub expire_time: Option<Timestamp>,
    pub valid_to: Option<Timestamp>,
    pub tags: Vec<String>,
    pub metadata: BTreeMap<String, String>,
    pub session: Option<String>,
    pub confidence: f64,
    pub cites: u64,
    pub last_cited_at: Option<Timestamp>,
    /// Whether the index is to be told.
    pub outbox: bool,
}

impl Put {
    /// An ACTIVE, STABLE fact that the relay will hear of.
    pub fn new(owner: &Owner, content: &str) -> Self {
        Self {
            owner: owner.clone(),
            content: content.to_owned(),
            kind: Kind::Fact,
            tier: Tier::Stable,
            status: Status::Active,
            key: None,
            value: None,
            event_time: NOW,
            expire_time: None,
            valid_to: None,
            tags: Vec::new(),
            metadata: BTreeMap::new(),
            session: None,
            confidence: 0.9,
            cites: 0,
            last_cited_at: None,
            outbox: true,
        }
    }

    /// With a slot and its value.
    pub fn slot(self, key: &str, value: &str) -> Self {
        Self { key: Some(key.to_owned()), value: Some(format!("{{\"text\":{value:?}}}")), ..self }
    }
}

impl Store {
    pub fn open() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let location = Location::File(dir.path().join("longterm.db"));
        let database = Database::open(&location, MIGRATIONS, SqliteSettings::default()).expect("opens");
        Self { database, next: AtomicU64::new(1), _dir: dir }
    }

    /// The file, for a hand behind the service's back.
    pub fn path(&self) -> std::path::PathBuf {
        self._dir.path().join("longterm.db")
    }

    /// Puts a row; ids ascend.
    pub async fn put(&self, put: Put) -> MemoryId {
        let id = MemoryId(Uuid::from_u128(u128::from(self.next.fetch_add(1, Ordering::Relaxed)) | 7 << 76 | 2 << 62));
        self.database.write(move |db| insert(db, id, &put)).await.expect("a row");
        id
    }

    /// Runs SQL over one record and tells the outbox, as every change of a record does.
    pub async fn change(&self, id: MemoryId, set: &'static str) {
        let changed: Result<(), SqliteError> = self
            .database
            .write(move |db| {
                db.execute(&format!("UPDATE records SET version = version + 1, {set} WHERE memory_id = ?1"), [id_bytes(id)])?;
                db.execute(
                    "INSERT INTO outbox (memory_id, owner_id, version, op, time, tenant) \
                     SELECT r.memory_id, r.owner_id, r.version, 'UPSERT', ?2, u.tenant FROM records r \
                     JOIN users u ON u.user_id = r.user_id WHERE r.memory_id = ?1",
                    params![id_bytes(id), NOW.micros()],
                )?;
                Ok(())
            })
            .await;
        changed.expect("changed");
    }

    /// Deletes a record for good.
    pub async fn erase(&self, id: MemoryId) {
        let erased: Result<(), SqliteError> = self
            .database
            .write(move |db| {
                db.execute(
                    "INSERT INTO outbox (memory_id, owner_id, version, op, time, tenant) \
                     SELECT r.memory_id, r.owner_id, r.version + 1, 'DELETE', ?2, u.tenant FROM records r \
                     JOIN users u ON u.user_id = r.user_id WHERE r.memory_id = ?1",
                    params![id_bytes(id), NOW.micros()],
                )?;
                db.execute("DELETE FROM record_terms WHERE memory_id = ?1", [id_bytes(id)])?;
                db.execute("DELETE FROM vectors WHERE memory_id = ?1", [id_bytes(id)])?;
                db.execute("DELETE FROM evidence WHERE memory_id = ?1", [id_bytes(id)])?;
                db.execute("DELETE FROM records WHERE memory_id = ?1", [id_bytes(id)])?;
                Ok(())
            })
            .await;
        erased.expect("erased");
    }

    /// Reads one value.
    pub async fn value<T: rusqlite::types::FromSql + Send + 'static>(&self, sql: &'static str) -> T {
        let read: Result<T, SqliteError> = self.database.read(move |db| Ok(db.query_row(sql, [], |row| row.get(0))?)).await;
        read.expect("a value")
    }
}

fn insert(db: &Connection, id: MemoryId, put: &Put) -> Result<(), SqliteError> {
    let (tenant, user) = (put.owner.tenant.as_str(), put.owner.user.as_str());
    db.execute("INSERT OR IGNORE INTO users (tenant, user) VALUES (?1, ?2)", [tenant, user])?;
    let user_id: i64 = db.query_row("SELECT user_id FROM users WHERE tenant = ?1 AND user = ?2", [tenant, user], |r| r.get(0))?;
    db.execute("UPDATE users SET revision = revision + 1 WHERE user_id = ?1", [user_id])?;
    let agent = put.owner.agent.as_ref().map_or("", |a| a.as_str());
    for level in ["", agent] {
        db.execute("INSERT OR IGNORE INTO owners (user_id, agent) VALUES (?1, ?2)", params![user_id, level])?;
    }
    let owner_id: i64 =
        db.query_row("SELECT owner_id FROM owners WHERE user_id = ?1 AND agent = ?2", params![user_id, agent], |r| r.get(0))?;
    let terms = strata_text::terms(&put.content);
    let json = |text: Result<String, serde_json::Error>| text.expect("JSON");
    db.execute(
        "INSERT INTO records (memory_id, owner_id, user_id, kind, tier, key, is_set, value, content, normal, dedup, source, \
         source_quote, quote_verified, confirmed, confidence, importance, sensitivity, protected, instruction, status, reason, \
         valid_to, event_time, create_time, update_time, expire_time, last_cited_at, cite_count, tags, metadata, owner_epoch, version, \
         length, evidence_count, evidence_sessions) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?8, ?9, 'USER_STATEMENT', ?8, 1, 0, \
         ?10, 3, 'NONE', 0, 0, ?11, 'K1', ?12, ?13, ?13, ?13, ?14, ?15, ?16, ?17, ?18, 1, 1, ?19, 1, 1)",
        params![
            id_bytes(id), owner_id, user_id, put.kind.name(), put.tier.name(), put.key, put.value, put.content, id_bytes(id),
            put.confidence, put.status.name(), put.valid_to.map(Timestamp::micros), put.event_time.micros(),
            put.expire_time.map(Timestamp::micros), put.last_cited_at.map(Timestamp::micros), put.cites,
            json(serde_json::to_string(&put.tags)), json(serde_json::to_string(&put.metadata)), terms.length,
        ],
    )?;
    for (term, tf) in terms.iter() {
        db.execute(
            "INSERT INTO record_terms (owner_id, term, memory_id, tf) VALUES (?1, ?2, ?3, ?4)",
            params![owner_id, term, id_bytes(id), tf],
        )?;
    }
    if let Some(session) = &put.session {
        db.execute(
            "INSERT INTO evidence (memory_id, owner_id, mark, source, session_id, cues, quote, quote_verified, time) \
             VALUES (?1, ?2, 'm', 'USER_STATEMENT', ?3, 0, ?4, 1, ?5)",
            params![id_bytes(id), owner_id, session, put.content, put.event_time.micros()],
        )?;
    }
    if put.outbox {
        db.execute(
            "INSERT INTO outbox (memory_id, owner_id, version, op, time, tenant) VALUES (?1, ?2, 1, 'UPSERT', ?3, \
             (SELECT u.tenant FROM owners o JOIN users u ON u.user_id = o.user_id WHERE o.owner_id = ?2))",
            params![id_bytes(id), owner_id, NOW.micros()],
        )?;
    }
    Ok(())
}

/// Reads a record as the index takes it, with the vector `embedder` gives its sentence.
pub async fn upsert(store: &Store, embedder: &Words, id: MemoryId) -> crate::index::Upsert {
    let model = embedder.identity.name.clone();
    let read: Result<_, SqliteError> = store
        .database
        .read(move |db| Ok((search::upsert_of(db, id, Some(&model))?.expect("a record"), search::content(db, id)?)))
        .await;
    let (mut upsert, content) = read.expect("read");
    upsert.vector = Some(embedder.vector(&content.expect("a sentence")));
    upsert
}

/// Embeds by words: each word is a direction, texts with the same words are the same vector, and synonyms can be taught.
#[derive(Clone, Debug)]
pub struct Words {
    pub identity: EmbedderIdentity,
    synonyms: BTreeMap<&'static str, &'static str>,
    down: Arc<Mutex<bool>>,
    pub delay: Duration,
    pub calls: Arc<AtomicU64>,
}

impl Words {
    pub fn new(name: &str, dimensions: usize) -> Self {
        let identity = EmbedderIdentity {
            name: name.to_owned(),
            dimensions,
            min_similarity: 0.2,
            duplicate_similarity: 0.95,
            conflict_similarity: 0.8,
            topic_similarity: 0.0,
        };
        Self { identity, synonyms: BTreeMap::new(), down: Arc::default(), delay: Duration::ZERO, calls: Arc::default() }
    }

    /// Teaches that a word means another.
    pub fn teach(mut self, word: &'static str, means: &'static str) -> Self {
        self.synonyms.insert(word, means);
        self
    }

    pub fn set_down(&self, down: bool) {
        *self.down.lock() = down;
    }

    pub fn vector(&self, text: &str) -> Vec<f32> {
        let text = self.synonyms.iter().fold(text.to_lowercase(), |text, (word, means)| text.replace(word, means));
        let mut vector = vec![0.0; self.identity.dimensions];
        for term in strata_text::analyze_query(&text) {
            let digest = blake3::hash(format!("{}{term}", self.identity.name).as_bytes());
            for byte in digest.as_bytes().iter().take(8) {
                vector[usize::from(*byte) % self.identity.dimensions] += 1.0;
            }
        }
        if !normalise(&mut vector) {
            vector[0] = 1.0;
        }
        vector
    }
}

#[async_trait]
impl Embedder for Words {
    fn identity(&self) -> &EmbedderIdentity {
        &self.identity
    }

    async fn embed(&self, texts: &[&str], _purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.delay.is_zero() {
            strata_runtime::ports::pause(self.delay).await;
        }
        if *self.down.lock() {
            return Err(EmbedError::Unavailable("down".into()));
        }
        Ok(texts.iter().map(|text| self.vector(text)).collect())
    }
}
