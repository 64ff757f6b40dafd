//! Collections in memory, searched by an exact scan.

use super::filter;
use super::point::{Id, Point, Stored};
use prost::Message;
use qdrant_client::qdrant::points_selector::PointsSelectorOneOf;
use qdrant_client::qdrant::vectors::VectorsOptions;
use qdrant_client::qdrant::with_payload_selector::SelectorOptions as PayloadOptions;
use qdrant_client::qdrant::with_vectors_selector::SelectorOptions as VectorOptions;
use qdrant_client::qdrant::{
    self, CollectionConfig, CollectionDescription, CollectionExists, CollectionExistsResponse, CollectionInfo,
    CollectionOperationResponse, CollectionParams, CollectionStatus, CountPoints, CountResponse, CountResult, CreateCollection,
    CreateFieldIndexCollection, DeleteCollection, DeleteFieldIndexCollection, DenseVector, Distance, Filter,
    GetCollectionInfoResponse, GetPoints, GetResponse, ListCollectionsResponse, Modifier, NamedVectorsOutput, OptimizerStatus,
    PayloadSchemaInfo, PayloadSchemaType, PointStruct, PointsOperationResponse, PointsSelector, QueryBatchPoints,
    QueryBatchResponse, QueryPoints, QueryResponse, RetrievedPoint, ScoredPoint, ScrollPoints, ScrollResponse, ShardKeySelector,
    SparseVector, UpdateBatchPoints, UpdateBatchResponse, UpdateCollection, UpdateMode, UpdateResult, UpdateStatus, UpsertPoints,
    Value, Vector, VectorInput, VectorOutput, Vectors, VectorsOutput, WithPayloadSelector, WithVectorsSelector,
    points_update_operation, query, vector_input, vector_output, vectors_config, vectors_output,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use tonic::Status;

/// Points of a page or a query without a limit, as the server has it.
const DEFAULT_LIMIT: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Dense { size: usize, distance: Distance },
    Sparse,
}

/// A validated change, applied now or, without `wait`, later.
#[derive(Clone, Debug)]
enum Write {
    Upsert { points: Vec<Point>, filter: Option<Filter>, mode: UpdateMode },
    Delete(Selection),
    SetPayload { payload: HashMap<String, Value>, selection: Selection, overwrite: bool },
    DeletePayload { keys: Vec<String>, selection: Selection },
    ClearPayload(Selection),
    UpdateVectors { vectors: Vec<(Id, BTreeMap<String, Stored>)>, filter: Option<Filter> },
    DeleteVectors { names: Vec<String>, selection: Selection },
}

#[derive(Clone, Debug)]
enum Selection {
    Ids(Vec<Id>),
    Filter(Filter),
}

#[derive(Debug, Default)]
struct Collection {
    config: CollectionConfig,
    spaces: BTreeMap<String, Space>,
    schema: BTreeMap<String, PayloadSchemaInfo>,
    points: BTreeMap<Id, Point>,
    pending: VecDeque<(u64, Write)>,
    operations: u64,
}

/// Everything the double keeps: collections, and the other names some of them have.
#[derive(Debug, Default)]
pub struct Store {
    collections: BTreeMap<String, Collection>,
    aliases: BTreeMap<String, String>,
}

type Answer<T> = Result<T, Status>;

impl Store {
    fn get(&mut self, name: &str) -> Answer<&mut Collection> {
        let missing = || Status::not_found(format!("Not found: Collection `{name}` doesn't exist!"));
        let name = self.aliases.get(name).map_or(name, String::as_str);
        self.collections.get_mut(name).ok_or_else(missing)
    }

    /// Applies what was written without `wait`.
    pub fn settle(&mut self) {
        for collection in self.collections.values_mut() {
            collection.settle();
        }
    }

