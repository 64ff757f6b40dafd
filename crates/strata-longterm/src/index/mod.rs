//! The search index: two legs over one owner's records, filtered inside the query (rules R1, R3).
//!
//! SQLite is the truth; an index only says which records to look at. Two of them do the same: [`exact`] scans the one
//! user's vectors and terms that stand beside the rows, [`qdrant`] asks a server. Both are told about changes by the
//! relay only ([`Index::apply`]), both know a record by the same [`IndexedRow`], both filter by the same
//! [`RecordFilter`], and one behaviour suite runs over both. What an index answers is checked again on the row, so a stale
//! one costs recall and nothing else.
//!
//! There is no way to search without an owner: [`Index::search`] takes one, and it is part of every query.

pub mod exact;
pub mod qdrant;
#[cfg(test)]
mod suite;

use async_trait::async_trait;
use std::collections::BTreeMap;
use std::fmt::Debug;
use strata_core::policy::{recall::round_score, status};
use strata_core::record::{Kind, Status, Tier};
use strata_core::{AgentId, Fault, MemoryId, Owner, Timestamp};

/// A content-free stand-in for a text that is filtered by equality: an agent, a tag, a metadata pair, a session. The
/// index never holds such texts, and no character in one can mean anything to a query language (cases C043, C044).
pub type Mark = i64;

/// Mark of the user level: no agent's, because `mark` never gives it.
pub const USER_LEVEL: Mark = 0;

/// Mark of some text; `of` keeps different uses apart. Equal texts give equal marks on every machine; different ones
/// collide once in 2^63, and the row is checked again.
fn mark(of: &str, parts: &[&str]) -> Mark {
    let digest = blake3::hash(strata_core::id::join(&[&[of], parts].concat()).as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.as_bytes()[..8]);
    // Positive, so that it is the same number in every language, and never USER_LEVEL.
    (i64::from_le_bytes(bytes) & i64::MAX).max(1)
}

/// Mark of an owner's agent; [`USER_LEVEL`] without one.
#[must_use]
pub fn agent_mark(agent: Option<&AgentId>) -> Mark {
    agent.map_or(USER_LEVEL, |agent| mark("agent", &[agent.as_str()]))
}

/// Marks of what a record is found by, ascending: its tags, its metadata pairs, the sessions of its evidence.
#[must_use]
pub fn marks<'a>(
    tags: impl IntoIterator<Item = &'a str>,
    metadata: &BTreeMap<String, String>,
    sessions: impl IntoIterator<Item = &'a str>,
) -> Vec<Mark> {
    let mut out: Vec<Mark> = tags.into_iter().map(|tag| mark("tag", &[tag])).collect();
    out.extend(metadata.iter().map(|(key, value)| mark("metadata", &[key, value])));
    out.extend(sessions.into_iter().map(|session| mark("session", &[session])));
    out.sort_unstable();
    out.dedup();
    out
}

/// What the index knows of a record: enough to filter, nothing to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedRow {
    /// Record.
    pub memory_id: MemoryId,
    /// [`agent_mark`] of its owner.
    pub agent: Mark,
    /// What it is about.
    pub kind: Kind,
    /// Retention.
    pub tier: Tier,
    /// State at `version`.
    pub status: Status,
    /// Version of the record that this describes; a hit of another version is dropped.
    pub version: u64,
    /// Time of the statement.
    pub event_time: Timestamp,
    /// Expiry.
    pub expire_time: Option<Timestamp>,
    /// Start of the time it holds.
    pub valid_from: Option<Timestamp>,
    /// End (exclusive) of the time it holds.
    pub valid_to: Option<Timestamp>,
    /// [`marks`] of it, ascending.
    pub marks: Vec<Mark>,
}

/// Kinds that stand apart: never confirmed as they are, returned only when asked for by kind (rule G2).
pub const APART: [Kind; 2] = [Kind::Assumption, Kind::ModelSuggestion];

/// Which of an owner's records may be found; all parts are ANDed (rules R1, R13, case C046).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFilter {
    /// Agent whose records are visible beside the user's; without one the view is user-wide (C041).
    pub agent: Option<Mark>,
    /// Statuses, by the clock (rule F1); never empty. ACTIVE records must also hold at `now`.
    pub statuses: Vec<Status>,
    /// Kinds; never empty. One of [`APART`] also lets its CANDIDATE records through.
    pub kinds: Vec<Kind>,
    /// Tiers; empty is all.
    pub tiers: Vec<Tier>,
    /// Marks that must all be there.
    pub marks: Vec<Mark>,
    /// Event time from (inclusive).
    pub from: Option<Timestamp>,
    /// Event time to (exclusive).
    pub to: Option<Timestamp>,
    /// Time of the question.
    pub now: Timestamp,
}

