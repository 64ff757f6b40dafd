//! The index on a Qdrant server, for large owners and many replicas.
//!
//! | topic | here |
//! |---|---|
//! | collections | one per space (embedder identity and dimension), never one per user, behind an alias of the space's name |
//! | rebuild | a second collection is filled beside the first; when it is complete the alias moves and the first is dropped |
//! | another embedder | the collection of the earlier one stays until every record is in the new one; what is deleted goes from both |
//! | tenancy | a keyword field with a tenant index holds the user's digest; every query carries it in `must` |
//! | the caller's filter | nested as ONE condition, so that nothing in it can loosen the owner's |
//! | legs | dense and sparse in one batch call, fused in our code |
//! | sparse | document weights as stored, the owner's IDF as the query; the server's own modifier is off |
//! | writes | `wait`, strong ordering, an update only over an older version |
//! | payload | what filters: digests, states, times, version; never content |
//!
//! The server may still hold an erased vector in its segments and its write-ahead log: see [`QdrantIndex::vacuum`].

use super::{
    APART, Held, Index, IndexOp, IndexedRow, LegHit, LegQuery, Legs, Mark, Prepared, RecordFilter, Space, USER_LEVEL, Upsert,
    agent_mark,
};
use async_trait::async_trait;
use parking_lot::Mutex;
use qdrant_client::qdrant::point_id::PointIdOptions;
use qdrant_client::qdrant::points_selector::PointsSelectorOneOf;
use qdrant_client::qdrant::vectors_config::Config as VectorsKind;
use qdrant_client::qdrant::{
    Condition, CountPointsBuilder, CreateAliasBuilder, CreateCollectionBuilder, CreateFieldIndexCollectionBuilder,
    DeletePointsBuilder, Distance, FieldType, Filter, GetPointsBuilder, IntegerIndexParamsBuilder, KeywordIndexParamsBuilder,
    NamedVectors, OptimizersConfigDiffBuilder, PayloadIncludeSelector, PayloadIndexParams, PayloadSchemaInfo, PointId,
    PointStruct, Query, QueryBatchPointsBuilder, QueryPointsBuilder, Range, ReadConsistencyType, RetrievedPoint, ScoredPoint,
    ScrollPointsBuilder, SearchParamsBuilder, SparseVectorParamsBuilder, SparseVectorsConfigBuilder, StrictModeConfigBuilder,
    UpdateCollectionBuilder, UpsertPointsBuilder, Value, Vector, VectorInput, VectorParamsBuilder, VectorsConfigBuilder,
    WriteOrdering, WriteOrderingType, payload_index_params, read_consistency, value, vector_output, vectors_output,
};
use qdrant_client::{Qdrant, QdrantError};
use secrecy::{ExposeSecret, SecretString};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use strata_core::record::{Kind, Status, Tier};
use strata_core::{Fault, MemoryId, Owner, Reason, Timestamp};
use strata_runtime::store_op::operation;
use uuid::Uuid;

/// Name of the dense vector of a point.
const DENSE: &str = "dense";
/// Name of the sparse vector of a point.
const TERMS: &str = "terms";
/// Largest limit a query may ask for: three times the largest k, with room.
const MAX_QUERY_LIMIT: u32 = 1_000;
/// Points in one upsert: some 250 KB on the wire.
const UPSERT_POINTS: usize = 100;
/// Segment size from which the server lets a vacuum be forced.
const VACUUM_MINIMUM: u64 = 100;
/// The server's own vacuum settings, put back after a forced one.
const VACUUM_DEFAULT: (f64, u64) = (0.2, 1_000);

/// How to reach the server.
#[derive(Clone, Debug)]
pub struct QdrantSettings {
    /// `http://host:6334` or `https://...`.
    pub url: String,
    /// Sent with every call when set; never logged.
    pub api_key: Option<SecretString>,
    /// First part of every collection name.
    pub prefix: String,
    /// Bounds every call.
    pub timeout: Duration,
    /// Bounds connecting.
    pub connect_timeout: Duration,
    /// Scan instead of walking the graph: exact, for tests that compare orders.
    pub exact: bool,
    /// Shards of a new collection; none leaves it to the server.
    pub shards: Option<u32>,
    /// Replicas of each shard of a new collection; with more than one, a write is acknowledged by a majority.
    pub replicas: u32,
    /// Days after the close of an erasure within which a new copy takes the place of the one that held it: dropping a
    /// collection is the only thing that surely rids the server's files of what was deleted. 0: only when somebody asks for it.
    pub erase_days: u32,
}

impl Default for QdrantSettings {
    fn default() -> Self {
        Self {
            url: "http://localhost:6334".into(),
            api_key: None,
            prefix: "strata".into(),
            timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            exact: false,
            shards: None,
            replicas: 1,
            erase_days: 7,
        }
    }
}

