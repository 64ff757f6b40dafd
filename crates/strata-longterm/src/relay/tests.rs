//! Rebuilds: beside the index that answers, after a loss, after another embedder.

use super::*;
use crate::index::exact::{ExactIndex, HOT_BYTES};
use crate::index::qdrant::{QdrantIndex, QdrantSettings};
use crate::index::{LegQuery, RecordFilter};
use crate::testing::{NOW, Put, Store, Words};
use strata_core::Owner;
use strata_testkit::fixtures::{unique, unique_owner};
use strata_testkit::{ManualClock, SeqIds, WireDouble, eventually};

const DIMS: usize = 64;

struct World {
    store: Store,
    relay: Relay,
    index: Arc<dyn Index>,
    words: Words,
    tasks: TaskGroup,
}

impl World {
    async fn over(store: Store, settings: Option<QdrantSettings>, words: Words) -> Self {
        let space = Some(Space { model: words.identity.name.clone(), dims: words.identity.dimensions });
        let index: Arc<dyn Index> = match settings {
            Some(settings) => Arc::new(QdrantIndex::new(settings, space).expect("a client")),
            None => Arc::new(ExactIndex::new(store.database.clone(), space, HOT_BYTES)),
        };
        let ports = Ports { clock: ManualClock::at(NOW).port(), ids: SeqIds::seeded(7).port() };
        let embedder: Arc<dyn Embedder> = Arc::new(words.clone());
        let relay = Relay::open(ports, store.database.clone(), Arc::clone(&index), Some(embedder)).await.expect("a relay");
        Self { store, relay, index, words, tasks: TaskGroup::new() }
    }

    async fn settled(&self) {
        self.relay.wake();
        eventually(Duration::from_secs(20), || async {
            let status = self.relay.status().await.expect("a status");
            status.pending == 0 && !status.reindexing
        })
        .await;
    }

    async fn dense(&self, owner: &Owner, text: &str) -> Vec<MemoryId> {
        let query = LegQuery {
            dense: Some(self.words.vector(text)),
            sparse: Vec::new(),
            limit: 50,
            filter: RecordFilter::active(owner, NOW),
        };
        let legs = self.index.search(owner, &query).await.expect("an answer");
        legs.dense.into_iter().map(|hit| hit.memory_id).collect()
    }

    /// Ends this process and begins another on the same store.
    async fn restarted(self, settings: Option<QdrantSettings>, words: Words) -> Self {
        assert!(self.tasks.shutdown(Duration::from_secs(10)).await);
        Self::over(self.store, settings, words).await
    }
}

fn words() -> Words {
    Words::new("words@1", DIMS)
}