impl RecordFilter {
    /// The default filter of a reader: ACTIVE records of every kind but those apart, valid at `now`.
    #[must_use]
    pub fn active(owner: &Owner, now: Timestamp) -> Self {
        Self {
            agent: owner.agent.as_ref().map(|agent| agent_mark(Some(agent))),
            statuses: vec![Status::Active],
            kinds: Kind::ALL.iter().copied().filter(|kind| !APART.contains(kind)).collect(),
            tiers: Vec::new(),
            marks: Vec::new(),
            from: None,
            to: None,
            now,
        }
    }

    /// Whether a record may be found.
    #[must_use]
    pub fn admits(&self, row: &IndexedRow) -> bool {
        let status = status::at(row.status, row.tier, row.expire_time, self.now);
        let apart = status == Status::Candidate && APART.contains(&row.kind);
        let holds = status != Status::Active || status::is_valid(row.valid_from, row.valid_to, self.now);
        (self.statuses.contains(&status) || apart)
            && holds
            && self.kinds.contains(&row.kind)
            && self.agent.is_none_or(|agent| row.agent == agent || row.agent == USER_LEVEL)
            && (self.tiers.is_empty() || self.tiers.contains(&row.tier))
            && self.from.is_none_or(|from| from <= row.event_time)
            && self.to.is_none_or(|to| row.event_time < to)
            && self.marks.iter().all(|mark| row.marks.binary_search(mark).is_ok())
    }
}

/// A change the index has to take.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexOp {
    /// Put a record, unless a later version is there.
    Upsert(Box<Upsert>),
    /// Take a record out for good.
    Delete {
        /// Whose.
        owner: Owner,
        /// Which.
        memory_id: MemoryId,
    },
}

/// A record as it goes into the index.
#[derive(Clone, Debug, PartialEq)]
pub struct Upsert {
    /// Whose.
    pub owner: Owner,
    /// What filters it.
    pub row: IndexedRow,
    /// Vector of length 1 in the index's own space; none while there is none.
    pub vector: Option<Vec<f32>>,
    /// BM25 weight per term hash, ascending ([`strata_text::bm25::document_weights`]).
    pub terms: Vec<(u32, f32)>,
}

/// What to look for in one owner's records.
#[derive(Clone, Debug, PartialEq)]
pub struct LegQuery {
    /// The query's vector, of length 1 and the index's dimension; none skips the dense leg.
    pub dense: Option<Vec<f32>>,
    /// The owner's IDF per term hash of the query, ascending; empty skips the keyword leg (case C077).
    pub sparse: Vec<(u32, f32)>,
    /// Hits per leg at most.
    pub limit: u32,
    /// What may be found.
    pub filter: RecordFilter,
}

/// A hit of one leg.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LegHit {
    /// Record.
    pub memory_id: MemoryId,
    /// Version that was indexed.
    pub version: u64,
    /// Cosine (-1..=1) or BM25 (above 0).
    pub score: f32,
}

/// What both legs found, each best first, equal scores by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Legs {
    /// By meaning.
    pub dense: Vec<LegHit>,
    /// By words.
    pub keyword: Vec<LegHit>,
}

impl Legs {
    /// Orders each leg best first, equal rounded scores by id, and cuts it: the last step of every index.
    fn ordered(mut self, limit: u32) -> Self {
        cut_hits(&mut self.dense, limit as usize);
        cut_hits(&mut self.keyword, limit as usize);
        self
    }
}

/// Keeps the best `limit` hits, best first by rounded score, then by id: the order two indexes agree on (rule R4).
pub(crate) fn cut_hits(hits: &mut Vec<LegHit>, limit: usize) {
    let rounded = |hit: &LegHit| round_score(f64::from(hit.score)).unwrap_or(f64::NEG_INFINITY);
    let order = |a: &LegHit, b: &LegHit| rounded(b).total_cmp(&rounded(a)).then_with(|| a.memory_id.cmp(&b.memory_id));
    if limit == 0 {
        hits.clear();
    } else if hits.len() > limit {
        hits.select_nth_unstable_by(limit - 1, order);
        hits.truncate(limit);
    }
    hits.sort_unstable_by(order);
}