/// Collections that hold the points of a space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Copies {
    /// What the alias stands for.
    active: Option<String>,
    /// What is being filled to take its place.
    building: Option<String>,
    /// Collections of other embedders under the same prefix: a switch is under way, or the embedder was taken away. Nothing is
    /// searched or put there; what is deleted is deleted there too (behaviour X11).
    others: Vec<String>,
}

/// The index on a server.
#[derive(Clone)]
pub struct QdrantIndex {
    client: Qdrant,
    /// The alias: what is searched.
    collection: String,
    copies: Arc<Mutex<Copies>>,
    space: Option<Space>,
    settings: QdrantSettings,
}

impl fmt::Debug for QdrantIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QdrantIndex").field("collection", &self.collection).field("space", &self.space).finish_non_exhaustive()
    }
}

impl QdrantIndex {
    /// Makes a client; does not connect. The collection is named by `space`, so that vectors of two embedders never meet.
    ///
    /// # Errors
    /// `INVALID_FIELD` when the address cannot be used.
    pub fn new(settings: QdrantSettings, space: Option<Space>) -> Result<Self, Fault> {
        // The check at build would print to standard output and needs a server that is up.
        let client = Qdrant::from_url(&settings.url)
            .api_key(settings.api_key.as_ref().map(|key| key.expose_secret().to_owned()))
            .timeout(settings.timeout)
            .connect_timeout(settings.connect_timeout)
            .skip_compatibility_check()
            .build()
            .map_err(|_| Fault::field("longterm.index.url", "is not an address of a Qdrant server"))?;
        let collection = collection_name(&settings.prefix, space.as_ref());
        Ok(Self { client, collection, copies: Arc::default(), space, settings })
    }

    /// Name under which its collection is searched.
    #[must_use]
    pub fn collection(&self) -> &str {
        &self.collection
    }