    /// Every text in every payload, names of fields too.
    pub fn payload_texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        let points = self.collections.values().flat_map(|c| c.points.values());
        for (key, value) in points.flat_map(|p| &p.payload) {
            texts.push(key.clone());
            collect_texts(value, &mut texts);
        }
        texts
    }

    /// Names of the collections.
    pub fn names(&self) -> Vec<String> {
        self.collections.keys().cloned().collect()
    }

    /// Number of points of a collection; 0 when there is none.
    pub fn len(&self, collection: &str) -> usize {
        let name = self.aliases.get(collection).map_or(collection, String::as_str);
        self.collections.get(name).map_or(0, |c| c.points.len())
    }

    // Collections.

    pub fn create(&mut self, r: CreateCollection) -> Answer<CollectionOperationResponse> {
        if self.aliases.contains_key(&r.collection_name) {
            return Err(Status::invalid_argument(format!(
                "Wrong input: Can't create collection with name {}. Alias with the same name already exists",
                r.collection_name
            )));
        }
        if self.collections.contains_key(&r.collection_name) {
            return Err(Status::already_exists(format!("Wrong input: Collection `{}` already exists!", r.collection_name)));
        }
        let spaces = spaces(&r)?;
        let params = CollectionParams {
            shard_number: r.shard_number.unwrap_or(1),
            vectors_config: r.vectors_config,
            replication_factor: Some(r.replication_factor.unwrap_or(1)),
            write_consistency_factor: Some(r.write_consistency_factor.unwrap_or(1)),
            sharding_method: r.sharding_method,
            sparse_vectors_config: r.sparse_vectors_config,
            ..CollectionParams::default()
        };
        let mut optimizer = qdrant::OptimizersConfigDiff {
            deleted_threshold: Some(0.2),
            vacuum_min_vector_number: Some(1_000),
            ..qdrant::OptimizersConfigDiff::default()
        };
        if let Some(diff) = r.optimizers_config {
            check_optimizer(&diff)?;
            overlay(&mut optimizer, &diff);
        }
        let config = CollectionConfig {
            params: Some(params),
            hnsw_config: Some(r.hnsw_config.unwrap_or_default()),
            optimizer_config: Some(optimizer),
            wal_config: Some(r.wal_config.unwrap_or_default()),
            quantization_config: r.quantization_config,
            strict_mode_config: r.strict_mode_config,
            metadata: r.metadata,
        };
        self.collections.insert(r.collection_name, Collection { config, spaces, ..Collection::default() });
        Ok(done(true))
    }

    pub fn update_collection(&mut self, r: UpdateCollection) -> Answer<CollectionOperationResponse> {
        let config = &mut self.get(&r.collection_name)?.config;
        if let Some(diff) = &r.optimizers_config {
            check_optimizer(diff)?;
            overlay(config.optimizer_config.get_or_insert_default(), diff);
        }
        if let Some(diff) = &r.hnsw_config {
            overlay(config.hnsw_config.get_or_insert_default(), diff);
        }
        if let Some(diff) = &r.strict_mode_config {
            overlay(config.strict_mode_config.get_or_insert_default(), diff);
        }
        if let (Some(diff), Some(params)) = (&r.params, &mut config.params) {
            params.replication_factor = diff.replication_factor.or(params.replication_factor);
            params.write_consistency_factor = diff.write_consistency_factor.or(params.write_consistency_factor);
            params.read_fan_out_factor = diff.read_fan_out_factor.or(params.read_fan_out_factor);
        }
        config.metadata.extend(r.metadata);
        Ok(done(true))
    }

    pub fn delete_collection(&mut self, r: DeleteCollection) -> Answer<CollectionOperationResponse> {
        let gone = self.collections.remove(&r.collection_name).is_some();
        if gone {
            self.aliases.retain(|_, collection| *collection != r.collection_name);
        }
        Ok(done(gone))
    }

    /// All of the actions or none.
    pub fn update_aliases(&mut self, r: qdrant::ChangeAliases) -> Answer<CollectionOperationResponse> {
        use qdrant::alias_operations::Action as A;
        let mut aliases = self.aliases.clone();
        for action in r.actions {
            match action.action {
                Some(A::CreateAlias(create)) => {
                    if self.collections.contains_key(&create.alias_name) {
                        let name = create.alias_name;
                        return Err(Status::invalid_argument(format!("Wrong input: Collection {name} already exists!")));
                    }
                    if !self.collections.contains_key(&create.collection_name) {
                        let name = create.collection_name;
                        return Err(Status::not_found(format!("Not found: Collection `{name}` doesn't exist!")));
                    }
                    aliases.insert(create.alias_name, create.collection_name);
                }
                Some(A::DeleteAlias(delete)) => {
                    aliases.remove(&delete.alias_name);
                }
                Some(A::RenameAlias(_)) => return Err(Status::unimplemented("the wire double renames no alias")),
                None => return Err(Status::invalid_argument("an action is empty")),
            }
        }
        self.aliases = aliases;
        Ok(done(true))
    }

    pub fn list_aliases(&mut self, _: qdrant::ListAliasesRequest) -> Answer<qdrant::ListAliasesResponse> {
        Ok(self.aliases_where(|_| true))
    }

    pub fn list_collection_aliases(&mut self, r: qdrant::ListCollectionAliasesRequest) -> Answer<qdrant::ListAliasesResponse> {
        Ok(self.aliases_where(|collection| collection == r.collection_name))
    }

    fn aliases_where(&self, keep: impl Fn(&str) -> bool) -> qdrant::ListAliasesResponse {
        let kept = self.aliases.iter().filter(|(_, collection)| keep(collection.as_str()));
        let aliases = kept.map(|(alias_name, collection_name)| qdrant::AliasDescription {
            alias_name: alias_name.clone(),
            collection_name: collection_name.clone(),
        });
        qdrant::ListAliasesResponse { aliases: aliases.collect(), time: 0.0 }
    }

    pub fn exists(&mut self, r: qdrant::CollectionExistsRequest) -> Answer<CollectionExistsResponse> {
        let exists = self.get(&r.collection_name).is_ok();
        Ok(CollectionExistsResponse { result: Some(CollectionExists { exists }), time: 0.0 })
    }

    pub fn list(&mut self, _: qdrant::ListCollectionsRequest) -> Answer<ListCollectionsResponse> {
        let collections = self.collections.keys().map(|name| CollectionDescription { name: name.clone() }).collect();
        Ok(ListCollectionsResponse { collections, time: 0.0 })
    }

    pub fn info(&mut self, r: qdrant::GetCollectionInfoRequest) -> Answer<GetCollectionInfoResponse> {
        let collection = self.get(&r.collection_name)?;
        let points = collection.points.len() as u64;
        let info = CollectionInfo {
            status: CollectionStatus::Green.into(),
            optimizer_status: Some(OptimizerStatus { ok: true, error: String::new() }),
            segments_count: 1,
            config: Some(collection.config.clone()),
            payload_schema: collection.schema.clone().into_iter().collect(),
            points_count: Some(points),
            indexed_vectors_count: Some(points),
            ..CollectionInfo::default()
        };
        Ok(GetCollectionInfoResponse { result: Some(info), time: 0.0 })
    }

    pub fn create_index(&mut self, r: CreateFieldIndexCollection) -> Answer<PointsOperationResponse> {
        use qdrant::payload_index_params::IndexParams as P;
        let collection = self.get(&r.collection_name)?;
        let by_params = r.field_index_params.as_ref().and_then(|p| p.index_params.as_ref()).map(|params| match params {
            P::KeywordIndexParams(_) => PayloadSchemaType::Keyword,
            P::IntegerIndexParams(_) => PayloadSchemaType::Integer,
            P::FloatIndexParams(_) => PayloadSchemaType::Float,
            P::GeoIndexParams(_) => PayloadSchemaType::Geo,
            P::TextIndexParams(_) => PayloadSchemaType::Text,
            P::BoolIndexParams(_) => PayloadSchemaType::Bool,
            P::DatetimeIndexParams(_) => PayloadSchemaType::Datetime,
            P::UuidIndexParams(_) => PayloadSchemaType::Uuid,
        });
        // The types of the request count from 0, those of the schema from 1, in the same order.
        let by_type = r.field_type.and_then(|t| PayloadSchemaType::try_from(t + 1).ok());
        let data_type = by_params.or(by_type).ok_or_else(|| Status::invalid_argument("field type is missing"))?;
        if by_type.is_some_and(|by_type| by_type != data_type) {
            return Err(Status::invalid_argument("field type and field index params do not match"));
        }
        let info = PayloadSchemaInfo { data_type: data_type.into(), params: r.field_index_params, points: Some(0) };
        collection.schema.insert(r.field_name, info);
        Ok(collection.completed())
    }

    pub fn delete_index(&mut self, r: DeleteFieldIndexCollection) -> Answer<PointsOperationResponse> {
        let collection = self.get(&r.collection_name)?;
        collection.schema.remove(&r.field_name);
        Ok(collection.completed())
    }

    // Writes.

    pub fn upsert(&mut self, r: UpsertPoints) -> Answer<PointsOperationResponse> {
        no_shards(r.shard_key_selector.as_ref())?;
        let collection = self.get(&r.collection_name)?;
        let write = collection.upsert(r.points, r.update_filter, r.update_mode)?;
        Ok(one(collection.submit(write, r.wait)?))
    }

    pub fn delete(&mut self, r: qdrant::DeletePoints) -> Answer<PointsOperationResponse> {
        no_shards(r.shard_key_selector.as_ref())?;
        let collection = self.get(&r.collection_name)?;
        let write = Write::Delete(collection.selection(r.points)?);
        Ok(one(collection.submit(write, r.wait)?))
    }

    pub fn set_payload(&mut self, r: qdrant::SetPayloadPoints) -> Answer<PointsOperationResponse> {
        self.put_payload(r, false)
    }

    pub fn overwrite_payload(&mut self, r: qdrant::SetPayloadPoints) -> Answer<PointsOperationResponse> {
        self.put_payload(r, true)
    }

    fn put_payload(&mut self, r: qdrant::SetPayloadPoints, overwrite: bool) -> Answer<PointsOperationResponse> {
        no_shards(r.shard_key_selector.as_ref())?;
        let collection = self.get(&r.collection_name)?;
        let write = collection.put_payload(r.payload, r.points_selector, r.key.as_ref(), overwrite)?;
        Ok(one(collection.submit(write, r.wait)?))
    }

    pub fn delete_payload(&mut self, r: qdrant::DeletePayloadPoints) -> Answer<PointsOperationResponse> {
        no_shards(r.shard_key_selector.as_ref())?;
        let collection = self.get(&r.collection_name)?;
        let write = Write::DeletePayload { keys: r.keys, selection: collection.selection(r.points_selector)? };
        Ok(one(collection.submit(write, r.wait)?))
    }

    pub fn clear_payload(&mut self, r: qdrant::ClearPayloadPoints) -> Answer<PointsOperationResponse> {
        no_shards(r.shard_key_selector.as_ref())?;
        let collection = self.get(&r.collection_name)?;
        let write = Write::ClearPayload(collection.selection(r.points)?);
        Ok(one(collection.submit(write, r.wait)?))
    }

    pub fn update_vectors(&mut self, r: qdrant::UpdatePointVectors) -> Answer<PointsOperationResponse> {
        no_shards(r.shard_key_selector.as_ref())?;
        let collection = self.get(&r.collection_name)?;
        let write = collection.update_vectors(r.points, r.update_filter)?;
        Ok(one(collection.submit(write, r.wait)?))
    }

    pub fn delete_vectors(&mut self, r: qdrant::DeletePointVectors) -> Answer<PointsOperationResponse> {
        no_shards(r.shard_key_selector.as_ref())?;
        let collection = self.get(&r.collection_name)?;
        let selection = collection.selection(r.points_selector)?;
        let write = Write::DeleteVectors { names: r.vectors.unwrap_or_default().names, selection };
        Ok(one(collection.submit(write, r.wait)?))
    }

    pub fn update_batch(&mut self, r: UpdateBatchPoints) -> Answer<UpdateBatchResponse> {
        use points_update_operation::Operation as O;
        let collection = self.get(&r.collection_name)?;
        let mut result = Vec::new();
        for operation in r.operations {
            let operation = operation.operation.ok_or_else(|| Status::invalid_argument("an operation is empty"))?;
            #[allow(deprecated, reason = "old clients still send them; the double refuses them by name")]
            let write = match operation {
                O::Upsert(o) => collection.upsert(o.points, o.update_filter, o.update_mode)?,
                O::SetPayload(o) => collection.put_payload(o.payload, o.points_selector, o.key.as_ref(), false)?,
                O::OverwritePayload(o) => collection.put_payload(o.payload, o.points_selector, o.key.as_ref(), true)?,
                O::DeletePayload(o) => Write::DeletePayload { keys: o.keys, selection: collection.selection(o.points_selector)? },
                O::ClearPayload(o) => Write::ClearPayload(collection.selection(o.points)?),
                O::UpdateVectors(o) => collection.update_vectors(o.points, o.update_filter)?,
                O::DeleteVectors(o) => Write::DeleteVectors {
                    names: o.vectors.unwrap_or_default().names,
                    selection: collection.selection(o.points_selector)?,
                },
                O::DeletePoints(o) => Write::Delete(collection.selection(o.points)?),
                O::DeleteDeprecated(_) | O::ClearPayloadDeprecated(_) => {
                    return Err(Status::unimplemented("the wire double does not serve deprecated operations"));
                }
            };
            result.push(collection.submit(write, r.wait)?);
        }
        Ok(UpdateBatchResponse { result, time: 0.0, usage: None })
    }

    // Reads.

    pub fn query(&mut self, r: QueryPoints) -> Answer<QueryResponse> {
        let result = self.get(&r.collection_name)?.query(&r)?;
        Ok(QueryResponse { result, time: 0.0, usage: None })
    }

    pub fn query_batch(&mut self, r: QueryBatchPoints) -> Answer<QueryBatchResponse> {
        let collection = self.get(&r.collection_name)?;
        let answers = r.query_points.iter().map(|query| collection.query(query));
        let result = answers.map(|a| a.map(|result| qdrant::BatchResult { result })).collect::<Answer<_>>()?;
        Ok(QueryBatchResponse { result, time: 0.0, usage: None })
    }

    pub fn retrieve(&mut self, r: GetPoints) -> Answer<GetResponse> {
        no_shards(r.shard_key_selector.as_ref())?;
        let collection = self.get(&r.collection_name)?;
        let mut result = Vec::new();
        for id in &r.ids {
            if let Some(point) = collection.points.get(&Id::from_wire(Some(id))?) {
                result.push(retrieved(point, r.with_payload.as_ref(), r.with_vectors.as_ref()));
            }
        }
        Ok(GetResponse { result, time: 0.0, usage: None })
    }

    pub fn scroll(&mut self, r: ScrollPoints) -> Answer<ScrollResponse> {
        no_shards(r.shard_key_selector.as_ref())?;
        if r.order_by.is_some() {
            return Err(Status::unimplemented("the wire double scrolls by id only"));
        }
        let collection = self.get(&r.collection_name)?;
        let limit = r.limit.map_or(DEFAULT_LIMIT, |limit| limit as usize);
        if limit == 0 {
            return Err(Status::invalid_argument("Validation error: limit: value 0 invalid, must be 1 or larger"));
        }
        collection.check_read(r.filter.as_ref(), limit)?;
        let from = r.offset.as_ref().map(|id| Id::from_wire(Some(id))).transpose()?;
        let mut found = collection.select(r.filter.as_ref()).filter(|point| from.is_none_or(|from| point.id >= from));
        let result =
            found.by_ref().take(limit).map(|point| retrieved(point, r.with_payload.as_ref(), r.with_vectors.as_ref())).collect();
        let next_page_offset = found.next().map(|point| point.id.to_wire());
        Ok(ScrollResponse { next_page_offset, result, time: 0.0, usage: None })
    }

    pub fn count(&mut self, r: CountPoints) -> Answer<CountResponse> {
        no_shards(r.shard_key_selector.as_ref())?;
        let collection = self.get(&r.collection_name)?;
        collection.check_read(r.filter.as_ref(), 0)?;
        let count = collection.select(r.filter.as_ref()).count() as u64;
        Ok(CountResponse { result: Some(CountResult { count }), time: 0.0, usage: None })
    }
}

