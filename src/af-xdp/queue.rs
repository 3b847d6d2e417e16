//! One queue of the interface: its socket, packet memory and rings.

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use super::error::Error;
use super::memory::{Sharing, Umem};
use super::options::{CopyChoice, Options};
use super::receive::{Receive, ReceiveCount, Received};
use super::ring::{Consumer, Desc, Producer};
use super::transmit::{Kicked, Slot, SlotLayout, Transmit, TransmitCount};
use super::xsk::{RingKind, Xsk, single_buffer};

/// Completion ring of a queue that only receives; the kernel requires one.
const UNUSED_RING: u32 = 64;
/// The fewest receive chunks and transmit slots with which a queue is of use.
const LEAST_CHUNKS: u32 = 256;
const LEAST_SLOTS: u32 = 64;
/// The most packet memory that a helper pins for another process, in bytes per queue: many times the default.
const MOST_SHARED: usize = 256 << 20;
/// How long the kernel may take to free a queue.
const FREEING: Duration = Duration::from_millis(500);
/// What the kernel adds to each outgoing frame when it charges it to the send buffer.
const SEND_OVERHEAD: usize = 1024;

/// A queue in use.
pub struct Queue {
    receive: Receive,
    transmit: Option<Transmit>,
    /// Dropped before the memory that it uses.
    socket: Xsk,
    umem: Umem,
}

impl Queue {
    /// Passes at most `budget` received frames to `sink`.
    pub fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(&[u8])) -> Received {
        self.receive.drain(&mut self.umem, budget, sink)
    }

    /// Whether the driver waits for [`wake_receive`](Self::wake_receive).
    pub fn needs_wakeup(&self) -> bool {
        self.receive.needs_wakeup()
    }

    /// Makes the kernel look at the chunks that were returned to it, and poll the driver when busy polling.
    pub fn wake_receive(&self) {
        self.socket.wake_receive();
    }

    /// The socket, which is readable when frames have arrived.
    pub fn socket(&self) -> &Xsk {
        &self.socket
    }

    /// A free slot, for one frame of any length that the queue was opened for. A slot that is dropped is lost: it is to be
    /// [queued](Self::queue) or [given back](Self::give_back).
    pub fn take(&mut self) -> Option<Slot> {
        self.transmit.as_mut()?.take()
    }

    /// Returns a slot that was not queued.
    pub fn give_back(&mut self, slot: Slot) {
        if let Some(transmit) = &mut self.transmit {
            transmit.give_back(slot);
        }
    }

    /// Bytes of a slot.
    ///
    /// # Panics
    /// The slot is another queue's, or has fewer bytes.
    pub fn bytes(&self, slot: &Slot, range: Range<usize>) -> &[u8] {
        let address = self.address(slot, &range);
        // SAFETY: the kernel has none of the slot's chunks, as `address` has checked, and gets them only by `queue`, which
        // takes the queue exclusively.
        unsafe { self.umem.bytes(address, range.len()) }
    }

    /// Bytes of a slot, to be written. Their contents are stale.
    ///
    /// # Panics
    /// As for [`bytes`](Self::bytes).
    pub fn bytes_mut(&mut self, slot: &Slot, range: Range<usize>) -> &mut [u8] {
        let address = self.address(slot, &range);
        // SAFETY: as for `bytes`.
        unsafe { self.umem.bytes_mut(address, range.len()) }
    }

    /// Copies the first `len` bytes of a slot to another.
    ///
    /// # Panics
    /// As for [`bytes`](Self::bytes).
    pub fn copy(&mut self, from: &Slot, to: &Slot, len: usize) {
        let (from, to) = (self.address(from, &(0..len)), self.address(to, &(0..len)));
        // SAFETY: as for `bytes`.
        unsafe { self.umem.copy(from, to, len) };
    }

    /// Where bytes of a slot are that the kernel does not have.
    fn address(&self, slot: &Slot, range: &Range<usize>) -> usize {
        self.transmit.as_ref().expect("the slot is this queue's").address(slot, range)
    }

    /// Queues the first `len` bytes of a slot as one frame, which leaves with the next [`kick`](Self::kick).
    ///
    /// # Panics
    /// As for [`bytes`](Self::bytes).
    pub fn queue(&mut self, slot: Slot, len: usize) {
        self.transmit.as_mut().expect("the slot is this queue's").queue(slot, len);
    }

    /// Whether as much is queued as the kernel accepts in one call.
    pub fn has_batch(&self) -> bool {
        self.transmit.as_ref().is_some_and(Transmit::has_batch)
    }

    /// Makes the kernel send as many of the queued frames as it accepts, and takes back the slots of those that have left.
    pub fn kick(&mut self) -> Kicked {
        let Some(transmit) = &mut self.transmit else { return Kicked::default() };
        let kicked = transmit.kick(&self.socket);
        transmit.reap();
        kicked
    }

    /// Whether frames wait for the device below, or all slots wait for completion.
    pub fn is_blocked(&self) -> bool {
        self.transmit.as_ref().is_some_and(Transmit::is_blocked)
    }

    /// Where the receive chunks are.
    pub fn receive_count(&self) -> ReceiveCount {
        self.receive.count()
    }

    /// Where the slots are, if it transmits.
    pub fn transmit_count(&self) -> Option<TransmitCount> {
        self.transmit.as_ref().map(Transmit::count)
    }
}

