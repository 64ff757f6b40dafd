//! The product as a whole: its structure, its coverage, its command line, its processes.

mod architecture;
mod backup;
mod canary;
mod cli;
mod cluster;
mod coverage;
mod crash;
mod degradation;
mod episodes;
mod fight;
mod layers;
mod maintenance;
mod observability;
mod observe;
mod reload;
mod security;
mod soak;
mod stories;
mod survival;
mod transfer;