impl Collection {
    // Validation: nothing is changed before the whole request is known to be good.

    fn strict(&self) -> Option<&qdrant::StrictModeConfig> {
        self.config.strict_mode_config.as_ref().filter(|strict| strict.enabled == Some(true))
    }

    fn indexes(&self) -> BTreeMap<String, PayloadSchemaType> {
        self.schema.iter().map(|(field, info)| (field.clone(), info.data_type())).collect()
    }

    fn check_read(&self, filter: Option<&Filter>, limit: usize) -> Answer<()> {
        let strict = self.strict();
        if let Some(max) = strict.and_then(|s| s.max_query_limit)
            && limit > max as usize
        {
            return Err(Status::invalid_argument(format!(
                "Forbidden: Limit exceeded {limit} > {max} for \"limit\". Help: Reduce the \"limit\" parameter to or \
                 below {max}."
            )));
        }
        self.check_filter(filter, strict.and_then(|s| s.unindexed_filtering_retrieve))
    }

    fn check_update(&self, filter: Option<&Filter>) -> Answer<()> {
        self.check_filter(filter, self.strict().and_then(|s| s.unindexed_filtering_update))
    }

    fn check_filter(&self, filter: Option<&Filter>, unindexed: Option<bool>) -> Answer<()> {
        let Some(filter) = filter else { return Ok(()) };
        filter::check_supported(filter)?;
        if unindexed == Some(false) { filter::check_indexed(filter, &self.indexes()) } else { Ok(()) }
    }