/// A queue whose socket is bound, before anything has been received or sent.
pub struct BoundQueue {
    rings: Rings,
    socket: Xsk,
    umem: Umem,
    layout: QueueLayout,
}

/// The part of a queue's layout that is fixed when it is bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueLayout {
    /// The receive queue.
    pub queue: u32,
    /// Chunks for receiving, at the start of its packet memory.
    pub rx_chunks: u32,
    /// Slots for transmitting; 0 if it only receives.
    pub tx_slots: u32,
}

impl QueueLayout {
    fn transmit(&self, chunk_size: u32, max_frame: usize) -> SlotLayout {
        SlotLayout {
            base: self.rx_chunks as usize * chunk_size as usize,
            slots: self.tx_slots,
            chunks_per_slot: max_frame.div_ceil(chunk_size as usize) as u32,
            chunk_size: chunk_size as usize,
        }
    }

    /// Chunks of its packet memory.
    fn chunks(&self, chunk_size: u32, max_frame: usize) -> usize {
        let slots = self.transmit(chunk_size, max_frame);
        self.rx_chunks as usize + slots.slots as usize * slots.chunks_per_slot as usize
    }
}

/// How to open a queue.
#[derive(Clone, Copy)]
pub struct QueueSetup<'a> {
    /// The interface.
    pub ifindex: u32,
    /// The receive queue.
    pub queue: u32,
    /// The modes to try, the best first; see [`bind_modes`].
    pub modes: &'a [BindMode],
    /// Sizes, and whether the kernel is asked when it needs a system call.
    pub options: &'a Options,
    /// The longest frame that the interface's MTU allows, in bytes.
    pub max_frame: usize,
    /// Whether it also transmits.
    pub transmits: bool,
    /// Whether another process is to map its memory.
    pub sharing: Sharing,
}

/// What the kernel accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindMode {
    /// Whether the driver uses the packet memory itself.
    pub zero_copy: bool,
    /// Whether frames may span several chunks.
    pub multi_buffer: bool,
}

impl BindMode {
    /// The longest frame that can be received.
    pub fn max_frame(self, chunk_size: u32, wanted: usize) -> usize {
        if self.multi_buffer { wanted } else { wanted.min(single_buffer(chunk_size)) }
    }

    fn describe(self) -> &'static str {
        match (self.zero_copy, self.multi_buffer) {
            (true, true) => "zero copy with multi-buffer",
            (true, false) => "zero copy",
            (false, true) => "copy with multi-buffer",
            (false, false) => "copy",
        }
    }

    fn flags(self) -> u16 {
        let copy = if self.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        copy | if self.multi_buffer { libc::XDP_USE_SG } else { 0 }
    }
}

