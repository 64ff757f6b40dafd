//! What the tests of every crate share: the real Redis of the machine, a Qdrant that answers on the wire, a proxy that
//! breaks connections on demand, processes that can be killed, clocks that can be moved, and a reference model to compare
//! the long-term store with.
//!
//! | module | gives |
//! |---|---|
//! | [`clock`] | [`ManualClock`]: time as the test says |
//! | [`ids`] | [`SeqIds`]: the same ids in every run |
//! | [`fixtures`] | owners, sessions, tasks, keys, and names no other test uses |
//! | [`otlp`] | [`otlp::OtlpReceiver`]: a collector of traces and metrics |
//! | [`fuzz`] | mutations of inputs, and a corpus that is replayed |
//! | [`http2`] | frames of HTTP/2 as no client library sends them |
//! | [`poll`] | [`eventually`]: waiting for a condition instead of sleeping |
//! | [`random`] | [`Random`]: the same numbers for the same seed |
//! | [`redis`] | [`RedisServer`]: a real server that can be killed, stopped, filled and searched |
//! | [`qdrant`] | [`qdrant::WireDouble`]: an in-memory Qdrant on the wire, with faults |
//! | [`http`] | [`HttpDouble`]: a provider of models behind HTTP that answers as it is told |
//! | [`process`] | [`Child9`]: a binary with its output at hand, to be terminated or killed |
//! | [`model`] | [`ReferenceStore`]: what the conflict rules say, in a page of code |
//! | [`tls`] | [`tls::Authority`]: certificates for a test |
//! | [`proxy`] | [`FaultProxy`]: a TCP proxy that refuses, swallows, resets, delays or cuts |
//!
//! Servers run on threads of their own, so blocking and asynchronous tests use them alike. Nothing here listens on a fixed
//! port, and everything that was started is stopped on drop, after a panic, and when the test process is killed.
#![allow(clippy::disallowed_methods, reason = "the kit waits for real processes in real time")]

pub mod clock;
pub mod fixtures;
pub mod fuzz;
pub mod http;
pub mod http2;
pub mod ids;
pub mod model;
pub mod otlp;
pub mod poll;
pub mod process;
pub mod proxy;
pub mod qdrant;
pub mod random;
pub mod redis;
pub mod tls;

mod port;
mod reaper;
mod thread;

pub use clock::ManualClock;
pub use fixtures::{agent_owner, owner};
pub use http::HttpDouble;
pub use ids::SeqIds;
pub use model::ReferenceStore;
pub use poll::{eventually, eventually_some};
pub use process::Child9;
pub use proxy::{FaultProxy, Mode};
pub use qdrant::WireDouble;
pub use random::Random;
pub use redis::RedisServer;