    fn selection(&self, selector: Option<PointsSelector>) -> Answer<Selection> {
        match selector.and_then(|s| s.points_selector_one_of) {
            Some(PointsSelectorOneOf::Points(list)) => {
                list.ids.iter().map(|id| Id::from_wire(Some(id))).collect::<Answer<_>>().map(Selection::Ids)
            }
            Some(PointsSelectorOneOf::Filter(filter)) => {
                self.check_update(Some(&filter))?;
                Ok(Selection::Filter(filter))
            }
            None => Err(Status::invalid_argument("PointSelector is missing")),
        }
    }

    fn upsert(&self, points: Vec<PointStruct>, filter: Option<Filter>, mode: Option<i32>) -> Answer<Write> {
        self.check_update(filter.as_ref())?;
        let max = self.strict().and_then(|s| s.upsert_max_batchsize);
        if max.is_some_and(|max| points.len() as u64 > max) {
            return Err(Status::invalid_argument("Forbidden: Upsert limit exceeded. Help: Reduce the batch size."));
        }
        let mode =
            UpdateMode::try_from(mode.unwrap_or_default()).map_err(|_| Status::invalid_argument("Malformed update mode"))?;
        let points = points
            .into_iter()
            .map(|p| {
                let id = Id::from_wire(p.id.as_ref())?;
                Ok(Point { id, payload: p.payload, vectors: self.stored(p.vectors)?, version: 0 })
            })
            .collect::<Answer<_>>()?;
        Ok(Write::Upsert { points, filter, mode })
    }

