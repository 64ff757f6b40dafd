//! Degradation modes (rules D1, D2): which methods a layer still serves when part of it is switched off. One table over
//! [`Access`], so that a method cannot be forgotten; enforced in the router and in the layer.

use super::authz::{Access, Layer, Method};
use crate::{Fault, Reason};
use serde::{Deserialize, Serialize};

crate::record::vocabulary! {
    /// Mode of a layer.
    Mode {
        /// Everything is served.
        Normal = "NORMAL",
        /// Recall answers empty; writes go on.
        RecallOff = "RECALL_OFF",
        /// Writes are refused; recall and forgetting go on.
        WriteOff = "WRITE_OFF",
        /// The layer is left out: RECALL_OFF and WRITE_OFF together.
        Bypass = "BYPASS",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro derives the same for every vocabulary, and most have no default")]
impl Default for Mode {
    fn default() -> Self {
        Self::Normal
    }
}

impl Mode {
    /// What both switch off together.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        match (self, other) {
            (Self::Normal, mode) | (mode, Self::Normal) => mode,
            (Self::RecallOff, Self::RecallOff) => Self::RecallOff,
            (Self::WriteOff, Self::WriteOff) => Self::WriteOff,
            (Self::Bypass, _) | (_, Self::Bypass) | (Self::RecallOff, Self::WriteOff) | (Self::WriteOff, Self::RecallOff) => {
                Self::Bypass
            }
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

    /// With the mode of one layer; the router's is long-term memory's.
    #[must_use]
    pub const fn with(mut self, layer: Layer, mode: Mode) -> Self {
        match layer {
            Layer::Working => self.working = mode,
            Layer::Session => self.session = mode,
            Layer::Longterm | Layer::Router => self.longterm = mode,
        }
        self
    }
}

/// What a mode says about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Go on.
    Serve,
    /// Answer empty, flagged LAYER_RECALL_OFF.
    Empty,
    /// Decide and log, store nothing (Observe).
    LogOnly,
    /// Keep it for later (promotions).
    Defer,
    /// Refuse with this reason.
    Refuse(Reason),
}

/// The table of rule D1. `layer` is the one that serves the method: in BYPASS only long-term memory stops reads and
/// writes; session and working memory go on with what the agent cannot do without.
#[must_use]
pub const fn gate(mode: Mode, layer: Layer, access: Access) -> Gate {
    let longterm = matches!(layer, Layer::Longterm);
    match (mode, access) {
        (Mode::Normal, _) | (_, Access::Release | Access::Internal) => Gate::Serve,
        (Mode::RecallOff | Mode::Bypass, Access::Recall) => Gate::Empty,
        (Mode::RecallOff, Access::Read | Access::Write | Access::Observe | Access::Promote)
        | (Mode::WriteOff, Access::Recall | Access::Read) => Gate::Serve,
        (Mode::WriteOff, Access::Write) => Gate::Refuse(Reason::LayerWriteOff),
        (Mode::WriteOff | Mode::Bypass, Access::Promote) => Gate::Defer,
        (Mode::WriteOff | Mode::Bypass, Access::Observe) => Gate::LogOnly,
        (Mode::Bypass, Access::Read | Access::Write) if longterm => Gate::Refuse(Reason::LayerBypassed),
        (Mode::Bypass, Access::Read | Access::Write) => Gate::Serve,
    }
}

/// The fault of a refused method.
#[must_use]
pub fn refusal(reason: Reason, method: &Method, mode: Mode) -> Fault {
    Fault::new(reason, format!("{}: {} memory is in the mode {}", method.name(), method.layer.name(), mode.name()))
        .with("layer", method.layer.name())
        .with("mode", mode.name())
        .rule("D1", method.name(), "the mode of the layer does not allow it")
        .retry_after(5_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::authz::METHODS;

    /// The table of policies D1, written out by method name, against the function.
    #[test]
    fn a195_a196_a197_c179_the_mode_table_over_every_method() {
        for method in METHODS {
            for mode in Mode::ALL {
                let expected = match (mode, method.name()) {
                    (Mode::Normal, _)
                    | (
                        _,
                        "ForgetMemories" | "RejectCandidate" | "ReportUsage" | "DeleteEntity" | "DeleteSkill" | "EndTask"
                        | "EndSession" | "Reindex",
                    )
                    | (_, "Backup" | "VerifyConsistency" | "SampleForReview" | "SubmitReview" | "RunMaintenance" | "Rescan")
                    | (_, "EraseMemories" | "ListAudit" | "VerifyAudit" | "ListOpenErasures" | "SettleErasure")
                    | (_, "SetMode" | "CreateApiKey" | "RevokeApiKey" | "ListControl" | "PutControl")
                    | (
                        _,
                        "OverlayFacts" | "SealFact" | "Seal" | "Settle" | "Apply" | "Abort" | "GetOwners" | "EraseContent"
                        | "FindContent" | "RecordContext",
                    ) => Gate::Serve,
                    (Mode::RecallOff | Mode::Bypass, "Recall" | "SearchTurns" | "SearchArchivedTurns" | "AssembleContext") => {
                        Gate::Empty
                    }
                    (Mode::WriteOff, "Recall" | "SearchTurns" | "SearchArchivedTurns" | "AssembleContext")
                    | (Mode::RecallOff, _) => Gate::Serve,
                    (Mode::WriteOff | Mode::Bypass, "Promote") => Gate::Defer,
                    (Mode::WriteOff | Mode::Bypass, "Observe") => Gate::LogOnly,
                    (Mode::WriteOff, name)
                        if ["Get", "List", "BatchGet", "Lookup", "Match", "Export", "Explain", "Watch", "VerifyErasure"]
                            .iter()
                            .any(|verb| name.starts_with(verb)) =>
                    {
                        Gate::Serve
                    }
                    (Mode::WriteOff, _) => Gate::Refuse(Reason::LayerWriteOff),
                    (Mode::Bypass, _) if method.layer == Layer::Longterm => Gate::Refuse(Reason::LayerBypassed),
                    (Mode::Bypass, _) => Gate::Serve,
                };
                assert_eq!(gate(*mode, method.layer, method.access), expected, "{} in {}", method.path, mode.name());
            }
        }
    }

    #[test]
    fn recall_off_with_write_off_is_bypass() {
        assert_eq!(Mode::RecallOff.union(Mode::WriteOff), Mode::Bypass);
        for mode in Mode::ALL {
            assert_eq!(mode.union(Mode::Normal), *mode);
            assert_eq!(mode.union(*mode), *mode);
            assert_eq!(mode.union(Mode::Bypass), Mode::Bypass);
        }
    }
}
