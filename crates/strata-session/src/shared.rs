//! What the handlers and the background work of the role share.

use crate::compress::Compressor;
use crate::epochs::SeenEpochs;
use crate::search::Searcher;
use crate::store::{SessionKey, SessionStore};
use crate::summaries::Summaries;
use arc_swap::ArcSwap;
use prost::Message;
use std::sync::Arc;
use strata_api::page::PageTokens;
use strata_core::policy::settings::PolicySettings;
use strata_core::{Fault, Reason};
use strata_runtime::{Ports, TaskGroup};

/// Stores, settings and helpers of the role.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ports: Ports,
    pub(crate) settings: Arc<ArcSwap<PolicySettings>>,
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) compressor: Compressor,
    pub(crate) searcher: Searcher,
    /// The model that summarises; none: the rules do.
    pub(crate) summaries: Option<Summaries>,
    pub(crate) page_tokens: PageTokens,
    pub(crate) tasks: TaskGroup,
    pub(crate) epochs: SeenEpochs,
}

impl Shared {
    /// Has the model, if there is one, look at what the rules summarised of a session.
    pub(crate) fn better_summaries(&self, key: &SessionKey) {
        if let Some(summaries) = &self.summaries {
            summaries.want(key);
        }
    }
}

/// An answer as it was stored with its request, for a repetition.
pub(crate) fn decoded<T: Message + Default>(bytes: &[u8]) -> Result<T, Fault> {
    T::decode(bytes).map_err(|_| Fault::new(Reason::Internal, "a stored answer cannot be read"))
}