    fn put_payload(
        &self,
        payload: HashMap<String, Value>,
        selector: Option<PointsSelector>,
        key: Option<&String>,
        overwrite: bool,
    ) -> Answer<Write> {
        if key.is_some() {
            return Err(Status::unimplemented("the wire double sets payloads at the top only"));
        }
        Ok(Write::SetPayload { payload, selection: self.selection(selector)?, overwrite })
    }

    fn update_vectors(&self, points: Vec<qdrant::PointVectors>, filter: Option<Filter>) -> Answer<Write> {
        self.check_update(filter.as_ref())?;
        let vectors =
            points.into_iter().map(|p| Ok((Id::from_wire(p.id.as_ref())?, self.stored(p.vectors)?))).collect::<Answer<_>>()?;
        Ok(Write::UpdateVectors { vectors, filter })
    }

    fn stored(&self, vectors: Option<Vectors>) -> Answer<BTreeMap<String, Stored>> {
        let named = match vectors.and_then(|v| v.vectors_options) {
            None => Vec::new(),
            Some(VectorsOptions::Vector(vector)) => vec![(String::new(), vector)],
            Some(VectorsOptions::Vectors(named)) => named.vectors.into_iter().collect(),
        };
        named.into_iter().map(|(name, vector)| Ok((name.clone(), self.stored_one(&name, vector)?))).collect()
    }

    fn stored_one(&self, name: &str, vector: Vector) -> Answer<Stored> {
        match (self.space(name)?, dense_or_sparse(vector)?) {
            (Space::Dense { size, distance }, Stored::Dense(values)) => {
                check_size(size, values.len())?;
                Ok(Stored::Dense(if distance == Distance::Cosine { normalised(values) } else { values }))
            }
            (Space::Sparse, sparse @ Stored::Sparse(_)) => Ok(sparse),
            (Space::Dense { .. }, Stored::Sparse(_)) | (Space::Sparse, Stored::Dense(_)) => {
                Err(Status::invalid_argument("Wrong input: Conversion between sparse and regular vectors failed"))
            }
        }
    }

    fn space(&self, name: &str) -> Answer<Space> {
        let unknown = || Status::invalid_argument(format!("Wrong input: Not existing vector name error: {name}"));
        self.spaces.get(name).copied().ok_or_else(unknown)
    }

    // Applying.

    fn completed(&mut self) -> PointsOperationResponse {
        self.operations += 1;
        one(UpdateResult { operation_id: Some(self.operations), status: UpdateStatus::Completed.into() })
    }

