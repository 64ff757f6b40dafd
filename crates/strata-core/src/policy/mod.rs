//! Every rule of the product as a pure function. One file per area; the id of the rule that decided travels with the
//! verdict. Numbers come from [`settings::PolicySettings`] (`policy.toml`, hot-reloaded).

pub mod authz;
pub mod conflict;
pub mod context;
pub mod control;
pub mod decision;
pub mod erasure;
pub mod forgetting;
pub mod gate;
pub mod modes;
pub mod observe;
pub mod ownership;
pub mod placement;
pub mod promotion;
pub mod quality;
pub mod quota;
pub mod recall;
pub mod registry;
pub mod session;
pub mod settings;
pub mod status;
pub mod summary;
pub mod working;
