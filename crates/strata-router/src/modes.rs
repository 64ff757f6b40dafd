//! Degradation switches (rule D1): what each layer may do now. The table is [`strata_core::policy::modes`]; here are the modes
//! in force and the one function every call passes.

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use strata_core::Fault;
use strata_core::policy::authz::{Layer, Method};
use strata_core::policy::modes::{Gate, gate, refusal};

pub use strata_core::policy::modes::Mode;

/// Modes of the layers; the section `modes` of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Modes {
    /// Working memory.
    pub working: Mode,
    /// Session memory.
    pub session: Mode,
    /// Long-term memory.
    pub longterm: Mode,
}

impl Modes {
    /// The mode of a layer; the router's own methods depend on long-term memory.
    #[must_use]
    pub const fn of(&self, layer: Layer) -> Mode {
        match layer {
            Layer::Working => self.working,
            Layer::Session => self.session,
            Layer::Longterm | Layer::Router => self.longterm,
        }
    }
}

/// Shared, replaced as a whole by a hot reload.
pub type SharedModes = Arc<ArcSwap<Modes>>;

/// What a mode makes of a call that it does not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Serve it.
    Serve,
    /// Answer empty, flagged `LAYER_RECALL_OFF`.
    Empty,
    /// Keep it and offer it when the mode allows.
    Defer,
}

/// What the modes in force make of a call.
///
/// # Errors
/// `LAYER_WRITE_OFF` or `LAYER_BYPASSED` naming layer and mode.
pub fn check(modes: &Modes, method: &Method) -> Result<Passage, Fault> {
    let mode = modes.of(method.layer);
    match gate(mode, method.layer, method.access) {
        Gate::Serve => Ok(Passage::Serve),
        Gate::Empty => Ok(Passage::Empty),
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
            let frozen = Modes { working: *mode, session: *mode, longterm: *mode };
            for name in ["ForgetMemories", "RejectCandidate", "EndTask", "EndSession", "Reindex"] {
                let method = METHODS.iter().find(|m| m.name() == name).expect("in the table");
                assert_eq!(check(&frozen, method), Ok(Passage::Serve), "{name} in {}", mode.name());
            }
        }
    }
}
