//! Working memory over the real path: signed calls, the layer's stack, real Redis and SQLite.

mod board;
mod erase;
mod harness;
mod limits;
mod promotion;
mod stores;
mod survival;
mod watch;
