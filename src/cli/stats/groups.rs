//! Groups of counters.

/// A group of counters that are shown together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Group {
    /// What was sent and received.
    Traffic,
    /// Setup and teardown of connections.
    Connections,
    /// What was repeated, refused or slowed down.
    Recovery,
    /// What was dropped.
    Dropped,
}

impl Group {
    pub const ALL: [Group; 4] = [Group::Traffic, Group::Connections, Group::Recovery, Group::Dropped];

    /// The group of a counter, by its name.
    pub fn of(name: &str) -> Group {
        match name {
            "sent_pkts" | "sent_bytes" | "sent_calls" | "rcvd_pkts" | "rcvd_bytes" | "rcvd_calls"
            | "sent_shm_pkts" | "rcvd_shm_pkts" | "shm_full" | "rdma_sends" | "rdma_recvs"
            | "progress_wakeups" => Group::Traffic,
            name if softrnic_stats::is_drop(name) => Group::Dropped,
            name if name.starts_with("cm_") => Group::Connections,
            _ => Group::Recovery,
        }
    }

    /// Its heading.
    pub const fn title(self) -> &'static str {
        match self {
            Group::Traffic => "traffic",
            Group::Connections => "connection management",
            Group::Recovery => "retransmissions, refusals, congestion",
            Group::Dropped => "dropped",
        }
    }
}
