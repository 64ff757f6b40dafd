//! The product as a whole: its structure, its coverage, its command line, its processes.

mod architecture;
mod backup;
mod canary;
mod cli;
mod cluster;
mod coverage;
mod crash;
mod episodes;
mod reload;
mod stories;
mod survival;
mod transfer;
