//! A public call as the router's work sees it: who asks, whose memory it is, what was called, and what the mode of the layer
//! makes of it. The gate makes one of every request; a worker makes one of what it works off.

use crate::modes::Passage;
use strata_core::Owner;
use strata_core::id::Level;
use strata_core::policy::authz::{Layer, Method, Principal};

/// A call that passed the gate.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) principal: Principal,
    pub(crate) owner: Owner,
    pub(crate) method: &'static Method,
    pub(crate) passage: Passage,
}

/// The level at which a layer writes for an owner.
pub(crate) const fn level_of(layer: Layer, owner: &Owner) -> Level {
    match layer {
        Layer::Working => Level::Task,
        Layer::Session => Level::Session,
        Layer::Longterm | Layer::Router => {
            if owner.agent.is_some() {
                Level::Agent
            } else {
                Level::User
            }
        }
    }
}
