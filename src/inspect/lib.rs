//! Reading RoCE traffic out of capture files: every field of every packet, and what happened.
//!
//! Layers, each usable alone:
//!
//! - [`capture`] reads pcap and pcapng from any byte stream, lending one record at a time in bounded
//!   memory.
//! - [`dissect`] turns a record into a [`dissect::Roce`] packet: link layer, IP, the headers that
//!   `softrnic-wire` parses, connection management messages, and whether the ICRC is right.
//! - [`decode`] prints packets: a line each, all fields, or JSON.
//! - [`explain`](mod@explain) follows each QP pair and says what happened; [`html`] makes a page of that, and [`svg`]
//!   a picture.
#![forbid(unsafe_code)]

pub mod capture;
pub mod decode;
pub mod dissect;
pub mod explain;
pub mod html;
pub mod svg;