/// The space an index's vectors live in. Vectors of two spaces are never compared, also when their dimension is the same
/// (case C123).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Identity of the embedder: name, version, digest of its weights.
    pub model: String,
    /// Dimension of its vectors.
    pub dims: usize,
}

/// What [`Index::prepare`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// It was made just now and is empty.
    Fresh,
    /// It is as it was left.
    Ready,
    /// The same, and a second copy that was begun is there to be filled on.
    Rebuilding,
}

/// What an index holds of a record, compared with what it was to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Version of the record it knows.
    pub version: u64,
    /// Whether it stands under the right user.
    pub owned: bool,
    /// Whether what filters it is what was told.
    pub faithful: bool,
    /// Whether it has the record's vector.
    pub vector: bool,
    /// Whether it has the record's terms.
    pub terms: bool,
}

/// A search index.
#[async_trait]
pub trait Index: Send + Sync + Debug {
    /// Name for logs, metrics and health: `exact` or `qdrant`.
    fn name(&self) -> &'static str;

    /// Space of its vectors; none when it holds terms only.
    fn space(&self) -> Option<&Space>;

    /// Whether it reads the rows themselves, so that it never lacks one.
    fn is_view(&self) -> bool {
        false
    }

    /// Makes it ready: creates what is missing, checks what is there. Safe to repeat.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE` when the store does not answer; `INTERNAL` naming what is wrong when it holds something else.
    async fn prepare(&self) -> Result<Prepared, Fault>;

    /// Both legs over the records the owner may see. The owner is part of the query itself.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`; the caller answers from SQLite then (rule D2).
    async fn search(&self, owner: &Owner, query: &LegQuery) -> Result<Legs, Fault>;

    /// Takes changes, in order; when it answers they are searchable. An upsert older than what is there changes nothing.
    /// All of it may be sent again.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`; some of the changes may have been taken.
    async fn apply(&self, ops: Vec<IndexOp>) -> Result<(), Fault>;

    /// Records of a user in the index, of every agent and status.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn count(&self, owner: &Owner) -> Result<u64, Fault>;

    /// Which of these records are still in the index: the check behind an erasure receipt (rule E3).
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn present(&self, owner: &Owner, ids: &[MemoryId]) -> Result<Vec<MemoryId>, Fault>;

    /// Takes everything of a user, or of one of its agents, out for good (rule E5).
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn erase_owner(&self, owner: &Owner) -> Result<(), Fault>;

    /// Asks for what was taken out to be taken off the medium too, where that is not the database's own. It takes the server's
    /// own time.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn reclaim(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether what is searched is all there is: no copy of another space is kept beside it.
    fn is_sole(&self) -> bool {
        true
    }

    /// What it holds of each of these records, in their order; none where it holds nothing. Needs an owner no more than
    /// [`Index::scan`]: both serve the check of the whole index, never a caller.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn held(&self, expected: &[Upsert]) -> Result<Vec<Option<Held>>, Fault>;

    /// Ids it holds, of every owner, ascending, the first `limit` after `after`; and whether there may be more.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn scan(&self, after: Option<MemoryId>, limit: u32) -> Result<(Vec<MemoryId>, bool), Fault>;

    /// Takes records out whoever they are held for: what [`Index::apply`] cannot do for one whose owner nobody knows.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn purge(&self, ids: &[MemoryId]) -> Result<(), Fault>;

    /// Begins an empty second copy; one that was begun before is dropped. Changes go to both copies from now on, and the
    /// relay brings everything else; searches are answered by the first copy meanwhile.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn begin_rebuild(&self) -> Result<(), Fault>;

    /// The second copy is complete: it takes the place of the first in one step, and the first is dropped. Nothing happens
    /// without a second copy.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn finish_rebuild(&self) -> Result<(), Fault>;

