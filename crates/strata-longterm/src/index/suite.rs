//! One behaviour suite for every index: the exact scan, the server's wire double, and a real server when `QDRANT_URL` names
//! one. The same rows and the same call give the same order on all.

use super::exact::{ExactIndex, HOT_BYTES};
use super::qdrant::{QdrantIndex, QdrantSettings};
use super::*;
use crate::metadata::search;
use crate::testing::{NOW, Put, Store, Words, upsert};
use qdrant_client::qdrant::Filter;
use qdrant_client::qdrant::condition::ConditionOneOf;
use std::sync::Arc;
use std::time::Duration;
use strata_core::record::Kind;
use strata_runtime::sqlite::SqliteError;
use strata_testkit::WireDouble;
use strata_testkit::fixtures::{agent_owner, unique, unique_owner};
use strata_text::embed::Embedder;

const DIMS: usize = 256;

struct Case {
    name: &'static str,
    index: Arc<dyn Index>,
}

struct Suite {
    store: Store,
    words: Words,
    double: WireDouble,
    cases: Vec<Case>,
}

fn space() -> Space {
    Space { model: "words@1".into(), dims: DIMS }
}

fn server(url: String) -> QdrantIndex {
    let settings = QdrantSettings {
        url,
        prefix: unique("suite"),
        exact: true,
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        ..QdrantSettings::default()
    };
    QdrantIndex::new(settings, Some(space())).expect("a client")
}

impl Suite {
    async fn start() -> Self {
        let store = Store::open();
        let double = WireDouble::start();
        let mut cases = vec![
            Case { name: "exact", index: Arc::new(ExactIndex::new(store.database.clone(), Some(space()), HOT_BYTES)) },
            Case { name: "double", index: Arc::new(server(double.url())) },
        ];
        if let Ok(url) = std::env::var("QDRANT_URL") {
            cases.push(Case { name: "server", index: Arc::new(server(url)) });
        }
        for case in &cases {
            case.index.prepare().await.expect(case.name);
            case.index.prepare().await.expect("prepare can be repeated");
        }
        Self { store, words: Words::new("words@1", DIMS), double, cases }
    }

    /// Puts a row and tells every index.
    async fn put(&self, put: Put) -> MemoryId {
        let id = self.store.put(put).await;
        self.tell(id).await;
        id
    }

    async fn tell(&self, id: MemoryId) {
        let upsert = upsert(&self.store, &self.words, id).await;
        let (vector, model) = (upsert.vector.clone().expect("a vector"), self.words.identity().name.clone());
        let stored: Result<(), SqliteError> =
            self.store.database.write(move |db| search::put_vectors(db, &model, &[(id, vector)])).await;
        stored.expect("stored");
        for case in &self.cases {
            case.index.apply(vec![IndexOp::Upsert(Box::new(upsert.clone()))]).await.expect(case.name);
        }
    }

    async fn query(&self, owner: &Owner, text: &str, limit: u32, filter: RecordFilter) -> LegQuery {
        let (owner, terms) = (owner.user_level(), strata_text::query_terms(text));
        let weights: Result<_, SqliteError> =
            self.store
                .database
                .read(move |db| {
                    let mut statement = db.prepare(
                        "SELECT owner_id FROM owners o JOIN users u ON u.user_id = o.user_id WHERE u.tenant = ?1 AND u.user = ?2",
                    )?;
                    let ids = statement
                        .query_map([owner.tenant.as_str(), owner.user.as_str()], |row| row.get(0))?
                        .collect::<Result<Vec<i64>, _>>()?;
                    search::query_weights(db, &ids, &terms)
                })
                .await;
        LegQuery { dense: Some(self.words.vector(text)), sparse: weights.expect("weights").known, limit, filter }
    }

