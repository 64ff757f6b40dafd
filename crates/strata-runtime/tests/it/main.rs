//! The runtime as its users meet it: one service called over every kind of channel, through both stacks, against real
//! sockets and a real Redis.
#![allow(clippy::disallowed_methods, reason = "tests stand in for clients with tasks of their own")]

mod channels;
mod double;
mod floods;
mod health;
mod redis;
mod replicas;
mod shutdown;
mod stacks;
mod tls;
