//! The router against layers in this process, over the real signed channel and the real stacks. One binary.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod archive;
mod assemble;
mod decisions;
mod erase;
mod gate;
mod layers;
mod ledger;
mod observe;
mod ownership;
mod promotion;
mod results;
mod world;
