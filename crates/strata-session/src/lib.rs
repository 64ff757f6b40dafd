//! Session memory.

pub mod store;
