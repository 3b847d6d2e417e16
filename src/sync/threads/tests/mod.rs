//! The primitives with real threads, descriptors and signals.

mod channel;
mod doorbells;
mod kick;
mod lock;
