//! A library to preload, for programs that look for RDMA devices behind libibverbs' back.
//!
//! It rewrites paths, and leads those who open the connection manager to libibverbs. `/sys/class/infiniband` and `/sys/class/infiniband_verbs` become the
//! same directories below `$SOFTRNIC_SYSFS`, where the devices are described; `/dev/infiniband/NAME`
//! becomes `/dev/null`, a character device that anybody may open, if NAME is one of the devices there. That holds for
//! paths that are relative to `/sys`, `/sys/class` or `/dev` as well; whoever has gone further is in the other
//! directory already. `/dev/infiniband/rdma_cm` can be opened and written to (`node.rs`). All other paths, and everything when the variable is not set, go to the next library as they are.
//!
//! It runs before and inside anything: no allocation, no locks, no state but cached addresses and which
//! descriptors are channels of the connection manager, and no use of
//! `std::fs`, which would come back here.

mod calls;
mod next;
mod node;
mod rewrite;
