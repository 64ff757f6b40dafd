//! The long-term role as a whole: its services on the local channel over a real SQLite file.

mod acceptance;
mod concurrency;
mod consolidation;
mod episodes;
mod erase;
mod forgetting;
mod gate;
mod isolation;
mod model;
mod moves;
mod parts;
mod quality;
mod reads;
mod refusals;
mod schema;
mod stale;
mod sync;
mod target;
mod tidying;
mod transfer;
mod tuning;
mod updates;
mod vectors;
mod world;
mod writes;