    /// Makes the server rewrite segments that hold deleted points now, instead of at its own threshold. What was deleted
    /// then is out of the segments within seconds; copies in the write-ahead log go when it has rotated.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub async fn vacuum(&self) -> Result<(), Fault> {
        for collection in self.everywhere() {
            for (threshold, minimum) in [(0.0, VACUUM_MINIMUM), VACUUM_DEFAULT] {
                let optimizers =
                    OptimizersConfigDiffBuilder::default().deleted_threshold(threshold).vacuum_min_vector_number(minimum);
                let request = UpdateCollectionBuilder::new(&collection).optimizers_config(optimizers);
                operation("qdrant", "", "update_collection", self.client.update_collection(request))
                    .await
                    .map_err(unavailable)?;
            }
        }
        Ok(())
    }

    /// Where changes go: what is searched, and what is being filled.
    fn targets(&self) -> Vec<String> {
        let copies = self.copies.lock().clone();
        let active = copies.active.unwrap_or_else(|| self.collection.clone());
        std::iter::once(active).chain(copies.building).collect()
    }

    fn now_are(&self, active: Option<String>, building: Option<String>) {
        let mut copies = self.copies.lock();
        (copies.active, copies.building) = (active, building);
    }

    /// Where what is deleted may be.
    fn everywhere(&self) -> Vec<String> {
        let mut all = self.targets();
        all.extend(self.copies.lock().others.iter().cloned());
        all
    }

    fn strict() -> StrictModeConfigBuilder {
        StrictModeConfigBuilder::default()
            .enabled(true)
            .max_query_limit(MAX_QUERY_LIMIT)
            .unindexed_filtering_retrieve(false)
            .unindexed_filtering_update(false)
    }

    /// Makes an empty collection with everything that is searched and filtered by.
    async fn create(&self, name: &str) -> Result<(), Fault> {
        let mut sparse = SparseVectorsConfigBuilder::default();
        sparse.add_named_vector_params(TERMS, SparseVectorParamsBuilder::default());
        let mut request = CreateCollectionBuilder::new(name)
            .sparse_vectors_config(sparse)
            .strict_mode_config(Self::strict())
            .on_disk_payload(true)
            .replication_factor(self.settings.replicas)
            .write_consistency_factor(self.settings.replicas / 2 + 1);
        if let Some(space) = &self.space {
            let mut dense = VectorsConfigBuilder::default();
            dense.add_named_vector_params(DENSE, VectorParamsBuilder::new(space.dims as u64, Distance::Cosine));
            request = request.vectors_config(dense);
        }
        if let Some(shards) = self.settings.shards {
            request = request.shard_number(shards);
        }
        operation("qdrant", "", "create_collection", self.client.create_collection(request)).await.map_err(unavailable)?;
        self.index_fields(name, &HashMap::new()).await
    }

    /// Collections of this space by number, with what the alias stands for. A collection that has the alias's own name is
    /// number 0.
    async fn found(&self) -> Result<(BTreeMap<u64, String>, Option<u64>), Fault> {
        let aliases = operation("qdrant", "", "list_aliases", self.client.list_aliases()).await.map_err(unavailable)?.aliases;
        let names =
            operation("qdrant", "", "list_collections", self.client.list_collections()).await.map_err(unavailable)?.collections;
        let (mut copies, mut others) = (BTreeMap::new(), Vec::new());
        for one in names {
            match copy_number(&self.collection, &one.name) {
                Some(number) => {
                    copies.insert(number, one.name);
                }
                None if of_prefix(&self.settings.prefix, &one.name) => others.push(one.name),
                None => {}
            }
        }
        self.copies.lock().others = others;
        let alias = aliases.into_iter().find(|alias| alias.alias_name == self.collection);
        let active = match alias {
            Some(alias) => copy_number(&self.collection, &alias.collection_name),
            None => copies.contains_key(&0).then_some(0),
        };
        Ok((copies, active))
    }

    /// Gives the alias to a collection, in one step.
    async fn point_alias_at(&self, name: &str) -> Result<(), Fault> {
        let request = CreateAliasBuilder::new(name, &self.collection);
        operation("qdrant", "", "create_alias", self.client.create_alias(request)).await.map_err(unavailable)?;
        Ok(())
    }

    async fn drop_collection(&self, name: &str) -> Result<(), Fault> {
        operation("qdrant", "", "delete_collection", self.client.delete_collection(name)).await.map_err(unavailable)?;
        Ok(())
    }

    /// A collection of this name must have been made for this space; what can be mended is.
    async fn check(&self, name: &str) -> Result<(), Fault> {
        let info = operation("qdrant", "", "collection_info", self.client.collection_info(name)).await.map_err(unavailable)?;
        let info = info.result.unwrap_or_default();
        let config = info.config.unwrap_or_default();
        let params = config.params.unwrap_or_default();
        let dense = match params.vectors_config.and_then(|config| config.config) {
            Some(VectorsKind::ParamsMap(map)) => map.map.get(DENSE).map(|params| (params.size, params.distance)),
            Some(VectorsKind::Params(_)) | None => None,
        };
        let expected = self.space.as_ref().map(|space| (space.dims as u64, i32::from(Distance::Cosine)));
        let other = |what: String| {
            tracing::error!(collection = name, what, "a collection of the search index has another form");
            let fix = "name another prefix or remove the collection; the records are not touched and fill a new one";
            Err(Fault::new(Reason::Internal, format!("the collection {name} of the search index {what}; {fix}")))
        };
        if dense != expected {
            let dims = |of: Option<(u64, i32)>| of.map_or("none".to_owned(), |(size, _)| size.to_string());
            return other(format!("holds vectors of another form (dimensions {}, expected {})", dims(dense), dims(expected)));
        }
        if !params.sparse_vectors_config.is_some_and(|config| config.map.contains_key(TERMS)) {
            return other("holds no sparse vectors".to_owned());
        }
        let tenant = info.payload_schema.get(field::OWNER).is_none_or(|owner| match &owner.params {
            Some(PayloadIndexParams { index_params: Some(payload_index_params::IndexParams::KeywordIndexParams(params)) }) => {
                params.is_tenant == Some(true)
            }
            Some(_) | None => false,
        });
        if !tenant {
            return other(format!("has no tenant index on {}", field::OWNER));
        }
        let strict = config.strict_mode_config.unwrap_or_default();
        let off = |flag: Option<bool>| flag == Some(false);
        if strict.enabled != Some(true) || !off(strict.unindexed_filtering_retrieve) || !off(strict.unindexed_filtering_update) {
            tracing::warn!(collection = name, "strict mode was off; it is on again");
            let request = UpdateCollectionBuilder::new(name).strict_mode_config(Self::strict());
            operation("qdrant", "", "update_collection", self.client.update_collection(request)).await.map_err(unavailable)?;
        }
        self.index_fields(name, &info.payload_schema).await
    }

    /// Makes the payload indexes that are not there yet.
    async fn index_fields(&self, name: &str, there: &HashMap<String, PayloadSchemaInfo>) -> Result<(), Fault> {
        let keyword = |tenant: bool| -> payload_index_params::IndexParams {
            let params = KeywordIndexParamsBuilder::default();
            // Only the tenant's index may shape the graph: with the others in it, filtered walks lose hits.
            if tenant { params.is_tenant(true).build().into() } else { params.enable_hnsw(false).build().into() }
        };
        let integer = |lookup: bool, range: bool| -> payload_index_params::IndexParams {
            IntegerIndexParamsBuilder::new(lookup, range).enable_hnsw(false).build().into()
        };
        let fields = [
            (field::OWNER, FieldType::Keyword, keyword(true)),
            (field::KIND, FieldType::Keyword, keyword(false)),
            (field::TIER, FieldType::Keyword, keyword(false)),
            (field::STATUS, FieldType::Keyword, keyword(false)),
            (field::AGENT, FieldType::Integer, integer(true, false)),
            (field::MARKS, FieldType::Integer, integer(true, false)),
            (field::VERSION, FieldType::Integer, integer(false, true)),
            (field::EVENT_TIME, FieldType::Integer, integer(false, true)),
            (field::EXPIRE_TIME, FieldType::Integer, integer(false, true)),
            (field::VALID_FROM, FieldType::Integer, integer(false, true)),
            (field::VALID_TO, FieldType::Integer, integer(false, true)),
        ];
        for (of, kind, params) in fields.into_iter().filter(|(of, ..)| !there.contains_key(*of)) {
            let request =
                CreateFieldIndexCollectionBuilder::new(name, of, kind).field_index_params(params).wait(true).ordering(strong());
            operation("qdrant", "", "create_field_index", self.client.create_field_index(request)).await.map_err(unavailable)?;
        }
        Ok(())
    }

    fn point(&self, upsert: Upsert) -> PointStruct {
        let Upsert { owner, row, vector, terms } = upsert;
        let (indices, weights): (Vec<u32>, Vec<f32>) = terms.into_iter().unzip();
        let mut vectors = NamedVectors::default();
        if !indices.is_empty() {
            vectors = vectors.add_vector(TERMS, Vector::new_sparse(indices, weights));
        }
        let dims = self.space.as_ref().map_or(0, |space| space.dims);
        if let Some(vector) = vector.filter(|vector| dims > 0 && vector.len() == dims) {
            vectors = vectors.add_vector(DENSE, Vector::new_dense(vector));
        }
        PointStruct { id: Some(point_id(row.memory_id)), payload: payload(&owner, &row), vectors: Some(vectors.into()) }
    }

    async fn upsert(&self, collection: &str, version: u64, points: Vec<PointStruct>) -> Result<(), Fault> {
        let older = Range { lt: Some(version as f64), ..Range::default() };
        let request = UpsertPointsBuilder::new(collection, points)
            .wait(true)
            .ordering(strong())
            .update_filter(Filter::must([Condition::range(field::VERSION, older)]));
        operation("qdrant", "", "upsert_points", self.client.upsert_points(request)).await.map_err(unavailable)?;
        Ok(())
    }

    async fn delete(&self, collection: &str, points: impl Into<PointsSelectorOneOf>) -> Result<(), Fault> {
        let request = DeletePointsBuilder::new(collection).points(points).wait(true).ordering(strong());
        operation("qdrant", "", "delete_points", self.client.delete_points(request)).await.map_err(unavailable)?;
        Ok(())
    }

    async fn purge_points(&self, points: Vec<PointId>) -> Result<(), Fault> {
        if points.is_empty() {
            return Ok(());
        }
        for collection in self.everywhere() {
            self.delete(&collection, points.clone()).await?;
        }
        Ok(())
    }

    fn leg(&self, query: Query, using: &str, filter: Filter, limit: u32) -> qdrant_client::qdrant::QueryPoints {
        QueryPointsBuilder::new(&self.collection)
            .query(query)
            .using(using)
            .filter(filter)
            .limit(u64::from(limit.min(MAX_QUERY_LIMIT)))
            .params(SearchParamsBuilder::default().exact(self.settings.exact))
            .with_payload(PayloadIncludeSelector { fields: vec![field::VERSION.into()] })
            .build()
    }
}

