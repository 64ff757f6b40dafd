//! Session memory over its local gRPC path: every behaviour on both stores, faults on a real Redis.

mod artifacts;
mod compression;
mod energy;
mod erase;
mod facts;
mod faults;
mod ha;
mod harness;
mod references;
mod search;
mod suite;
mod summaries;
mod summariser;
mod topics;
