//! The unmodified `qdrant-client` against the wire double, over TCP.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use qdrant_client::qdrant::vectors_config::Config;
use qdrant_client::qdrant::{
    Condition, CountPointsBuilder, CreateCollectionBuilder, CreateFieldIndexCollectionBuilder, DeletePointsBuilder, Distance,
    FieldType, Filter, GetPointsBuilder, KeywordIndexParamsBuilder, NamedVectors, OptimizersConfigDiffBuilder, PointId,
    PointStruct, Query, QueryBatchPointsBuilder, QueryPointsBuilder, Range, ScrollPointsBuilder, SearchPointsBuilder,
    SetPayloadPointsBuilder, SparseVectorParamsBuilder, SparseVectorsConfigBuilder, StrictModeConfigBuilder,
    UpdateCollectionBuilder, UpdateMode, UpdateStatus, UpsertPointsBuilder, Value, Vector, VectorInput, VectorParamsBuilder,
    VectorParamsMap, VectorsConfig,
};
use qdrant_client::{Payload, Qdrant, QdrantError};
use std::collections::HashMap;
use std::time::Duration;
use strata_testkit::qdrant::Strike;
use strata_testkit::{FaultProxy, Mode, WireDouble, eventually};
use tonic::{Code, Status};

const C: &str = "memories";

fn client_at(url: &str) -> Qdrant {
    Qdrant::from_url(url).skip_compatibility_check().timeout(Duration::from_secs(5)).build().unwrap()
}

/// A double with one collection: a dense cosine space, a sparse space, and indexes on `owner` and `version`.
async fn collection() -> (WireDouble, Qdrant) {
    let double = WireDouble::start();
    let client = client_at(&double.url());
    let dense =
        VectorParamsMap { map: HashMap::from([("dense".to_owned(), VectorParamsBuilder::new(3, Distance::Cosine).build())]) };
    let mut sparse = SparseVectorsConfigBuilder::default();
    sparse.add_named_vector_params("bm25", SparseVectorParamsBuilder::default());
    let create = CreateCollectionBuilder::new(C)
        .vectors_config(VectorsConfig { config: Some(Config::ParamsMap(dense)) })
        .sparse_vectors_config(sparse)
        .strict_mode_config(
            StrictModeConfigBuilder::default()
                .enabled(true)
                .max_query_limit(100)
                .unindexed_filtering_retrieve(false)
                .unindexed_filtering_update(false),
        );
    client.create_collection(create).await.unwrap();
    let tenant = KeywordIndexParamsBuilder::default().is_tenant(true);
    for index in [
        CreateFieldIndexCollectionBuilder::new(C, "owner", FieldType::Keyword).field_index_params(tenant).wait(true),
        CreateFieldIndexCollectionBuilder::new(C, "version", FieldType::Integer).wait(true),
    ] {
        client.create_field_index(index).await.unwrap();
    }
    (double, client)
}

fn point(id: u64, owner: &str, version: i64, dense: [f32; 3], sparse: &[(u32, f32)]) -> PointStruct {
    let vectors = NamedVectors::default().add_vector("dense", dense.to_vec()).add_vector(
        "bm25",
        Vector::new_sparse(
            sparse.iter().map(|(i, _)| *i).collect::<Vec<_>>(),
            sparse.iter().map(|(_, w)| *w).collect::<Vec<_>>(),
        ),
    );
    let payload: HashMap<String, Value> =
        HashMap::from([("owner".to_owned(), owner.into()), ("version".to_owned(), version.into())]);
    PointStruct::new(id, vectors, Payload::from(payload))
}

fn of_owner(owner: &str) -> Filter {
    Filter::must([Condition::matches("owner", owner.to_owned())])
}

fn ids<'a>(found: impl IntoIterator<Item = &'a Option<PointId>>) -> Vec<u64> {
    use qdrant_client::qdrant::point_id::PointIdOptions;
    let num = |id: &Option<PointId>| match id.as_ref().and_then(|id| id.point_id_options.as_ref()) {
        Some(PointIdOptions::Num(n)) => *n,
        Some(PointIdOptions::Uuid(_)) | None => panic!("these tests number their points"),
    };
    found.into_iter().map(num).collect()
}

fn code(outcome: Result<impl std::fmt::Debug, QdrantError>) -> Code {
    let error = outcome.expect_err("refused");
    if let QdrantError::ResponseError { status } = &error {
        return status.code();
    }
    panic!("no answer of the server: {error}")
}

