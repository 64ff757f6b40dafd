//! What operators set while processes run (`policy::control`), kept in every store there is: the long-term database and Redis.
//! Either one suffices to take a change; a store that missed one is told at the next look, and the higher version wins.
//!
//! ```text
//!   SetMode, CreateApiKey ... -> Control::set -> every store, at least one must take it
//!   every process, every two seconds: Control::refresh -> reads what changed, merges, tells stores that are behind
//!                                      -> ModeBoard (router and layers), API keys (routers)
//! ```

use crate::layer::body::Answer;
use crate::layer::{Middleware, Rpc, refuse, trace};
use crate::redis_store::RedisPool;
use crate::signing::Claims;
use crate::task::TaskGroup;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::{Request, Response};
use parking_lot::Mutex;
use redis::{Script, cmd};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strata_core::policy::authz::{self, Layer};
use strata_core::policy::control::{Entry, Settings};
use strata_core::policy::modes::{Gate, Mode, Modes, gate, refusal};
use strata_core::{Clock, Fault, Reason, TenantId};
use tonic::body::Body;

/// Between two looks: how long a change made at another router may take to arrive here.
pub const INTERVAL: Duration = Duration::from_secs(2);

/// A place where entries are kept.
#[async_trait]
pub trait ControlStore: Send + Sync + Debug {
    /// Every entry, or none when nothing changed since the answer that had the stamp `known`.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn list(&self, known: u64) -> Result<Option<Vec<Entry>>, Fault>;

    /// Keeps entries that hold against what is there.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_FULL`.
    async fn put(&self, entries: &[Entry]) -> Result<(), Fault>;

    /// Forgets entries by name.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    async fn remove(&self, names: &[String]) -> Result<(), Fault>;

    /// For logs.
    fn name(&self) -> &'static str;
}

/// What a store's entries are told apart by without reading them: any change makes another one.
#[must_use]
pub fn stamp<'a>(entries: impl Iterator<Item = &'a Entry>) -> u64 {
    // 0 is "nothing was read yet".
    entries.fold(1, |sum, entry| sum.wrapping_add(entry.version).wrapping_add(1))
}

/// Modes in force: what the configuration says for everyone, and what operators set for their tenant (rule D1). What both switch
/// off is off.
#[derive(Debug, Default)]
pub struct ModeBoard {
    configured: Arc<ArcSwap<Modes>>,
    set: ArcSwap<BTreeMap<TenantId, Modes>>,
}

impl ModeBoard {
    /// With the configuration's modes, replaced by its reload.
    #[must_use]
    pub fn new(configured: Arc<ArcSwap<Modes>>) -> Self {
        Self { configured, set: ArcSwap::default() }
    }

    /// The mode of a layer for a tenant.
    #[must_use]
    pub fn of(&self, layer: Layer, tenant: &TenantId) -> Mode {
        let set = self.set.load().get(tenant).map_or(Mode::Normal, |modes| modes.of(layer));
        self.configured.load().of(layer).union(set)
    }

    /// The mode of a layer for everyone.
    #[must_use]
    pub fn configured(&self, layer: Layer) -> Mode {
        self.configured.load().of(layer)
    }

    /// Tenants for which an operator switched something of a layer off.
    #[must_use]
    pub fn overrides(&self, layer: Layer) -> usize {
        self.set.load().values().filter(|modes| modes.of(layer) != Mode::Normal).count()
    }
}

/// The layer of a layer's listener that keeps its mode (rule D1): the router does so too, but it may not have heard of a change.
#[derive(Debug)]
pub struct ModeGate {
    /// Modes in force.
    pub board: Arc<ModeBoard>,
}

impl Middleware for ModeGate {
    async fn handle<S: Rpc>(self: &Arc<Self>, request: Request<Body>, next: &S) -> Response<Answer> {
        let method = authz::find(request.uri().path()).zip(request.extensions().get::<Claims>());
        let Some((method, claims)) = method else { return next.call(request).await };
        let mode = self.board.of(method.layer, &claims.caller.tenant);
        trace::note_tenant(&claims.caller.tenant);
        trace::note_mode(mode);
        match gate(mode, method.layer, method.access) {
            Gate::Serve | Gate::Defer | Gate::LogOnly => next.call(request).await,
            Gate::Refuse(reason) => refuse(refusal(reason, method, mode)),
            // A router that knows answers empty without asking; one that asks does not know yet.
            Gate::Empty => refuse(refusal(Reason::LayerBypassed, method, mode).retry_after(1_000)),
        }
    }
}

