//! What every handler of the role shares.

use crate::index::Index;
use crate::recall::Recall;
use crate::relay::Relay;
use arc_swap::ArcSwap;
use std::sync::Arc;
use strata_api::page::PageTokens;
use strata_core::policy::gate::{Challenges, Seals, Tombstones};
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
    /// Their wordings, compiled.
    pub matcher: SlotMatcher,
    /// Page tokens.
    pub tokens: PageTokens,
    /// Consent challenges (rule G4).
    pub challenges: Challenges,
    /// Digests of erased statements (rule E7).
    pub tombstones: Tombstones,
    /// What records say, as far as statements are compared; their texts never change.
    pub aspects: crate::related::Aspects,
    /// Signatures of exported lines and of receipts.
    pub seals: Seals,
    /// Erasures.
    pub erasing: crate::erase::Erasing,
    /// Work of the role that outlives its caller.
    pub tasks: strata_runtime::TaskGroup,
}
