//! Working, session and long-term memory of the simulation: boards, facts and records in maps, over the same pure rules as the
//! roles, behind the real stack of layers. They keep the history that everything is checked against.

use super::{Shared, USER};
use crate::bug::Bug;
use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use strata_api::common::v1 as common_pb;
use strata_api::convert::common;
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as longterm;
use strata_api::session::v1 as session;
use strata_api::working::v1 as working;
use strata_core::policy::ownership::{admits_erase_epoch, invariant, next_epoch};
use strata_core::policy::promotion::{AtTargetNow, Origin, at_target};
use strata_core::policy::working::{Board, Content, FactWrite, Goal, Ownership, Seal, Settle, ended, seal_falls_at};
use strata_core::record::Value;
use strata_core::time::{HOUR, SECOND};
use strata_core::{FactKey, Fault, Owner, Reason, TaskId, TenantId, Timestamp, UserId};
use strata_router::Journalled;
use strata_runtime::signing::{SharedKeys, Verifier};
use strata_runtime::stack::{self, StackDeps};
use strata_runtime::{Claims, Ports, RpcChannel};
use tonic::body::Body;

/// The header that tells whose router learns that long-term memory owns a key.
pub(crate) const TOLD: &str = "x-simulated-told";
/// How long the target's answer goes before its transaction, where that is the planted mistake.
const NOT_YET_DURABLE: i64 = 3 * SECOND;

/// A layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    Working,
    Session,
    Longterm,
}

/// A write that a board or a session took.
#[derive(Clone, Debug)]
struct Taken {
    scope: String,
    key: String,
    value: String,
    epoch: u64,
}

/// A value of a key that long-term memory owns or owned.
#[derive(Clone, Debug)]
struct Held {
    key: String,
    value: String,
    epoch: u64,
}

/// A fact of a session: it holds no seal, only the epoch of one (rule P5).
#[derive(Clone, Debug)]
struct Said {
    value: String,
    epoch: u64,
    overlay: bool,
}

/// What the target noted of a promotion: the key and the epoch it was applied at, or none where it was aborted.
type Row = Option<(String, u64)>;

#[derive(Clone, Debug, Default)]
struct Target {
    /// Epoch by key, while it is owned.
    owned: BTreeMap<String, u64>,
    highest: BTreeMap<String, u64>,
    rows: BTreeMap<String, Row>,
    history: Vec<Held>,
    erase_epoch: u64,
}

#[derive(Debug, Default)]
struct Stores {
    boards: BTreeMap<String, Board>,
    ended: BTreeSet<String>,
    /// Facts by session and key.
    sessions: BTreeMap<String, BTreeMap<String, Said>>,
    /// Epochs of seals that sessions answered, by session and key.
    given: BTreeMap<(String, String), u64>,
    taken: Vec<Taken>,
    /// Seals that boards acknowledged: of which promotion, at which epoch, and when they fall.
    seals: BTreeMap<(String, String), (String, u64, Timestamp)>,
    target: Target,
    /// What the target would come back with, and since when.
    durable: Option<(Target, Timestamp)>,
    /// The write that a caller is in the middle of, by its value, and whether its router was told that long-term memory owns
    /// the key.
    doing: BTreeMap<String, (String, bool)>,
    erased: u64,
    remembered: usize,
}

/// All layers, and the stacks in front of them.
pub(crate) struct Layers {
    shared: Arc<Shared>,
    stores: Arc<Mutex<Stores>>,
    keys: SharedKeys,
    ports: [Ports; 2],
    channels: Mutex<[RpcChannel; 3]>,
}

impl std::fmt::Debug for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Layers(..)")
    }
}

type Answer = Result<Vec<u8>, Fault>;

fn done(message: &impl Message) -> Answer {
    Ok(message.encode_to_vec())
}

fn body<T: Message + Default>(bytes: &[u8]) -> Result<T, Fault> {
    T::decode(bytes).map_err(|_| Fault::new(Reason::Internal, "a message cannot be read"))
}

