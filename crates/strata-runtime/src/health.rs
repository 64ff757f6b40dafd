//! Readiness by dropped latches: each subsystem takes a [`Latch`] while it starts and drops it when it can serve. A service
//! is SERVING when no latch holds it, and `grpc.health.v1` says so per service and, under the empty name, for all.

use crate::task::TaskGroup;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthApi, HealthServer};
use tonic_health::server::{HealthReporter, HealthService};

/// The service name that always serves while the process answers at all, for probes that decide about a restart: a store
/// that is down must not restart a healthy process.
pub const LIVENESS: &str = "liveness";

/// Health of a process. Cheap to clone.
#[derive(Clone)]
pub struct Health {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<()>,
    reporter: HealthReporter,
}

#[derive(Default)]
struct State {
    /// Names of the latches that hold each service, with their number.
    held: BTreeMap<&'static str, BTreeMap<&'static str, usize>>,
    stopping: bool,
}

impl State {
    fn serving(&self, service: &str) -> bool {
        !self.stopping && self.held.get(service).is_some_and(BTreeMap::is_empty)
    }
}

impl Health {
    /// Reports on `services` (full names, such as `strata.working.v1.WorkingMemoryService`), from a task of `tasks`.
    /// All serve at once: take the latches first, where something has to start.
    #[must_use]
    pub fn new(tasks: &TaskGroup, services: &[&'static str]) -> Self {
        let held = services.iter().map(|service| (*service, BTreeMap::new())).collect();
        let health = Self {
            state: Arc::new(Mutex::new(State { held, stopping: false })),
            changed: watch::channel(()).0,
            reporter: HealthReporter::new(),
        };
        let (reporting, mut changes, token) = (health.clone(), health.changed.subscribe(), tasks.token().clone());
        tasks.spawn("health", async move {
            loop {
                reporting.report().await;
                tokio::select! {
                    _ = changes.changed() => {}
                    () = token.cancelled() => break,
                }
            }
            // Before the listeners drain, so that load balancers stop sending.
            reporting.state.lock().stopping = true;
            reporting.report().await;
        });
        health
    }

    async fn report(&self) {
        let statuses: Vec<_> = {
            let state = self.state.lock();
            let all = state.held.keys().all(|service| state.serving(service));
            state
                .held
                .keys()
                .map(|service| (*service, state.serving(service)))
                .chain([("", all && !state.stopping), (LIVENESS, true)])
                .collect()
        };
        for (service, serving) in statuses {
            let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
            self.reporter.set_service_status(service, status).await;
        }
    }

    /// Holds `service` back until the latch is dropped. `name` says what it waits for, such as `redis`.
    #[must_use = "the service serves as soon as the latch is dropped"]
    pub fn latch(&self, service: &'static str, name: &'static str) -> Latch {
        *self.state.lock().held.entry(service).or_default().entry(name).or_default() += 1;
        self.changed.send_replace(());
        Latch { health: self.clone(), service, name }
    }

    /// Whether every service serves.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.pending().is_empty() && !self.state.lock().stopping
    }

    /// Services that are held, with what holds them, for status pages.
    #[must_use]
    pub fn pending(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let state = self.state.lock();
        state
            .held
            .iter()
            .filter(|(_, latches)| !latches.is_empty())
            .map(|(service, latches)| (*service, latches.keys().copied().collect()))
            .collect()
    }

    /// The `grpc.health.v1` service of this process.
    #[must_use]
    pub fn server(&self) -> HealthServer<impl HealthApi + use<>> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }
}

/// Something a service waits for. Dropped when it has come.
pub struct Latch {
    health: Health,
    service: &'static str,
    name: &'static str,
}

impl Drop for Latch {
    fn drop(&mut self) {
        if let Some(latches) = self.health.state.lock().held.get_mut(self.service)
            && let Some(count) = latches.get_mut(self.name)
        {
            *count -= 1;
            if *count == 0 {
                latches.remove(self.name);
            }
        }
        self.health.changed.send_replace(());
    }
}

/// Adds `grpc.reflection.v1` and `v1alpha` (what older tools speak) for the given encoded descriptor set. For public
/// listeners only: layers do not reflect.
///
/// # Errors
/// `INTERNAL` when the bytes are not a descriptor set.
pub fn with_reflection(
    routes: tonic::service::Routes,
    descriptor_set: &[u8],
) -> Result<tonic::service::Routes, strata_core::Fault> {
    let broken = |_| strata_core::Fault::new(strata_core::Reason::Internal, "the descriptor set cannot be decoded");
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(descriptor_set)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    Ok(routes.add_service(builder().build_v1().map_err(broken)?).add_service(builder().build_v1alpha().map_err(broken)?))
}
