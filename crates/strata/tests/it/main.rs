//! The product as a whole: its structure, its coverage, its processes.

mod architecture;
mod coverage;