/// An answer as gRPC frames it.
pub(crate) fn response(answer: Answer) -> http::Response<Body> {
    let message = match answer {
        Ok(message) => message,
        Err(fault) => return strata_api::error::status(fault).into_http(),
    };
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or_default());
    framed.put_slice(&message);
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    let body = Full::new(framed.freeze()).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = http::Response::new(Body::new(body));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
    response
}

impl Layers {
    pub(crate) fn new(shared: Arc<Shared>, keys: SharedKeys, ports: [Ports; 2]) -> Self {
        let stores = Arc::new(Mutex::new(Stores::default()));
        let open = |layer: Layer, ports: &Ports| Self::open(&shared, &stores, &keys, layer, ports);
        let channels = [open(Layer::Working, &ports[0]), open(Layer::Session, &ports[0]), open(Layer::Longterm, &ports[1])];
        Self { shared, stores, keys, ports, channels: Mutex::new(channels) }
    }

    fn open(shared: &Arc<Shared>, stores: &Arc<Mutex<Stores>>, keys: &SharedKeys, layer: Layer, ports: &Ports) -> RpcChannel {
        let serving = Serving { shared: Arc::clone(shared), stores: Arc::clone(stores), layer, ports: ports.clone() };
        let serving = Arc::new(serving);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let serving = Arc::clone(&serving);
            async move {
                let (answer, told) = match serving.serve(request).await {
                    Ok((message, told)) => (Ok(message), told),
                    Err(fault) => (Err(fault), None),
                };
                let mut response = response(answer);
                // Who learns that a key is owned, for the network to note once it has arrived.
                if let Some(caller) = told.and_then(|caller| http::HeaderValue::from_str(&caller).ok()) {
                    response.headers_mut().insert(TOLD, caller);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let verifier = Arc::new(Verifier::new(keys.clone(), ports.clone()));
        strata_runtime::channel::local(stack::internal(service, verifier, &StackDeps::new(ports.clone())))
    }

    /// The stack of a layer as it is now.
    pub(crate) fn channel(&self, layer: Layer) -> RpcChannel {
        self.channels.lock()[layer as usize].clone()
    }

    /// A layer restarts: boards come back from their checkpoints, records from their file; headers signed before are refused.
    pub(crate) fn restart(&self, layer: Layer) {
        self.shared.log(&format!("{layer:?} restarts"));
        let ports = &self.ports[usize::from(layer == Layer::Longterm)];
        let channel = Self::open(&self.shared, &self.stores, &self.keys, layer, ports);
        self.channels.lock()[layer as usize] = channel;
        let mut stores = self.stores.lock();
        let now = self.ports[1].clock.now();
        if let Some((durable, since)) = stores.durable.take_if(|_| layer == Layer::Longterm)
            && now.since(since) < NOT_YET_DURABLE
        {
            stores.target = durable;
        }
    }

    /// A caller begins a write.
    pub(crate) fn begins(&self, agent: usize, value: &str) {
        self.stores.lock().doing.insert(format!("agent-{agent}"), (value.to_owned(), false));
    }

    /// An answer reached a router: its caller's key is owned by long-term memory.
    pub(crate) fn arrived(&self, told: Option<&http::HeaderValue>) {
        let Some(caller) = told.and_then(|caller| caller.to_str().ok()) else { return };
        if let Some((_, told)) = self.stores.lock().doing.get_mut(caller) {
            *told = true;
        }
    }

    /// The user's long-term memory is erased.
    pub(crate) fn erase(&self) {
        let mut stores = self.stores.lock();
        let now = self.ports[1].clock.now();
        stores.erased = next_epoch(stores.erased, now);
        if self.shared.bug != Some(Bug::EraseWithoutEpoch) {
            stores.target.erase_epoch = stores.erased;
        }
        stores.target.owned.clear();
        self.shared.log("long-term memory is erased");
    }

    pub(crate) fn writes(&self) -> usize {
        self.stores.lock().taken.len()
    }

    pub(crate) fn remembered(&self) -> usize {
        self.stores.lock().remembered
    }

    /// Histories against what was acknowledged, and against themselves.
    pub(crate) fn judge(&self, acknowledged: &[String]) {
        let stores = self.stores.lock();
        let taken: BTreeSet<&str> = stores.taken.iter().map(|taken| taken.value.as_str()).collect();
        let held: BTreeSet<&str> = stores.target.history.iter().map(|held| held.value.as_str()).collect();
        for value in acknowledged {
            if !taken.contains(value.as_str()) && !held.contains(value.as_str()) {
                self.shared.log(&format!("{value} is in no history"));
                self.shared.broken("an acknowledged write is in no history".to_owned());
            }
        }
        // Epochs of a key grow, store by store.
        let mut last: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for taken in &stores.taken {
            let before = last.insert((&taken.scope, &taken.key), taken.epoch).unwrap_or_default();
            if !invariant::stores_never_step_back(before, taken.epoch) {
                self.shared.broken("a board or a session took a write of an older epoch".to_owned());
            }
        }
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for held in &stores.target.history {
            let before = last.insert(&held.key, held.epoch).unwrap_or_default();
            if held.epoch <= before {
                self.shared.broken("long-term memory took a write of an older epoch".to_owned());
            }
        }
        // What a board shows is what it took last.
        let newest = |scope: &str, key: &str| {
            let of = |taken: &&Taken| taken.scope == scope && taken.key == key;
            stores.taken.iter().rev().find(of).map(|taken| taken.value.clone())
        };
        for (session, facts) in &stores.sessions {
            for (key, fact) in facts {
                if newest(session, key).as_ref() != Some(&fact.value) {
                    self.shared.broken("a session does not show what it took last".to_owned());
                }
            }
        }
        for (task, board) in &stores.boards {
            for (key, fact) in &board.facts {
                if newest(task, key.as_str()) != Some(text(&fact.content)) {
                    self.shared.broken("a board does not show what it took last".to_owned());
                }
                let now = self.ports[0].clock.now();
                if matches!(&fact.ownership, Ownership::Sealed { deadline, .. } if now < seal_falls_at(*deadline)) {
                    self.shared.broken("a source is left sealed".to_owned());
                }
            }
        }
    }

    /// The journal's last word against the stores. `lost`: the ledger forgot something, so its word is not the last.
    pub(crate) fn judge_promotion(&self, entry: &Journalled, lost: bool) {
        let stores = self.stores.lock();
        let mine = |id: &str| id == entry.promotion_id || id.starts_with(&format!("{}.", entry.promotion_id));
        let applied = stores.target.rows.iter().filter(|(id, row)| mine(id) && row.is_some()).count();
        if applied > 1 {
            self.shared.broken("a promotion was applied twice".to_owned());
        }
        let committed = entry.state == "COMMITTED";
        // A ledger that lost its last writes may have lost a later beginning of it: then only this one is told of.
        let applied =
            if lost { usize::from(stores.target.rows.get(&entry.apply_id).is_some_and(Option::is_some)) } else { applied };
        if !entry.open && committed != (applied == 1) {
            self.shared.broken(format!("a promotion that was applied {applied} times ended {}", entry.state));
        }
        let is_overlay = match &entry.source {
            Origin::TaskFact { task_id, key } => {
                let fact = FactKey::new(key.as_str()).ok().and_then(|key| stores.boards.get(task_id)?.facts.get(&key));
                fact.is_none_or(|fact| fact.ownership == Ownership::Overlay)
            }
            Origin::SessionFact { session_id, key } => {
                let fact = stores.sessions.get(session_id).and_then(|facts| facts.get(key));
                fact.is_none_or(|fact| fact.overlay)
            }
            Origin::TurnQuote { .. } => true,
        };
        if committed && !lost && !is_overlay {
            self.shared.broken("the source of a committed promotion is no overlay".to_owned());
        }
    }
}

/// One layer behind its stack.
struct Serving {
    shared: Arc<Shared>,
    stores: Arc<Mutex<Stores>>,
    layer: Layer,
    ports: Ports,
}

fn text(content: &Content) -> String {
    match content {
        Content::Value(value) => value.clone(),
        Content::Reference { .. } => String::new(),
    }
}

fn stale(epoch: u64) -> Fault {
    Fault::new(Reason::StaleEpoch, "an older epoch").with("current_value", epoch.to_string())
}

fn owner() -> Owner {
    Owner { tenant: TenantId::new("t1").expect("an id"), user: UserId::new(USER).expect("an id"), agent: None }
}

impl Serving {
    async fn serve(&self, request: http::Request<Body>) -> Result<(Vec<u8>, Option<String>), Fault> {
        let path = request.uri().path().to_owned();
        let claims = request.extensions().get::<Claims>().cloned();
        let claims = claims.ok_or_else(|| Fault::new(Reason::UnsignedCall, "not signed"))?;
        let bytes = request.into_body().collect().await.map_err(|status| strata_api::error::fault(&status))?.to_bytes();
        let message: Bytes = bytes.slice(bytes.len().min(5)..);
        let method = path.rsplit('/').next().unwrap_or_default();
        let mut stores = self.stores.lock();
        let answer = match self.layer {
            Layer::Working => self.working(&mut stores, method, &claims, &message),
            Layer::Longterm => self.longterm(&mut stores, method, &claims, &message),
            Layer::Session => self.session(&mut stores, method, &claims, &message),
        };
        let outcome = answer.as_ref().map_or_else(|fault| fault.reason.name(), |_| "done");
        self.shared.log(&format!("{:?} {method} {outcome}", self.layer));
        let owned = || {
            let keys: internal::GetOwnersRequest = body(&bytes.slice(bytes.len().min(5)..)).unwrap_or_default();
            method == "GetOwners" && keys.keys.iter().any(|key| stores.target.owned.contains_key(key))
        };
        answer.map(|message| {
            let told = owned().then(|| claims.caller.id.clone());
            (message, told)
        })
    }

    fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    fn working(&self, stores: &mut Stores, method: &str, claims: &Claims, message: &[u8]) -> Answer {
        let now = self.now();
        match method {
            "CreateTask" => {
                let r: working::CreateTaskRequest = body(message)?;
                let task = TaskId::new(r.task_id.as_str())?;
                if stores.ended.contains(&r.task_id) {
                    return Err(ended(&task));
                }
                if stores.boards.contains_key(&r.task_id) {
                    return Err(Fault::new(Reason::TaskExists, "the task has a board already"));
                }
                let goal = Goal { sentence: "Deploy it.".to_owned(), acceptance: "It runs.".to_owned() };
                stores.boards.insert(r.task_id, Board::new(owner(), task, None, goal, 24 * HOUR, now));
                done(&working::CreateTaskResponse::default())
            }
            "GetTask" => {
                let r: working::GetTaskRequest = body(message)?;
                let board = self.board(stores, &r.task_id)?;
                let fact = |(key, fact): (&FactKey, &strata_core::policy::working::Fact)| working::Fact {
                    key: key.as_str().to_owned(),
                    value: text(&fact.content),
                    source: fact.source.clone(),
                    epoch: fact.epoch,
                    overlay: fact.ownership == Ownership::Overlay,
                    ..Default::default()
                };
                let task = working::Task {
                    task_id: r.task_id,
                    version: board.version,
                    facts: board.facts.iter().map(fact).collect(),
                    ..Default::default()
                };
                done(&working::GetTaskResponse { task: Some(task) })
            }
            "PutFacts" => self.put_facts(stores, claims, &body(message)?),
            "EndTask" => {
                let r: working::EndTaskRequest = body(message)?;
                let gone = stores.boards.remove(&r.task_id).is_some();
                stores.seals.retain(|(task, _), _| *task != r.task_id);
                if gone {
                    stores.ended.insert(r.task_id);
                }
                done(&working::EndTaskResponse { already_ended: !gone, ..Default::default() })
            }
            "Seal" => self.seal(stores, &body(message)?),
            "Settle" => {
                let r: internal::SettleRequest = body(message)?;
                let settle = Settle {
                    key: FactKey::new(r.key.as_str())?,
                    promotion_id: r.promotion_id.clone(),
                    seal_epoch: r.seal_epoch,
                    committed: r.committed,
                    epoch: r.epoch,
                };
                let Some(board) = stores.boards.get_mut(&r.task_id) else {
                    return done(&internal::SettleResponse { already_settled: true });
                };
                let change = board.decide_settle(&settle);
                let already_settled = change.is_none();
                if let Some(change) = change {
                    board.apply(change, now);
                }
                let held = stores.seals.get(&(r.task_id.clone(), r.key.clone()));
                if held.is_some_and(|(id, epoch, _)| r.committed || (*id == r.promotion_id && *epoch == r.seal_epoch)) {
                    stores.seals.remove(&(r.task_id, r.key));
                }
                done(&internal::SettleResponse { already_settled })
            }
            _ => Err(Fault::new(Reason::NotServed, "not in the simulation")),
        }
    }

    fn board<'a>(&self, stores: &'a Stores, task: &str) -> Result<&'a Board, Fault> {
        if stores.ended.contains(task) {
            return Err(ended(&TaskId::new(task)?));
        }
        stores.boards.get(task).ok_or_else(|| Fault::not_found("task", task))
    }