    /// Asks every index; all must agree. Gives the ids of both legs.
    async fn search(&self, owner: &Owner, query: &LegQuery) -> (Vec<MemoryId>, Vec<MemoryId>) {
        let mut answers = Vec::new();
        for case in &self.cases {
            let legs = case.index.search(owner, query).await.expect(case.name);
            let ids = |leg: &[LegHit]| leg.iter().map(|hit| (hit.memory_id, hit.version)).collect::<Vec<_>>();
            for hit in &legs.dense {
                assert!((-1.0..=1.0).contains(&hit.score), "{}: {}", case.name, hit.score);
            }
            answers.push((case.name, ids(&legs.dense), ids(&legs.keyword)));
        }
        let (_, dense, keyword) = answers[0].clone();
        for (name, other_dense, other_keyword) in &answers[1..] {
            assert_eq!(&dense, other_dense, "{name}: dense leg");
            assert_eq!(&keyword, other_keyword, "{name}: keyword leg");
        }
        let ids = |leg: Vec<(MemoryId, u64)>| leg.into_iter().map(|(id, _)| id).collect();
        (ids(dense), ids(keyword))
    }

    async fn find(&self, owner: &Owner, text: &str, filter: RecordFilter) -> Vec<MemoryId> {
        let query = self.query(owner, text, 50, filter).await;
        let (mut dense, keyword) = self.search(owner, &query).await;
        dense.extend(keyword);
        dense.sort();
        dense.dedup();
        dense
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a116_both_legs_find_their_own_in_the_same_order_everywhere() {
    let suite = Suite::start().await;
    let owner = unique_owner();
    let texts =
        ["green tea in the morning", "coffee after lunch", "tea and coffee", "用户不吃辣,忌口海鲜", "the deploy runs on friday"];
    let mut ids = Vec::new();
    for text in texts {
        ids.push(suite.put(Put::new(&owner, text)).await);
    }
    let query = suite.query(&owner, "tea", 50, RecordFilter::active(&owner, NOW)).await;
    let (dense, keyword) = suite.search(&owner, &query).await;
    assert_eq!(dense.len(), texts.len(), "the dense leg ranks everything");
    assert_eq!(keyword, [ids[2], ids[0]], "the shorter record weighs more");
    let (_, keyword) = suite.search(&owner, &suite.query(&owner, "忌口", 50, RecordFilter::active(&owner, NOW)).await).await;
    assert_eq!(keyword, [ids[3]]);
    let one = LegQuery { limit: 1, ..query.clone() };
    assert_eq!(suite.search(&owner, &one).await.1, [ids[2]]);
    let nothing = LegQuery { dense: None, sparse: Vec::new(), ..query };
    assert_eq!(suite.search(&owner, &nothing).await, (vec![], vec![]), "no terms find nothing (case C077)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a109_c033_c038_other_owners_are_never_in_reach() {
    let suite = Suite::start().await;
    let (mine, other) = (unique_owner(), unique_owner());
    for n in 0..60 {
        suite.put(Put::new(&other, &format!("where do I live number {n}"))).await;
    }
    let mut own = Vec::new();
    for text in ["lives in norway", "live music", "where the cat sleeps"] {
        own.push(suite.put(Put::new(&mine, text)).await);
    }
    let query = suite.query(&mine, "where do I live", 3, RecordFilter::active(&mine, NOW)).await;
    let (dense, keyword) = suite.search(&mine, &query).await;
    assert_eq!(dense.iter().copied().collect::<std::collections::BTreeSet<_>>(), own.iter().copied().collect());
    assert!(keyword.iter().all(|id| own.contains(id)) && !keyword.is_empty());
    for case in &suite.cases {
        assert_eq!(case.index.count(&mine).await.expect(case.name), 3);
        assert_eq!(case.index.count(&other).await.expect(case.name), 60);
        assert_eq!(case.index.count(&unique_owner()).await.expect(case.name), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a109_the_guard_of_the_server_is_in_must_with_the_callers_filter_as_one_condition() {
    let suite = Suite::start().await;
    let owner = unique_owner();
    suite.put(Put::new(&owner, "a secret sentence about zebras")).await;
    suite.double.reset_seen();
    let loose = RecordFilter { statuses: Status::ALL.to_vec(), kinds: Kind::ALL.to_vec(), ..RecordFilter::active(&owner, NOW) };
    suite.find(&owner, "zebras", loose).await;
    let seen: Vec<Filter> = suite.double.filters().into_iter().filter_map(|(_, filter)| filter).collect();
    assert_eq!(seen.len(), 2, "one filter a leg");
    for filter in seen {
        assert!(filter.should.is_empty() && filter.must_not.is_empty() && filter.min_should.is_none());
        assert_eq!(filter.must.len(), 2);
        let kinds: Vec<_> = filter.must.iter().filter_map(|c| c.condition_one_of.as_ref()).collect();
        assert!(matches!(kinds[0], ConditionOneOf::Field(field) if field.key == "owner"));
        assert!(matches!(kinds[1], ConditionOneOf::Filter(_)));
    }
    for text in ["zebras", "secret", owner.user.as_str(), owner.tenant.as_str()] {
        assert!(!suite.double.payloads_hold(text), "the payload holds neither content nor ids: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a112_c041_c043_c044_c046_c071_every_filter_alone_and_combined_is_the_same_everywhere() {
    let suite = Suite::start().await;
    let user = unique_owner();
    let agent = |name: &str| agent_owner(user.tenant.as_str(), user.user.as_str(), name);
    let day = 86_400_000_000_i64;
    let odd = "s-1.x:/@+=# 会话";
    let mut ids = Vec::new();
    for (n, (owner, kind, tier)) in [
        (user.clone(), Kind::Fact, Tier::Stable),
        (agent("health"), Kind::Preference, Tier::Stable),
        (agent("travel"), Kind::Event, Tier::Event),
        (user.clone(), Kind::Preference, Tier::Temporary),
        (agent("health"), Kind::Fact, Tier::Stable),
        (user.clone(), Kind::Event, Tier::Event),
    ]
    .into_iter()
    .enumerate()
    {
        let put = Put {
            kind,
            tier,
            event_time: NOW.plus(n as i64 * day),
            tags: if n % 2 == 0 { vec!["a".into(), "标签".into()] } else { vec!["a".into()] },
            metadata: BTreeMap::from([("path".into(), format!("a\\b x=1,y<{}", n % 3))]),
            session: (n < 4).then(|| odd.to_owned()),
            ..Put::new(&owner, &format!("note about physiotherapy {n}"))
        };
        ids.push(suite.put(put).await);
    }
    let base = RecordFilter { now: NOW.plus(100 * day), ..RecordFilter::active(&user, NOW) };
    let mark = |tags: &[&str], metadata: &[(&str, &str)], session: Option<&str>| {
        let metadata = metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        marks(tags.iter().copied(), &metadata, session)
    };
    let health = agent_mark(agent("health").agent.as_ref());
    let single: Vec<(RecordFilter, Vec<usize>)> = vec![
        (base.clone(), vec![0, 1, 2, 3, 4, 5]),
        (RecordFilter { agent: Some(health), ..base.clone() }, vec![0, 1, 3, 4, 5]),
        (RecordFilter { kinds: vec![Kind::Preference], ..base.clone() }, vec![1, 3]),
        (RecordFilter { tiers: vec![Tier::Stable, Tier::Temporary], ..base.clone() }, vec![0, 1, 3, 4]),
        (RecordFilter { marks: mark(&["标签"], &[], None), ..base.clone() }, vec![0, 2, 4]),
        (RecordFilter { marks: mark(&["a", "标签"], &[], None), ..base.clone() }, vec![0, 2, 4]),
        (RecordFilter { marks: mark(&[], &[("path", "a\\b x=1,y<2")], None), ..base.clone() }, vec![2, 5]),
        (RecordFilter { marks: mark(&[], &[("path", "a\\\\b x=1,y<2")], None), ..base.clone() }, vec![]),
        (RecordFilter { marks: mark(&[], &[], Some(odd)), ..base.clone() }, vec![0, 1, 2, 3]),
        (RecordFilter { from: Some(NOW.plus(day)), to: Some(NOW.plus(4 * day)), ..base.clone() }, vec![1, 2, 3]),
    ];
    for (filter, expected) in &single {
        let expected: Vec<MemoryId> = expected.iter().map(|n| ids[*n]).collect();
        assert_eq!(suite.find(&user, "physiotherapy", filter.clone()).await, expected, "{filter:?}");
    }
    // Any two together give the intersection.
    for (a, in_a) in &single {
        for (b, in_b) in &single {
            let both = RecordFilter {
                agent: a.agent.or(b.agent),
                kinds: a.kinds.iter().copied().filter(|kind| b.kinds.contains(kind)).collect(),
                tiers: if a.tiers.is_empty() { b.tiers.clone() } else { a.tiers.clone() },
                marks: [a.marks.clone(), b.marks.clone()].concat(),
                from: a.from.or(b.from),
                to: a.to.or(b.to),
                ..base.clone()
            };
            let expected: Vec<MemoryId> = in_a.iter().filter(|n| in_b.contains(n)).map(|n| ids[*n]).collect();
            assert_eq!(suite.find(&user, "physiotherapy", both.clone()).await, expected, "{both:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a109_c096_status_expiry_and_valid_time_are_the_same_everywhere() {
    let suite = Suite::start().await;
    let owner = unique_owner();
    let second = 1_000_000;
    let put = |status, tier, expire: Option<i64>, valid_to: Option<i64>| Put {
        status,
        tier,
        expire_time: expire.map(|s| NOW.plus(s * second)),
        valid_to: valid_to.map(|s| NOW.plus(s * second)),
        ..Put::new(&owner, "the cat sleeps")
    };
    let rows = [
        put(Status::Active, Tier::Stable, None, None),
        put(Status::Active, Tier::Temporary, Some(1), None),
        put(Status::Active, Tier::Temporary, Some(0), None),
        put(Status::Active, Tier::Event, Some(-1), None),
        put(Status::Active, Tier::Stable, None, Some(0)),
        put(Status::Active, Tier::Stable, None, Some(1)),
        put(Status::Candidate, Tier::Stable, Some(1), None),
        put(Status::Candidate, Tier::Stable, Some(0), None),
        put(Status::Superseded, Tier::Stable, None, Some(-1)),
        put(Status::Deleted, Tier::Stable, None, None),
        put(Status::Archived, Tier::Event, None, None),
        Put { kind: Kind::ModelSuggestion, ..put(Status::Candidate, Tier::Stable, None, None) },
    ];
    let mut ids = Vec::new();
    for row in rows {
        ids.push(suite.put(row).await);
    }
    let with = |statuses: &[Status]| RecordFilter { statuses: statuses.to_vec(), ..RecordFilter::active(&owner, NOW) };
    for (filter, expected) in [
        (with(&[Status::Active]), vec![0, 1, 5]),
        (with(&[Status::Expired]), vec![2, 7]),
        (with(&[Status::Archived]), vec![3, 10]),
        (with(&[Status::Candidate]), vec![6]),
        (with(&[Status::Superseded, Status::Deleted]), vec![8, 9]),
        (RecordFilter { kinds: vec![Kind::ModelSuggestion], ..with(&[Status::Active]) }, vec![11]),
    ] {
        let expected: Vec<MemoryId> = expected.into_iter().map(|n: usize| ids[n]).collect();
        assert_eq!(suite.find(&owner, "cat", filter.clone()).await, expected, "{:?}", filter.statuses);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a134_changes_and_deletions_are_obeyed_and_an_older_version_changes_nothing() {
    let suite = Suite::start().await;
    let owner = unique_owner();
    let (kept, gone) = (suite.put(Put::new(&owner, "black tea")).await, suite.put(Put::new(&owner, "green tea")).await);
    let filter = || RecordFilter::active(&owner, NOW);
    assert_eq!(suite.find(&owner, "tea", filter()).await, [kept, gone]);

    let before = upsert(&suite.store, &suite.words, kept).await;
    suite.store.change(kept, "status = 'DELETED'").await;
    suite.tell(kept).await;
    assert_eq!(suite.find(&owner, "tea", filter()).await, [gone]);
    for case in &suite.cases {
        case.index.apply(vec![IndexOp::Upsert(Box::new(before.clone()))]).await.expect("a late upsert is taken");
    }
    assert_eq!(suite.find(&owner, "tea", filter()).await, [gone], "version 1 does not undo version 2");

    suite.store.erase(gone).await;
    for case in &suite.cases {
        let delete = IndexOp::Delete { owner: owner.clone(), memory_id: gone };
        case.index.apply(vec![delete.clone(), delete]).await.expect("deleting twice is fine");
        assert_eq!(case.index.present(&owner, &[kept, gone]).await.expect(case.name), [kept], "{}", case.name);
        assert_eq!(case.index.count(&owner).await.expect(case.name), 1);
    }
    assert_eq!(suite.find(&owner, "tea", filter()).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_or_one_of_its_agents_is_erased_and_a_rebuild_begins_empty() {
    let suite = Suite::start().await;
    let (user, stranger) = (unique_owner(), unique_owner());
    let agent = agent_owner(user.tenant.as_str(), user.user.as_str(), "health");
    for owner in [&user, &agent, &stranger] {
        suite.put(Put::new(owner, "tea")).await;
    }
    for case in suite.cases.iter().filter(|case| !case.index.is_view()) {
        erased_and_rebuilt(case, &user, &agent, &stranger).await;
    }
}

async fn erased_and_rebuilt(case: &Case, user: &Owner, agent: &Owner, stranger: &Owner) {
    let server = &case.index;
    server.erase_owner(agent).await.expect("erased");
    assert_eq!(server.count(user).await.expect("counted"), 1);
    server.erase_owner(user).await.expect("erased");
    assert_eq!((server.count(user).await.expect("counted"), server.count(stranger).await.expect("counted")), (0, 1));
    server.begin_rebuild().await.expect("begun");
    assert_eq!(server.count(stranger).await.expect("counted"), 1, "the first copy answers");
    server.finish_rebuild().await.expect("finished");
    assert_eq!(server.count(stranger).await.expect("counted"), 0, "nothing was brought into the second");
    assert_eq!(server.prepare().await.expect(case.name), Prepared::Ready);
    // Begun and left: the next process finds it, and beginning again drops it.
    server.begin_rebuild().await.expect("begun");
    assert_eq!(server.prepare().await.expect(case.name), Prepared::Rebuilding);
    server.begin_rebuild().await.expect("begun again");
    server.finish_rebuild().await.expect("finished");
    assert_eq!(server.prepare().await.expect(case.name), Prepared::Ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn c123_each_space_has_a_collection_of_its_own() {
    let double = WireDouble::start();
    let of = |model: &str, dims| {
        let settings = QdrantSettings { url: double.url(), ..QdrantSettings::default() };
        QdrantIndex::new(settings, Some(Space { model: model.into(), dims })).expect("a client")
    };
    let names = [of("m@1", 4), of("m@2", 4), of("m@1", 8), of("m-1", 4)].map(|index| index.collection().to_owned());
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{names:?}");
    let (old, new) = (of("m@1", 4), of("m@2", 4));
    old.prepare().await.expect("prepared");
    new.prepare().await.expect("prepared");
    new.retire(Some(&Space { model: "m@1".into(), dims: 4 })).await.expect("retired");
    assert!(old.count(&unique_owner()).await.is_err(), "the earlier collection is gone");
    assert_eq!(new.count(&unique_owner()).await.expect("counted"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_or_slow_is_unavailable_in_time() {
    let double = WireDouble::start();
    let settings = QdrantSettings { url: double.url(), timeout: Duration::from_millis(200), ..QdrantSettings::default() };
    let index = QdrantIndex::new(settings, Some(space())).expect("a client");
    index.prepare().await.expect("prepared");
    let owner = unique_owner();
    let query = LegQuery { dense: Some(vec![1.0; DIMS]), sparse: vec![], limit: 5, filter: RecordFilter::active(&owner, NOW) };
    double.delay(Duration::from_secs(5));
    let slow = index.search(&owner, &query).await.expect_err("too slow");
    assert_eq!(slow.reason, strata_core::Reason::StoreUnavailable);
    double.heal();
    double.stop();
    assert!(index.search(&owner, &query).await.is_err());
    double.resume();
    strata_testkit::eventually(Duration::from_secs(10), || async { index.search(&owner, &query).await.is_ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_users_are_bounded_and_loaded_again_when_asked_for() {
    let store = Store::open();
    let index = ExactIndex::new(store.database.clone(), None, 6 * 1024);
    let filter = |owner: &Owner| RecordFilter::active(owner, NOW);
    let mut owners = Vec::new();
    for n in 0..12 {
        let owner = unique_owner();
        for _ in 0..4 {
            store.put(Put::new(&owner, &format!("tea number {n} with milk and honey"))).await;
        }
        owners.push(owner);
    }
    let sparse = vec![(strata_text::query_terms("tea")[0].0, 1.0)];
    for _ in 0..2 {
        for owner in &owners {
            let query = LegQuery { dense: None, sparse: sparse.clone(), limit: 50, filter: filter(owner) };
            assert_eq!(index.search(owner, &query).await.expect("found").keyword.len(), 4);
        }
    }
    assert!(index.hot_users() < owners.len() as u64, "{} hot users", index.hot_users());
}