/// The modes to try, the best first, for frames of up to `max_frame` bytes. `native` is whether the XDP program runs in the
/// driver, and `frags` whether it takes frames in several buffers. What is not tried is added to `refused`, a sentence each.
pub fn bind_modes(
    options: &Options,
    native: bool,
    frags: bool,
    max_frame: usize,
    refused: &mut Vec<String>,
) -> Vec<BindMode> {
    let zero_copy = match options.copy {
        CopyChoice::Best if !native => {
            refused.push("zero copy: SKB mode does not have it".to_owned());
            vec![false]
        }
        CopyChoice::Best => vec![true, false],
        CopyChoice::ZeroCopy => vec![true],
        CopyChoice::Copy => vec![false],
    };
    // Frames that fit in a chunk are faster without multi-buffer; receiving the largest frame matters more than zero
    // copy.
    let several = options.multi_buffer && frags && max_frame > single_buffer(options.chunk_size);
    let multi_buffer = if several { vec![true, false] } else { vec![false] };
    let modes = multi_buffer.into_iter().flat_map(|multi_buffer| {
        zero_copy.iter().map(move |&zero_copy| BindMode { zero_copy, multi_buffer })
    });
    modes.collect()
}

impl BoundQueue {
    /// Sets up the rings of `socket` and binds it in the first mode that the kernel accepts. What it refused before is added
    /// to `refused`, a sentence each.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open(
        socket: Xsk,
        setup: &QueueSetup<'_>,
        refused: &mut Vec<String>,
    ) -> Result<(BoundQueue, BindMode), Error> {
        let (umem, layout) = register(&socket, setup, refused)?;
        let slots = layout.transmit(setup.options.chunk_size, setup.max_frame);
        // Before Linux 6.4 rings cannot be mapped once the socket is bound.
        let rings = Rings::size(&socket, layout, slots)
            .and_then(|()| Rings::map(&socket, layout, slots))
            .map_err(Error::system("creating a ring"))?;
        let mode = bind(&socket, setup, setup.modes, refused)?;
        Ok((BoundQueue { rings, socket, umem, layout }, mode))
    }

    /// A queue that another process has bound, by its socket and the file of its packet memory.
    ///
    /// # Errors
    /// The descriptors are no such things.
    pub fn handed_over(
        socket: OwnedFd,
        memory: OwnedFd,
        layout: QueueLayout,
        chunk_size: u32,
        max_frame: usize,
    ) -> Result<BoundQueue, Error> {
        let socket = Xsk::from_fd(socket);
        let umem = Umem::of_file(memory, layout.chunks(chunk_size, max_frame), chunk_size as usize)
            .map_err(Error::system("mapping packet memory"))?;
        let slots = layout.transmit(chunk_size, max_frame);
        let rings = Rings::map(&socket, layout, slots)
            .map_err(Error::system("mapping the rings of a bound socket (which takes Linux 6.4)"))?;
        Ok(BoundQueue { rings, socket, umem, layout })
    }

    /// Its socket.
    pub fn socket(&self) -> &Xsk {
        &self.socket
    }

    /// The file of its packet memory, if that is [shared](Sharing::Shared).
    pub fn memory_file(&self) -> Option<BorrowedFd<'_>> {
        self.umem.file()
    }

    /// What is fixed by now.
    pub fn layout(&self) -> QueueLayout {
        self.layout
    }

    /// Puts the queue into use, which gives all chunks to the kernel. It transmits if it has slots. With `always_wake`, each
    /// kick makes a system call.
    ///
    /// # Errors
    /// The send buffer cannot be set.
    pub fn start(self, mode: BindMode, always_wake: bool, max_frame: usize) -> Result<Queue, Error> {
        let BoundQueue { rings, socket, umem, layout } = self;
        let chunk_size = umem.chunk_size();
        let slots = layout.transmit(chunk_size as u32, max_frame);
        let in_flight = slots.slots as usize * (max_frame + SEND_OVERHEAD);
        socket.set_send_buffer(in_flight).map_err(Error::system("setting the send buffer"))?;
        let receive = Receive::new(
            rings.receive,
            rings.fill,
            layout.rx_chunks,
            chunk_size,
            mode.max_frame(chunk_size as u32, max_frame),
        );
        let transmit = rings
            .transmit
            .map(|(ring, completion)| Transmit::new(ring, completion, slots, mode.zero_copy, always_wake));
        Ok(Queue { receive, transmit, socket, umem })
    }
}

/// The rings of a queue. One that only receives has a completion ring too, which is never read.
struct Rings {
    fill: Producer<u64>,
    receive: Consumer<Desc>,
    transmit: Option<(Producer<Desc>, Consumer<u64>)>,
}