    fn put_facts(&self, stores: &mut Stores, claims: &Claims, r: &working::PutFactsRequest) -> Answer {
        let now = self.now();
        self.board(stores, &r.task_id)?;
        let epoch = claims.require_write()?.epoch;
        let Some(wire) = r.facts.first() else { return Err(Fault::field("facts", "must not be empty")) };
        let key = FactKey::new(wire.key.as_str())?;
        let write = FactWrite {
            key,
            content: Content::Value(wire.value.clone()),
            source: wire.source.clone(),
            trace_id: String::new(),
            verified_at: None,
        };
        let careless = self.shared.bug == Some(Bug::SkipEpochCheck);
        let Some(board) = stores.boards.get_mut(&r.task_id) else { return Err(Fault::not_found("task", r.task_id.clone())) };
        let change = board.decide_facts(vec![write], if careless { None } else { Some(epoch) }, now)?;
        board.apply(change, now);
        let version = board.version;
        if stores.seals.get(&(r.task_id.clone(), wire.key.clone())).is_some_and(|(_, _, falls)| now < *falls) {
            self.shared.broken("a sealed source was written".to_owned());
        }
        if stores.doing.get(&claims.caller.id).is_some_and(|(value, told)| *told && *value == wire.value) {
            self.shared.broken("a board was written below a level that owned the key, and the router knew".to_owned());
        }
        stores.taken.push(Taken { scope: r.task_id.clone(), key: wire.key.clone(), value: wire.value.clone(), epoch });
        done(&working::PutFactsResponse { facts: vec![working::Fact { epoch, ..wire.clone() }], version })
    }