    fn submit(&mut self, write: Write, wait: Option<bool>) -> Answer<UpdateResult> {
        self.operations += 1;
        let operation_id = Some(self.operations);
        if wait != Some(true) {
            self.pending.push_back((self.operations, write));
            return Ok(UpdateResult { operation_id, status: UpdateStatus::Acknowledged.into() });
        }
        self.settle();
        self.apply(self.operations, write)?;
        Ok(UpdateResult { operation_id, status: UpdateStatus::Completed.into() })
    }

    fn settle(&mut self) {
        while let Some((operation, write)) = self.pending.pop_front() {
            // Whoever did not wait does not learn of the failure, as on the server.
            drop(self.apply(operation, write));
        }
    }

    fn apply(&mut self, operation: u64, write: Write) -> Answer<()> {
        match write {
            Write::Upsert { points, filter, mode } => {
                for point in points {
                    let accepted = match (self.points.get(&point.id), mode) {
                        (None, UpdateMode::UpdateOnly) | (Some(_), UpdateMode::InsertOnly) => false,
                        // A condition guards updates alone; a new point is inserted whatever it says.
                        (None, UpdateMode::Upsert | UpdateMode::InsertOnly) => true,
                        (Some(old), UpdateMode::Upsert | UpdateMode::UpdateOnly) => {
                            filter.as_ref().is_none_or(|f| filter::matches(f, old))
                        }
                    };
                    if accepted {
                        self.points.insert(point.id, Point { version: operation, ..point });
                    }
                }
            }
            Write::Delete(selection) => {
                for id in self.resolve(&selection, false)? {
                    self.points.remove(&id);
                }
            }
            Write::SetPayload { payload, selection, overwrite } => self.change(operation, &selection, |point| {
                if overwrite {
                    point.payload.clear();
                }
                point.payload.extend(payload.clone());
            })?,
            Write::DeletePayload { keys, selection } => self.change(operation, &selection, |point| {
                point.payload.retain(|key, _| !keys.contains(key));
            })?,
            Write::ClearPayload(selection) => self.change(operation, &selection, |point| point.payload.clear())?,
            Write::UpdateVectors { vectors, filter } => {
                for (id, vectors) in vectors {
                    let point = self.points.get_mut(&id).ok_or_else(|| no_point(id))?;
                    if filter.as_ref().is_none_or(|f| filter::matches(f, point)) {
                        point.vectors.extend(vectors);
                        point.version = operation;
                    }
                }
            }
            Write::DeleteVectors { names, selection } => self.change(operation, &selection, |point| {
                point.vectors.retain(|name, _| !names.contains(name));
            })?,
        }
        Ok(())
    }

    fn change(&mut self, operation: u64, selection: &Selection, change: impl Fn(&mut Point)) -> Answer<()> {
        for id in self.resolve(selection, true)? {
            if let Some(point) = self.points.get_mut(&id) {
                change(point);
                point.version = operation;
            }
        }
        Ok(())
    }

    fn resolve(&self, selection: &Selection, must_exist: bool) -> Answer<Vec<Id>> {
        match selection {
            Selection::Filter(filter) => Ok(self.select(Some(filter)).map(|point| point.id).collect()),
            Selection::Ids(ids) => match ids.iter().find(|id| must_exist && !self.points.contains_key(id)) {
                Some(missing) => Err(no_point(*missing)),
                None => Ok(ids.clone()),
            },
        }
    }

    // Reading.

    fn select<'a>(&'a self, filter: Option<&'a Filter>) -> impl Iterator<Item = &'a Point> {
        self.points.values().filter(move |point| filter.is_none_or(|f| filter::matches(f, point)))
    }

