//! Small pieces of sentences.

use softrnic_wire::{Operation, Psn};

/// A time span in the unit that reads best.
pub(crate) fn span(ns: u64) -> String {
    let mut text = Vec::new();
    softrnic_inspect::decode::writing::span(&mut text, ns);
    String::from_utf8_lossy(&text).into_owned()
}

/// `PSN 7`, or `PSNs 7 to 9`.
pub(crate) fn psns(first: Psn, last: Psn) -> String {
    if first == last { format!("PSN {first}") } else { format!("PSNs {first} to {last}") }
}

/// `1 packet`, `2 packets`.
pub(crate) fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// The operation as a ladder or a sentence names it.
pub(crate) const fn operation(operation: Operation) -> &'static str {
    use Operation::*;
    match operation {
        SendFirst => "SEND First",
        SendMiddle => "SEND Middle",
        SendLast => "SEND Last",
        SendLastImm => "SEND Last with Immediate",
        SendLastInv => "SEND Last with Invalidate",
        SendOnly => "SEND Only",
        SendOnlyImm => "SEND Only with Immediate",
        SendOnlyInv => "SEND Only with Invalidate",
        WriteFirst => "RDMA WRITE First",
        WriteMiddle => "RDMA WRITE Middle",
        WriteLast => "RDMA WRITE Last",
        WriteLastImm => "RDMA WRITE Last with Immediate",
        WriteOnly => "RDMA WRITE Only",
        WriteOnlyImm => "RDMA WRITE Only with Immediate",
        ReadRequest => "RDMA READ Request",
        ReadResponseFirst => "RDMA READ Response First",
        ReadResponseMiddle => "RDMA READ Response Middle",
        ReadResponseLast => "RDMA READ Response Last",
        ReadResponseOnly => "RDMA READ Response Only",
        Acknowledge => "Acknowledge",
        AtomicAcknowledge => "ATOMIC Acknowledge",
        CompareSwap => "CmpSwap",
        FetchAdd => "FetchAdd",
        Flush => "FLUSH",
        AtomicWrite => "ATOMIC WRITE",
        Cnp => "CNP",
        SelectiveAcknowledge => "Selective Acknowledge",
    }
}
