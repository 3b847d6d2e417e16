//! The memory of a hostile scene, in pieces that peers may do different things to, and what it must contain.

use softrnic_engine::EngineConfig;
use softrnic_memory::{
    Access, BindSpec, MemoryTable, MrSpec, MwType, PdId, PreparedPages, RegionState, ReregSpec, Sge,
};
use softrnic_wire::{Qpn, Rkey};

use crate::arena::Span;
use crate::fuzz::Choices;
use crate::pages::Pages;
use crate::world::{ALL_ACCESS, Node, Region};

/// Bytes of the piece on which peers have all rights.
pub const OPEN: usize = 4096;
/// Bytes of each other piece, and of the gaps between them.
pub const SMALL: usize = 512;
/// Bytes of an arena that holds all of them.
pub const ARENA: usize = OPEN + 16 * SMALL;

/// Changed only while a key allows it.
#[derive(Clone, Copy)]
struct Changeable {
    span: Span,
    exposed: bool,
}

/// See the [module](self). Whatever is in none of the pieces is in no region either.
pub struct Memory {
    pub pd: PdId,
    pub foreign_pd: PdId,
    /// All rights, though not registered all the time.
    pub open: Region,
    /// For reading only.
    pub read_only: Region,
    /// Registered, without rights for peers.
    pub secret: Region,
    /// All rights, in another domain, whose QPs are never asked for it.
    pub foreign: Region,
    /// Rights only through windows.
    pub leased: Region,
    windows: [Rkey; 2],
    /// By fast registration.
    fast: Region,
    /// Pages that are mapped and unmapped.
    pages: Pages,
    paged: Region,
    /// Whether this system has copies that return errors.
    may_go: bool,
    changeable: [Changeable; 3],
    /// A bind of a window has been requested.
    pub bind_is_posted: bool,
}

impl Memory {
    pub fn new(node: &mut Node, config: &EngineConfig) -> Memory {
        for region in node.regions.drain(..) {
            node.engine.memory().dereg_mr(region.lkey).expect("deregistered");
        }
        let pd = node.pd;
        let foreign_pd = node.engine.memory().alloc_pd().expect("a PD");
        let mut spans = [OPEN, SMALL, SMALL, SMALL, SMALL, SMALL].map(|len| {
            let gap = node.arena.take(SMALL, 16).expect("memory");
            assert_eq!(gap.offset % 16, 0);
            node.arena.take(len, 16).expect("memory")
        });
        let mut register = |span: Span, pd, access| {
            let base = node.arena.address() as u64 + span.offset as u64;
            let spec = MrSpec { range: node.arena.part(span), iova: base, access };
            let keys = node.engine.memory().reg_mr(pd, spec).expect("a region");
            Region { lkey: keys.lkey, rkey: keys.rkey, base }
        };
        let [open_span, read_span, secret_span, foreign_span, leased_span, fast_span] = spans;
        let open = register(open_span, pd, ALL_ACCESS);
        let read_only = register(read_span, pd, Access::REMOTE_READ | Access::FLUSH_GLOBAL);
        let secret = register(secret_span, pd, Access::LOCAL_WRITE);
        let foreign = register(foreign_span, foreign_pd, ALL_ACCESS);
        let leased = register(leased_span, pd, Access::LOCAL_WRITE | Access::MW_BIND);
        for span in &mut spans[2..4] {
            node.arena.write(*span, &canary(span.len));
        }
        let pages = Pages::new(2);
        let range = pages.range();
        let may_go = MemoryTable::on_demand_available();
        let on_demand = if may_go && !config.safe_copies { Access::ON_DEMAND } else { Access::empty() };
        let spec = MrSpec { range, iova: range.addr() as u64, access: ALL_ACCESS | on_demand };
        let table = node.engine.memory();
        let keys = table.reg_mr(pd, spec).expect("a region");
        let paged = Region { lkey: keys.lkey, rkey: keys.rkey, base: range.addr() as u64 };
        let windows =
            [MwType::Type1, MwType::Type2].map(|mw_type| table.alloc_mw(pd, mw_type).expect("a window"));
        let keys = table.alloc_mr(pd, 2).expect("a region");
        let fast = node.arena.part(fast_span);
        let fast = Region { lkey: keys.lkey, rkey: keys.rkey, base: fast.addr() as u64 };
        let changeable = [open_span, leased_span, fast_span].map(|span| Changeable { span, exposed: false });
        Memory {
            pd,
            foreign_pd,
            open,
            read_only,
            secret,
            foreign,
            leased,
            windows,
            fast,
            pages,
            paged,
            may_go,
            changeable,
            bind_is_posted: false,
        }
    }

    /// A region that exists or existed.
    pub fn any(&self, choices: &mut Choices<'_>) -> Region {
        choices.pick(&[
            self.open,
            self.open,
            self.open,
            self.read_only,
            self.secret,
            self.foreign,
            self.leased,
            self.fast,
            self.paged,
        ])
    }

    /// A key that a peer may know, with the address and the length of its memory.
    pub fn remote(&self, table: &MemoryTable, choices: &mut Choices<'_>) -> (Rkey, u64, usize) {
        let region = self.any(choices);
        if region.lkey != self.leased.lkey {
            let len = if region.lkey == self.open.lkey { OPEN } else { SMALL };
            return (region.rkey, region.base, len);
        }
        let window = choices.pick(&self.windows);
        let known = table.window(window).map_or(window, |info| info.rkey);
        (known, self.leased.base, SMALL)
    }

    /// A key that may be invalidated.
    pub fn invalidated(&self, table: &MemoryTable, choices: &mut Choices<'_>) -> Rkey {
        let key = choices.pick(&[
            self.windows[1],
            self.windows[1],
            self.windows[0],
            self.fast.rkey,
            self.open.rkey,
        ]);
        table.window(key).map_or(key, |info| info.rkey)
    }

