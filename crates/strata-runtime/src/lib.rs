//! The substrate every role of Strata stands on: one channel type for calls in one process and between pods, the tower
//! layers of every listener, signed calls, lifecycle, telemetry, configuration and the connections to stores. It knows
//! nothing of memory: rules are in `strata-core`, the wire in `strata-api`.
//!
//! Two ways a call can go, one code path:
//!
//! ```text
//!   generated client -> SignedChannel -> RpcChannel -+- local   (the service itself, about 2 us)
//!                                                    +- duplex  (HTTP/2 in memory, tests)
//!                                                    +- connect (HTTP/2 over TCP or a unix socket)
//!                                                    -> stack::{public, internal} -> generated service
//! ```

pub mod channel;
pub mod config;
pub mod context;
pub mod control;
pub mod duplex;
pub mod exposition;
pub mod health;
pub mod jwt;
pub mod layer;
pub mod lifecycle;
pub mod metrics;
pub mod pace;
pub mod ports;
pub mod redis_files;
pub mod redis_mirror;
pub mod redis_store;
pub mod replicas;
pub mod retry;
pub mod server;
pub mod signing;
pub mod sqlite;
pub mod stack;
pub mod store_op;
pub mod task;
pub mod telemetry;
pub mod tls;

pub use channel::RpcChannel;
pub use ports::Ports;
pub use signing::{CallIdentity, Claims};
pub use task::TaskGroup;