    fn session(&self, stores: &mut Stores, method: &str, claims: &Claims, message: &[u8]) -> Answer {
        let wire = |(key, said): (&String, &Said)| session::SessionFact {
            key: key.clone(),
            value: said.value.clone(),
            seq: 1,
            epoch: said.epoch,
            overlay: said.overlay,
            ..Default::default()
        };
        match method {
            "PutFacts" => self.put_session_facts(stores, claims, &body(message)?),
            "GetFacts" => {
                let r: session::GetFactsRequest = body(message)?;
                let facts = stores.sessions.entry(r.session_id).or_default().iter().map(wire).collect();
                done(&session::GetFactsResponse { facts, ..Default::default() })
            }
            // What a turn says is no matter here.
            "GetTurns" => done(&session::GetTurnsResponse::default()),
            "SealFact" => {
                let r: internal::SealFactRequest = body(message)?;
                let epoch = claims.require_write()?.epoch;
                let facts = stores.sessions.entry(r.session_id.clone()).or_default();
                let said = facts.get_mut(&r.key).ok_or_else(|| Fault::not_found("fact", r.key.clone()))?;
                if said.overlay {
                    return Err(Fault::new(Reason::FactOwnedByOtherLayer, "an overlay"));
                }
                if said.epoch > epoch {
                    return Err(stale(said.epoch));
                }
                if self.shared.bug != Some(Bug::NoSeal) {
                    said.epoch = epoch;
                }
                let fact = session::SessionFact { epoch, ..wire((&r.key, said)) };
                stores.given.insert((r.session_id, r.key), epoch);
                done(&internal::SealFactResponse { fact: Some(fact) })
            }
            "OverlayFacts" => {
                let r: internal::OverlayFactsRequest = body(message)?;
                let facts = stores.sessions.entry(r.session_id).or_default();
                let mut known = 0;
                for key in &r.keys {
                    if let Some(said) = facts.get_mut(key) {
                        said.overlay = true;
                        known += 1;
                    }
                }
                done(&internal::OverlayFactsResponse { known })
            }
            _ => Err(Fault::new(Reason::NotServed, "not in the simulation")),
        }
    }