    fn query(&self, r: &QueryPoints) -> Answer<Vec<ScoredPoint>> {
        no_shards(r.shard_key_selector.as_ref())?;
        if !r.prefetch.is_empty() || r.lookup_from.is_some() {
            return Err(Status::unimplemented("the wire double serves queries without prefetch and lookup"));
        }
        let limit = r.limit.map_or(DEFAULT_LIMIT, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        self.check_read(r.filter.as_ref(), limit)?;
        let name = r.using.as_deref().unwrap_or_default();
        let mut scored: Vec<(f32, &Point)> = Vec::new();
        // Whether a higher score is nearer.
        let mut rising = true;
        match r.query.as_ref().and_then(|q| q.variant.as_ref()) {
            None => scored.extend(self.select(r.filter.as_ref()).map(|point| (0.0, point))),
            Some(query::Variant::Nearest(input)) => {
                let space = self.space(name)?;
                let (probe, itself) = self.probe(name, space, input)?;
                rising = matches!(space, Space::Sparse | Space::Dense { distance: Distance::Cosine | Distance::Dot, .. });
                let candidates = self.select(r.filter.as_ref()).filter(|point| Some(point.id) != itself);
                scored.extend(candidates.filter_map(|point| {
                    point.vectors.get(name).and_then(|stored| score(space, &probe, stored)).map(|s| (s, point))
                }));
            }
            Some(_) => return Err(Status::unimplemented("the wire double serves nearest-vector queries only")),
        }
        if let Some(threshold) = r.score_threshold {
            scored.retain(|(score, _)| if rising { *score >= threshold } else { *score <= threshold });
        }
        scored.sort_by(|(a, p), (b, q)| {
            let by_score = if rising { b.total_cmp(a) } else { a.total_cmp(b) };
            by_score.then(p.id.cmp(&q.id))
        });
        let skip = usize::try_from(r.offset.unwrap_or_default()).unwrap_or(usize::MAX);
        let page = scored.into_iter().skip(skip).take(limit);
        Ok(page
            .map(|(score, point)| ScoredPoint {
                id: Some(point.id.to_wire()),
                payload: selected_payload(point, r.with_payload.as_ref(), false),
                score,
                version: point.version,
                vectors: selected_vectors(point, r.with_vectors.as_ref()),
                ..ScoredPoint::default()
            })
            .collect())
    }

    /// The vector to compare with, and the point it was taken from.
    fn probe(&self, name: &str, space: Space, input: &VectorInput) -> Answer<(Stored, Option<Id>)> {
        let vector = match input.variant.clone() {
            Some(vector_input::Variant::Id(id)) => {
                let id = Id::from_wire(Some(&id))?;
                let point = self.points.get(&id).ok_or_else(|| no_point(id))?;
                let stored = point.vectors.get(name).ok_or_else(|| no_point(id))?;
                return Ok((stored.clone(), Some(id)));
            }
            Some(vector_input::Variant::Dense(dense)) => Vector::from(dense),
            Some(vector_input::Variant::Sparse(sparse)) => Vector::from(sparse),
            Some(_) | None => return Err(Status::unimplemented("the wire double takes dense and sparse vectors only")),
        };
        match (space, dense_or_sparse(vector.clone())?) {
            (Space::Sparse, Stored::Dense(_)) | (Space::Dense { .. }, Stored::Sparse(_)) => {
                Err(Status::invalid_argument("Wrong input: Conversion between sparse and regular vectors failed"))
            }
            (Space::Sparse, Stored::Sparse(_)) | (Space::Dense { .. }, Stored::Dense(_)) => {
                Ok((self.stored_one(name, vector)?, None))
            }
        }
    }
}

// Vectors.

fn spaces(r: &CreateCollection) -> Answer<BTreeMap<String, Space>> {
    if r.sharding_method == Some(qdrant::ShardingMethod::Custom.into()) {
        return Err(Status::unimplemented("the wire double has no custom shards"));
    }
    let dense = match r.vectors_config.as_ref().and_then(|c| c.config.as_ref()) {
        None => Vec::new(),
        Some(vectors_config::Config::Params(params)) => vec![(String::new(), params)],
        Some(vectors_config::Config::ParamsMap(map)) => map.map.iter().map(|(name, p)| (name.clone(), p)).collect(),
    };
    let mut spaces = BTreeMap::new();
    for (name, params) in dense {
        if params.multivector_config.is_some() {
            return Err(Status::unimplemented("the wire double has no multi-vectors"));
        }
        let size = usize::try_from(params.size).unwrap_or(usize::MAX);
        if size == 0 || size > 65_536 || params.distance() == Distance::UnknownDistance {
            return Err(Status::invalid_argument("Validation error: a vector has 1 to 65536 dimensions and a distance"));
        }
        spaces.insert(name, Space::Dense { size, distance: params.distance() });
    }
    for (name, params) in r.sparse_vectors_config.iter().flat_map(|c| &c.map) {
        if params.modifier == Some(Modifier::Idf.into()) {
            return Err(Status::unimplemented("the wire double weighs nothing: the query brings its own weights"));
        }
        spaces.insert(name.clone(), Space::Sparse);
    }
    Ok(spaces)
}

fn dense_or_sparse(vector: Vector) -> Answer<Stored> {
    use qdrant::vector::Vector as V;
    #[allow(deprecated, reason = "the client's conversions still fill the old fields")]
    let (old_data, old_indices) = (vector.data, vector.indices);
    match (vector.vector, old_indices) {
        (Some(V::Dense(dense)), _) => Ok(Stored::Dense(dense.data)),
        (Some(V::Sparse(sparse)), _) => sparse_map(&sparse.indices, &sparse.values),
        (Some(_), _) => Err(Status::unimplemented("the wire double takes dense and sparse vectors only")),
        (None, Some(indices)) => sparse_map(&indices.data, &old_data),
        (None, None) => Ok(Stored::Dense(old_data)),
    }
}

fn sparse_map(indices: &[u32], values: &[f32]) -> Answer<Stored> {
    if indices.len() != values.len() {
        return Err(Status::invalid_argument("Validation error: values: must be the same length as indices"));
    }
    let map: BTreeMap<u32, f32> = indices.iter().copied().zip(values.iter().copied()).collect();
    if map.len() != indices.len() {
        return Err(Status::invalid_argument("Validation error: indices: must be unique"));
    }
    Ok(Stored::Sparse(map))
}

fn check_size(expected: usize, got: usize) -> Answer<()> {
    let wrong = || format!("Wrong input: Vector dimension error: expected dim: {expected}, got {got}");
    if expected == got { Ok(()) } else { Err(Status::invalid_argument(wrong())) }
}

fn normalised(values: Vec<f32>) -> Vec<f32> {
    let length = values.iter().map(|v| v * v).sum::<f32>().sqrt();
    if length > f32::EPSILON { values.into_iter().map(|v| v / length).collect() } else { values }
}

/// Score of `stored` for `probe`; none for sparse vectors without a common index: the server does not return those.
fn score(space: Space, probe: &Stored, stored: &Stored) -> Option<f32> {
    match (space, probe, stored) {
        (Space::Dense { distance, .. }, Stored::Dense(a), Stored::Dense(b)) => {
            let pairs = a.iter().zip(b);
            Some(match distance {
                Distance::Euclid => pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt(),
                Distance::Manhattan => pairs.map(|(a, b)| (a - b).abs()).sum(),
                // Cosine vectors have length 1 here.
                Distance::Cosine | Distance::Dot | Distance::UnknownDistance => pairs.map(|(a, b)| a * b).sum(),
            })
        }
        (Space::Sparse, Stored::Sparse(a), Stored::Sparse(b)) => {
            let mut common = a.iter().filter_map(|(index, a)| b.get(index).map(|b| a * b)).peekable();
            common.peek().is_some().then(|| common.sum())
        }
        _mixed => None,
    }
}

// Wire forms.

fn retrieved(point: &Point, payload: Option<&WithPayloadSelector>, vectors: Option<&WithVectorsSelector>) -> RetrievedPoint {
    RetrievedPoint {
        id: Some(point.id.to_wire()),
        payload: selected_payload(point, payload, true),
        vectors: selected_vectors(point, vectors),
        ..RetrievedPoint::default()
    }
}

fn selected_payload(point: &Point, selector: Option<&WithPayloadSelector>, default: bool) -> HashMap<String, Value> {
    let keep = |field: &String| match selector.and_then(|s| s.selector_options.as_ref()) {
        None => default,
        Some(PayloadOptions::Enable(on)) => *on,
        Some(PayloadOptions::Include(include)) => include.fields.contains(field),
        Some(PayloadOptions::Exclude(exclude)) => !exclude.fields.contains(field),
    };
    point.payload.iter().filter(|(field, _)| keep(field)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn selected_vectors(point: &Point, selector: Option<&WithVectorsSelector>) -> Option<VectorsOutput> {
    let keep = |name: &String| match selector.and_then(|s| s.selector_options.as_ref()) {
        None => false,
        Some(VectorOptions::Enable(on)) => *on,
        Some(VectorOptions::Include(include)) => include.names.contains(name),
    };
    let mut kept: HashMap<String, VectorOutput> =
        point.vectors.iter().filter(|(name, _)| keep(name)).map(|(name, v)| (name.clone(), output(v))).collect();
    if kept.is_empty() {
        return None;
    }
    let options = match kept.remove("") {
        Some(unnamed) if kept.is_empty() => vectors_output::VectorsOptions::Vector(unnamed),
        Some(_) | None => vectors_output::VectorsOptions::Vectors(NamedVectorsOutput { vectors: kept }),
    };
    Some(VectorsOutput { vectors_options: Some(options) })
}

fn output(stored: &Stored) -> VectorOutput {
    let vector = match stored {
        Stored::Dense(data) => vector_output::Vector::Dense(DenseVector { data: data.clone() }),
        Stored::Sparse(map) => vector_output::Vector::Sparse(SparseVector {
            indices: map.keys().copied().collect(),
            values: map.values().copied().collect(),
        }),
    };
    VectorOutput { vector: Some(vector), ..VectorOutput::default() }
}

const fn done(result: bool) -> CollectionOperationResponse {
    CollectionOperationResponse { result, time: 0.0 }
}

const fn one(result: UpdateResult) -> PointsOperationResponse {
    PointsOperationResponse { result: Some(result), time: 0.0, usage: None }
}

fn no_point(id: Id) -> Status {
    Status::not_found(format!("Not found: No point with id {id:?} found"))
}

fn no_shards(selector: Option<&ShardKeySelector>) -> Answer<()> {
    if selector.is_some() { Err(Status::unimplemented("the wire double has no custom shards")) } else { Ok(()) }
}

/// The server's own bounds.
fn check_optimizer(diff: &qdrant::OptimizersConfigDiff) -> Answer<()> {
    let refuse = |what: &str| Err(Status::invalid_argument(format!("Validation error: optimizers_config.{what}")));
    if diff.vacuum_min_vector_number.is_some_and(|n| n < 100) {
        return refuse("vacuum_min_vector_number: must be 100 or larger");
    }
    if diff.deleted_threshold.is_some_and(|t| !(0.0..=1.0).contains(&t)) {
        return refuse("deleted_threshold: must be from 0.0 to 1.0");
    }
    Ok(())
}

/// Lays the fields that are set in `diff` over `target`: what merging wire messages means.
fn overlay<M: Message + Default>(target: &mut M, diff: &M) {
    target.merge(diff.encode_to_vec().as_slice()).expect("a message decodes from its own bytes");
}

fn collect_texts(value: &Value, into: &mut Vec<String>) {
    use qdrant::value::Kind;
    match &value.kind {
        Some(Kind::StringValue(text)) => into.push(text.clone()),
        Some(Kind::ListValue(list)) => list.values.iter().for_each(|v| collect_texts(v, into)),
        Some(Kind::StructValue(inner)) => inner.fields.iter().for_each(|(key, v)| {
            into.push(key.clone());
            collect_texts(v, into);
        }),
        Some(Kind::NullValue(_) | Kind::DoubleValue(_) | Kind::IntegerValue(_) | Kind::BoolValue(_)) | None => {}
    }
}
