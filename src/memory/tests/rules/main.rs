//! The rules of registered memory, each shown through the public interface.

mod atomics;
mod bounds;
mod copies;
mod denials;
mod device_memory;
mod domains_and_keys;
mod fast_register;
mod lost_page;
mod on_demand;
mod registration;
mod windows;
mod world;
