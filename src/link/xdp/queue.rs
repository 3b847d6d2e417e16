//! One queue of the interface: its socket, packet memory and rings.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::memory::Umem;
use super::options::{AttachMode, CopyChoice, XdpError, XdpOptions};
use super::receive::Receive;
use super::transmit::{SlotLayout, Transmit};
use super::xsk::{Xsk, single_buffer};

/// Completion ring of a queue that only receives; the kernel wants one to be there.
const UNUSED_RING: u32 = 64;
/// Receive chunks and transmit slots below which a queue is of no use.
const LEAST_CHUNKS: u32 = 256;
const LEAST_SLOTS: u32 = 64;
/// How long the kernel may take to free a queue.
const FREEING: Duration = Duration::from_millis(500);
/// What the kernel adds to a frame on its way out, when it counts against the send buffer.
const SEND_OVERHEAD: usize = 1024;

/// A queue that is bound. The socket goes before the memory that it uses.
pub(super) struct Queue {
    pub(super) receive: Receive,
    pub(super) socket: Xsk,
    pub(super) umem: Umem,
}

/// How a queue is to be opened.
#[derive(Clone, Copy)]
pub(super) struct QueueSetup<'a> {
    pub(super) ifindex: u32,
    pub(super) queue: u32,
    pub(super) modes: &'a [BindMode],
    pub(super) options: &'a XdpOptions,
    /// The longest frame of the interface's MTU, in bytes.
    pub(super) max_frame: usize,
    /// Whether it also transmits.
    pub(super) transmits: bool,
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

/// What may be tried, the best first, for frames of up to `max_frame` bytes.
pub(super) fn bind_modes(
    options: &XdpOptions,
    attach: AttachMode,
    frags: bool,
    max_frame: usize,
    refused: &mut Vec<String>,
) -> Vec<BindMode> {
    let zero_copy = match options.copy {
        CopyChoice::Best if attach == AttachMode::Skb => {
            refused.push("zero copy: SKB mode has none".to_owned());
            vec![false]
        }
        CopyChoice::Best => vec![true, false],
        CopyChoice::ZeroCopy => vec![true],
        CopyChoice::Copy => vec![false],
    };
    // Frames that fit in a chunk go faster without; the largest frame matters more than zero copy.
    let several = options.multi_buffer && frags && max_frame > single_buffer(options.chunk_size);
    let multi_buffer = if several { vec![true, false] } else { vec![false] };
    let modes = multi_buffer.into_iter().flat_map(|multi_buffer| {
        zero_copy.iter().map(move |&zero_copy| BindMode { zero_copy, multi_buffer })
    });
    modes.collect()
}

impl Queue {
    /// Sets up the rings of `socket` and binds it in the first of the modes that the kernel accepts.
    /// The transmit half is there when `setup` asks for it.
    pub(super) fn open(
        socket: Xsk,
        setup: &QueueSetup<'_>,
        refused: &mut Vec<String>,
    ) -> Result<(Queue, Option<Transmit>, BindMode), XdpError> {
        let QueueSetup { modes, options, max_frame, transmits, .. } = *setup;
        let chunk_size = options.chunk_size as usize;
        let PacketMemory { umem, rx_chunks, layout } = PacketMemory::register(&socket, setup, refused)?;
        let rings_error = "creating a ring";
        let fill =
            socket.fill_ring(Receive::fill_ring_size(rx_chunks)).map_err(XdpError::system(rings_error))?;
        let receive_ring = socket.receive_ring(rx_chunks).map_err(XdpError::system(rings_error))?;
        let transmit_rings = if transmits {
            let ring = socket.transmit_ring(layout.ring_size()).map_err(XdpError::system(rings_error))?;
            let completion =
                socket.completion_ring(layout.completion_size()).map_err(XdpError::system(rings_error))?;
            Some((ring, completion))
        } else {
            socket.completion_ring(UNUSED_RING).map_err(XdpError::system(rings_error))?;
            None
        };
        let mode = bind(&socket, setup, modes, refused)?;
        let in_flight = layout.slots as usize * (max_frame + SEND_OVERHEAD);
        socket.set_send_buffer(in_flight).map_err(XdpError::system("setting the send buffer"))?;
        let receive = Receive::new(
            receive_ring,
            fill,
            rx_chunks,
            chunk_size,
            mode.max_frame(options.chunk_size, max_frame),
        );
        let transmit = transmit_rings.map(|(ring, completion)| {
            Transmit::new(ring, completion, layout, mode.zero_copy, !options.need_wakeup)
        });
        Ok((Queue { receive, socket, umem }, transmit, mode))
    }
}

/// The memory of a queue, registered with its socket.
struct PacketMemory {
    umem: Umem,
    rx_chunks: u32,
    layout: SlotLayout,
}

impl PacketMemory {
    /// Registers what is asked for, or the half of it as often as the limit of locked memory demands.
    fn register(
        socket: &Xsk,
        setup: &QueueSetup<'_>,
        refused: &mut Vec<String>,
    ) -> Result<PacketMemory, XdpError> {
        let QueueSetup { queue, options, max_frame, transmits, .. } = *setup;
        let chunk_size = options.chunk_size as usize;
        let (mut rx_chunks, mut slots) = (options.rx_chunks, if transmits { options.tx_slots } else { 0 });
        let mut too_much = None;
        loop {
            let layout = SlotLayout {
                base: rx_chunks as usize * chunk_size,
                slots,
                chunks_per_slot: max_frame.div_ceil(chunk_size) as u32,
                chunk_size,
            };
            let chunks = (rx_chunks + layout.slots * layout.chunks_per_slot) as usize;
            let umem = Umem::new(chunks, chunk_size).map_err(XdpError::system("allocating packet memory"))?;
            let kib = umem.memory().len() >> 10;
            match socket.register(&umem) {
                Ok(()) => {
                    if let Some(wanted) = too_much {
                        refused.push(format!(
                            "{wanted} KiB of packet memory for queue {queue}: `ulimit -l` allows less, {kib} KiB \
                             are used"
                        ));
                    }
                    return Ok(PacketMemory { umem, rx_chunks, layout });
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) && rx_chunks > LEAST_CHUNKS => {
                    too_much = too_much.or(Some(kib));
                    rx_chunks /= 2;
                    slots = (slots / 2).max(slots.min(LEAST_SLOTS));
                }
                Err(error) => {
                    return Err(XdpError::System {
                        what: "registering packet memory (more than `ulimit -l` allows, without CAP_IPC_LOCK?)",
                        error,
                    });
                }
            }
        }
    }
}

/// Binds, after a while if need be: the kernel frees the queue of a socket that was closed, or of a
/// process that was killed, in the background (`xp_release_deferred`).
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
