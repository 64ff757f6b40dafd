//! What every handler of the role shares.

use crate::index::Index;
use crate::metadata::{Visible, ledger};
use crate::recall::Recall;
use crate::relay::Relay;
use crate::scope::OwnerScope;
use arc_swap::ArcSwap;
use rusqlite::Connection;
use std::sync::Arc;
use strata_api::page::PageTokens;
use strata_core::Fault;
use strata_core::policy::authz::Principal;
use strata_core::policy::gate::{Challenges, Seals, Tombstones};
use strata_core::policy::quota::QuotaSettings;
use strata_core::policy::registry::Registry;
use strata_core::policy::settings::PolicySettings;
use strata_runtime::Ports;
use strata_runtime::sqlite::Database;
use strata_text::embed::Embedder;
use strata_text::slots::SlotMatcher;

/// Shared by the handlers; read-only but for the settings, which a hot reload replaces as a whole.
#[derive(Debug)]
pub struct State {
    /// Clock and ids.
    pub ports: Ports,
    /// Settings: read once per call.
    pub settings: Arc<ArcSwap<PolicySettings>>,
    /// The truth.
    pub database: Database,
    /// Makes vectors, or stands for the callers that do.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// Where records are found by meaning.
    pub index: Arc<dyn Index>,
    /// Finds what is relevant.
    pub recall: Recall,
    /// Tells the index.
    pub relay: Relay,
    /// Known keys.
    pub registry: Arc<Registry>,
    /// What each tenant may keep.
    pub quotas: Arc<ArcSwap<QuotaSettings>>,
    /// Their wordings, compiled.
    pub matcher: SlotMatcher,
    /// Page tokens.
    pub tokens: PageTokens,
    /// Consent challenges (rule G4).
    pub challenges: Challenges,
    /// Digests of erased statements (rule E7).
    pub tombstones: Tombstones,
    /// What records say, as far as statements are compared; their texts never change.
    pub aspects: crate::aspects::Aspects,
    /// Signatures of exported lines and of receipts.
    pub seals: Seals,
    /// Erasures.
    pub erasing: crate::erasing::Erasing,
    /// Work of the role that outlives its caller.
    pub tasks: strata_runtime::TaskGroup,
}

impl State {
    /// Says in the audit what somebody administers, before it is done: what was begun may not end. `user` is whom it is about, empty
    /// for the tenant; `subject` names things, never content (A172).
    ///
    /// # Errors
    /// As the database says; then it must not be done.
    pub async fn note(&self, by: &Principal, action: &'static str, user: &str, subject: String) -> Result<(), Fault> {
        let (by, user, time) = (by.clone(), user.to_owned(), self.ports.clock.now());
        self.database.write(move |db| ledger::administered(db, time, &by, action, &user, &subject)).await
    }
    /// Reads for an owner in one snapshot; none for a user nothing is known of.
    ///
    /// # Errors
    /// As the database says.
    pub(crate) async fn read<T, F>(&self, scope: &OwnerScope, read: F) -> Result<Option<T>, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, &Visible) -> Result<T, Fault> + Send + 'static,
    {
        let scope = scope.clone();
        self.database
            .read(move |db| match Visible::of(db, &scope)? {
                Some(visible) => read(db, &visible).map(Some),
                None => Ok(None),
            })
            .await
    }
}
