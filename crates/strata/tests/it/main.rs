//! The product as a whole: its structure, its coverage, its command line, its processes.

mod architecture;
mod backup;
mod cli;
mod cluster;
mod coverage;
mod crash;
mod episodes;
mod observability;
mod reload;
mod security;
mod soak;
mod stories;
mod survival;
mod transfer;
