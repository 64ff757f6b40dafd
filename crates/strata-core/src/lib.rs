//! The pure heart of Strata: vocabulary, policies and state machines.
//!
//! Nothing here does IO, reads a clock, mints an id or draws a random number: those are [`ports`]. Every policy is a
//! function from facts to a verdict that carries the id of the rule that decided (`docs/rules.md` lists them), so the
//! service, the tests and the explanations all run the same code.

pub mod episode;
pub mod error;
pub mod id;
pub mod limits;
pub mod part;
pub mod policy;
pub mod ports;
pub mod record;
pub mod rule;
pub mod text;
pub mod time;

pub use error::{Code, Fault, Reason};
pub use id::{AgentId, FactKey, MemoryId, Owner, Scope, SessionId, TaskId, TenantId, UserId};
pub use ports::{Clock, IdSource};
pub use rule::RuleId;
pub use time::Timestamp;
