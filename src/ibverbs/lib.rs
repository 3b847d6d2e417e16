//! `libibverbs.so.1`.
mod abi;