/// Payload fields.
mod field {
    pub const OWNER: &str = "owner";
    pub const AGENT: &str = "agent";
    pub const KIND: &str = "kind";
    pub const TIER: &str = "tier";
    pub const STATUS: &str = "status";
    pub const VERSION: &str = "version";
    pub const EVENT_TIME: &str = "event_time";
    pub const EXPIRE_TIME: &str = "expire_time";
    pub const VALID_FROM: &str = "valid_from";
    pub const VALID_TO: &str = "valid_to";
    pub const MARKS: &str = "marks";
}

/// Name of the collection of a space: readable, and injective by the digest.
fn collection_name(prefix: &str, space: Option<&Space>) -> String {
    let Some(Space { model, dims }) = space else { return format!("{prefix}_terms") };
    let readable: String = model.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    format!("{prefix}_{readable}_{dims}_{}", &blake3::hash(model.as_bytes()).to_hex()[..8])
}

/// Whether a collection is one of ours, of any space: named as [`collection_name`] and [`copy_name`] name them. Another
/// deployment's prefix may begin with ours; its names have more parts.
fn of_prefix(prefix: &str, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_')) else { return false };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbered = |text: &str, base: &str| match text.strip_prefix(base) {
        Some("") => true,
        Some(copy) => copy.strip_prefix('-').is_some_and(number),
        None => false,
    };
    match rest.split('_').collect::<Vec<_>>().as_slice() {
        [terms] => numbered(terms, "terms"),
        [_, dims, digest] => {
            let hex = digest.get(..8).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
            number(dims) && hex.is_some_and(|hex| numbered(digest, hex))
        }
        _ => false,
    }
}

