//! The life of a process: start, serve, wait for a signal, stop within a bound.

use crate::health::Health;
use crate::task::TaskGroup;
use std::time::Duration;
use strata_core::{Fault, Reason};
use tokio::signal::unix::{SignalKind, signal};

/// Why the process stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGTERM: the orchestrator asks.
    Terminate,
    /// SIGINT: a person asks.
    Interrupt,
    /// A critical task ended or somebody cancelled the token; [`TaskGroup::failed`] tells which.
    Cancelled,
}

/// Tasks and health of a process.
#[derive(Clone)]
pub struct Lifecycle {
    /// Everything that runs in the background. Its token is the process's shutdown token.
    pub tasks: TaskGroup,
    /// Latches and the health service.
    pub health: Health,
}

impl Lifecycle {
    /// A process that serves `services`.
    #[must_use]
    pub fn new(services: &[&'static str]) -> Self {
        let tasks = TaskGroup::new();
        Self { health: Health::new(&tasks, services), tasks }
    }

    /// Returns when the process is to stop, for whatever reason, and has cancelled the token by then.
    ///
    /// # Errors
    /// `INTERNAL` when the signal handlers cannot be installed.
    pub async fn wait_for_signal(&self) -> Result<Stop, Fault> {
        let listen = |kind| signal(kind).map_err(|_| Fault::new(Reason::Internal, "signal handlers cannot be installed"));
        let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        let stop = tokio::select! {
            _ = terminate.recv() => Stop::Terminate,
            _ = interrupt.recv() => Stop::Interrupt,
            () = self.tasks.token().cancelled() => Stop::Cancelled,
        };
        tracing::info!(?stop, failed = self.tasks.failed(), "stopping");
        self.tasks.token().cancel();
        Ok(stop)
    }

    /// Stops everything within `grace`; answers whether all ended in time.
    pub async fn shutdown(&self, grace: Duration) -> bool {
        self.tasks.shutdown(grace).await
    }
}