/// Called when something changed, with whether some store was read since the start.
type Changed = Box<dyn Fn(&Settings, bool) + Send + Sync>;

struct Source {
    store: Arc<dyn ControlStore>,
    known: Mutex<u64>,
}

/// The entries of a process. See the module.
pub struct Control {
    sources: Vec<Source>,
    settings: ArcSwap<Settings>,
    board: Arc<ModeBoard>,
    changed: Mutex<Vec<Changed>>,
    /// Changes are taken one after the other: each sees the one before it.
    turn: tokio::sync::Mutex<()>,
    loaded: AtomicBool,
    clock: Arc<dyn Clock>,
}

impl Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("board", &self.board).finish_non_exhaustive()
    }
}

impl Control {
    /// Over stores; without one nothing can be set.
    #[must_use]
    pub fn new(board: Arc<ModeBoard>, stores: Vec<Arc<dyn ControlStore>>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let loaded = AtomicBool::new(stores.is_empty());
        let sources = stores.into_iter().map(|store| Source { store, known: Mutex::new(0) }).collect();
        Arc::new(Self {
            sources,
            settings: ArcSwap::default(),
            board,
            changed: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            loaded,
            clock,
        })
    }

    /// Modes in force.
    #[must_use]
    pub const fn board(&self) -> &Arc<ModeBoard> {
        &self.board
    }

    /// What is set.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Whether some store was read since the start.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// Calls `changed` now, when a store was read for the first time, and after every change; beside what is set with
    /// [`Control::is_loaded`].
    pub fn on_change(&self, changed: impl Fn(&Settings, bool) + Send + Sync + 'static) {
        changed(&self.settings.load(), self.is_loaded());
        self.changed.lock().push(Box::new(changed));
    }

    fn tell(&self) {
        let settings = self.settings.load();
        for tell in self.changed.lock().iter() {
            tell(&settings, self.is_loaded());
        }
    }

    /// Decides on the newest state and stores the outcome; answers what `decide` answered beside the entry.
    ///
    /// # Errors
    /// As `decide` says; `STORE_UNAVAILABLE` when no store took it.
    pub async fn set<T>(&self, decide: impl FnOnce(&Settings) -> Result<(T, Option<Entry>), Fault> + Send) -> Result<T, Fault> {
        let _turn = self.turn.lock().await;
        // Another router may have set something a moment ago.
        self.pull().await;
        let (answer, entry) = decide(&self.settings.load())?;
        let Some(entry) = entry else { return Ok(answer) };
        let entries = [entry];
        let outcomes = futures::future::join_all(self.sources.iter().map(|source| source.store.put(&entries))).await;
        let failed = |outcome: &Result<(), Fault>| outcome.as_ref().err().cloned();
        if outcomes.iter().all(Result::is_err) {
            let fault = outcomes.iter().find_map(failed);
            return Err(fault.unwrap_or_else(|| Fault::unavailable("the store of modes and keys")));
        }
        let [entry] = entries;
        self.apply(vec![entry]);
        Ok(answer)
    }

    /// Reads what changed in the stores, merges it, and tells each store what it does not have.
    pub async fn refresh(&self) {
        let _turn = self.turn.lock().await;
        self.pull().await;
        let stale = self.settings.load().stale(self.clock.now());
        if !stale.is_empty() {
            let removals = self.sources.iter().map(|source| source.store.remove(&stale));
            if futures::future::join_all(removals).await.iter().all(Result::is_ok) {
                // Read anew without them.
                self.settings.store(Arc::default());
                self.sources.iter().for_each(|source| *source.known.lock() = 0);
                self.pull().await;
            }
        }
    }