/// Number of a collection among the copies of a space; 0 for one that has the space's own name, none for a stranger.
fn copy_number(alias: &str, name: &str) -> Option<u64> {
    let rest = name.strip_prefix(alias)?;
    if rest.is_empty() { Some(0) } else { rest.strip_prefix('-')?.parse().ok() }
}

fn copy_name(alias: &str, number: u64) -> String {
    format!("{alias}-{number}")
}

/// The tenant key of a user: 128 bits of a digest, so that the server holds no user id.
fn owner_key(owner: &Owner) -> String {
    blake3::hash(owner.user_key().as_bytes()).to_hex()[..32].to_owned()
}

fn point_id(memory_id: MemoryId) -> PointId {
    memory_id.to_string().into()
}

fn memory_id(point: &Option<PointId>) -> Option<MemoryId> {
    match point.as_ref()?.point_id_options.as_ref()? {
        PointIdOptions::Uuid(text) => Uuid::parse_str(text).ok().map(MemoryId),
        PointIdOptions::Num(_) => None,
    }
}

fn strong() -> WriteOrdering {
    WriteOrdering { r#type: WriteOrderingType::Strong.into() }
}

/// Logs the class of an error; the text may quote what was sent.
fn unavailable(error: QdrantError) -> Fault {
    match &error {
        QdrantError::ResponseError { status } => tracing::warn!(code = ?status.code(), "the search index refused a call"),
        QdrantError::ResourceExhaustedError { .. } => tracing::warn!("the search index is overloaded"),
        QdrantError::ConversionError(_)
        | QdrantError::InvalidUri(_)
        | QdrantError::NoSnapshotFound(_)
        | QdrantError::Io(_)
        | QdrantError::PayloadDeserialization(_)
        | QdrantError::JsonToPayload(_) => tracing::warn!("the search index cannot be used"),
    }
    Fault::unavailable("search index")
}

fn payload(owner: &Owner, row: &IndexedRow) -> HashMap<String, Value> {
    // An open end is the end of the number line: a range needs no "or missing".
    let start = |time: Option<Timestamp>| time.map_or(i64::MIN, Timestamp::micros);
    let end = |time: Option<Timestamp>| time.map_or(i64::MAX, Timestamp::micros);
    HashMap::from([
        (field::OWNER.into(), owner_key(owner).into()),
        (field::AGENT.into(), row.agent.into()),
        (field::KIND.into(), row.kind.name().into()),
        (field::TIER.into(), row.tier.name().into()),
        (field::STATUS.into(), row.status.name().into()),
        (field::VERSION.into(), i64::try_from(row.version).unwrap_or(i64::MAX).into()),
        (field::EVENT_TIME.into(), row.event_time.micros().into()),
        (field::EXPIRE_TIME.into(), end(row.expire_time).into()),
        (field::VALID_FROM.into(), start(row.valid_from).into()),
        (field::VALID_TO.into(), end(row.valid_to).into()),
        (field::MARKS.into(), row.marks.clone().into()),
    ])
}

/// The guard of every query: the owner, and whatever else is asked as ONE condition beside it.
fn guarded(owner: &Owner, filter: &RecordFilter) -> Filter {
    let own = Condition::matches(field::OWNER, owner_key(owner));
    Filter::must([own, caller_filter(filter).into()])
}

/// [`RecordFilter::admits`], as a filter of the server.
fn caller_filter(filter: &RecordFilter) -> Filter {
    let now = filter.now.micros() as f64;
    let after_now = |name: &str| Condition::range(name, Range { gt: Some(now), ..Range::default() });
    let until_now = |name: &str| Condition::range(name, Range { lte: Some(now), ..Range::default() });
    let in_status = |statuses: &[Status]| -> Condition {
        Condition::matches(field::STATUS, statuses.iter().map(|s| s.name().to_owned()).collect::<Vec<_>>())
    };
    let of_event = || Condition::matches(field::TIER, Tier::Event.name().to_owned());

    let mut states: Vec<Condition> = Vec::new();
    let mut stored = Vec::new();
    for status in &filter.statuses {
        match status {
            Status::Active => states.push(
                Filter::must([
                    in_status(&[Status::Active]),
                    after_now(field::EXPIRE_TIME),
                    until_now(field::VALID_FROM),
                    after_now(field::VALID_TO),
                ])
                .into(),
            ),
            Status::Candidate | Status::Disputed => {
                states.push(Filter::must([in_status(&[*status]), after_now(field::EXPIRE_TIME)]).into());
            }
            // Past their expiry without a sweeper's visit (rule F1): an ACTIVE event is archived, all else expired.
            Status::Expired => {
                stored.push(Status::Expired);
                states.push(
                    Filter::must([in_status(&[Status::Candidate, Status::Disputed]), until_now(field::EXPIRE_TIME)]).into(),
                );
                states.push(
                    Filter {
                        must: vec![in_status(&[Status::Active]), until_now(field::EXPIRE_TIME)],
                        must_not: vec![of_event()],
                        ..Filter::default()
                    }
                    .into(),
                );
            }
            Status::Archived => {
                stored.push(Status::Archived);
                states.push(Filter::must([in_status(&[Status::Active]), of_event(), until_now(field::EXPIRE_TIME)]).into());
            }
            Status::Superseded | Status::Rejected | Status::Deleted => stored.push(*status),
        }
    }
    if !stored.is_empty() {
        states.push(in_status(&stored));
    }
    let kinds = |kinds: &[Kind]| -> Condition {
        Condition::matches(field::KIND, kinds.iter().map(|k| k.name().to_owned()).collect::<Vec<_>>())
    };
    let apart: Vec<Kind> = APART.into_iter().filter(|kind| filter.kinds.contains(kind)).collect();
    if !apart.is_empty() {
        let candidates = [kinds(&apart), in_status(&[Status::Candidate]), after_now(field::EXPIRE_TIME)];
        states.push(Filter::must(candidates).into());
    }

    let mut must: Vec<Condition> = vec![Filter::should(states).into(), kinds(&filter.kinds)];
    if let Some(agent) = filter.agent {
        must.push(Condition::matches(field::AGENT, vec![USER_LEVEL, agent]));
    }
    if !filter.tiers.is_empty() {
        must.push(Condition::matches(field::TIER, filter.tiers.iter().map(|t| t.name().to_owned()).collect::<Vec<_>>()));
    }
    if filter.from.is_some() || filter.to.is_some() {
        let bound = |time: Option<Timestamp>| time.map(|t| t.micros() as f64);
        let window = Range { gte: bound(filter.from), lt: bound(filter.to), ..Range::default() };
        must.push(Condition::range(field::EVENT_TIME, window));
    }
    must.extend(filter.marks.iter().map(|mark: &Mark| Condition::matches(field::MARKS, *mark)));
    Filter::must(must)
}

/// A user's points, or those of one agent.
fn owned(owner: &Owner) -> Filter {
    let mut must = vec![Condition::matches(field::OWNER, owner_key(owner))];
    if owner.agent.is_some() {
        must.push(Condition::matches(field::AGENT, agent_mark(owner.agent.as_ref())));
    }
    Filter::must(must)
}

fn stored_version(payload: &HashMap<String, Value>) -> Option<u64> {
    match payload.get(field::VERSION)?.kind.as_ref()? {
        value::Kind::IntegerValue(version) => u64::try_from(*version).ok(),
        value::Kind::NullValue(_)
        | value::Kind::DoubleValue(_)
        | value::Kind::StringValue(_)
        | value::Kind::BoolValue(_)
        | value::Kind::StructValue(_)
        | value::Kind::ListValue(_) => None,
    }
}

fn hits(points: Vec<ScoredPoint>, clamp: impl Fn(f32) -> f32) -> Vec<LegHit> {
    points
        .into_iter()
        .filter_map(|point| {
            let version = stored_version(&point.payload)?;
            Some(LegHit { memory_id: memory_id(&point.id)?, version, score: clamp(point.score) })
        })
        .filter(|hit| hit.score.is_finite())
        .collect()
}

#[async_trait]
impl Index for QdrantIndex {
    fn name(&self) -> &'static str {
        "qdrant"
    }

    fn space(&self) -> Option<&Space> {
        self.space.as_ref()
    }

    async fn prepare(&self) -> Result<Prepared, Fault> {
        let (copies, active) = self.found().await?;
        let newest = copies.last_key_value().map_or(0, |(number, _)| *number);
        let Some((number, name)) = active.and_then(|number| copies.get(&number).map(|name| (number, name.clone()))) else {
            // None yet, or it was made and never got its name.
            let name = copy_name(&self.collection, newest + 1);
            self.create(&name).await?;
            self.point_alias_at(&name).await?;
            for left in copies.values() {
                self.drop_collection(left).await?;
            }
            self.now_are(Some(name), None);
            return Ok(Prepared::Fresh);
        };
        self.check(&name).await?;
        let building = (newest > number).then(|| copies.get(&newest).cloned()).flatten();
        for (_, left) in copies.iter().filter(|(other, _)| **other != number && **other != newest) {
            self.drop_collection(left).await?;
        }
        match &building {
            Some(building) => self.check(building).await?,
            // What an earlier switch left.
            None if newest != number => self.drop_collection(&copy_name(&self.collection, newest)).await?,
            None => {}
        }
        let rebuilding = building.is_some();
        self.now_are(Some(name), building);
        Ok(if rebuilding { Prepared::Rebuilding } else { Prepared::Ready })
    }

    async fn search(&self, owner: &Owner, query: &LegQuery) -> Result<Legs, Fault> {
        let filter = guarded(owner, &query.filter);
        let dims = self.space.as_ref().map_or(0, |space| space.dims);
        let dense = query.dense.as_ref().filter(|dense| dims > 0 && dense.len() == dims);
        let mut legs = Vec::new();
        if let Some(dense) = dense {
            let nearest = Query::new_nearest(VectorInput::new_dense(dense.clone()));
            legs.push(self.leg(nearest, DENSE, filter.clone(), query.limit));
        }
        if !query.sparse.is_empty() {
            let (indices, weights): (Vec<u32>, Vec<f32>) = query.sparse.iter().copied().unzip();
            let words = Query::new_nearest(VectorInput::new_sparse(indices, weights));
            legs.push(self.leg(words, TERMS, filter, query.limit));
        }
        if legs.is_empty() {
            return Ok(Legs::default());
        }
        let asked = legs.len();
        let answer =
            operation("qdrant", "", "query_batch", self.client.query_batch(QueryBatchPointsBuilder::new(&self.collection, legs)))
                .await
                .map_err(unavailable)?;
        if answer.result.len() != asked {
            tracing::error!(asked, answered = answer.result.len(), "the search index left a leg out");
            return Err(Fault::unavailable("search index"));
        }
        let mut results = answer.result.into_iter().map(|leg| leg.result);
        let mut legs = Legs::default();
        if dense.is_some() {
            // The server's cosine can be 1.0000007.
            legs.dense = hits(results.next().unwrap_or_default(), |cosine| cosine.clamp(-1.0, 1.0));
        }
        if !query.sparse.is_empty() {
            legs.keyword = hits(results.next().unwrap_or_default(), |score| score);
            legs.keyword.retain(|hit| hit.score > 0.0);
        }
        Ok(legs.ordered(query.limit))
    }

    async fn apply(&self, ops: Vec<IndexOp>) -> Result<(), Fault> {
        // Only the last change of a record counts; none depends on another's.
        let mut last: BTreeMap<MemoryId, IndexOp> = BTreeMap::new();
        for op in ops {
            let id = match &op {
                IndexOp::Upsert(upsert) => upsert.row.memory_id,
                IndexOp::Delete { memory_id, .. } => *memory_id,
            };
            last.insert(id, op);
        }
        let (mut deletes, mut upserts) = (Vec::new(), BTreeMap::<u64, Vec<PointStruct>>::new());
        for (id, op) in last {
            match op {
                IndexOp::Delete { .. } => deletes.push(point_id(id)),
                IndexOp::Upsert(upsert) => upserts.entry(upsert.row.version).or_default().push(self.point(*upsert)),
            }
        }
        self.purge_points(deletes).await?;
        for collection in self.targets() {
            // The condition on the version is one per call, so a call holds points of one version.
            for (version, points) in &upserts {
                for chunk in points.chunks(UPSERT_POINTS) {
                    self.upsert(&collection, *version, chunk.to_vec()).await?;
                }
            }
        }
        Ok(())
    }

    async fn count(&self, owner: &Owner) -> Result<u64, Fault> {
        let request = CountPointsBuilder::new(&self.collection).filter(owned(&owner.user_level())).exact(true);
        let answer = operation("qdrant", "", "count", self.client.count(request)).await.map_err(unavailable)?;
        Ok(answer.result.map_or(0, |result| result.count))
    }

    async fn present(&self, _owner: &Owner, ids: &[MemoryId]) -> Result<Vec<MemoryId>, Fault> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let wanted: Vec<PointId> = ids.iter().copied().map(point_id).collect();
        // In the copy that is being filled and in that of an earlier embedder too (behaviour X11).
        let mut found = BTreeSet::new();
        for collection in self.everywhere() {
            let request = GetPointsBuilder::new(&collection, wanted.clone())
                .with_payload(false)
                .with_vectors(false)
                .read_consistency(majority());
            let answer = operation("qdrant", "", "get_points", self.client.get_points(request)).await.map_err(unavailable)?;
            found.extend(answer.result.iter().filter_map(|point| memory_id(&point.id)));
        }
        Ok(found.into_iter().collect())
    }

    async fn erase_owner(&self, owner: &Owner) -> Result<(), Fault> {
        for collection in self.everywhere() {
            self.delete(&collection, owned(owner)).await?;
        }
        Ok(())
    }

    async fn reclaim(&self) -> Result<(), Fault> {
        self.vacuum().await
    }

    fn is_sole(&self) -> bool {
        self.copies.lock().others.is_empty()
    }

    async fn held(&self, expected: &[Upsert]) -> Result<Vec<Option<Held>>, Fault> {
        let wanted: Vec<PointId> = expected.iter().map(|upsert| point_id(upsert.row.memory_id)).collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let request =
            GetPointsBuilder::new(&self.collection, wanted).with_payload(true).with_vectors(true).read_consistency(majority());
        let answer = operation("qdrant", "", "get_points", self.client.get_points(request)).await.map_err(unavailable)?;
        let mut points: HashMap<MemoryId, RetrievedPoint> =
            answer.result.into_iter().filter_map(|point| Some((memory_id(&point.id)?, point))).collect();
        Ok(expected.iter().map(|upsert| points.remove(&upsert.row.memory_id).map(|point| compare(upsert, point))).collect())
    }

    async fn scan(&self, after: Option<MemoryId>, limit: u32) -> Result<(Vec<MemoryId>, bool), Fault> {
        // The page begins with the offset itself.
        let mut request = ScrollPointsBuilder::new(&self.collection)
            .limit(limit.saturating_add(1).min(MAX_QUERY_LIMIT))
            .with_payload(false)
            .with_vectors(false)
            .read_consistency(majority());
        if let Some(after) = after {
            request = request.offset(point_id(after));
        }
        let answer = operation("qdrant", "", "scroll", self.client.scroll(request)).await.map_err(unavailable)?;
        let ids = answer.result.iter().filter_map(|point| memory_id(&point.id));
        let ids = ids.filter(|id| after.is_none_or(|after| *id > after)).take(limit as usize).collect();
        Ok((ids, answer.next_page_offset.is_some()))
    }

    async fn purge(&self, ids: &[MemoryId]) -> Result<(), Fault> {
        self.purge_points(ids.iter().copied().map(point_id).collect()).await
    }

    async fn begin_rebuild(&self) -> Result<(), Fault> {
        self.prepare().await?;
        let earlier = self.copies.lock().building.take();
        if let Some(earlier) = earlier {
            self.drop_collection(&earlier).await?;
        }
        let (copies, _) = self.found().await?;
        let name = copy_name(&self.collection, copies.last_key_value().map_or(0, |(number, _)| *number) + 1);
        self.create(&name).await?;
        self.copies.lock().building = Some(name);
        Ok(())
    }

    async fn finish_rebuild(&self) -> Result<(), Fault> {
        let Copies { active, building: Some(complete), .. } = self.copies.lock().clone() else { return Ok(()) };
        if active.as_ref() == Some(&self.collection) {
            // It has the name that the alias needs: for a moment there is neither, and recall goes by keys and words.
            self.drop_collection(&self.collection).await?;
        }
        self.point_alias_at(&complete).await?;
        self.now_are(Some(complete.clone()), None);
        if let Some(earlier) = active.filter(|earlier| *earlier != self.collection && *earlier != complete) {
            self.drop_collection(&earlier).await?;
        }
        // What was kept of another embedder can be made again, too: nothing of before is left on the server.
        let others = self.copies.lock().others.clone();
        for other in others {
            self.drop_collection(&other).await?;
            self.copies.lock().others.retain(|left| *left != other);
        }
        Ok(())
    }

    async fn retire(&self, earlier: Option<&Space>) -> Result<(), Fault> {
        let alias = collection_name(&self.settings.prefix, earlier);
        if alias == self.collection {
            return Ok(());
        }
        for one in
            operation("qdrant", "", "list_collections", self.client.list_collections()).await.map_err(unavailable)?.collections
        {
            // Its alias goes with it.
            if copy_number(&alias, &one.name).is_some() {
                self.drop_collection(&one.name).await?;
                self.copies.lock().others.retain(|other| *other != one.name);
            }
        }
        Ok(())
    }
}

