//! Looks every few seconds at what has no event of its own: queues, sizes, ages, what answers. One task per process; it uses no
//! session and renews nothing.

use crate::assemble::Running;
use std::sync::Arc;
use std::time::Duration;
use strata_core::Timestamp;
use strata_core::policy::{authz::Layer, modes::Mode};
use strata_runtime::control::ModeBoard;
use strata_runtime::metrics::{Instruments, Label, up};
use strata_runtime::ports::pause;
use strata_runtime::redis_store::RedisPool;
use strata_runtime::sqlite::Database;
use strata_runtime::tls::ServerTls;

/// Between two looks: half of a usual scrape interval.
const INTERVAL: Duration = Duration::from_secs(5);

/// What a process has that can be looked at.
pub struct Sampler {
    pub databases: Vec<Database>,
    pub redis: Option<RedisPool>,
    pub board: Arc<ModeBoard>,
    pub certificates: Vec<(&'static str, Arc<ServerTls>)>,
    pub clock: Arc<dyn strata_core::Clock>,
}

impl Sampler {
    /// Looks until the process stops.
    pub fn spawn(self, running: &Running) {
        let (working, session) = (running.working.clone(), running.session.clone());
        let (longterm, router) = (running.longterm.clone(), running.router.clone());
        let token = running.lifecycle.tasks.token().clone();
        let instruments = Instruments::global();
        let build = [
            Label::new("version", running.about.version.clone()),
            Label::new("roles", running.about.settings.get("roles").cloned().unwrap_or_default()),
        ];
        running.lifecycle.tasks.spawn("metrics sampler", async move {
            loop {
                instruments.build.record(1.0, &build);
                process();
                self.stores().await;
                self.of_modes();
                if let Some(role) = &working {
                    self.boards(&role.status());
                }
                if let Some(role) = &session {
                    store("session", role.status().await.fault.is_none());
                }
                if let Some(role) = &longterm {
                    self.longterm(&role.status().await);
                }
                if let Some(role) = &router {
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
        for (of, tls) in &self.certificates {
            if let Some(expires) = tls.expires() {
                let left = expires.since(self.clock.now()) as f64 / 1e6;
                instruments.certificate_expires.record(left, &[Label::new("use", *of)]);
            }
        }
        if let Some(redis) = &self.redis {
            store("redis", redis.ping().await.is_ok());
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