    async fn pull(&self) {
        let reads = self.sources.iter().map(|source| {
            let known = *source.known.lock();
            async move { (source, source.store.list(known).await) }
        });
        let before = self.is_loaded();
        let mut found = Vec::new();
        let mut there: Vec<(&Source, Option<Vec<Entry>>)> = Vec::new();
        for (source, read) in futures::future::join_all(reads).await {
            match read {
                Ok(entries) => {
                    self.loaded.store(true, Ordering::Release);
                    found.extend(entries.iter().flatten().cloned());
                    there.push((source, entries));
                }
                Err(fault) => {
                    tracing::debug!(store = source.store.name(), %fault, "modes and keys cannot be read here now");
                    // It may have lost anything meanwhile.
                    *source.known.lock() = 0;
                }
            }
        }
        self.apply(found);
        if self.is_loaded() && !before {
            self.tell();
        }
        let settings = self.settings.load_full();
        for (source, entries) in there {
            let Some(entries) = entries else {
                if stamp(settings.entries()) == *source.known.lock() {
                    continue;
                }
                // Something came from elsewhere: look at it whole at the next round.
                *source.known.lock() = 0;
                continue;
            };
            let has: BTreeMap<&str, &Entry> = entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
            let behind: Vec<Entry> = settings
                .entries()
                .filter(|entry| has.get(entry.name.as_str()).is_none_or(|there| entry.beats(there)))
                .cloned()
                .collect();
            if behind.is_empty() || source.store.put(&behind).await.is_ok() {
                *source.known.lock() = stamp(settings.entries());
            }
        }
    }

    fn apply(&self, entries: Vec<Entry>) {
        let mut next = (**self.settings.load()).clone();
        let mut changed = false;
        for entry in entries {
            changed |= next.merge(entry);
        }
        if !changed {
            return;
        }
        self.board.set.store(Arc::new(next.modes()));
        self.settings.store(Arc::new(next));
        self.tell();
    }

    /// Looks again and again until the tasks end.
    pub fn spawn(self: &Arc<Self>, tasks: &TaskGroup) {
        let (control, token) = (Arc::clone(self), tasks.token().clone());
        if control.sources.is_empty() {
            return;
        }
        tasks.spawn("modes and keys", async move {
            loop {
                tokio::select! {
                    () = token.cancelled() => return,
                    () = crate::ports::pause(INTERVAL) => {}
                }
                control.refresh().await;
            }
        });
    }
}

/// In Redis: one hash, a field per entry. It has no TTL: what an operator switched off stays off.
#[derive(Clone)]
pub struct RedisControl {
    pool: RedisPool,
    put: Script,
}

impl Debug for RedisControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RedisControl(..)")
    }
}

/// The hash.
const HASH: &str = "strata:control";
/// KEYS: the hash. ARGV: name, version as 20 digits, value ... A field holds version and value; digits of one length compare as
/// numbers do.
const PUT: &str = r"
for i = 1, #ARGV, 3 do
  local next = ARGV[i + 1] .. ':' .. ARGV[i + 2]
  local have = redis.call('HGET', KEYS[1], ARGV[i])
  if not have or have < next then redis.call('HSET', KEYS[1], ARGV[i], next) end
end
return 1
";

impl RedisControl {
    /// Over a pool.
    #[must_use]
    pub fn new(pool: RedisPool) -> Self {
        Self { pool, put: Script::new(PUT) }
    }
}

#[async_trait]
impl ControlStore for RedisControl {
    async fn list(&self, known: u64) -> Result<Option<Vec<Entry>>, Fault> {
        let fields: BTreeMap<String, String> = self.pool.command(cmd("HGETALL").arg(HASH)).await?;
        let read = |(name, text): (String, String)| {
            let (version, value) = text.split_once(':')?;
            Some(Entry { name, version: version.parse().ok()?, value: value.to_owned() })
        };
        let entries: Vec<Entry> = fields.into_iter().filter_map(read).collect();
        Ok((stamp(entries.iter()) != known).then_some(entries))
    }

    async fn put(&self, entries: &[Entry]) -> Result<(), Fault> {
        let mut args = Vec::new();
        for entry in entries {
            args.extend([entry.name.clone(), format!("{:020}", entry.version), entry.value.clone()]);
        }
        self.pool.script::<i64>(&self.put, &[HASH], args).await?;
        Ok(())
    }

    async fn remove(&self, names: &[String]) -> Result<(), Fault> {
        self.pool.command::<i64>(cmd("HDEL").arg(HASH).arg(names)).await?;
        Ok(())
    }

    fn name(&self) -> &'static str {
        "redis"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::SystemClock;
    use strata_core::Timestamp;
    use strata_core::policy::control::{ModeSetting, set_mode};

    /// A store that can be switched off.
    #[derive(Debug, Default)]
    struct Shelf {
        entries: Mutex<BTreeMap<String, Entry>>,
        down: AtomicBool,
    }