    fn put_session_facts(&self, stores: &mut Stores, claims: &Claims, r: &session::PutFactsRequest) -> Answer {
        let epoch = claims.require_write()?.epoch;
        let Some(wire) = r.facts.first() else { return Err(Fault::field("facts", "must not be empty")) };
        let facts = stores.sessions.entry(r.session_id.clone()).or_default();
        let careless = self.shared.bug == Some(Bug::SkipEpochCheck);
        if let Some(said) = facts.get(&wire.key) {
            if said.overlay {
                return Err(Fault::new(Reason::FactOwnedByOtherLayer, "an overlay"));
            }
            if said.epoch > epoch && !careless {
                return Err(stale(said.epoch));
            }
        }
        facts.insert(wire.key.clone(), Said { value: wire.value.clone(), epoch, overlay: false });
        if stores.given.get(&(r.session_id.clone(), wire.key.clone())).is_some_and(|given| epoch < *given) {
            self.shared.broken("a sealed source was written".to_owned());
        }
        if stores.doing.get(&claims.caller.id).is_some_and(|(value, told)| *told && *value == wire.value) {
            self.shared.broken("a session was written below a level that owned the key, and the router knew".to_owned());
        }
        stores.taken.push(Taken { scope: r.session_id.clone(), key: wire.key.clone(), value: wire.value.clone(), epoch });
        let facts = vec![session::SessionFact { epoch, ..wire.clone() }];
        done(&session::PutFactsResponse { facts })
    }

