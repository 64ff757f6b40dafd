//! Points and rows broken behind the service's back, found and repaired; and nothing found where nothing is broken.

use super::*;
use crate::index::exact::{ExactIndex, HOT_BYTES};
use crate::index::qdrant::{QdrantIndex, QdrantSettings};
use crate::index::{Index, LegQuery, RecordFilter, Space};
use crate::metadata::row::id_bytes;
use crate::testing::{NOW, Put, Store, Words};
use qdrant_client::Qdrant;
use qdrant_client::qdrant::{
    DeletePointVectorsBuilder, DeletePointsBuilder, PointId, PointStruct, PointsIdsList, SetPayloadPointsBuilder,
    UpsertPointsBuilder, Value,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use strata_core::Owner;
use strata_runtime::{Ports, TaskGroup};
use strata_testkit::fixtures::{unique, unique_owner};
use strata_testkit::{ManualClock, SeqIds, WireDouble, eventually};
use uuid::Uuid;

const DIMS: usize = 64;

struct World {
    store: Store,
    relay: Relay,
    words: Words,
    tasks: TaskGroup,
    collection: String,
}

impl World {
    async fn on(url: Option<String>) -> Self {
        let (store, words) = (Store::open(), Words::new("words@1", DIMS));
        let space = Some(Space { model: "words@1".into(), dims: DIMS });
        let mut collection = String::new();
        let index: Arc<dyn Index> = match url {
            Some(url) => {
                let settings = QdrantSettings { url, prefix: unique("verify"), exact: true, ..QdrantSettings::default() };
                let index = QdrantIndex::new(settings, space).expect("a client");
                index.collection().clone_into(&mut collection);
                Arc::new(index)
            }
            None => Arc::new(ExactIndex::new(store.database.clone(), space, HOT_BYTES)),
        };
        let ports = Ports { clock: ManualClock::at(NOW).port(), ids: SeqIds::seeded(7).port() };
        let embedder = Arc::new(words.clone());
        let relay = Relay::open(ports, store.database.clone(), index, Some(embedder)).await.expect("a relay");
        let tasks = TaskGroup::new();
        relay.spawn(&tasks);
        Self { store, relay, words, tasks, collection }
    }

    async fn settled(&self) {
        self.relay.wake();
        eventually(Duration::from_secs(20), || async { self.relay.status().await.expect("a status").pending == 0 }).await;
    }

    /// Every page; what differs, ordered, and how many records and points were looked at.
    async fn whole(&self, repair: bool) -> (BTreeSet<(MemoryId, Kind)>, u64, u64) {
        let verify = Verify { database: &self.store.database, relay: &self.relay, now: NOW };
        let (mut found, mut records, mut points) = (BTreeSet::new(), 0, 0);
        let mut cursor = Some(Cursor::Rows(None));
        while let Some(at) = cursor {
            assert_eq!(Cursor::from_text(&at.text()), Some(at));
            let page = verify.page(at, 5, repair).await.expect("a page");
            records += page.records;
            points += page.points;
            for one in page.differences {
                assert_eq!(one.repaired, repair);
                assert!(found.insert((one.memory_id, one.kind)), "once each");
            }
            cursor = page.next;
        }
        (found, records, points)
    }

    async fn found(&self, owner: &Owner) -> Vec<MemoryId> {
        let query = LegQuery {
            dense: Some(self.words.vector("tea")),
            sparse: strata_text::query_terms("tea").into_iter().map(|(term, _)| (term, 1.0)).collect(),
            limit: 50,
            filter: RecordFilter::active(owner, NOW),
        };
        let legs = self.relay.index().search(owner, &query).await.expect("an answer");
        let ids = |leg: Vec<crate::index::LegHit>| leg.into_iter().map(|hit| hit.memory_id).collect::<BTreeSet<_>>();
        let (dense, keyword) = (ids(legs.dense), ids(legs.keyword));
        assert_eq!(dense, keyword, "both legs have all");
        dense.into_iter().collect()
    }

    async fn tea(&self, owner: &Owner, records: usize) -> Vec<MemoryId> {
        let mut ids = Vec::new();
        for n in 0..records {
            ids.push(self.store.put(Put::new(owner, &format!("tea number {n}"))).await);
        }
        self.settled().await;
        ids
    }
}

/// The double, and a real server when `QDRANT_URL` names one.
fn servers(double: &WireDouble) -> Vec<String> {
    std::iter::once(double.url()).chain(std::env::var("QDRANT_URL").ok()).collect()
}

fn point(id: MemoryId) -> PointId {
    id.to_string().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn c129_every_way_a_server_can_differ_is_found_repaired_and_then_gone() {
    let double = WireDouble::start();
    for url in servers(&double) {
        let world = World::on(Some(url.clone())).await;
        let (owner, other) = (unique_owner(), unique_owner());
        let ids = world.tea(&owner, 12).await;
        world.tea(&other, 1).await;
        assert_eq!(world.whole(false).await, (BTreeSet::new(), 13, 13));

        let client = Qdrant::from_url(&url).skip_compatibility_check().build().expect("a client");
        let name = world.collection.as_str();
        let list = |id: MemoryId| PointsIdsList { ids: vec![point(id)] };
        let set = |id: MemoryId, field: &str, value: Value| {
            let payload = std::collections::HashMap::from([(field.to_owned(), value)]);
            client.set_payload(SetPayloadPointsBuilder::new(name, payload).points_selector(list(id)).wait(true))
        };
        client.delete_points(DeletePointsBuilder::new(name).points(list(ids[0])).wait(true)).await.expect("deleted");
        set(ids[1], "version", 0.into()).await.expect("set");
        set(ids[2], "version", 99.into()).await.expect("set");
        let of_other = client
            .get_points(qdrant_client::qdrant::GetPointsBuilder::new(name, vec![point(ids[3])]).with_payload(true))
            .await
            .expect("read");
        let own_key = of_other.result[0].payload["owner"].clone();
        set(ids[3], "owner", "0123456789abcdef0123456789abcdef".into()).await.expect("set");
        set(ids[4], "status", "DELETED".into()).await.expect("set");
        for (id, vector) in [(ids[5], "dense"), (ids[6], "terms")] {
            let request = DeletePointVectorsBuilder::new(name).points_selector(list(id)).vectors([vector.to_owned()].to_vec());
            client.delete_vectors(request.wait(true)).await.expect("deleted");
        }
        let ghost = MemoryId(Uuid::from_u128(0xffff_0000_0000_7000_8000_0000_0000_0001));
        let payload: std::collections::HashMap<String, Value> =
            [("owner".to_owned(), own_key), ("version".to_owned(), 1.into()), ("status".to_owned(), "ACTIVE".into())].into();
        let extra = PointStruct::new(point(ghost), qdrant_client::qdrant::NamedVectors::default(), payload);
        client.upsert_points(UpsertPointsBuilder::new(name, vec![extra]).wait(true)).await.expect("put");

        let expected = BTreeSet::from([
            (ids[0], Kind::Missing),
            (ids[1], Kind::Stale),
            (ids[2], Kind::Ahead),
            (ids[3], Kind::ForeignOwner),
            (ids[4], Kind::Altered),
            (ids[5], Kind::NoVector),
            (ids[6], Kind::NoTerms),
            (ghost, Kind::Extra),
        ]);
        assert_eq!(world.whole(false).await.0, expected);
        assert_eq!(world.whole(false).await.0, expected, "looking changes nothing");
        assert_eq!(world.whole(true).await.0, expected);
        world.settled().await;
        assert_eq!(world.whole(false).await, (BTreeSet::new(), 13, 13), "a second run finds nothing");
        assert_eq!(world.found(&owner).await, ids);
        assert!(world.tasks.shutdown(Duration::from_secs(10)).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c129_what_stands_beside_the_rows_is_checked_too() {
    let world = World::on(None).await;
    let (owner, other) = (unique_owner(), unique_owner());
    let ids = world.tea(&owner, 8).await;
    let theirs = world.tea(&other, 1).await[0];
    assert_eq!(world.found(&owner).await, ids, "and the user is in memory");
    assert_eq!(world.whole(false).await, (BTreeSet::new(), 9, 9));

    #[expect(clippy::disallowed_methods, reason = "rows are changed behind the service's back")]
    let hand = rusqlite::Connection::open(world.store.path()).expect("another hand");
    hand.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA busy_timeout = 5000").expect("set");
    let run = |sql: &str, id: MemoryId| hand.execute(sql, [id_bytes(id)]).expect("changed");
    run("DELETE FROM vectors WHERE memory_id = ?1", ids[0]);
    run("DELETE FROM record_terms WHERE memory_id = ?1", ids[1]);
    let foreign = "(SELECT owner_id FROM owners WHERE owner_id <> v.owner_id AND agent = '' LIMIT 1)";
    run(&format!("UPDATE vectors AS v SET owner_id = {foreign} WHERE memory_id = ?1"), ids[2]);
    run(&format!("UPDATE record_terms AS v SET owner_id = {foreign} WHERE memory_id = ?1"), ids[3]);
    // A change that nobody was told of: the user in memory is behind.
    run("UPDATE records SET version = version + 1, importance = 5 WHERE memory_id = ?1", ids[4]);
    let ghost = MemoryId(Uuid::from_u128(0xffff_0000_0000_7000_8000_0000_0000_0001));
    hand.execute(
        "INSERT INTO vectors (memory_id, owner_id, model, version, vector) SELECT ?1, owner_id, model, 1, vector FROM vectors LIMIT 1",
        [id_bytes(ghost)],
    )
    .expect("an orphan");

    let expected = BTreeSet::from([
        (ids[0], Kind::NoVector),
        (ids[1], Kind::NoTerms),
        (ids[2], Kind::ForeignOwner),
        (ids[3], Kind::ForeignOwner),
        (ids[4], Kind::Stale),
        (ghost, Kind::Extra),
    ]);
    assert_eq!(world.whole(false).await.0, expected);
    assert_eq!(world.whole(true).await.0, expected);
    world.settled().await;
    assert_eq!(world.whole(false).await, (BTreeSet::new(), 9, 9));
    assert_eq!(world.found(&owner).await, ids);
    assert_eq!(world.found(&other).await, [theirs]);
    // The counts behind the IDF are those of the terms that are there.
    let wrong = "SELECT count(*) FROM owner_terms o WHERE df <> \
         (SELECT count(*) FROM record_terms t WHERE t.owner_id = o.owner_id AND t.term = o.term)";
    assert_eq!(world.store.value::<i64>(wrong).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_under_way_are_no_differences() {
    let double = WireDouble::start();
    for url in [None, Some(double.url())] {
        let world = Arc::new(World::on(url).await);
        let owner = unique_owner();
        let ids = world.tea(&owner, 30).await;
        let (writer, of_writer) = (Arc::clone(&world), ids.clone());
        let writing = world.tasks.spawn("writer", async move {
            for n in 0..60 {
                writer.store.change(of_writer[n % of_writer.len()], "importance = 1 + (importance % 5)").await;
                writer.store.put(Put::new(&owner, &format!("tea later {n}"))).await;
                writer.store.erase(of_writer[n % of_writer.len()]).await;
                writer.relay.wake();
            }
        });
        while !writing.is_finished() {
            let (found, _, _) = world.whole(false).await;
            assert!(found.is_empty(), "{found:?}");
        }
        world.settled().await;
        let (found, records, points) = world.whole(false).await;
        assert!(found.is_empty() && records == points, "{found:?} {records} {points}");
    }
}