fn on(double: &WireDouble) -> QdrantSettings {
    QdrantSettings { url: double.url(), prefix: unique("relay"), exact: true, ..QdrantSettings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_fills_a_second_copy_while_the_first_answers_and_then_takes_its_place() {
    let double = WireDouble::start();
    let settings = on(&double);
    let world = World::over(Store::open(), Some(settings.clone()), words()).await;
    let owner = unique_owner();
    let mut ids = Vec::new();
    for n in 0..300 {
        ids.push(world.store.put(Put::new(&owner, &format!("note {n}"))).await);
    }
    world.relay.spawn(&world.tasks);
    world.settled().await;
    let first = double.collections();
    assert_eq!(first.len(), 1);

    // Each step of the walk waits, so that there is a time between.
    double.delay(Duration::from_millis(20));
    assert_eq!(world.relay.reindex().await.expect("begun"), 300);
    eventually(Duration::from_secs(20), || async { world.relay.status().await.expect("a status").reindex_done > 0 }).await;
    assert!(world.relay.dense_ready() && world.relay.complete(), "nothing is switched off");
    let status = world.relay.status().await.expect("a status");
    assert!(status.reindexing && status.reindex_total == 300, "{status:?}");
    assert_eq!(double.collections().len(), 2);
    assert_eq!(world.dense(&owner, "note 7").await.len(), 50, "the first copy answers");
    // A change meanwhile is in both.
    world.store.change(ids[299], "status = 'DELETED'").await;
    let late = world.store.put(Put::new(&owner, "written meanwhile")).await;
    double.heal();
    world.settled().await;
    assert_eq!(double.collections().len(), 1, "the first copy is dropped");
    assert_ne!(double.collections(), first);
    assert_eq!(double.points(&double.collections()[0]), 301);
    let found = world.dense(&owner, "written meanwhile").await;
    assert_eq!(found.first(), Some(&late));
    assert!(!world.dense(&owner, "note 299").await.contains(&ids[299]));

    // What a later process finds is the copy with the name.
    let world = world.restarted(Some(settings), words()).await;
    assert_eq!(world.index.prepare().await.expect("ready"), Prepared::Ready);
    assert_eq!(world.dense(&owner, "written meanwhile").await.first(), Some(&late));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_goes_on_after_a_restart_and_begins_anew_when_its_copy_is_gone() {
    for lost in [false, true] {
        let double = WireDouble::start();
        let settings = on(&double);
        let world = World::over(Store::open(), Some(settings.clone()), words()).await;
        let owner = unique_owner();
        for n in 0..(3 * WALK_RECORDS) {
            world.store.put(Put::new(&owner, &format!("note {n}"))).await;
        }
        world.relay.spawn(&world.tasks);
        world.settled().await;
        assert!(world.tasks.shutdown(Duration::from_secs(10)).await);

        // By hand, so that it stops at a known place: begun, one stretch done.
        let world = World::over(world.store, Some(settings.clone()), words()).await;
        world.relay.reindex().await.expect("asked");
        assert_eq!(world.relay.round(true).await, Ok(true));
        assert_eq!(world.relay.status().await.expect("a status").reindex_done, WALK_RECORDS as u64);
        let before = double.collections();
        assert_eq!(before.len(), 2);
        let world = World::over(world.store, Some(settings.clone()), words()).await;
        if lost {
            let client = qdrant_client::Qdrant::from_url(&double.url()).skip_compatibility_check().build().expect("a client");
            client.delete_collection(before.last().expect("two").as_str()).await.expect("dropped");
        }
        let status = world.relay.status().await.expect("a status");
        assert!(status.reindexing && status.reindex_done == WALK_RECORDS as u64, "{status:?}");
        world.relay.spawn(&world.tasks);
        world.settled().await;
        assert_eq!(double.collections().len(), 1, "lost: {lost}");
        assert_eq!(double.points(&double.collections()[0]), 3 * WALK_RECORDS, "lost: {lost}");
        assert!(world.relay.dense_ready());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c123_c125_another_embedder_gets_a_collection_of_its_own_and_recall_is_by_words_until_it_is_full() {
    let double = WireDouble::start();
    let settings = on(&double);
    let world = World::over(Store::open(), Some(settings.clone()), words()).await;
    let owner = unique_owner();
    for n in 0..200 {
        world.store.put(Put::new(&owner, &format!("note {n}"))).await;
    }
    world.relay.spawn(&world.tasks);
    world.settled().await;
    let first = double.collections();
    let (same_size, other_size) = (Words::new("words@2", DIMS), Words::new("words@3", 2 * DIMS));
    let world = world.restarted(Some(settings.clone()), same_size).await;
    assert!(!world.relay.dense_ready() && !world.relay.complete(), "same size is not same space");
    let late = world.store.put(Put::new(&owner, "written meanwhile")).await;
    world.relay.spawn(&world.tasks);
    world.settled().await;
    assert!(world.relay.dense_ready() && world.relay.complete());
    assert_eq!(double.collections().len(), 1, "the earlier one is retired");
    assert_ne!(double.collections(), first);
    assert_eq!(world.dense(&owner, "written meanwhile").await.first(), Some(&late));
    assert_eq!(world.store.value::<i64>("SELECT count(*) FROM records WHERE embedding_model = 'words@2'").await, 201);

    let world = world.restarted(Some(settings), other_size).await;
    world.relay.spawn(&world.tasks);
    world.settled().await;
    assert_eq!(world.dense(&owner, "written meanwhile").await.first(), Some(&late));
    assert_eq!(double.points(&double.collections()[0]), 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_lost_its_disk_is_filled_again_without_being_asked() {
    let double = WireDouble::start();
    let world = World::over(Store::open(), Some(on(&double)), words()).await;
    let owner = unique_owner();
    for n in 0..20 {
        world.store.put(Put::new(&owner, &format!("note {n}"))).await;
    }
    world.relay.spawn(&world.tasks);
    world.settled().await;
    double.lose_everything();
    world.relay.suspect();
    eventually(Duration::from_secs(20), || async { double.collections().first().is_some_and(|name| double.points(name) == 20) })
        .await;
    world.settled().await;
    assert!(world.relay.complete() && world.relay.dense_ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_database_is_not_answered_for_by_the_index_of_another_history() {
    let double = WireDouble::start();
    let settings = on(&double);
    let world = World::over(Store::open(), Some(settings.clone()), words()).await;
    let owner = unique_owner();
    let id = world.store.put(Put::new(&owner, "note")).await;
    world.relay.spawn(&world.tasks);
    world.settled().await;
    // The index has a later version, and a record that the restored rows never had.
    world.store.change(id, "importance = 5").await;
    let ghost = world.store.put(Put::new(&owner, "a ghost")).await;
    world.settled().await;
    assert!(world.tasks.shutdown(Duration::from_secs(10)).await);
    let back: Result<(), SqliteError> = world
        .store
        .database
        .write(move |db| {
            db.execute("UPDATE records SET version = 1 WHERE memory_id = ?1", [crate::metadata::row::id_bytes(id)])?;
            db.execute("DELETE FROM records WHERE memory_id = ?1", [crate::metadata::row::id_bytes(ghost)])?;
            mark_restored(db)
        })
        .await;
    back.expect("as a restore leaves it");
    let world = World::over(world.store, Some(settings), words()).await;
    assert!(!world.relay.complete() && !world.relay.dense_ready());
    world.relay.spawn(&world.tasks);
    world.settled().await;
    assert!(world.relay.complete() && world.relay.dense_ready());
    assert_eq!(world.dense(&owner, "note").await, [id]);
    assert_eq!(double.points(&double.collections()[0]), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn c123_a_collection_of_another_form_is_named_and_left_alone_and_strict_mode_is_put_back() {
    use qdrant_client::qdrant::{
        CreateCollectionBuilder, Distance, StrictModeConfigBuilder, UpdateCollectionBuilder, VectorParamsBuilder,
        VectorsConfigBuilder,
    };
    let double = WireDouble::start();
    let client = qdrant_client::Qdrant::from_url(&double.url()).skip_compatibility_check().build().expect("a client");
    let settings = on(&double);
    let space = Some(Space { model: "words@1".into(), dims: DIMS });
    let index = QdrantIndex::new(settings.clone(), space.clone()).expect("a client");
    let mut vectors = VectorsConfigBuilder::default();
    vectors.add_named_vector_params("dense", VectorParamsBuilder::new(9, Distance::Cosine));
    let foreign = CreateCollectionBuilder::new(index.collection()).vectors_config(vectors);
    client.create_collection(foreign).await.expect("somebody else's");
    let refused = index.prepare().await.expect_err("refused");
    assert_eq!(refused.reason, strata_core::Reason::Internal);
    for part in [index.collection(), "dimensions 9", "expected 64", "prefix"] {
        assert!(refused.message.contains(part), "{part} is not named: {}", refused.message);
    }
    assert_eq!(double.collections(), [index.collection()], "left alone");

    // The relay says it, the service goes on by words.
    let world = World::over(Store::open(), Some(settings), words()).await;
    world.store.put(Put::new(&unique_owner(), "note")).await;
    world.relay.spawn(&world.tasks);
    eventually(Duration::from_secs(20), || async { world.relay.status().await.expect("a status").index_down }).await;
    assert!(world.relay.status().await.expect("a status").problem.contains("dimensions 9"));

    let other = QdrantIndex::new(on(&double), space).expect("a client");
    assert_eq!(other.prepare().await.expect("made"), Prepared::Fresh);
    let loose = StrictModeConfigBuilder::default().enabled(false);
    let update = UpdateCollectionBuilder::new(format!("{}-1", other.collection())).strict_mode_config(loose);
    client.update_collection(update).await.expect("loosened");
    assert_eq!(other.prepare().await.expect("mended"), Prepared::Ready);
    let info = client.collection_info(other.collection()).await.expect("told").result.expect("an answer");
    let strict = info.config.expect("a configuration").strict_mode_config.expect("strict mode");
    assert_eq!((strict.enabled, strict.unindexed_filtering_retrieve), (Some(true), Some(false)));
    assert_eq!(info.payload_schema.len(), 11, "every field that is filtered by is indexed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_key_goes_with_every_call_and_a_wrong_one_is_an_index_that_is_down() {
    let double = WireDouble::start();
    double.require_key(Some("s3cret"));
    let space = Some(Space { model: "words@1".into(), dims: DIMS });
    let with = |key: Option<&str>| {
        let settings = QdrantSettings { api_key: key.map(Into::into), ..on(&double) };
        QdrantIndex::new(settings, space.clone()).expect("a client")
    };
    for wrong in [None, Some("other")] {
        let refused = with(wrong).prepare().await.expect_err("refused");
        assert_eq!(refused.reason, strata_core::Reason::StoreUnavailable);
        assert!(!format!("{:?}", with(wrong)).contains("other"), "a key is never shown");
    }
    assert_eq!(with(Some("s3cret")).prepare().await.expect("accepted"), Prepared::Fresh);
}

/// One tenant imports, others say a word: theirs is in the index after one round, and each tenant's rows go in their order.
#[tokio::test(flavor = "multi_thread")]
async fn c134_a_backlog_of_one_tenant_delays_no_other() {
    let double = WireDouble::start();
    for settings in [None, Some(on(&double))] {
        let world = World::over(Store::open(), settings, words()).await;
        let busy = unique_owner();
        let mut last = Vec::new();
        for n in 0..5 * BATCH_ROWS {
            last.push(world.store.put(Put::new(&busy, &format!("imported {n}"))).await);
        }
        // Said twice: what holds is the later.
        world.store.change(last[0], "status = 'DELETED'").await;
        let mut others = Vec::new();
        for n in 0..40 {
            let owner = unique_owner();
            let id = world.store.put(Put::new(&owner, &format!("word {n}"))).await;
            others.push((owner, id, n));
        }
        // Thirty-two tenants a round, in turn.
        for _ in 0..2 {
            assert!(world.relay.round(false).await.expect("a round"));
        }
        for (owner, id, n) in &others {
            assert_eq!(world.dense(owner, &format!("word {n}")).await, [*id], "{n}");
        }
        let waiting = world.relay.status().await.expect("a status").pending;
        assert!(waiting > 3 * BATCH_ROWS as u64, "{waiting} of the backlog still wait");
        let mut rounds = 0;
        while world.relay.round(false).await.expect("a round") {
            rounds += 1;
            assert!(rounds < 10, "full batches, with one tenant left");
        }
        assert_eq!(world.relay.status().await.expect("a status").pending, 0);
        let found = world.dense(&busy, "imported 0").await;
        assert!(!found.is_empty() && !found.contains(&last[0]), "the deletion came after it");
    }
}
