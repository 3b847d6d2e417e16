//! Reading RoCE traffic out of capture files: every field of every packet.
//!
//! Layers, each usable alone:
//!
//! - [`capture`] reads pcap and pcapng from any byte stream, lending one record at a time in bounded
//!   memory.
//! - [`dissect`] turns a record into a [`dissect::Roce`] packet: link layer, IP, the headers that
//!   `softrnic-wire` parses, connection management messages, and whether the ICRC is right.
//! - [`decode`] prints packets: a line each, all fields, or JSON.
#![forbid(unsafe_code)]

pub mod capture;
pub mod decode;
pub mod dissect;