    /// An element of a local list, mostly one that is allowed.
    pub fn sge(&self, choices: &mut Choices<'_>, offset: u64, length: u32) -> Sge {
        let region = self.any(choices);
        Sge { addr: region.base + offset, length, lkey: region.lkey }
    }

    /// An element of the piece that is for all.
    pub fn open_sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.open.base + offset, length, lkey: self.open.lkey }
    }

    /// How to bind a window.
    pub fn bind(&self, choices: &mut Choices<'_>) -> BindSpec {
        let rights = [
            Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            Access::REMOTE_READ,
            Access::REMOTE_WRITE | Access::ZERO_BASED,
        ];
        let offset = u64::from(choices.byte());
        BindSpec {
            mw: choices.pick(&self.windows),
            tag: choices.byte(),
            mr: choices.pick(&[self.leased.lkey, self.leased.lkey, self.leased.lkey, self.secret.lkey]),
            addr: self.leased.base + offset,
            length: choices.pick(&[SMALL as u64 - offset, 256, 8, 0, 4096]),
            access: choices.pick(&rights),
        }
    }

    /// The application changes what is registered, between packets.
    pub fn change(&mut self, node: &mut Node, qpn: Qpn, choices: &mut Choices<'_>) {
        let pd = self.pd;
        let part = node.arena.part(self.changeable[0].span);
        let fast = node.arena.part(self.changeable[2].span);
        let table = node.engine.memory();
        match choices.byte() % 8 {
            0 => {
                if table.dereg_mr(self.open.lkey).is_err() {
                    let spec = MrSpec { range: part, iova: self.open.base, access: ALL_ACCESS };
                    let keys = table.reg_mr(pd, spec).expect("a region");
                    (self.open.lkey, self.open.rkey) = (keys.lkey, keys.rkey);
                }
            }
            1 => drop(table.bind_mw(qpn, pd, self.bind(choices))),
            2 => {
                let key = self.invalidated(table, choices);
                let _ = table.invalidate(qpn, pd, key, false);
            }
            3 => {
                let index = usize::from(choices.byte() % 2);
                table.dealloc_mw(self.windows[index]).expect("deallocated");
                let kind = [MwType::Type1, MwType::Type2][index];
                self.windows[index] = table.alloc_mw(pd, kind).expect("a window");
            }
            4 => {
                if let Ok(pages) = PreparedPages::new(&[fast]) {
                    let _ = table.map_pages(self.fast.lkey, &pages, 4096, self.fast.base);
                }
                let key = self.fast.lkey.0 & !0xFF | u32::from(choices.byte());
                if let Ok(keys) = table.fast_register(pd, self.fast.lkey, key, ALL_ACCESS - Access::MW_BIND) {
                    (self.fast.lkey, self.fast.rkey) = (keys.lkey, keys.rkey);
                }
            }
            5 => drop(table.invalidate(qpn, pd, self.fast.rkey, false)),
            6 if self.may_go => self.pages.protect(usize::from(choices.byte() % 3)),
            _ => {
                let access =
                    choices.pick(&[ALL_ACCESS, Access::LOCAL_WRITE, ALL_ACCESS - Access::REMOTE_WRITE]);
                let change = ReregSpec { access: Some(access), ..ReregSpec::default() };
                let _ = table.rereg_mr(self.open.lkey, change);
            }
        }
    }

    /// Which pieces a peer, or a posted receive, may change now: that with a region, that with a window, that with a
    /// valid region.
    fn reachable(&self, table: &MemoryTable) -> [bool; 3] {
        let bound = |window| table.window(window).is_some_and(|info| info.bound);
        let valid = table.region(self.fast.lkey).is_some_and(|info| info.state == RegionState::Valid);
        [table.region(self.open.lkey).is_some(), self.windows.into_iter().any(bound), valid]
    }

    /// Before the NIC does something.
    pub fn before(&mut self, node: &mut Node) {
        let reachable = self.reachable(node.engine.memory());
        self.expose(node, [reachable[0], reachable[1] || self.bind_is_posted, reachable[2]]);
    }

    /// After it: memory that could not be changed is unchanged.
    pub fn after(&mut self, node: &mut Node) {
        let reachable = self.reachable(node.engine.memory());
        self.expose(node, reachable);
        node.arena.verify_all();
        for (piece, _) in
            self.changeable.iter_mut().zip(reachable).filter(|(piece, reachable)| piece.exposed && !reachable)
        {
            node.arena.settle_unknown(piece.span);
            piece.exposed = false;
        }
    }

    fn expose(&mut self, node: &mut Node, reachable: [bool; 3]) {
        for (piece, _) in self
            .changeable
            .iter_mut()
            .zip(reachable)
            .filter(|(piece, reachable)| !piece.exposed && *reachable)
        {
            node.arena.expose(piece.span);
            piece.exposed = true;
        }
    }
}

/// The contents of secret and foreign memory. Peers never send bytes of this kind (see [`tame`]).
fn canary(len: usize) -> Vec<u8> {
    (0..len).map(|at| 0xE0 | at as u8 & 0x0F).collect()
}

/// Ensures that what a peer sends contains no canary.
pub fn tame(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte & 0xF0 == 0xE0).for_each(|byte| *byte ^= 0x80);
}

/// Whether any of the canary is in what was sent to a peer.
pub fn leaks(bytes: &[u8]) -> bool {
    bytes.windows(8).any(|window| {
        let start = u64::from(window[0]);
        let expected = (0..8).fold(0, |word, step| word << 8 | 0xE0 | (start + step) & 0x0F);
        window.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)) == expected
    })
}
