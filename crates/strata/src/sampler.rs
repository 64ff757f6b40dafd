//! Looks every few seconds at what has no event of its own: queues, sizes, ages, what answers. One task per process; it uses no
//! session and renews nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use strata_core::Timestamp;
use strata_core::policy::{authz::Layer, modes::Mode};
use strata_core::time::DAY;
use strata_longterm::LongtermRole;
use strata_router::{About, RouterRole};
use strata_runtime::TaskGroup;
use strata_runtime::control::ModeBoard;
use strata_runtime::metrics::{Instruments, Label, up};
use strata_runtime::ports::pause;
use strata_runtime::redis_store::RedisPool;
use strata_runtime::sqlite::Database;
use strata_runtime::tls::ServerTls;
use strata_session::SessionRole;
use strata_working::WorkingRole;

/// Between two looks: half of a usual scrape interval.
const INTERVAL: Duration = Duration::from_secs(5);

/// Days before its end from which the log tells of a certificate, once a day: two weeks before the alert, which says seven.
const EXPIRES_SOON: i64 = 21;

/// What a process has that can be looked at.
pub struct Sampler {
    pub databases: Vec<Database>,
    pub redis: Option<RedisPool>,
    pub board: Arc<ModeBoard>,
    pub certificates: Vec<(&'static str, Arc<ServerTls>)>,
    pub clock: Arc<dyn strata_core::Clock>,
    pub working: Option<Arc<WorkingRole>>,
    pub session: Option<Arc<SessionRole>>,
    pub longterm: Option<Arc<LongtermRole>>,
    pub router: Option<Arc<RouterRole>>,
    pub about: About,
}

impl Sampler {
    /// Looks until the process stops.
    pub fn spawn(self, tasks: &TaskGroup) {
        let token = tasks.token().clone();
        let instruments = Instruments::global();
        let build = [
            Label::new("version", self.about.version.clone()),
            Label::new("roles", self.about.settings.get("roles").cloned().unwrap_or_default()),
        ];
        let mut said = BTreeMap::new();
        tasks.spawn("metrics sampler", async move {
            loop {
                self.certificates(&mut said);
                instruments.build.record(1.0, &build);
                process();
                self.stores().await;
                self.of_modes();
                if let Some(role) = &self.working {
                    self.boards(&role.status());
                }
                if let Some(role) = &self.session {
                    store("session", role.status().await.fault.is_none());
                }
                if let Some(role) = &self.longterm {
                    self.longterm(&role.status().await);
                }
                if let Some(role) = &self.router {
                    instruments.ledger_up.record(up(role.status().await.is_ok()), &[]);
                    instruments.ledger_backlog.record(role.backlog() as f64, &[]);
                }
                tokio::select! {
                    () = token.cancelled() => return,
                    () = pause(INTERVAL) => {}
                }
            }
        });
    }

    async fn stores(&self) {
        let instruments = Instruments::global();
        for database in &self.databases {
            let name = [Label::new("database", database.name().to_owned())];
            instruments.sqlite_queued.record(database.stats().queued as f64, &name);
            instruments.sqlite_bytes.record(database.bytes() as f64, &name);
        }
        if let Some(redis) = &self.redis {
            store("redis", redis.ping().await.is_ok());
        }
    }

    /// `said`: the days left that were told last, so that each is told once.
    fn certificates(&self, said: &mut BTreeMap<&'static str, i64>) {
        for (of, tls) in &self.certificates {
            let Some(expires) = tls.expires() else { continue };
            let left = expires.since(self.clock.now());
            Instruments::global().certificate_expires.record(left as f64 / 1e6, &[Label::new("use", *of)]);
            let days = left.div_euclid(DAY);
            if days >= EXPIRES_SOON || said.insert(of, days) == Some(days) {
                continue;
            }
            if left < 0 {
                tracing::error!(
                    of,
                    "the certificate has expired: nobody who checks it connects; renew its file, which is followed"
                );
            } else {
                tracing::warn!(of, days, "the certificate expires soon; renew its file, which is followed");
            }
        }
    }

    fn of_modes(&self) {
        for layer in [Layer::Working, Layer::Session, Layer::Longterm] {
            let overrides = self.board.overrides(layer) as f64;
            Instruments::global().mode_overrides.record(overrides, &[Label::new("layer", layer.name())]);
            for mode in Mode::ALL {
                let labels = [Label::new("layer", layer.name()), Label::new("mode", mode.name())];
                Instruments::global().mode.record(up(self.board.configured(layer) == *mode), &labels);
            }
        }
    }

    fn boards(&self, status: &strata_working::WorkingStatus) {
        let instruments = Instruments::global();
        instruments.boards.record(status.counts.boards as f64, &[]);
        instruments.boards_bytes.record(status.counts.bytes as f64, &[]);
        instruments.checkpoint_failing.record(self.seconds_since(status.checkpoint.failing_since), &[]);
    }

    fn longterm(&self, status: &Result<strata_longterm::RoleStatus, strata_core::Fault>) {
        let instruments = Instruments::global();
        store("longterm", status.is_ok());
        let Ok(status) = status else { return };
        instruments.records.record(status.records as f64, &[]);
        instruments.outbox_rows.record(status.relay.pending as f64, &[]);
        instruments.outbox_age.record(status.relay.oldest_micros as f64 / 1e6, &[]);
        instruments.index_up.record(up(!status.relay.index_down), &[]);
        instruments.embedder_up.record(up(!status.relay.embedder_down), &[]);
        let left = if status.relay.reindexing { status.relay.reindex_total.saturating_sub(status.relay.reindex_done) } else { 0 };
        instruments.reindex_left.record(left as f64, &[]);
        instruments.erasures_open.record(status.erasures_open as f64, &[]);
        instruments.erasures_age.record(self.seconds_since(status.erasing_since), &[]);
    }

    fn seconds_since(&self, time: Option<Timestamp>) -> f64 {
        time.map_or(0.0, |time| self.clock.now().since(time).max(0) as f64 / 1e6)
    }
}

fn store(name: &'static str, answers: bool) {
    Instruments::global().store_up.record(up(answers), &[Label::new("store", name)]);
}

/// Memory and open files, where the host tells them (Linux).
fn process() {
    const PAGE: f64 = 4096.0;
    let resident = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok()));
    if let Some(pages) = resident {
        Instruments::global().resident.record(pages * PAGE, &[]);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        Instruments::global().open_files.record(files.count() as f64, &[]);
    }
}
