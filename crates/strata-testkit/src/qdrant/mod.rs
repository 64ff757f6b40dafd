//! A Qdrant inside the test process: the server side of the client's own generated services, over an exact scan in memory.
//!
//! What it proves: how we map our data and filters to the wire, and what we do about errors, timeouts, lost answers and a
//! server that is down. What it does **not** prove: how the real server behaves. It has no write-ahead log, no HNSW, no
//! shards, no replicas, and its scores come from an exact scan in `f32`. Suites that run against it must run unchanged
//! against a real server, too.
//!
//! It is stricter than the server where that finds faults: what it does not evaluate it refuses (`UNIMPLEMENTED`) instead of
//! ignoring it, and a write without `wait` becomes visible only with the next write that waits, or by
//! [`WireDouble::settle`]. Equal scores come in the order of ids.

mod filter;
mod point;
mod store;

use crate::port::HeldPort;
use crate::thread::ServerThread;
use parking_lot::Mutex;
use qdrant_client::qdrant::collections_server::{Collections, CollectionsServer};
use qdrant_client::qdrant::points_server::{Points, PointsServer};
use qdrant_client::qdrant::qdrant_server::{Qdrant, QdrantServer};
use qdrant_client::qdrant::{self, Filter, HealthCheckReply};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, ServerTlsConfig};
use tonic::{Code, Request, Response, Status};

/// Version that the double reports: the one whose services it serves.
pub const VERSION: &str = "1.20.0";

/// When an injected failure strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// Before the call has any effect.
    Before,
    /// After it: the effect stands and the answer is lost. What a retry must survive.
    After,
}

/// The double. Methods are named as `service/method`: `Points/upsert`, `Collections/create`, `Qdrant/health_check`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use qdrant_client::{Qdrant, qdrant::{CreateCollectionBuilder, Distance, VectorParamsBuilder}};
///
/// let double = strata_testkit::WireDouble::start();
/// let client = Qdrant::from_url(&double.url()).skip_compatibility_check().build().expect("a client");
/// let vectors = VectorParamsBuilder::new(3, Distance::Cosine);
/// client.create_collection(CreateCollectionBuilder::new("c").vectors_config(vectors)).await.expect("created");
/// assert_eq!(double.calls("Collections/create"), 1);
/// # }
/// ```
#[derive(Debug)]
pub struct WireDouble {
    port: Arc<HeldPort>,
    shared: Arc<Shared>,
    serving: Mutex<Option<ServerThread>>,
    tls: Option<Identity>,
}

#[derive(Debug, Default)]
struct Shared {
    store: Mutex<Store>,
    faults: Mutex<Faults>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Faults {
    failures: Vec<Failure>,
    delay: Duration,
    key: Option<String>,
}

#[derive(Debug)]
struct Failure {
    method: Option<String>,
    left: u64,
    status: Status,
    strike: Strike,
}

#[derive(Debug, Default)]
struct Seen {
    calls: BTreeMap<&'static str, u64>,
    filters: Vec<(&'static str, Option<Filter>)>,
}

impl WireDouble {
    /// Starts an empty one.
    ///
    /// # Panics
    /// When the machine has no free port.
    #[must_use]
    pub fn start() -> Self {
        Self::with_tls(None)
    }

    /// Starts one that speaks TLS, with a certificate for 127.0.0.1 and its key in PEM.
    ///
    /// # Panics
    /// When the machine has no free port.
    #[must_use]
    pub fn start_tls(certificate: &str, key: &str) -> Self {
        Self::with_tls(Some(Identity::from_pem(certificate, key)))
    }

    fn with_tls(tls: Option<Identity>) -> Self {
        let (port, shared) = (Arc::new(HeldPort::new()), Arc::new(Shared::default()));
        let double = Self { port, shared, serving: Mutex::new(None), tls };
        double.resume();
        double
    }

    /// Where it serves, also while it is down.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Address for `Qdrant::from_url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.addr())
    }

    /// Goes down: connections break, new ones are refused. The data stays.
    pub fn stop(&self) {
        drop(self.serving.lock().take());
    }

