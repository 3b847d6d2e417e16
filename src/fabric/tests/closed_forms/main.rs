//! What the model does, against what arithmetic gives.

mod congestion;
mod failures;
mod laws;
mod paths;
mod timing;
mod world;
