//! A large world at random, on one thread and in virtual time, from one seed.
//!
//! Real: routers with their recovery, the claims and the saga, signing and verifying, the stacks of layers, the embedded
//! ledger in SQLite. Simulated: the network (calls are late, lost, doubled, partitioned; answers are lost), every node's
//! clock (steps back and forth), crashes of routers, restarts of layers, a ledger that does not answer, loses everything, or
//! loses its last writes. Working, session and long-term memory are small stores over the same pure rules (`layers`); they keep the
//! history that all is checked against at the end: not what routers believe, but what stores took.

mod layers;
mod ledger;
mod net;

use crate::bug::Bug;
use crate::sim::layers::Layers;
use crate::sim::ledger::SimLedger;
use crate::sim::net::{Link, Net};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use strata_api::longterm::v1 as longterm;
use strata_api::page::PageTokens;
use strata_api::router::v1 as router;
use strata_api::router::v1::router_service_client::RouterServiceClient;
use strata_api::session::v1 as session;
use strata_api::session::v1::session_memory_service_client::SessionMemoryServiceClient;
use strata_api::working::v1 as working;
use strata_api::working::v1::working_memory_service_client::WorkingMemoryServiceClient;
use strata_core::policy::authz::{Principal, Role};
use strata_core::policy::registry::Registry;
use strata_core::policy::settings::PolicySettings;
use strata_core::ports::Clock;
use strata_core::{TenantId, Timestamp};
use strata_router::modes::{Mode, Modes, SharedModes};
use strata_router::{About, LayerChannels, LedgerConfig, RouterDeps, RouterRole};
use strata_runtime::control::{Control, ModeBoard};
use strata_runtime::layer::auth::Authenticator;
use strata_runtime::ports::{Stopwatch, pause};
use strata_runtime::signing::{KeyRing, SharedKeys, Signer};
use strata_runtime::stack::{self, StackDeps};
use strata_runtime::{Ports, RpcChannel, TaskGroup, channel};
use strata_testkit::SeqIds;

/// How long agents work and things break.
const TROUBLE: Duration = Duration::from_secs(40);
/// How long all is well afterwards: longer than any seal, header, or pause of the recovery.
const PEACE: Duration = Duration::from_secs(60);
/// How long an agent waits for an answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// Keys the agents fight for.
const KEYS: [&str; 3] = ["deploy.region", "invoice.total", "release.name"];
/// The user.
pub(crate) const USER: &str = "u1";

/// Numbers from a seed (SplitMix64).
#[derive(Debug)]
pub struct Rng(Mutex<u64>);

impl Rng {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed ^ 0x5EED_5EED_5EED_5EED))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub fn below(&self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// True `n` times in 100.
    pub fn percent(&self, n: u64) -> bool {
        self.below(100) < n
    }

    /// Up to `n` milliseconds.
    pub fn millis(&self, n: u64) -> Duration {
        Duration::from_millis(self.below(n))
    }
}

/// A node's wall clock: virtual time, and how far it is off.
#[derive(Debug)]
pub(crate) struct SimClock {
    watch: Stopwatch,
    off: AtomicI64,
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.watch.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_seconds(1_800_000_000).plus(elapsed + self.off.load(Ordering::SeqCst))
    }
}

/// What every part of the world shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) rng: Rng,
    pub(crate) bug: Option<Bug>,
    watch: Stopwatch,
    log: Mutex<String>,
    broken: Mutex<BTreeSet<String>>,
    pub(crate) peace: AtomicBool,
}

impl Shared {
    /// A line of what happened, with its virtual time.
    pub(crate) fn log(&self, line: &str) {
        let mut log = self.log.lock();
        let _ = writeln!(log, "{:>9} {line}", self.watch.elapsed().as_micros());
    }

    /// An invariant that does not hold.
    pub(crate) fn broken(&self, what: String) {
        self.log(&format!("BROKEN {what}"));
        self.broken.lock().insert(what);
    }

    /// Whether things may still break.
    pub(crate) fn trouble(&self, percent: u64) -> bool {
        !self.peace.load(Ordering::SeqCst) && self.rng.percent(percent)
    }
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Everything that happened, line by line: the same for the same seed.
    pub log: String,
    /// Invariants that did not hold; none is what is wanted.
    pub broken: BTreeSet<String>,
    /// Acknowledged writes to boards and sessions.
    pub writes: usize,
    /// Acknowledged writes to long-term memory.
    pub remembered: usize,
    /// Promotions that ended committed.
    pub committed: usize,
    /// Promotions that ended otherwise.
    pub otherwise: usize,
}