    /// Comes back at the same address with the same data. No effect while it serves.
    ///
    /// # Panics
    /// When it cannot listen again.
    pub fn resume(&self) {
        let mut serving = self.serving.lock();
        if serving.is_some() {
            return;
        }
        let (shared, port) = (Arc::clone(&self.shared), Arc::clone(&self.port));
        let tls = self.tls.clone();
        let (listening, listens) = std::sync::mpsc::channel();
        *serving = Some(ServerThread::start("qdrant-double", move || async move {
            let incoming = TcpIncoming::from(port.listen()).with_nodelay(Some(true));
            listening.send(()).expect("the starter waits");
            // The client's own default is unlimited both ways.
            let mut server = tonic::transport::Server::builder();
            if let Some(identity) = tls {
                server = server.tls_config(ServerTlsConfig::new().identity(identity)).expect("a certificate and its key");
            }
            let served = server
                .add_service(PointsServer::from_arc(Arc::clone(&shared)).max_decoding_message_size(usize::MAX))
                .add_service(CollectionsServer::from_arc(Arc::clone(&shared)))
                .add_service(QdrantServer::from_arc(shared))
                .serve_with_incoming(incoming)
                .await;
            served.expect("a server on an open listener");
        }));
        listens.recv().expect("the double listens");
    }

    /// Whether it serves.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.serving.lock().is_some()
    }

    /// Fails the next `n` calls of any method with `code`, before they have an effect. The client itself repeats a call
    /// on points once after `UNAVAILABLE`, `INTERNAL`, `CANCELLED` and `UNKNOWN`, on a new connection: a single one of them
    /// stays invisible to its caller.
    pub fn fail_next(&self, n: u64, code: Code) {
        self.fail(None, n, Status::new(code, "injected by the test"), Strike::Before);
    }

    /// Fails the next `n` calls of `method` (of any, when none) with `status`, which may carry metadata such as
    /// `retry-after`. Failures are used up in the order they were added.
    pub fn fail(&self, method: Option<&str>, n: u64, status: Status, strike: Strike) {
        let failure = Failure { method: method.map(str::to_owned), left: n, status, strike };
        self.shared.faults.lock().failures.push(failure);
    }

    /// Makes every call wait before it has an effect; zero ends it.
    pub fn delay(&self, by: Duration) {
        self.shared.faults.lock().delay = by;
    }

    /// Ends every injected failure and delay.
    pub fn heal(&self) {
        let mut faults = self.shared.faults.lock();
        *faults = Faults { key: faults.key.take(), ..Faults::default() };
    }

    /// Calls of `method` so far, failed ones included.
    #[must_use]
    pub fn calls(&self, method: &str) -> u64 {
        self.shared.seen.lock().calls.get(method).copied().unwrap_or_default()
    }

    /// Calls so far by method.
    #[must_use]
    pub fn all_calls(&self) -> BTreeMap<&'static str, u64> {
        self.shared.seen.lock().calls.clone()
    }

    /// The filter of every read and every selection so far, in order, with the method: to check that each of them is
    /// bound to one owner. A batch gives one entry for each of its queries.
    #[must_use]
    pub fn filters(&self) -> Vec<(&'static str, Option<Filter>)> {
        self.shared.seen.lock().filters.clone()
    }

    /// Forgets the calls and filters seen so far.
    pub fn reset_seen(&self) {
        *self.shared.seen.lock() = Seen::default();
    }

    /// Makes visible what was written without `wait`.
    pub fn settle(&self) {
        self.shared.store.lock().settle();
    }

    /// Demands this API key of every call from now on, as the server does with `service.api_key`; none demands nothing.
    pub fn require_key(&self, key: Option<&str>) {
        self.shared.faults.lock().key = key.map(str::to_owned);
    }

    /// Names of the collections, ascending.
    #[must_use]
    pub fn collections(&self) -> Vec<String> {
        self.shared.store.lock().names()
    }

    /// Drops every point, collection and alias: the server lost its disk.
    pub fn lose_everything(&self) {
        *self.shared.store.lock() = Store::default();
    }

    /// Number of points in a collection; 0 when there is none.
    #[must_use]
    pub fn points(&self, collection: &str) -> usize {
        self.shared.store.lock().len(collection)
    }

    /// Whether `needle` stands in a payload of any collection: payloads carry no content.
    #[must_use]
    pub fn payloads_hold(&self, needle: &str) -> bool {
        self.shared.store.lock().payload_texts().iter().any(|text| text.contains(needle))
    }
}

