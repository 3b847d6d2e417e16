//! An interface whose frames are taken and given.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::offload::{HEADER, Offload};
use crate::sys::{self, BATCH, Message};

/// The longest that the kernel hands over: 64 KiB of payload, and headers.
const LONGEST: usize = HEADER + (1 << 16) + 512;
/// Frames that wait for the kernel, at most.
const WAITING: usize = 1024;

/// What became of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TapCounters {
    /// Frames received, after segmentation.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames that could not be received: too long, or described in a way that makes no sense.
    pub refused: u64,
    /// Frames that the interface did not take.
    pub lost: u64,
}

/// See the [crate](crate).
pub struct Tap {
    socket: OwnedFd,
    buffers: Box<[Box<[u8]>; BATCH]>,
    messages: [Message; BATCH],
    scratch: Vec<u8>,
    tagged: Vec<u8>,
    /// Frames that wait until the kernel takes them, and frames to be used again.
    waiting: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    counters: TapCounters,
}

impl Tap {
    /// Takes all that arrives at an interface from now on.
    ///
    /// # Errors
    /// There is no such interface, or no right to do so (`CAP_NET_RAW`).
    pub fn open(interface: &str) -> io::Result<Tap> {
        Ok(Tap {
            socket: sys::open(interface)?,
            buffers: Box::new(std::array::from_fn(|_| vec![0; LONGEST].into_boxed_slice())),
            messages: [Message::default(); BATCH],
            scratch: Vec::new(),
            tagged: Vec::new(),
            waiting: Vec::new(),
            spare: Vec::new(),
            counters: TapCounters::default(),
        })
    }

    /// Readable when something has arrived.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What became of frames.
    pub fn counters(&self) -> TapCounters {
        self.counters
    }

    /// Gives what has arrived to `sink`, frame by frame as on a cable, without FCS. Returns how many messages of the kernel
    /// there were; there may be more if there were many.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let Tap { socket, buffers, messages, scratch, tagged, counters, .. } = self;
        let count = match sys::receive(socket, buffers, messages) {
            Ok(count) => count,
            // The interface is down; it may come up again.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::NetworkDown | ErrorKind::Interrupted
                ) =>
            {
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
        for (message, buffer) in messages.iter().zip(buffers.iter_mut()).take(count) {
            let Some((header, frame)) = buffer[..message.len.min(LONGEST)].split_first_chunk_mut() else {
                counters.refused += 1;
                continue;
            };
            let makes_sense = !message.is_cut
                && Offload::read(header).complete(frame, scratch, &mut |frame| {
                    counters.received += 1;
                    match (message.vlan, frame.split_at_checked(12)) {
                        (Some((kind, tag)), Some((macs, rest))) => {
                            tagged.clear();
                            for part in [macs, &kind.to_be_bytes(), &tag.to_be_bytes(), rest] {
                                tagged.extend_from_slice(part);
                            }
                            sink(tagged);
                        }
                        _ => sink(frame),
                    }
                });
            counters.refused += u64::from(!makes_sense);
        }
        Ok(count)
    }

    /// Queues a frame, without FCS. It leaves with the next [`flush`](Tap::flush).
    pub fn send(&mut self, frame: &[u8]) {
        if self.waiting.len() == WAITING {
            self.flush();
        }
        if self.waiting.len() == WAITING {
            self.counters.lost += 1;
            return;
        }
        let mut own = self.spare.pop().unwrap_or_default();
        own.clear();
        own.extend_from_slice(frame);
        self.waiting.push(own);
    }

    /// Sends what is queued, as far as the kernel takes it.
    pub fn flush(&mut self) {
        let mut done = 0;
        while done < self.waiting.len() {
            match sys::send(&self.socket, &[0; HEADER], &self.waiting[done..]) {
                Ok(sent) => {
                    done += sent;
                    self.counters.sent += sent as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Too long for the interface, which may be down, too.
                Err(_) => {
                    done += 1;
                    self.counters.lost += 1;
                }
            }
        }
        self.spare.extend(self.waiting.drain(..done));
    }

    /// Whether something waits until the kernel takes it.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}