async fn fill(client: &Qdrant) {
    let points = vec![
        point(1, "t1", 1, [1.0, 0.0, 0.0], &[(7, 1.0), (8, 0.5)]),
        point(2, "t1", 1, [0.9, 0.1, 0.0], &[(8, 2.0)]),
        point(3, "t1", 1, [0.0, 0.0, 2.0], &[(9, 1.0)]),
        point(4, "t2", 1, [1.0, 0.0, 0.0], &[(7, 9.0)]),
    ];
    let answer = client.upsert_points(UpsertPointsBuilder::new(C, points).wait(true)).await.unwrap();
    assert_eq!(answer.result.unwrap().status(), UpdateStatus::Completed);
}

#[tokio::test]
async fn collections_are_created_described_changed_and_deleted() {
    let (_double, client) = collection().await;
    client.health_check().await.unwrap();
    assert!(client.collection_exists(C).await.unwrap());
    let again = CreateCollectionBuilder::new(C).vectors_config(VectorParamsBuilder::new(3, Distance::Cosine));
    assert_eq!(code(client.create_collection(again).await), Code::AlreadyExists);
    let vacuum = |n| {
        let optimizer = OptimizersConfigDiffBuilder::default().deleted_threshold(0.0).vacuum_min_vector_number(n);
        UpdateCollectionBuilder::new(C).optimizers_config(optimizer)
    };
    assert_eq!(code(client.update_collection(vacuum(99)).await), Code::InvalidArgument);
    client.update_collection(vacuum(100)).await.unwrap();
    let info = client.collection_info(C).await.unwrap().result.unwrap();
    let config = info.config.unwrap();
    let optimizer = config.optimizer_config.unwrap();
    assert_eq!((optimizer.deleted_threshold, optimizer.vacuum_min_vector_number), (Some(0.0), Some(100)));
    assert_eq!(config.strict_mode_config.unwrap().max_query_limit, Some(100), "what was not named stays");
    assert_eq!(info.payload_schema.len(), 2);
    assert_eq!(client.list_collections().await.unwrap().collections.len(), 1);
    client.delete_collection(C).await.unwrap();
    assert!(!client.collection_exists(C).await.unwrap());
    assert_eq!(code(client.collection_info(C).await), Code::NotFound);
}

#[tokio::test]
async fn dense_queries_rank_by_cosine_within_the_filter() {
    let (double, client) = collection().await;
    fill(&client).await;
    double.reset_seen();
    let query = QueryPointsBuilder::new(C).query(vec![2.0, 0.0, 0.0]).using("dense").filter(of_owner("t1"));
    let found = client.query(query.clone().limit(10).with_payload(true)).await.unwrap().result;
    assert_eq!(ids(found.iter().map(|p| &p.id)), [1, 2, 3], "the other owner's best hit is not there");
    assert!((found[0].score - 1.0).abs() < 1e-6 && found[2].score.abs() < 1e-6, "{found:?}");
    assert_eq!(found[0].payload["owner"], "t1".into());
    assert_eq!(double.filters(), [("Points/query", Some(of_owner("t1")))]);
    let page = client.query(query.clone().limit(1).offset(1)).await.unwrap().result;
    assert_eq!((ids(page.iter().map(|p| &p.id)), page[0].payload.len()), (vec![2], 0));
    let near = client.query(query.score_threshold(0.5)).await.unwrap().result;
    assert_eq!(ids(near.iter().map(|p| &p.id)), [1, 2]);
}

#[tokio::test]
async fn sparse_queries_return_points_with_a_common_term_only() {
    let (_double, client) = collection().await;
    fill(&client).await;
    let bm25 = |terms: Vec<(u32, f32)>| {
        let (indices, values): (Vec<u32>, Vec<f32>) = terms.into_iter().unzip();
        QueryPointsBuilder::new(C)
            .query(Query::new_nearest(VectorInput::new_sparse(indices, values)))
            .using("bm25")
            .filter(of_owner("t1"))
    };
    let found = client.query(bm25(vec![(7, 1.0), (8, 2.0), (500, 1.0)])).await.unwrap().result;
    assert_eq!(ids(found.iter().map(|p| &p.id)), [2, 1]);
    assert_eq!(found.iter().map(|p| p.score).collect::<Vec<_>>(), [4.0, 2.0]);
    let dense = QueryPointsBuilder::new(C).query(vec![0.0, 0.0, 1.0]).using("dense").filter(of_owner("t1")).limit(1);
    let batch = QueryBatchPointsBuilder::new(C, vec![dense.build(), bm25(vec![(9, 1.0)]).build()]);
    let legs = client.query_batch(batch).await.unwrap().result;
    assert_eq!(legs.iter().map(|leg| ids(leg.result.iter().map(|p| &p.id))).collect::<Vec<_>>(), [vec![3], vec![3]]);
    assert_eq!(code(client.query(bm25(vec![(7, 1.0), (7, 1.0)])).await), Code::InvalidArgument);
    let wrong_size = QueryPointsBuilder::new(C).query(vec![1.0]).using("dense");
    assert_eq!(code(client.query(wrong_size).await), Code::InvalidArgument);
    let wrong_name = QueryPointsBuilder::new(C).query(vec![1.0]).using("nope");
    assert_eq!(code(client.query(wrong_name).await), Code::InvalidArgument);
}