impl Shared {
    async fn serve<A, B>(
        &self,
        method: &'static str,
        request: Request<A>,
        handle: impl FnOnce(&mut Store, A) -> Result<B, Status>,
    ) -> Result<Response<B>, Status>
    where
        A: Filters,
    {
        let given = request.metadata().get("api-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
        let request = request.into_inner();
        {
            let mut seen = self.seen.lock();
            *seen.calls.entry(method).or_default() += 1;
            seen.filters.extend(request.filters().into_iter().map(|filter| (method, filter.cloned())));
        }
        let delay = self.faults.lock().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.faults.lock().key.as_ref().is_some_and(|key| Some(key) != given.as_ref()) {
            return Err(Status::unauthenticated("Must provide an API key or an Authorization bearer token"));
        }
        match self.faults.lock().take(method) {
            Some((status, Strike::Before)) => Err(status),
            Some((status, Strike::After)) => {
                // Its answer is lost, whatever it was.
                drop(handle(&mut self.store.lock(), request));
                Err(status)
            }
            None => handle(&mut self.store.lock(), request).map(Response::new),
        }
    }

    fn refuse<B>(&self, method: &'static str) -> Result<Response<B>, Status> {
        *self.seen.lock().calls.entry(method).or_default() += 1;
        Err(Status::unimplemented(format!("the wire double does not serve {method}")))
    }
}

impl Faults {
    fn take(&mut self, method: &str) -> Option<(Status, Strike)> {
        self.failures.retain(|failure| failure.left > 0);
        let failure = self.failures.iter_mut().find(|f| f.method.as_deref().is_none_or(|m| m == method))?;
        failure.left -= 1;
        Some((failure.status.clone(), failure.strike))
    }
}

/// The filters a request carries, for [`WireDouble::filters`]; empty for one that selects nothing.
trait Filters {
    fn filters(&self) -> Vec<Option<&Filter>> {
        Vec::new()
    }
}

macro_rules! filters {
    ($( $request:ident $(: |$r:ident| $filters:expr)? ),* $(,)?) => { $(
        impl Filters for qdrant::$request { $( fn filters(&self) -> Vec<Option<&Filter>> { let $r = self; $filters } )? }
    )* };
}

filters! {
    QueryPoints: |r| vec![r.filter.as_ref()],
    QueryBatchPoints: |r| r.query_points.iter().map(|query| query.filter.as_ref()).collect(),
    ScrollPoints: |r| vec![r.filter.as_ref()],
    CountPoints: |r| vec![r.filter.as_ref()],
    UpsertPoints: |r| r.update_filter.iter().map(Some).collect(),
    UpdatePointVectors: |r| r.update_filter.iter().map(Some).collect(),
    DeletePoints: |r| selected(r.points.as_ref()),
    SetPayloadPoints: |r| selected(r.points_selector.as_ref()),
    DeletePayloadPoints: |r| selected(r.points_selector.as_ref()),
    ClearPayloadPoints: |r| selected(r.points.as_ref()),
    DeletePointVectors: |r| selected(r.points_selector.as_ref()),
    GetPoints, UpdateBatchPoints, CreateFieldIndexCollection, DeleteFieldIndexCollection, CreateCollection,
    UpdateCollection, DeleteCollection, CollectionExistsRequest, ListCollectionsRequest, GetCollectionInfoRequest,
    ChangeAliases, ListAliasesRequest, ListCollectionAliasesRequest, HealthCheckRequest,
}

fn selected(selector: Option<&qdrant::PointsSelector>) -> Vec<Option<&Filter>> {
    match selector.and_then(|s| s.points_selector_one_of.as_ref()) {
        Some(qdrant::points_selector::PointsSelectorOneOf::Filter(filter)) => vec![Some(filter)],
        Some(qdrant::points_selector::PointsSelectorOneOf::Points(_)) | None => Vec::new(),
    }
}

/// Implements a generated service: what the double serves, and what it refuses by name.
macro_rules! service {
    (
        $service:ident
        serves { $( $method:ident($request:ident) -> $response:ident = $handle:expr; )* }
        refuses { $( $refused:ident($refused_request:ident) -> $refused_response:ident; )* }
    ) => {
        #[tonic::async_trait]
        impl $service for Shared {
            $(
                async fn $method(
                    &self,
                    request: Request<qdrant::$request>,
                ) -> Result<Response<qdrant::$response>, Status> {
                    self.serve(concat!(stringify!($service), "/", stringify!($method)), request, $handle).await
                }
            )*
            $(
                async fn $refused(
                    &self,
                    _: Request<qdrant::$refused_request>,
                ) -> Result<Response<qdrant::$refused_response>, Status> {
                    self.refuse(concat!(stringify!($service), "/", stringify!($refused)))
                }
            )*
        }
    };
}

service! {
    Points
    serves {
        upsert(UpsertPoints) -> PointsOperationResponse = Store::upsert;
        delete(DeletePoints) -> PointsOperationResponse = Store::delete;
        get(GetPoints) -> GetResponse = Store::retrieve;
        update_vectors(UpdatePointVectors) -> PointsOperationResponse = Store::update_vectors;
        delete_vectors(DeletePointVectors) -> PointsOperationResponse = Store::delete_vectors;
        set_payload(SetPayloadPoints) -> PointsOperationResponse = Store::set_payload;
        overwrite_payload(SetPayloadPoints) -> PointsOperationResponse = Store::overwrite_payload;
        delete_payload(DeletePayloadPoints) -> PointsOperationResponse = Store::delete_payload;
        clear_payload(ClearPayloadPoints) -> PointsOperationResponse = Store::clear_payload;
        create_field_index(CreateFieldIndexCollection) -> PointsOperationResponse = Store::create_index;
        delete_field_index(DeleteFieldIndexCollection) -> PointsOperationResponse = Store::delete_index;
        scroll(ScrollPoints) -> ScrollResponse = Store::scroll;
        count(CountPoints) -> CountResponse = Store::count;
        update_batch(UpdateBatchPoints) -> UpdateBatchResponse = Store::update_batch;
        query(QueryPoints) -> QueryResponse = Store::query;
        query_batch(QueryBatchPoints) -> QueryBatchResponse = Store::query_batch;
    }
    refuses {
        create_vector_name(CreateVectorNameRequest) -> PointsOperationResponse;
        delete_vector_name(DeleteVectorNameRequest) -> PointsOperationResponse;
        search(SearchPoints) -> SearchResponse;
        search_batch(SearchBatchPoints) -> SearchBatchResponse;
        search_groups(SearchPointGroups) -> SearchGroupsResponse;
        recommend(RecommendPoints) -> RecommendResponse;
        recommend_batch(RecommendBatchPoints) -> RecommendBatchResponse;
        recommend_groups(RecommendPointGroups) -> RecommendGroupsResponse;
        discover(DiscoverPoints) -> DiscoverResponse;
        discover_batch(DiscoverBatchPoints) -> DiscoverBatchResponse;
        query_groups(QueryPointGroups) -> QueryGroupsResponse;
        facet(FacetCounts) -> FacetResponse;
        search_matrix_pairs(SearchMatrixPoints) -> SearchMatrixPairsResponse;
        search_matrix_offsets(SearchMatrixPoints) -> SearchMatrixOffsetsResponse;
    }
}

service! {
    Collections
    serves {
        get(GetCollectionInfoRequest) -> GetCollectionInfoResponse = Store::info;
        list(ListCollectionsRequest) -> ListCollectionsResponse = Store::list;
        create(CreateCollection) -> CollectionOperationResponse = Store::create;
        update(UpdateCollection) -> CollectionOperationResponse = Store::update_collection;
        delete(DeleteCollection) -> CollectionOperationResponse = Store::delete_collection;
        collection_exists(CollectionExistsRequest) -> CollectionExistsResponse = Store::exists;
        update_aliases(ChangeAliases) -> CollectionOperationResponse = Store::update_aliases;
        list_aliases(ListAliasesRequest) -> ListAliasesResponse = Store::list_aliases;
        list_collection_aliases(ListCollectionAliasesRequest) -> ListAliasesResponse = Store::list_collection_aliases;
    }
    refuses {
        collection_cluster_info(CollectionClusterInfoRequest) -> CollectionClusterInfoResponse;
        update_collection_cluster_setup(UpdateCollectionClusterSetupRequest) -> UpdateCollectionClusterSetupResponse;
        create_shard_key(CreateShardKeyRequest) -> CreateShardKeyResponse;
        delete_shard_key(DeleteShardKeyRequest) -> DeleteShardKeyResponse;
        list_shard_keys(ListShardKeysRequest) -> ListShardKeysResponse;
    }
}

service! {
    Qdrant
    serves {
        health_check(HealthCheckRequest) -> HealthCheckReply = |_, _| Ok(HealthCheckReply {
            title: "qdrant wire double".to_owned(),
            version: VERSION.to_owned(),
            commit: None,
        });
    }
    refuses {}
}