impl Rings {
    fn size(socket: &Xsk, layout: QueueLayout, slots: SlotLayout) -> io::Result<()> {
        socket.size_ring(RingKind::Fill, Receive::fill_ring_size(layout.rx_chunks))?;
        socket.size_ring(RingKind::Receive, layout.rx_chunks)?;
        if layout.tx_slots == 0 {
            return socket.size_ring(RingKind::Completion, UNUSED_RING);
        }
        socket.size_ring(RingKind::Transmit, slots.ring_size())?;
        socket.size_ring(RingKind::Completion, slots.completion_size())
    }

    fn map(socket: &Xsk, layout: QueueLayout, slots: SlotLayout) -> io::Result<Rings> {
        let transmit = if layout.tx_slots == 0 {
            None
        } else {
            Some((socket.transmit_ring(slots.ring_size())?, socket.completion_ring(slots.completion_size())?))
        };
        Ok(Rings {
            fill: socket.fill_ring(Receive::fill_ring_size(layout.rx_chunks))?,
            receive: socket.receive_ring(layout.rx_chunks)?,
            transmit,
        })
    }
}

/// Registers the requested packet memory, halving it until the limit of locked memory allows it.
fn register(
    socket: &Xsk,
    setup: &QueueSetup<'_>,
    refused: &mut Vec<String>,
) -> Result<(Umem, QueueLayout), Error> {
    let QueueSetup { queue, options, max_frame, transmits, sharing, .. } = *setup;
    let mut layout = QueueLayout {
        queue,
        rx_chunks: options.rx_chunks,
        tx_slots: if transmits { options.tx_slots } else { 0 },
    };
    let mut too_much = None;
    loop {
        let chunks = layout.chunks(options.chunk_size, max_frame);
        if sharing == Sharing::Shared && chunks * options.chunk_size as usize > MOST_SHARED {
            return Err(Error::BadOption("at most 256 MiB of packet memory are granted for a queue"));
        }
        let umem = Umem::new(chunks, options.chunk_size as usize, sharing)
            .map_err(Error::system("allocating packet memory"))?;
        let kib = umem.memory().len() >> 10;
        match socket.register(&umem) {
            Ok(()) => {
                if let Some(wanted) = too_much {
                    refused.push(format!(
                        "{wanted} KiB of packet memory for queue {queue}: `ulimit -l` allows less, {kib} KiB are used"
                    ));
                }
                return Ok((umem, layout));
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) && layout.rx_chunks > LEAST_CHUNKS => {
                too_much = too_much.or(Some(kib));
                layout.rx_chunks /= 2;
                layout.tx_slots = (layout.tx_slots / 2).max(layout.tx_slots.min(LEAST_SLOTS));
            }
            Err(error) => {
                return Err(Error::System {
                    what: "registering packet memory (without CAP_IPC_LOCK, `ulimit -l` may be too low)",
                    error,
                });
            }
        }
    }
}

/// Binds, retrying for a while if necessary: the kernel frees the queue of a closed socket or a killed process in the
/// background (`xp_release_deferred`).
fn bind_once_free(socket: &Xsk, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
    let end = Instant::now() + FREEING;
    loop {
        match socket.bind(ifindex, queue, flags) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                thread::sleep(FREEING / 100);
            }
            result => return result,
        }
    }
}

fn bind(
    socket: &Xsk,
    setup: &QueueSetup<'_>,
    modes: &[BindMode],
    refused: &mut Vec<String>,
) -> Result<BindMode, Error> {
    let QueueSetup { ifindex, queue, .. } = *setup;
    let wakeup = if setup.options.need_wakeup { libc::XDP_USE_NEED_WAKEUP } else { 0 };
    for mode in modes {
        match bind_once_free(socket, ifindex, queue, mode.flags() | wakeup) {
            Ok(()) => return Ok(*mode),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(Error::System {
                    what: "binding a receive queue that another AF_XDP socket has",
                    error,
                });
            }
            Err(error) => refused.push(match error.raw_os_error() {
                Some(libc::EOPNOTSUPP) => format!("{}: the driver does not support it", mode.describe()),
                _ => format!("{} on queue {queue}: {error}", mode.describe()),
            }),
        }
    }
    Err(Error::Refused(std::mem::take(refused)))
}
