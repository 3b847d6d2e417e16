//! One queue of the interface: its socket, packet memory and rings.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use super::memory::{Sharing, Umem};
use super::options::{AttachMode, CopyChoice, XdpError, XdpOptions};
use super::receive::Receive;
use super::ring::{Consumer, Desc, Producer};
use super::transmit::{SlotLayout, Transmit};
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

/// A queue in use. The socket is dropped before the memory that it uses.
pub(super) struct Queue {
    pub(super) receive: Receive,
    pub(super) socket: Xsk,
    pub(super) umem: Umem,
}

/// A queue whose socket is bound, before anything has been received or sent.
pub(super) struct BoundQueue {
    rings: Rings,
    pub(super) socket: Xsk,
    pub(super) umem: Umem,
    pub(super) layout: QueueLayout,
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
    pub(super) fn chunks(&self, chunk_size: u32, max_frame: usize) -> usize {
        let slots = self.transmit(chunk_size, max_frame);
        self.rx_chunks as usize + slots.slots as usize * slots.chunks_per_slot as usize
    }
}

/// How to open a queue.
#[derive(Clone, Copy)]
pub(super) struct QueueSetup<'a> {
    pub(super) ifindex: u32,
    pub(super) queue: u32,
    pub(super) modes: &'a [BindMode],
    pub(super) options: &'a XdpOptions,
    /// The longest frame that the interface's MTU allows, in bytes.
    pub(super) max_frame: usize,
    /// Whether it also transmits.
    pub(super) transmits: bool,
    pub(super) sharing: Sharing,
}

/// What the kernel accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BindMode {
    pub(super) zero_copy: bool,
    pub(super) multi_buffer: bool,
}

impl BindMode {
    /// The longest frame that can be received.
    pub(super) fn max_frame(self, chunk_size: u32, wanted: usize) -> usize {
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

/// The modes to try, the best first, for frames of up to `max_frame` bytes.
pub(super) fn bind_modes(
    options: &XdpOptions,
    attach: AttachMode,
    frags: bool,
    max_frame: usize,
    refused: &mut Vec<String>,
) -> Vec<BindMode> {
    let zero_copy = match options.copy {
        CopyChoice::Best if attach == AttachMode::Skb => {
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
    /// Sets up the rings of `socket` and binds it in the first mode that the kernel accepts.
    pub(super) fn open(
        socket: Xsk,
        setup: &QueueSetup<'_>,
        refused: &mut Vec<String>,
    ) -> Result<(BoundQueue, BindMode), XdpError> {
        let (umem, layout) = register(&socket, setup, refused)?;
        let slots = layout.transmit(setup.options.chunk_size, setup.max_frame);
        // Before Linux 6.4 rings cannot be mapped once the socket is bound.
        let rings = Rings::size(&socket, layout, slots)
            .and_then(|()| Rings::map(&socket, layout, slots))
            .map_err(XdpError::system("creating a ring"))?;
        let mode = bind(&socket, setup, setup.modes, refused)?;
        Ok((BoundQueue { rings, socket, umem, layout }, mode))
    }

    /// A queue that another process has bound.
    pub(super) fn handed_over(
        socket: OwnedFd,
        memory: OwnedFd,
        layout: QueueLayout,
        chunk_size: u32,
        max_frame: usize,
    ) -> Result<BoundQueue, XdpError> {
        let socket = Xsk::from_fd(socket);
        let umem = Umem::of_file(memory, layout.chunks(chunk_size, max_frame), chunk_size as usize)
            .map_err(XdpError::system("mapping packet memory"))?;
        let slots = layout.transmit(chunk_size, max_frame);
        let rings = Rings::map(&socket, layout, slots)
            .map_err(XdpError::system("mapping the rings of a bound socket (which takes Linux 6.4)"))?;
        Ok(BoundQueue { rings, socket, umem, layout })
    }

    /// Puts the queue into use, which gives all chunks to the kernel. It has a transmit half if it has slots.
    pub(super) fn start(
        self,
        mode: BindMode,
        always_wake: bool,
        max_frame: usize,
    ) -> Result<(Queue, Option<Transmit>), XdpError> {
        let BoundQueue { rings, socket, umem, layout } = self;
        let chunk_size = umem.chunk_size();
        let slots = layout.transmit(chunk_size as u32, max_frame);
        let in_flight = slots.slots as usize * (max_frame + SEND_OVERHEAD);
        socket.set_send_buffer(in_flight).map_err(XdpError::system("setting the send buffer"))?;
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
        Ok((Queue { receive, socket, umem }, transmit))
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
) -> Result<(Umem, QueueLayout), XdpError> {
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
            return Err(XdpError::BadOption("at most 256 MiB of packet memory are granted for a queue"));
        }
        let umem = Umem::new(chunks, options.chunk_size as usize, sharing)
            .map_err(XdpError::system("allocating packet memory"))?;
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
                return Err(XdpError::System {
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
) -> Result<BindMode, XdpError> {
    let QueueSetup { ifindex, queue, .. } = *setup;
    let wakeup = if setup.options.need_wakeup { libc::XDP_USE_NEED_WAKEUP } else { 0 };
    for mode in modes {
        match bind_once_free(socket, ifindex, queue, mode.flags() | wakeup) {
            Ok(()) => return Ok(*mode),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(XdpError::System {
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
    Err(XdpError::Refused(std::mem::take(refused)))
}
