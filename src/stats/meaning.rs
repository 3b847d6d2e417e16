//! What the counters of a device mean.

use softrnic_link::LinkCounters;
use softrnic_transport::Counter;

use softrnic_engine::{DropReason, GsiCounter, SrdCounter};

macro_rules! link_counters {
    ($($name:literal = $field:ident, $meaning:literal;)*) => {
        /// The counters of a link, by name.
        pub fn link_counters(counters: LinkCounters) -> impl Iterator<Item = (&'static str, u64)> {
            [$(($name, counters.$field)),*].into_iter()
        }

        const LINK: &[(&str, &str)] = &[$(($name, $meaning)),*];
    };
}

link_counters! {
    "sent_pkts" = tx_datagrams, "Packets handed to the network.";
    "sent_bytes" = tx_bytes, "Bytes of the packets handed to the network, from the BTH to the ICRC.";
    "sent_calls" = tx_calls, "System calls or doorbells that sent packets.";
    "send_err" = tx_errors, "Packets that the kernel refused to send, or that the peer's machine refused (ICMP).";
    "rcvd_pkts" = rx_datagrams, "Packets received.";
    "rcvd_bytes" = rx_bytes, "Bytes of the packets received, from the BTH to the ICRC.";
    "rcvd_calls" = rx_calls, "System calls or ring reads that received packets.";
    "rcvd_overruns" = rx_overruns, "Packets that the kernel dropped because they were not read in time.";
    "drop_link_malformed" = rx_malformed, "Datagrams that were truncated or too long for a buffer.";
    "sent_shm_pkts" = shm_tx_datagrams, "Packets of sent_pkts that went through shared memory.";
    "rcvd_shm_pkts" = shm_rx_datagrams, "Packets of rcvd_pkts that came through shared memory.";
    "shm_fallbacks" = shm_fallbacks, "Times that a peer fell back from shared memory to sockets.";
    "shm_full" = shm_full, "Times that a ring in shared memory had no room until the peer read.";
    "drop_shm_ring" = shm_corrupt, "Rings in shared memory that were given up because the peer violated the ring protocol.";
    "drop_shm_hello" = shm_bad_hello, "Invalid messages about shared memory.";
    "capture_lost" = capture_lost, "Packets that could not be written to the capture file.";
    "faults_injected" = faults_injected, "Packets dropped, duplicated, delayed, reordered or damaged on purpose.";
    "drop_port_tx" = port_tx_dropped, "Packets that were to be sent while the port was down on command, or into a blackhole.";
    "drop_port_rx" = port_rx_dropped, "Packets received while the port was down on command, or in a blackhole.";
}

const OWN: &[(&str, &str)] = &[
    ("link_downed", "Times that the port went down."),
    ("progress_wakeups", "Times that the progress thread woke."),
    ("srd_connections", "Connections of SRD that there are, one for each peer."),
];

/// Whether a counter, by its name, counts what was dropped.
pub fn is_drop(name: &str) -> bool {
    matches!(name, "bad_pkey" | "qkey_viol" | "send_err" | "rcvd_overruns" | "capture_lost")
        || name.starts_with("drop_")
}

/// The meaning of a counter in [`Snapshot::counters`](super::Snapshot::counters); `None` for a name unknown to this
/// version.
pub fn meaning(name: &str) -> Option<&'static str> {
    let transport = || Counter::ALL.iter().find(|c| c.name() == name).map(|c| c.meaning());
    let drops = || DropReason::ALL.iter().find(|r| r.name() == name).map(|r| r.meaning());
    let connections = || GsiCounter::ALL.iter().find(|c| c.name() == name).map(|c| c.meaning());
    let srd = || SrdCounter::ALL.iter().find(|c| c.name() == name).map(|c| c.meaning());
    let others = || LINK.iter().chain(OWN).find(|(known, _)| *known == name).map(|(_, text)| *text);
    transport().or_else(drops).or_else(connections).or_else(srd).or_else(others)
}
