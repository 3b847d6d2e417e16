//! Tests of the runtime without loom.
