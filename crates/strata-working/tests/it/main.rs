//! Working memory over the real path: signed calls, the layer's stack, real Redis and SQLite.

mod board;
mod cycles;
mod erase;
mod ha;
mod harness;
mod limits;
mod promotion;
mod replicas;
mod stores;
mod survival;
mod watch;