/// Runs the world of a seed.
#[must_use]
pub fn run(seed: u64, bug: Option<Bug>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime of one thread");
    runtime.block_on(world(seed, bug))
}

/// One router, until it dies.
struct Router {
    role: RouterRole,
    alive: Arc<AtomicBool>,
    ports: Ports,
}

struct World {
    shared: Arc<Shared>,
    layers: Arc<Layers>,
    ledger: Arc<SimLedger>,
    net: Arc<Net>,
    routers: [Mutex<Option<Arc<Router>>>; 2],
    clocks: [Arc<SimClock>; 4],
    ids: SeqIds,
    keys: SharedKeys,
    /// Shared by the routers, as a configuration that is reloaded everywhere.
    modes: SharedModes,
    tasks: TaskGroup,
    /// What agents were told, for the end.
    promised: Mutex<Vec<String>>,
    acknowledged: Mutex<Vec<String>>,
    next: AtomicI64,
}

/// Index of the clocks of the layers.
const WORKING_CLOCK: usize = 2;
const LONGTERM_CLOCK: usize = 3;

async fn world(seed: u64, bug: Option<Bug>) -> Report {
    let watch = Stopwatch::start();
    let shared = Arc::new(Shared {
        rng: Rng::new(seed),
        bug,
        watch,
        log: Mutex::default(),
        broken: Mutex::default(),
        peace: AtomicBool::new(false),
    });
    let clocks = [(); 4].map(|()| Arc::new(SimClock { watch, off: AtomicI64::new(0) }));
    let ids = SeqIds::seeded(seed);
    let keys = SharedKeys::new(KeyRing::ephemeral(&*ids.port()));
    let tasks = TaskGroup::new();
    let layers = Arc::new(Layers::new(
        Arc::clone(&shared),
        keys.clone(),
        [WORKING_CLOCK, LONGTERM_CLOCK].map(|at| Ports { clock: clocks[at].clone(), ids: ids.port() }),
    ));
    let world = World {
        ledger: Arc::new(SimLedger::new(Arc::clone(&shared))),
        net: Arc::new(Net::new(Arc::clone(&shared), tasks.clone())),
        shared,
        layers,
        routers: [Mutex::new(None), Mutex::new(None)],
        clocks,
        ids,
        keys,
        modes: Arc::new(ArcSwap::from_pointee(Modes::default())),
        tasks,
        promised: Mutex::default(),
        acknowledged: Mutex::default(),
        next: AtomicI64::new(0),
    };
    for at in 0..2 {
        world.start_router(at).await;
    }
    futures::join!(world.agent(1), world.agent(2), world.chaos());
    world.shared.log("peace");
    world.shared.peace.store(true, Ordering::SeqCst);
    world.heal().await;
    pause(PEACE).await;
    world.judge().await
}

impl World {
    async fn start_router(&self, at: usize) {
        let ports = Ports { clock: self.clocks[at].clone(), ids: self.ids.port() };
        let alive = Arc::new(AtomicBool::new(true));
        let signer = Signer::new(self.keys.clone(), ports.clone());
        let reach = |layer| {
            let link = Link { router: at, layer, alive: Arc::clone(&alive) };
            signer.sign(self.net.reach(link, Arc::clone(&self.layers)))
        };
        let deps = RouterDeps {
            ports: ports.clone(),
            settings: Arc::new(ArcSwap::from_pointee(PolicySettings::default())),
            // No registered keys: their patterns would be compiled at every start of a router.
            registry: Arc::new(Registry::from_toml("key = []").expect("an empty registry")),
            channels: LayerChannels {
                working_replicas: 1,
                working: reach(layers::Layer::Working),
                session: reach(layers::Layer::Session),
                longterm: reach(layers::Layer::Longterm),
            },
            ledger: LedgerConfig::Store(Arc::new(self.ledger.for_router(Arc::clone(&alive)))),
            control: Control::new(Arc::new(ModeBoard::new(Arc::clone(&self.modes))), Vec::new(), ports.clock.clone()),
            tokens: PageTokens::new(b"simulated"),
            about: About::default(),
            extractor: None,
        };
        let role = RouterRole::build(deps).await.expect("a router");
        self.shared.log(&format!("router {at} starts"));
        *self.routers[at].lock() = Some(Arc::new(Router { role, alive, ports }));
    }

