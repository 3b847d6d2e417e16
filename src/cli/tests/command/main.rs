//! The command as people and scripts use it.

#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod congestion;
mod demo;
mod devices;
mod explain;
mod fabric;
#[cfg(feature = "xdp")]
mod grant;
mod looking;
mod pages;
mod playground;
mod run;
mod stats;
mod support;
mod top;
mod topics;
mod tour;
