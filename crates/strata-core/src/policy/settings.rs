//! The policy section of the configuration: every number of the rules, validated as a whole, replaced as a whole by a
//! hot reload. A field that is absent has the documented default; an unknown field is refused.

use crate::Fault;
use serde::{Deserialize, Serialize};

/// All policy settings. Shared as `Arc<ArcSwap<PolicySettings>>`; a call reads it once and keeps that version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySettings {
    /// What may enter long-term memory (rules G).
    pub gate: super::gate::GateSettings,
    /// Recall and scoring (rules R).
    pub recall: super::recall::RecallSettings,
    /// Session windows and compression (rules S).
    pub session: super::session::SessionSettings,
    /// Context assembly (rules C).
    pub context: super::context::ContextSettings,
    /// What becomes of what an agent sees (rules O).
    pub observe: super::observe::ObserveSettings,
    /// Whether memory is worth what it costs (rules Q, D3).
    pub quality: super::quality::QualitySettings,
    /// Boards (rules W).
    pub working: super::working::WorkingSettings,
}

impl PolicySettings {
    /// Checks every section.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the setting as `policy.<section>.<field>`.
    pub fn validate(&self) -> Result<(), Fault> {
        self.gate.validate()?;
        self.recall.validate()?;
        self.session.validate()?;
        self.context.validate()?;
        self.observe.validate()?;
        self.quality.validate()?;
        self.working.validate()
    }
}
