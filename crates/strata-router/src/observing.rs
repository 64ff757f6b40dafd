//! What Observe's callers and its worker share in one process: who waits for a job, and the intents of the policy file, compiled.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use strata_core::policy::decision::Decision;
use strata_core::policy::observe::ObserveSettings;
use strata_text::observe::Intents;
use tokio::sync::oneshot;
use uuid::Uuid;

/// Callers of this process that wait for a job.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<BTreeMap<Uuid, oneshot::Sender<Decision>>>);

impl Waiters {
    /// Waits for a job from now on.
    pub(crate) fn enter(&self, id: Uuid) -> oneshot::Receiver<Decision> {
        let (tell, told) = oneshot::channel();
        self.0.lock().insert(id, tell);
        told
    }

    /// Nobody waits for it any more.
    pub(crate) fn leave(&self, id: &Uuid) {
        self.0.lock().remove(id);
    }

    /// Tells who waits what was decided.
    pub(crate) fn tell(&self, id: &Uuid, decision: Decision) {
        if let Some(waiter) = self.0.lock().remove(id) {
            // One that went away needs no answer.
            let _ = waiter.send(decision);
        }
    }
}

/// The intents of the policy file in force, compiled once per version.
#[derive(Debug, Default)]
pub(crate) struct Compiled(Mutex<Option<(ObserveSettings, Arc<Intents>)>>);

impl Compiled {
    /// The intents of these settings.
    pub(crate) fn of(&self, settings: &ObserveSettings) -> Arc<Intents> {
        let mut compiled = self.0.lock();
        if let Some((of, intents)) = &*compiled
            && of == settings
        {
            return Arc::clone(intents);
        }
        let intents = Intents::new(&settings.rules).unwrap_or_else(|fault| {
            tracing::error!(%fault, "the rules of Observe cannot be used");
            Intents::default()
        });
        let intents = Arc::new(intents);
        *compiled = Some((settings.clone(), Arc::clone(&intents)));
        intents
    }
}
