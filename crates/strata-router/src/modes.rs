//! Degradation switches (rule D1): what each layer may do now. The table is [`strata_core::policy::modes`]; here are the modes
//! in force and the one function every call passes.

use arc_swap::ArcSwap;
use std::sync::Arc;
use strata_core::policy::authz::Method;
use strata_core::policy::modes::{Gate, gate, refusal};
use strata_core::{Fault, TenantId};
use strata_runtime::control::ModeBoard;

pub use strata_core::policy::modes::{Mode, Modes};

/// Shared, replaced as a whole by a hot reload.
pub type SharedModes = Arc<ArcSwap<Modes>>;

/// What a mode makes of a call that it does not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Serve it.
    Serve,
    /// Answer empty, flagged `LAYER_RECALL_OFF`.
    Empty,
    /// Decide and log, store nothing.
    LogOnly,
    /// Keep it and offer it when the mode allows.
    Defer,
}

/// What the modes in force make of a tenant's call.
///
/// # Errors
/// `LAYER_WRITE_OFF` or `LAYER_BYPASSED` naming layer and mode.
pub fn check(modes: &ModeBoard, tenant: &TenantId, method: &Method) -> Result<Passage, Fault> {
    let mode = modes.of(method.layer, tenant);
    match gate(mode, method.layer, method.access) {
        Gate::Serve => Ok(Passage::Serve),
        Gate::Empty => Ok(Passage::Empty),
        Gate::LogOnly => Ok(Passage::LogOnly),
        Gate::Defer => Ok(Passage::Defer),
        Gate::Refuse(reason) => Err(refusal(reason, method, mode)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_core::policy::authz::METHODS;

    #[test]
    fn c179_a_freeze_never_blocks_forgetting() {
        for mode in Mode::ALL {
            let tenant = TenantId::new("t1").expect("an id");
            let frozen =
                ModeBoard::new(Arc::new(ArcSwap::from_pointee(Modes { working: *mode, session: *mode, longterm: *mode })));
            for name in ["ForgetMemories", "RejectCandidate", "EndTask", "EndSession", "Reindex"] {
                let method = METHODS.iter().find(|m| m.name() == name).expect("in the table");
                assert_eq!(check(&frozen, &tenant, method), Ok(Passage::Serve), "{name} in {}", mode.name());
            }
        }
    }
}