#[tokio::test]
async fn conditional_upserts_follow_mode_and_version() {
    let (_double, client) = collection().await;
    let put = |version: i64, mode| {
        let points = vec![point(1, "t1", version, [1.0, 0.0, 0.0], &[])];
        let older = Range { lt: Some(version as f64), ..Range::default() };
        let newer_only = Filter::must([Condition::range("version", older)]);
        client.upsert_points(UpsertPointsBuilder::new(C, points).wait(true).update_mode(mode).update_filter(newer_only))
    };
    let version = async || {
        let got = client.get_points(GetPointsBuilder::new(C, vec![1.into()]).with_payload(true)).await.unwrap();
        got.result.first().map(|p| p.payload["version"].as_integer().unwrap())
    };
    put(5, UpdateMode::UpdateOnly).await.unwrap();
    assert_eq!(version().await, None, "update-only inserts nothing");
    put(5, UpdateMode::InsertOnly).await.unwrap();
    assert_eq!(version().await, Some(5));
    put(9, UpdateMode::InsertOnly).await.unwrap();
    assert_eq!(version().await, Some(5), "insert-only changes nothing");
    put(4, UpdateMode::UpdateOnly).await.unwrap();
    assert_eq!(version().await, Some(5), "a late older version does not win");
    put(6, UpdateMode::UpdateOnly).await.unwrap();
    assert_eq!(version().await, Some(6));
    put(7, UpdateMode::Upsert).await.unwrap();
    assert_eq!(version().await, Some(7));
}

#[tokio::test]
async fn a_write_without_wait_is_acknowledged_and_not_yet_visible() {
    let (double, client) = collection().await;
    let points = vec![point(1, "t1", 1, [1.0, 0.0, 0.0], &[])];
    let answer = client.upsert_points(UpsertPointsBuilder::new(C, points)).await.unwrap();
    assert_eq!(answer.result.unwrap().status(), UpdateStatus::Acknowledged);
    assert_eq!(double.points(C), 0);
    double.settle();
    assert_eq!(double.points(C), 1);
}

#[tokio::test]
async fn points_are_counted_scrolled_changed_and_deleted() {
    let (double, client) = collection().await;
    fill(&client).await;
    let count = async |filter: Filter| {
        client.count(CountPointsBuilder::new(C).filter(filter).exact(true)).await.unwrap().result.unwrap().count
    };
    assert_eq!(count(of_owner("t1")).await, 3);

    let first = client.scroll(ScrollPointsBuilder::new(C).filter(of_owner("t1")).limit(2)).await.unwrap();
    assert_eq!(ids(first.result.iter().map(|p| &p.id)), [1, 2]);
    let next = first.next_page_offset.unwrap();
    let last = ScrollPointsBuilder::new(C).filter(of_owner("t1")).limit(2).offset(next).with_vectors(true);
    let last = client.scroll(last).await.unwrap();
    assert_eq!((ids(last.result.iter().map(|p| &p.id)), last.next_page_offset), (vec![3], None));
    assert!(last.result[0].vectors.is_some() && first.result[0].vectors.is_none());

    let archived = Payload::from(HashMap::from([("status".to_owned(), Value::from("ARCHIVED"))]));
    let set = SetPayloadPointsBuilder::new(C, archived.clone()).points_selector([PointId::from(1)].to_vec()).wait(true);
    client.set_payload(set).await.unwrap();
    assert_eq!(count(of_owner("t1")).await, 3, "setting keeps the other fields");
    assert!(double.payloads_hold("ARCHIVED"));
    let overwrite = SetPayloadPointsBuilder::new(C, archived).points_selector([PointId::from(1)].to_vec()).wait(true);
    client.overwrite_payload(overwrite).await.unwrap();
    assert_eq!(count(of_owner("t1")).await, 2, "overwriting does not");

    client.delete_points(DeletePointsBuilder::new(C).points([2_u64]).wait(true)).await.unwrap();
    assert_eq!(count(of_owner("t1")).await, 1);
    client.delete_points(DeletePointsBuilder::new(C).points(of_owner("t2")).wait(true)).await.unwrap();
    assert_eq!((count(of_owner("t2")).await, double.points(C)), (0, 2));
    client.delete_points(DeletePointsBuilder::new(C).points([2_u64]).wait(true)).await.unwrap();
}

