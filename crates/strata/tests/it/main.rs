//! The product as a whole: its structure, its coverage, its command line, its processes.

mod architecture;
mod backup;
mod canary;
mod cli;
mod clocks;
mod cluster;
mod coverage;
mod crash;
mod degradation;
mod disk;
mod episodes;
mod fight;
mod floods;
mod forget;
mod layers;
mod maintenance;
mod observability;
mod observe;
mod reload;
mod replicas;
mod rotation;
mod security;
mod soak;
mod stories;
mod survival;
mod transfer;