fn majority() -> read_consistency::Value {
    read_consistency::Value::Type(ReadConsistencyType::Majority.into())
}

/// Cosine from which two vectors are the same one, stored and sent back in single precision.
const SAME_VECTOR: f32 = 0.999;

/// What the server holds of a record, beside what it was to be told.
fn compare(expected: &Upsert, point: RetrievedPoint) -> Held {
    let told = payload(&expected.owner, &expected.row);
    let owned = [field::OWNER, field::AGENT].iter().all(|name| point.payload.get(*name) == told.get(*name));
    let mut named = match point.vectors.and_then(|vectors| vectors.vectors_options) {
        Some(vectors_output::VectorsOptions::Vectors(named)) => named.vectors,
        Some(vectors_output::VectorsOptions::Vector(_)) | None => HashMap::new(),
    };
    let dense = match named.remove(DENSE).map(qdrant_client::qdrant::VectorOutput::into_vector) {
        Some(vector_output::Vector::Dense(dense)) => Some(dense.data),
        Some(vector_output::Vector::Sparse(_) | vector_output::Vector::MultiDense(_)) | None => None,
    };
    let same = |dense: &[f32]| {
        let of_record = expected.vector.as_ref().filter(|vector| vector.len() == dense.len());
        of_record.is_none_or(|vector| super::exact::dot(vector, dense) >= SAME_VECTOR)
    };
    Held {
        version: stored_version(&point.payload).unwrap_or_default(),
        owned,
        faithful: point.payload == told,
        vector: dense.is_some_and(|dense| same(&dense)),
        terms: named.contains_key(TERMS),
    }
}