    /// Drops what is left of an earlier space, or of the time without one, once every record is in this one.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn retire(&self, earlier: Option<&Space>) -> Result<(), Fault>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn row() -> IndexedRow {
        IndexedRow {
            memory_id: MemoryId(Uuid::from_u128(1)),
            agent: USER_LEVEL,
            kind: Kind::Fact,
            tier: Tier::Stable,
            status: Status::Active,
            version: 1,
            event_time: NOW,
            expire_time: None,
            valid_from: None,
            valid_to: None,
            marks: Vec::new(),
        }
    }

    fn filter() -> RecordFilter {
        let owner = Owner {
            tenant: strata_core::TenantId::new("t").expect("id"),
            user: strata_core::UserId::new("u").expect("id"),
            agent: None,
        };
        RecordFilter::active(&owner, NOW)
    }

    #[test]
    fn c096_expiry_is_by_the_clock() {
        let expired = IndexedRow { expire_time: Some(NOW), ..row() };
        assert!(!filter().admits(&expired), "the end is exclusive");
        assert!(filter().admits(&IndexedRow { expire_time: Some(NOW.plus(1)), ..row() }));
        let asked = RecordFilter { statuses: vec![Status::Expired], ..filter() };
        assert!(asked.admits(&expired), "and it is found as what it is");
        let event = IndexedRow { tier: Tier::Event, ..expired };
        assert!(RecordFilter { statuses: vec![Status::Archived], ..filter() }.admits(&event), "rule F2: an event is archived");
        assert!(!asked.admits(&row()));
    }

    #[test]
    fn valid_time_is_half_open_and_only_of_active_records() {
        assert!(filter().admits(&IndexedRow { valid_from: Some(NOW), ..row() }));
        assert!(!filter().admits(&IndexedRow { valid_from: Some(NOW.plus(1)), ..row() }));
        assert!(!filter().admits(&IndexedRow { valid_to: Some(NOW), ..row() }));
        let history = RecordFilter { statuses: vec![Status::Superseded], ..filter() };
        assert!(history.admits(&IndexedRow { status: Status::Superseded, valid_to: Some(NOW.plus(-1)), ..row() }));
    }

    #[test]
    fn c041_an_agent_sees_its_own_and_the_users_records() {
        let of = |name: &str| Some(agent_mark(Some(&AgentId::new(name).expect("id"))));
        let health = IndexedRow { agent: of("health").expect("mark"), ..row() };
        let seen = |agent, row: &IndexedRow| RecordFilter { agent, ..filter() }.admits(row);
        assert!(seen(of("health"), &health) && seen(None, &health) && !seen(of("travel"), &health));
        assert!(seen(of("health"), &row()) && seen(of("travel"), &row()));
    }

    #[test]
    fn suggestions_are_found_only_when_asked_for_by_kind() {
        let suggestion = IndexedRow { kind: Kind::ModelSuggestion, status: Status::Candidate, ..row() };
        assert!(!filter().admits(&suggestion));
        assert!(RecordFilter { kinds: vec![Kind::ModelSuggestion], ..filter() }.admits(&suggestion));
        assert!(!filter().admits(&IndexedRow { status: Status::Candidate, ..row() }), "a candidate fact is not shown");
    }

    #[test]
    fn c044_near_misses_of_a_metadata_value_are_other_marks() {
        let of = |k: &str, v: &str| marks([], &BTreeMap::from([(k.to_owned(), v.to_owned())]), [])[0];
        for (key, value, miss) in [
            ("model", "provider/name:7b-q6", "provider/name:7b-q5"),
            ("path", "a\\b", "a\\\\b"),
            ("expr", "x=1,y<2", "x=1,y<=2"),
            ("名", "值", "值 "),
        ] {
            assert_eq!(of(key, value), of(key, value));
            assert_ne!(of(key, value), of(key, miss));
        }
        assert_ne!(of("a", "bc"), of("ab", "c"), "key and value do not run together");
        assert_ne!(marks(["x"], &BTreeMap::new(), []), marks([], &BTreeMap::new(), ["x"]), "a tag is no session");
    }

    #[test]
    fn c046_parts_of_the_filter_are_anded() {
        let full = RecordFilter {
            kinds: vec![Kind::Event],
            tiers: vec![Tier::Event],
            marks: marks(["a"], &BTreeMap::new(), ["s1"]),
            from: Some(NOW),
            to: Some(NOW.plus(1)),
            ..filter()
        };
        let fits =
            IndexedRow { kind: Kind::Event, tier: Tier::Event, marks: marks(["a", "b"], &BTreeMap::new(), ["s1"]), ..row() };
        assert!(full.admits(&fits));
        for miss in [
            IndexedRow { kind: Kind::Fact, ..fits.clone() },
            IndexedRow { tier: Tier::Stable, ..fits.clone() },
            IndexedRow { marks: marks(["a"], &BTreeMap::new(), []), ..fits.clone() },
            IndexedRow { event_time: NOW.plus(1), ..fits.clone() },
            IndexedRow { event_time: NOW.plus(-1), ..fits },
        ] {
            assert!(!full.admits(&miss), "{miss:?}");
        }
    }
}
