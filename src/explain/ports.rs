//! The UDP source ports that each side sends from. A SoftRNIC with many paths has sixteen at most in use, one for each path, and
//! gives a path that loses another one (docs/wire-extensions.md, "Many paths").

use rustc_hash::{FxHashMap, FxHashSet};
use softrnic_wire::MAX_PATHS;

const LEFT_KEPT: usize = 100_000;

/// A path that was left, and went on from another port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeftPath {
    pub from: u16,
    pub to: u16,
    /// Index of the last request or READ response from the one port.
    pub last: u32,
    /// And of the first from the other.
    pub first: u32,
}

/// What is known of the ports of all flows.
#[derive(Default)]
pub(crate) struct Ports {
    known: FxHashSet<(u32, u16)>,
    /// The port of each path, and the last packet from it, by flow and number; kept where a flow has several ports.
    paths: FxHashMap<(u32, u16), (u16, u32)>,
    left: FxHashMap<u32, Vec<LeftPath>>,
    /// The ports that were left, by flow.
    gone: FxHashSet<(u32, u16)>,
    kept: usize,
}

impl Ports {
    /// A packet of a flow. Returns whether the port is new there.
    pub fn note(&mut self, flow: u32, port: u16) -> bool {
        self.known.insert((flow, port))
    }

    /// A request or a READ response of a flow with several ports: acknowledgements have ports of their own.
    pub fn note_data(&mut self, flow: u32, port: u16, event: u32) {
        // It was under way when the path was left.
        if self.gone.contains(&(flow, port)) {
            return;
        }
        let path = self.paths.entry((flow, port % u16::from(MAX_PATHS))).or_insert((port, event));
        let (before, last) = std::mem::replace(path, (port, event));
        if before != port && self.kept < LEFT_KEPT {
            self.kept += 1;
            self.gone.insert((flow, before));
            self.left.entry(flow).or_default().push(LeftPath { from: before, to: port, last, first: event });
        }
    }

    /// The paths that flows have left.
    pub fn left(self) -> FxHashMap<u32, Vec<LeftPath>> {
        self.left
    }
}