    impl Shelf {
        fn up(&self) -> Result<(), Fault> {
            if self.down.load(Ordering::SeqCst) { Err(Fault::unavailable("the shelf")) } else { Ok(()) }
        }
    }

    #[async_trait]
    impl ControlStore for Shelf {
        async fn list(&self, known: u64) -> Result<Option<Vec<Entry>>, Fault> {
            self.up()?;
            let entries: Vec<Entry> = self.entries.lock().values().cloned().collect();
            Ok((stamp(entries.iter()) != known).then_some(entries))
        }
        async fn put(&self, entries: &[Entry]) -> Result<(), Fault> {
            self.up()?;
            let mut there = self.entries.lock();
            for entry in entries {
                if there.get(&entry.name).is_none_or(|old| entry.beats(old)) {
                    there.insert(entry.name.clone(), entry.clone());
                }
            }
            Ok(())
        }
        async fn remove(&self, names: &[String]) -> Result<(), Fault> {
            self.up()?;
            self.entries.lock().retain(|name, _| !names.contains(name));
            Ok(())
        }
        fn name(&self) -> &'static str {
            "shelf"
        }
    }

    fn tenant() -> TenantId {
        TenantId::new("t1").expect("an id")
    }

    fn control(stores: &[&Arc<Shelf>]) -> Arc<Control> {
        let stores = stores.iter().map(|shelf| Arc::clone(shelf) as Arc<dyn ControlStore>).collect();
        Control::new(Arc::default(), stores, Arc::new(SystemClock))
    }

    async fn switch(control: &Control, mode: Mode, time: i64) -> Result<(), Fault> {
        let set = ModeSetting {
            tenant: tenant(),
            layer: Layer::Longterm,
            mode,
            actor: "key:op".into(),
            reason: "a test".into(),
            time: Timestamp(1_900_000_000_000_000 + time),
            request_id: None,
        };
        control.set(|settings| Ok(((), set_mode(settings, &set, None)?))).await
    }

    #[tokio::test]
    async fn a198_a_mode_is_taken_by_either_store_and_the_newest_wins_when_both_are_back() {
        let (file, redis) = (Arc::new(Shelf::default()), Arc::new(Shelf::default()));
        let (one, other) = (control(&[&file, &redis]), control(&[&file, &redis]));
        redis.down.store(true, Ordering::SeqCst);
        switch(&one, Mode::WriteOff, 0).await.expect("the file takes it");
        assert_eq!(one.board().of(Layer::Longterm, &tenant()), Mode::WriteOff);
        redis.down.store(false, Ordering::SeqCst);
        file.down.store(true, Ordering::SeqCst);
        switch(&other, Mode::RecallOff, 1).await.expect("the other one takes it");
        file.down.store(false, Ordering::SeqCst);
        for _ in 0..2 {
            one.refresh().await;
            other.refresh().await;
        }
        for control in [&one, &other, &control(&[&file]), &control(&[&redis])] {
            control.refresh().await;
            assert_eq!(control.board().of(Layer::Longterm, &tenant()), Mode::RecallOff);
            assert!(control.is_loaded());
        }
        file.down.store(true, Ordering::SeqCst);
        redis.down.store(true, Ordering::SeqCst);
        assert_eq!(switch(&one, Mode::Normal, 2).await.expect_err("no store").reason, Reason::StoreUnavailable);
        assert_eq!(one.board().of(Layer::Longterm, &tenant()), Mode::RecallOff, "nothing changed");
    }

    #[tokio::test]
    async fn what_the_configuration_and_an_operator_switch_off_is_off() {
        let shelf = Arc::new(Shelf::default());
        let configured: Arc<ArcSwap<Modes>> = Arc::default();
        let board = Arc::new(ModeBoard::new(Arc::clone(&configured)));
        let control = Control::new(Arc::clone(&board), vec![Arc::clone(&shelf) as Arc<dyn ControlStore>], Arc::new(SystemClock));
        switch(&control, Mode::WriteOff, 0).await.expect("set");
        configured.store(Arc::new(Modes { longterm: Mode::RecallOff, ..Modes::default() }));
        assert_eq!(board.of(Layer::Longterm, &tenant()), Mode::Bypass);
        assert_eq!(board.of(Layer::Longterm, &TenantId::new("t2").expect("an id")), Mode::RecallOff, "another tenant");
        assert_eq!(board.of(Layer::Session, &tenant()), Mode::Normal);
        assert_eq!(board.overrides(Layer::Longterm), 1);
    }
}
