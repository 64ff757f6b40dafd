//! Degradation switches (rule D1): what each layer may do now. A method's row in `authz::METHODS` says what it does; one
//! function decides.

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use strata_core::policy::authz::{Access, Layer, Method};
use strata_core::{Fault, Reason};

/// Mode of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// Everything is served.
    #[default]
    Normal,
    /// Recall answers empty, flagged; the rest is served.
    RecallOff,
    /// Writes are refused; recall, forgetting and ending are served.
    WriteOff,
    /// Both; long-term memory then answers no reads either.
    Bypass,
}

impl Mode {
    /// Stable upper-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "NORMAL",
            Self::RecallOff => "RECALL_OFF",
            Self::WriteOff => "WRITE_OFF",
            Self::Bypass => "BYPASS",
        }
    }

    const fn recall_off(self) -> bool {
        match self {
            Self::RecallOff | Self::Bypass => true,
            Self::Normal | Self::WriteOff => false,
        }
    }

    const fn write_off(self) -> bool {
        match self {
            Self::WriteOff | Self::Bypass => true,
            Self::Normal | Self::RecallOff => false,
        }
    }
}

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

/// What a mode makes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Serve it.
    Serve,
    /// Answer empty, flagged `LAYER_RECALL_OFF`.
    Empty,
    /// Keep it and offer it when the mode allows.
    Defer,
}

/// The degradation table (rule D1).
///
/// # Errors
/// `LAYER_WRITE_OFF` or `LAYER_BYPASSED` naming layer and mode.
pub fn check(modes: &Modes, method: &Method) -> Result<Passage, Fault> {
    let mode = modes.of(method.layer);
    let refused = |reason: Reason, what: &str| {
        Err(Fault::new(reason, format!("{what} of {} memory are switched off", method.layer.name()))
            .with("layer", method.layer.name())
            .with("mode", mode.name())
            .rule("D1", method.name(), "the mode of the layer does not allow it"))
    };
    match method.access {
        Access::Recall if mode.recall_off() => Ok(Passage::Empty),
        Access::Read if mode == Mode::Bypass && method.layer == Layer::Longterm => refused(Reason::LayerBypassed, "reads"),
        Access::Write if mode == Mode::Bypass && method.layer == Layer::Longterm => refused(Reason::LayerBypassed, "writes"),
        // Bypass is a switch of long-term memory; a board or a session goes on unless its own mode says otherwise.
        Access::Write if mode == Mode::WriteOff => refused(Reason::LayerWriteOff, "writes"),
        Access::Promote if mode.write_off() => Ok(Passage::Defer),
        Access::Recall | Access::Read | Access::Write | Access::Promote | Access::Release | Access::Internal => {
            Ok(Passage::Serve)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_core::policy::authz::METHODS;

    #[test]
    fn c179_the_degradation_table_holds_for_every_method() {
        for method in METHODS {
            for mode in [Mode::Normal, Mode::RecallOff, Mode::WriteOff, Mode::Bypass] {
                let modes = Modes { working: mode, session: mode, longterm: mode };
                let verdict = check(&modes, method).map_err(|fault| fault.reason);
                let longterm = method.layer == Layer::Longterm;
                let expected = match (method.access, mode) {
                    (Access::Recall, Mode::RecallOff | Mode::Bypass) => Ok(Passage::Empty),
                    (Access::Read, Mode::Bypass) if longterm => Err(Reason::LayerBypassed),
                    (Access::Write, Mode::WriteOff) => Err(Reason::LayerWriteOff),
                    (Access::Write, Mode::Bypass) if longterm => Err(Reason::LayerBypassed),
                    (Access::Promote, Mode::WriteOff | Mode::Bypass) => Ok(Passage::Defer),
                    _ => Ok(Passage::Serve),
                };
                assert_eq!(verdict, expected, "{} in {}", method.path, mode.name());
            }
        }
    }

    #[test]
    fn a_freeze_never_blocks_forgetting() {
        let frozen = Modes { working: Mode::Bypass, session: Mode::Bypass, longterm: Mode::Bypass };
        for name in ["ForgetMemories", "RejectCandidate", "EndTask", "EndSession", "Reindex"] {
            let method = METHODS.iter().find(|m| m.name() == name).expect("in the table");
            assert_eq!(check(&frozen, method), Ok(Passage::Serve), "{name}");
        }
    }
}