    fn seal(&self, stores: &mut Stores, r: &internal::SealRequest) -> Answer {
        let now = self.now();
        self.board(stores, &r.task_id)?;
        let deadline = common::time("deadline", r.deadline.as_ref().ok_or_else(|| Fault::field("deadline", "is required"))?)?;
        let key = FactKey::new(r.key.as_str())?;
        let seal = Seal { key: key.clone(), promotion_id: r.promotion_id.clone(), epoch: r.epoch, deadline };
        let Some(board) = stores.boards.get_mut(&r.task_id) else { return Err(Fault::not_found("task", r.task_id.clone())) };
        let careless = self.shared.bug == Some(Bug::NoSeal);
        if let Some(change) = board.decide_seal(&seal, now)?
            && !careless
        {
            board.apply(change, now);
        }
        let Some(fact) = board.facts.get(&key) else { return Err(Fault::not_found("fact", r.key.clone())) };
        let epoch = if careless { r.epoch } else { fact.epoch };
        let answer =
            internal::SealResponse { value: text(&fact.content), source: fact.source.clone(), epoch, ..Default::default() };
        stores.seals.insert((r.task_id.clone(), r.key.clone()), (r.promotion_id.clone(), epoch, seal_falls_at(deadline)));
        done(&answer)
    }

