//! (being written)

use crate::Fault;
use serde::{Deserialize, Serialize};

/// Settings of this section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextSettings {}

impl ContextSettings {
    /// Checks the section.
    ///
    /// # Errors
    /// `INVALID_FIELD` naming the setting.
    pub const fn validate(&self) -> Result<(), Fault> {
        Ok(())
    }
}
