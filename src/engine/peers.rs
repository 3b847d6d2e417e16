//! What is known about each peer address: the window that all QPs to it share, and the QPs that wait for it.

use std::collections::VecDeque;
use std::net::IpAddr;

use rustc_hash::FxHashMap;
use softrnic_transport::{Peer as Shared, Window, WindowConfig};

use super::control::ControlError;
use super::objects::QpKey;

/// The number of bytes that a woken QP is expected to send.
const ROOM_PER_QP: u64 = 16 << 10;

/// Id of a peer in [`Peers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerId(usize);

/// One peer address.
struct Peer {
    /// What the QPs that talk to it share.
    shared: Shared,
    /// QPs that wait for the window to open, the longest waiting first.
    waiting: VecDeque<QpKey>,
    address: IpAddr,
    users: usize,
    /// Questions to its NIC that it has not answered, since it last did.
    unanswered: u8,
}

/// All peers that QPs of ours are connected to.
pub struct Peers {
    config: WindowConfig,
    by_address: FxHashMap<IpAddr, PeerId>,
    peers: Vec<Option<Peer>>,
    free: Vec<PeerId>,
    /// Peers with QPs that wait for the window.
    waited_for: Vec<PeerId>,
    /// Used by QPs that have no peer.
    nobody: Shared,
}

impl Peers {
    pub fn new(config: WindowConfig) -> Peers {
        Peers {
            config,
            by_address: FxHashMap::default(),
            peers: Vec::new(),
            free: Vec::new(),
            waited_for: Vec::new(),
            nobody: Shared::new(WindowConfig { initial: u64::MAX, min: u64::MAX, max: u64::MAX }),
        }
    }

    /// Ensures that [`join`](Self::join) with this address needs no memory.
    ///
    /// # Errors
    /// There is no memory.
    pub fn make_room(&mut self, address: IpAddr) -> Result<(), ControlError> {
        let none = |_| ControlError::NoMemory;
        if let Some(&id) = self.by_address.get(&address) {
            let peer = self.peers[id.0].as_mut().expect("listed peers exist");
            let missing = (peer.users + 1).saturating_sub(peer.waiting.len());
            return peer.waiting.try_reserve(missing).map_err(none);
        }
        self.by_address.try_reserve(1).map_err(none)?;
        self.peers.try_reserve(1).map_err(none)?;
        let count = self.peers.len() + 1;
        self.free.try_reserve(count.saturating_sub(self.free.len())).map_err(none)?;
        self.waited_for.try_reserve(count.saturating_sub(self.waited_for.len())).map_err(none)
    }

    /// One more QP talks to `address`.
    pub fn join(&mut self, address: IpAddr) -> PeerId {
        if let Some(&id) = self.by_address.get(&address) {
            self.peers[id.0].as_mut().expect("listed peers exist").users += 1;
            return id;
        }
        let peer = Peer {
            shared: Shared::new(self.config),
            waiting: VecDeque::new(),
            address,
            users: 1,
            unanswered: 0,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.peers[id.0] = Some(peer);
                id
            }
            None => {
                self.peers.push(Some(peer));
                PeerId(self.peers.len() - 1)
            }
        };
        self.by_address.insert(address, id);
        id
    }

    /// A QP is no longer connected to it.
    pub fn leave(&mut self, id: PeerId, key: QpKey) {
        let Some(peer) = self.peers[id.0].as_mut() else { return };
        peer.users -= 1;
        peer.waiting.retain(|&waiting| waiting != key);
        if peer.users == 0 {
            self.by_address.remove(&peer.address);
            self.peers[id.0] = None;
            self.free.push(id);
        }
    }

    /// Counts a question to the NIC of a peer; `false` if it has left that many unanswered.
    pub fn note_question(&mut self, id: Option<PeerId>, most: u8) -> bool {
        let Some(peer) = id.and_then(|id| self.peers[id.0].as_mut()) else { return false };
        let may_ask = peer.unanswered < most;
        peer.unanswered += u8::from(may_ask);
        may_ask
    }

    /// The NIC of a peer answers.
    pub fn note_answer(&mut self, id: Option<PeerId>) {
        if let Some(peer) = id.and_then(|id| self.peers[id.0].as_mut()) {
            peer.unanswered = 0;
        }
    }

    /// A QP waits for the window to open.
    pub fn wait(&mut self, id: Option<PeerId>, key: QpKey) {
        if let Some(peer) = id.and_then(|id| self.peers[id.0].as_mut()) {
            peer.waiting.push_back(key);
            if let Some(id) = id.filter(|id| !self.waited_for.contains(id)) {
                self.waited_for.push(id);
            }
        }
    }

    /// Wakes QPs that wait for a window that is now open, but no more than it has room for.
    pub fn wake(&mut self, mut awake: impl FnMut(QpKey)) {
        let peers = &mut self.peers;
        self.waited_for.retain(|id| {
            let Some(peer) = peers[id.0].as_mut() else { return false };
            let window = &peer.shared.window;
            if window.is_open() {
                let room = window.limit() - window.in_flight();
                let count = (room / ROOM_PER_QP + 1) as usize;
                peer.waiting.drain(..count.min(peer.waiting.len())).for_each(&mut awake);
            }
            !peer.waiting.is_empty()
        });
    }

    /// Whether a QP waits for a window that is open.
    pub fn has_wakeable(&self) -> bool {
        self.waited_for
            .iter()
            .any(|id| self.peers[id.0].as_ref().is_some_and(|peer| peer.shared.window.is_open()))
    }

    /// What QPs share of a peer; without a peer, a window that is always open.
    pub fn shared(&mut self, id: Option<PeerId>) -> &mut Shared {
        match id.and_then(|id| self.peers[id.0].as_mut()) {
            Some(peer) => &mut peer.shared,
            None => &mut self.nobody,
        }
    }

    /// QPs that wait for a window.
    pub fn waiting(&self) -> usize {
        self.peers.iter().flatten().map(|peer| peer.waiting.len()).sum()
    }

    /// The address and window of each peer, for statistics.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, &Window)> {
        self.peers.iter().flatten().map(|peer| (peer.address, &peer.shared.window))
    }
}