#[tokio::test]
async fn strict_mode_refuses_unindexed_filters_and_large_limits() {
    let (_double, client) = collection().await;
    fill(&client).await;
    let unindexed = Filter::must([of_owner("t1").into(), Condition::matches("status", "ACTIVE".to_owned())]);
    let query = QueryPointsBuilder::new(C).query(vec![1.0, 0.0, 0.0]).using("dense");
    assert_eq!(code(client.query(query.clone().filter(unindexed.clone())).await), Code::InvalidArgument);
    assert_eq!(code(client.query(query.limit(101)).await), Code::InvalidArgument);
    let delete = DeletePointsBuilder::new(C).points(unindexed.clone()).wait(true);
    assert_eq!(code(client.delete_points(delete).await), Code::InvalidArgument);
    let index = CreateFieldIndexCollectionBuilder::new(C, "status", FieldType::Keyword).wait(true);
    client.create_field_index(index).await.unwrap();
    client.count(CountPointsBuilder::new(C).filter(unindexed)).await.unwrap();
}

#[tokio::test]
async fn what_the_double_does_not_serve_it_refuses_by_name() {
    let (double, client) = collection().await;
    let search = SearchPointsBuilder::new(C, vec![1.0, 0.0, 0.0], 3);
    assert_eq!(code(client.search_points(search).await), Code::Unimplemented);
    assert_eq!(double.calls("Points/search"), 1);
    let text = Filter::must([Condition::matches_text("owner", "t1")]);
    assert_eq!(code(client.count(CountPointsBuilder::new(C).filter(text)).await), Code::Unimplemented);
}

#[tokio::test]
async fn injected_failures_strike_before_or_after_the_effect() {
    let (double, client) = collection().await;
    let put = |id| {
        let points = vec![point(id, "t1", 1, [1.0, 0.0, 0.0], &[])];
        client.upsert_points(UpsertPointsBuilder::new(C, points).wait(true))
    };
    double.fail_next(2, Code::Unavailable);
    assert_eq!(code(put(1).await), Code::Unavailable);
    assert_eq!(double.calls("Points/upsert"), 2, "the client itself tries once more after UNAVAILABLE");
    double.fail_next(1, Code::Internal);
    assert_eq!(code(client.collection_info(C).await), Code::Internal);
    assert_eq!(double.points(C), 0, "refused before the effect");
    double.fail(Some("Points/upsert"), 1, Status::deadline_exceeded("lost"), Strike::After);
    client.collection_info(C).await.unwrap();
    assert_eq!(code(put(1).await), Code::DeadlineExceeded);
    assert_eq!(double.points(C), 1, "the effect stands, the answer was lost");
    put(2).await.unwrap();
    assert_eq!(double.calls("Points/upsert"), 4);
    let mut exhausted = Status::resource_exhausted("slow down");
    exhausted.metadata_mut().insert("retry-after", "7".parse().unwrap());
    double.fail(None, 1, exhausted, Strike::Before);
    let refused = put(3).await.expect_err("slow down");
    assert!(matches!(refused, QdrantError::ResourceExhaustedError { retry_after_seconds: 7, .. }), "{refused}");
}

#[tokio::test]
async fn a_delay_meets_the_clients_timeout_and_heals() {
    let (double, _) = collection().await;
    let timeout = Duration::from_millis(200);
    let hasty = Qdrant::from_url(&double.url()).skip_compatibility_check().timeout(timeout).build().unwrap();
    double.delay(Duration::from_secs(60));
    let answer = tokio::time::timeout(Duration::from_secs(30), hasty.collection_info(C)).await;
    assert!(answer.expect("the client gives up by itself").is_err());
    double.heal();
    eventually(Duration::from_secs(5), || async { hasty.collection_info(C).await.is_ok() }).await;
}

#[tokio::test]
async fn the_data_survives_a_stop_and_the_address_stays() {
    let (double, client) = collection().await;
    fill(&client).await;
    for _ in 0..3 {
        double.stop();
        assert!(!double.is_serving() && client.collection_info(C).await.is_err());
        let refused = std::net::TcpStream::connect(double.addr()).expect_err("nobody listens");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        double.resume();
        eventually(Duration::from_secs(10), || async { client.collection_info(C).await.is_ok() }).await;
    }
    assert_eq!(double.points(C), 4);
}

#[tokio::test]
async fn the_fault_proxy_breaks_and_heals_grpc() {
    let (double, _) = collection().await;
    let proxy = FaultProxy::start(double.addr());
    let timeout = Duration::from_millis(500);
    let client = Qdrant::from_url(&proxy.url("http")).skip_compatibility_check().timeout(timeout).build().unwrap();
    client.collection_info(C).await.unwrap();
    for mode in [Mode::Refuse, Mode::BlackHole, Mode::Reset, Mode::CutAfter(3)] {
        proxy.set(mode);
        assert!(client.collection_info(C).await.is_err(), "{mode:?}");
        proxy.set(Mode::Pass);
        eventually(Duration::from_secs(10), || async { client.collection_info(C).await.is_ok() }).await;
    }
}