    async fn kill_router(&self, at: usize) {
        let Some(router) = self.routers[at].lock().take() else { return };
        self.shared.log(&format!("router {at} dies"));
        router.alive.store(false, Ordering::SeqCst);
        router.role.shutdown(Duration::ZERO).await;
    }

    /// A router as an agent sees it.
    fn channel(&self, at: usize, agent: usize) -> Option<RpcChannel> {
        let router = self.routers[at].lock().clone()?;
        let principal = Principal {
            id: format!("agent-{agent}"),
            tenant: TenantId::new("t1").expect("an id"),
            user: None,
            roles: Role::ALL.iter().copied().collect(),
        };
        let deps = StackDeps::new(router.ports.clone());
        Some(channel::local(stack::public(router.role.routes(), Arc::new(Authenticator::local(principal)), &deps)))
    }

    fn working(&self, at: usize, agent: usize) -> Option<WorkingMemoryServiceClient<RpcChannel>> {
        self.channel(at, agent).map(WorkingMemoryServiceClient::new)
    }

    fn number(&self) -> i64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// Waits for an answer as an agent does, and logs how it went.
    async fn ask<T>(&self, what: &str, call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>) -> Option<T> {
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(Ok(answer)) => {
                self.shared.log(&format!("{what}: done"));
                Some(answer.into_inner())
            }
            Ok(Err(status)) => {
                self.shared.log(&format!("{what}: {}", strata_api::error::fault(&status).reason.name()));
                None
            }
            Err(_) => {
                self.shared.log(&format!("{what}: no answer"));
                None
            }
        }
    }

    /// One agent: writes, reads what it wrote, remembers, promotes, ends its tasks. Both work on the same boards.
    async fn agent(&self, agent: usize) {
        let rng = &self.shared.rng;
        let start = Stopwatch::start();
        let mut task = 0;
        while start.elapsed() < TROUBLE {
            pause(Duration::from_millis(20) + rng.millis(260)).await;
            // A board is shared until one of them ends it; both go on to the next then.
            let (task_id, session_id) = (format!("task-{task}"), format!("session-{task}"));
            let at = usize::try_from(rng.below(2)).unwrap_or_default();
            let key = KEYS[usize::try_from(rng.below(KEYS.len() as u64)).unwrap_or_default()];
            let Some(mut board) = self.working(at, agent) else { continue };
            let name = |what: &str| format!("agent {agent} router {at} {task_id} {key} {what}");
            match rng.below(100) {
                0..=44 => self.put(&mut board, at, agent, &task_id, key, &mut task).await,
                45..=59 => {
                    let Some(channel) = self.channel(at, agent) else { continue };
                    self.say(channel, at, agent, &session_id, key).await;
                }
                60..=69 => {
                    let value = format!("user-{}", self.number());
                    let statement = longterm::Statement { key: key.to_owned(), ..self.statement(&value) };
                    let request =
                        longterm::RememberRequest { user_id: USER.into(), statement: Some(statement), ..Default::default() };
                    let Some(channel) = self.channel(at, agent) else { continue };
                    let mut client = longterm::long_term_memory_service_client::LongTermMemoryServiceClient::new(channel);
                    if self.ask(&name(&format!("remember {value}")), client.remember(request)).await.is_some() {
                        self.acknowledged.lock().push(value);
                    }
                }
                70..=91 => {
                    let Some(channel) = self.channel(at, agent) else { continue };
                    let id = self.ids.port().next().to_string();
                    let key = key.to_owned();
                    let source = if rng.percent(30) {
                        router::promotion_source::Kind::SessionFact(router::SessionFact { session_id, key })
                    } else {
                        router::promotion_source::Kind::TaskFact(router::TaskFact { task_id: task_id.clone(), key })
                    };
                    let request = router::PromoteRequest {
                        user_id: USER.into(),
                        promotion_id: id.clone(),
                        source: Some(router::PromotionSource { kind: Some(source) }),
                        statement: Some(self.statement("promoted")),
                        ..Default::default()
                    };
                    let mut client = RouterServiceClient::new(channel);
                    if self.ask(&name(&format!("promote {id}")), client.promote(request)).await.is_some() {
                        self.promised.lock().push(id);
                    }
                }
                92..=94 => {
                    let request =
                        working::EndTaskRequest { user_id: USER.into(), task_id: task_id.clone(), ..Default::default() };
                    if self.ask(&name("end"), board.end_task(request)).await.is_some() {
                        task += 1;
                    }
                }
                95..=96 => self.layers.erase(),
                _ => {
                    // Out of the way of the others' claims for a while.
                    pause(rng.millis(900)).await;
                }
            }
        }
    }

    fn statement(&self, content: &str) -> longterm::Statement {
        longterm::Statement { kind: longterm::Kind::Fact.into(), content: content.to_owned(), ..Default::default() }
    }

    async fn put(
        &self,
        board: &mut WorkingMemoryServiceClient<RpcChannel>,
        at: usize,
        agent: usize,
        task_id: &str,
        key: &str,
        task: &mut u32,
    ) {
        let value = format!("w{}", self.number());
        let what = format!("agent {agent} router {at} {task_id} {key} put {value}");
        self.layers.begins(agent, &value);
        let fact = working::Fact { key: key.into(), value: value.clone(), source: "checker".into(), ..Default::default() };
        let request =
            working::PutFactsRequest { user_id: USER.into(), task_id: task_id.into(), facts: vec![fact], ..Default::default() };
        let call = tokio::time::timeout(PATIENCE, board.put_facts(request)).await;
        let reason = match &call {
            Ok(Ok(_)) => "done",
            Ok(Err(status)) => strata_api::error::fault(status).reason.name(),
            Err(_) => "no answer",
        };
        self.shared.log(&format!("{what}: {reason}"));
        match call {
            Ok(Ok(answer)) => {
                self.acknowledged.lock().push(value);
                let version = answer.into_inner().version;
                self.read_back(agent, task_id, version).await;
            }
            // The first writer of a task starts it; the other one has ended the one before.
            Ok(Err(_)) if reason == "NOT_FOUND" => {
                let goal = working::Goal { sentence: "Deploy it.".into(), acceptance: "It runs.".into() };
                let create = working::CreateTaskRequest {
                    user_id: USER.into(),
                    task_id: task_id.into(),
                    goal: Some(goal),
                    ..Default::default()
                };
                self.ask(&format!("agent {agent} router {at} {task_id} create"), board.create_task(create)).await;
            }
            Ok(Err(_)) if reason == "TASK_ENDED" => *task += 1,
            Ok(Err(_)) | Err(_) => {}
        }
    }

    /// A fact of a session.
    async fn say(&self, channel: RpcChannel, at: usize, agent: usize, session_id: &str, key: &str) {
        let value = format!("s{}", self.number());
        self.layers.begins(agent, &value);
        let fact = session::SessionFact { key: key.into(), value: value.clone(), seq: 1, ..Default::default() };
        let request = session::PutFactsRequest {
            user_id: USER.into(),
            session_id: session_id.into(),
            facts: vec![fact],
            ..Default::default()
        };
        let what = format!("agent {agent} router {at} {session_id} {key} put {value}");
        if self.ask(&what, SessionMemoryServiceClient::new(channel).put_facts(request)).await.is_some() {
            self.acknowledged.lock().push(value);
        }
    }

    /// Read your writes, through either router.
    async fn read_back(&self, agent: usize, task_id: &str, version: u64) {
        let at = usize::try_from(self.shared.rng.below(2)).unwrap_or_default();
        let Some(mut board) = self.working(at, agent) else { return };
        let request = working::GetTaskRequest { user_id: USER.into(), task_id: task_id.into(), ..Default::default() };
        if let Some(found) = self.ask(&format!("agent {agent} router {at} {task_id} read"), board.get_task(request)).await
            && found.task.as_ref().is_none_or(|task| task.version < version)
        {
            self.shared.broken("read your writes: a board is older than what was acknowledged".to_owned());
        }
    }

    /// What breaks, and comes back.
    async fn chaos(&self) {
        let rng = &self.shared.rng;
        let start = Stopwatch::start();
        while start.elapsed() < TROUBLE {
            pause(Duration::from_millis(200) + rng.millis(1_200)).await;
            let at = usize::try_from(rng.below(2)).unwrap_or_default();
            match rng.below(100) {
                0..=19 => {
                    self.kill_router(at).await;
                    pause(rng.millis(600)).await;
                    self.start_router(at).await;
                }
                20..=31 => {
                    // Writes of long-term memory are switched off for a while: promotions are deferred (rule P6).
                    self.switch(Mode::WriteOff);
                    pause(rng.millis(4_000)).await;
                    self.switch(Mode::Normal);
                }
                32..=49 => {
                    let layer = self.layer();
                    self.net.cut(at, layer, true);
                    pause(rng.millis(6_000)).await;
                    self.net.cut(at, layer, false);
                }
                50..=59 => {
                    // Both routers lose long-term memory: promotions are deferred or in doubt.
                    for router in 0..2 {
                        self.net.cut(router, layers::Layer::Longterm, true);
                    }
                    pause(Duration::from_secs(1) + rng.millis(16_000)).await;
                    for router in 0..2 {
                        self.net.cut(router, layers::Layer::Longterm, false);
                    }
                }
                60..=69 => self.layers.restart(self.layer()),
                70..=79 => {
                    let clock = usize::try_from(rng.below(self.clocks.len() as u64)).unwrap_or_default();
                    // Within the skew that is tolerated between processes (rule P5).
                    let off = i64::try_from(rng.below(1_800_000)).unwrap_or_default() - 900_000;
                    self.shared.log(&format!("clock {clock} is off by {off} us"));
                    self.clocks[clock].off.store(off, Ordering::SeqCst);
                }
                80..=87 => {
                    self.ledger.set_down(true);
                    pause(rng.millis(3_000)).await;
                    self.ledger.set_down(false);
                }
                88..=91 => self.ledger.flush(),
                92..=95 => self.ledger.fail_over(usize::try_from(1 + rng.below(4)).unwrap_or(1)),
                _ => {}
            }
        }
    }

    /// Any of them.
    fn layer(&self) -> layers::Layer {
        match self.shared.rng.below(5) {
            0..=1 => layers::Layer::Working,
            2 => layers::Layer::Session,
            _ => layers::Layer::Longterm,
        }
    }

    fn switch(&self, longterm: Mode) {
        self.shared.log(&format!("long-term memory is {}", longterm.name()));
        self.modes.store(Arc::new(Modes { longterm, ..Modes::default() }));
    }

    async fn heal(&self) {
        self.switch(Mode::Normal);
        self.ledger.set_down(false);
        for at in 0..2 {
            for layer in [layers::Layer::Working, layers::Layer::Session, layers::Layer::Longterm] {
                self.net.cut(at, layer, false);
            }
            if self.routers[at].lock().is_none() {
                self.start_router(at).await;
            }
        }
    }

    /// What must hold of the stores' histories when all is over.
    async fn judge(&self) -> Report {
        let (acknowledged, promised) = (self.acknowledged.lock().clone(), self.promised.lock().clone());
        self.layers.judge(&acknowledged);
        let entries = self.ledger.entries(USER);
        let (mut committed, mut otherwise) = (0, 0);
        for entry in &entries {
            let state = entry.state.as_str();
            self.shared.log(&format!("promotion {} {state} {}", entry.promotion_id, entry.apply_id));
            committed += usize::from(state == "COMMITTED");
            otherwise += usize::from(state != "COMMITTED");
            if entry.open {
                self.shared.broken(format!("a promotion is left open: {state}"));
            }
            self.layers.judge_promotion(entry, self.ledger.was_lost());
        }
        if !self.ledger.was_lost() {
            for id in promised.iter().filter(|id| !entries.iter().any(|entry| entry.promotion_id == **id)) {
                self.shared.log(&format!("promotion {id} is unknown"));
                self.shared.broken("an acknowledged promotion is not in the journal".to_owned());
            }
        }
        for at in 0..2 {
            self.kill_router(at).await;
        }
        self.tasks.shutdown(Duration::ZERO).await;
        Report {
            log: self.shared.log.lock().clone(),
            broken: self.shared.broken.lock().clone(),
            writes: self.layers.writes(),
            remembered: self.layers.remembered(),
            committed,
            otherwise,
        }
    }
}