    fn longterm(&self, stores: &mut Stores, method: &str, claims: &Claims, message: &[u8]) -> Answer {
        let now = self.now();
        // Headers of production carry the erase epoch that the router has seen; here the time of signing stands for it.
        let signed = u64::try_from(claims.issued_at.micros()).unwrap_or_default();
        match method {
            "GetOwners" => {
                let r: internal::GetOwnersRequest = body(message)?;
                let mut owners = Vec::new();
                for key in r.keys {
                    let epoch = stores.target.owned.get(&key).copied();
                    let blind = self.shared.bug == Some(Bug::IgnoreChain);
                    if let Some(epoch) = epoch.filter(|_| !blind) {
                        owners.push(internal::Owned { key, level: common_pb::Level::User.into(), epoch });
                    }
                }
                done(&internal::GetOwnersResponse { owners })
            }
            "Apply" => {
                let r: internal::ApplyRequest = body(message)?;
                let deadline = r.deadline.as_ref().ok_or_else(|| Fault::field("deadline", "is required"))?;
                let deadline = common::time("deadline", deadline)?;
                let statement = r.statement.unwrap_or_default();
                let row = stores.target.rows.get(&r.promotion_id).cloned();
                match (at_target(row.as_ref().map(Option::is_some), deadline, now), row.flatten()) {
                    (AtTargetNow::Repeat, Some((key, epoch))) => {
                        done(&internal::ApplyResponse { result: Some(result(&key, epoch)) })
                    }
                    (AtTargetNow::Refuse | AtTargetNow::Repeat, _) => {
                        Err(Fault::new(Reason::PromotionAborted, "aborted or late"))
                    }
                    (AtTargetNow::Apply, _) => {
                        let value = format!("promoted {}", r.promotion_id);
                        let epoch = self.write(stores, &statement.key, value, signed)?;
                        stores.target.rows.insert(r.promotion_id, Some((statement.key.clone(), epoch)));
                        done(&internal::ApplyResponse { result: Some(result(&statement.key, epoch)) })
                    }
                }
            }
            "Abort" => {
                let r: internal::AbortRequest = body(message)?;
                let row = stores.target.rows.entry(r.promotion_id).or_insert(None);
                done(&internal::AbortResponse { applied: row.as_ref().map(|(key, epoch)| result(key, *epoch)) })
            }
            "Remember" => {
                let r: longterm::RememberRequest = body(message)?;
                let statement = r.statement.unwrap_or_default();
                let epoch = self.write(stores, &statement.key, statement.content, signed)?;
                stores.remembered += 1;
                done(&longterm::RememberResponse { result: Some(result(&statement.key, epoch)) })
            }
            _ => Err(Fault::new(Reason::NotServed, "not in the simulation")),
        }
    }

    /// Row of the owner, value and history in one transaction (rules P1, P3).
    fn write(&self, stores: &mut Stores, key: &str, value: String, signed: u64) -> Result<u64, Fault> {
        let now = self.now();
        if !admits_erase_epoch(signed, stores.target.erase_epoch) {
            return Err(Fault::new(Reason::StaleEpoch, "the call was signed before the user's last erasure"));
        }
        if !admits_erase_epoch(signed, stores.erased) {
            self.shared.broken("a call signed before an erasure was carried out after it".to_owned());
        }
        if self.shared.bug == Some(Bug::AckBeforeCommit) {
            let stale = stores.durable.as_ref().is_none_or(|(_, since)| now.since(*since) >= NOT_YET_DURABLE);
            if stale {
                stores.durable = Some((stores.target.clone(), now));
            }
        }
        let target = &mut stores.target;
        let epoch = next_epoch(target.highest.get(key).copied().unwrap_or_default(), now);
        target.highest.insert(key.to_owned(), epoch);
        target.owned.insert(key.to_owned(), epoch);
        target.history.push(Held { key: key.to_owned(), value, epoch });
        Ok(epoch)
    }
}

fn result(key: &str, epoch: u64) -> longterm::WriteResult {
    let memory = longterm::Memory {
        memory_id: "m".to_owned(),
        user_id: USER.to_owned(),
        scope: common_pb::Level::User.into(),
        key: key.to_owned(),
        value: Some(common::wire_value(&Value::Text(String::new()))),
        status: longterm::Status::Active.into(),
        owner_epoch: epoch,
        ..Default::default()
    };
    longterm::WriteResult { outcome: longterm::Outcome::Active.into(), memory: Some(memory), ..Default::default() }
}
