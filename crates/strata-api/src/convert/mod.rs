//! Wire to domain and back, one file per area. Towards the domain a conversion validates and may refuse with the field
//! named; back to the wire it is total.

pub mod admin;
pub mod common;
pub mod episodes;
pub mod erasure;
pub mod longterm;
pub mod observe;
pub mod parts;
pub mod quality;
pub mod router;
pub mod session;
pub mod transfer;
pub mod update;
pub mod working;
