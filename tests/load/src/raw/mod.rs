//! The raw engines: what the same durable work costs with plain client calls. Neither knows how Strata lays out its data:
//! the work is taken from what a call of ours really did.

pub mod redis;
pub mod sqlite;
