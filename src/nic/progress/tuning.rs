//! All constants that steer when callers and the progress thread act. Times are [`Duration`]s; the others state their
//! unit. "Worth" is what the constant buys, and where the figure comes from: docs/decisions/0019-progress.md.
//! It also has what half and double of each do.

use std::time::Duration;

/// While callers poll, the progress thread wakes at least this often: to send what was gathered and to check whether
/// they still poll. It also suspends itself after watching a silent link for this long.
///
/// Worth: each wake-up takes about 5 µs of a processor on which an application may be spinning, so 1 ms costs half a
/// percent. A shorter tick costs more; a longer one delays what an application leaves behind when it stops calling.
pub const TICK: Duration = Duration::from_millis(1);

/// The first tick of a suspended thread; each is twice as long as the one before, up to [`TICK`].
///
/// Worth: an application that stops polling at once waits for 0.1 ms instead of 1 ms.
pub const FIRST_TICK: Duration = Duration::from_micros(100);

/// The thread suspends itself when the link has woken it this often in a row without need; wake-ups.
///
/// Worth: 5 to 15 % of the speed of small messages when other programs want the processors too. When an application
/// polls and also looks into its memory, the thread receives a WRITE now and then, and would then watch for another
/// [`TICK`].
pub const MAX_VAIN_WAKEUPS: u32 = 4;

/// An application that has polled this recently is assumed to go on polling.
///
/// Worth: if longer, an application that stops polling to spin on memory waits for more than one tick; if shorter, one
/// that works a little between polls shares its link with the progress thread.
pub const RECENT: Duration = Duration::from_micros(100);

/// The progress thread leaves the NIC alone for this long after it has found a caller driving it.
///
/// Worth: bounds the cost of contended wake-ups to a few percent of the caller's time.
pub const REST: Duration = Duration::from_micros(100);

/// An application that has not called for this long is passive: it needs no processor for calls.
///
/// Worth: the thread spins only for passive applications; spinning beside an application that calls takes the processor
/// from it.
pub const PASSIVE: Duration = Duration::from_millis(2);

/// How long the progress thread spins after serving peers of a passive application, before it sleeps.
///
/// Worth: saves a wake-up for each request of a READ ping-pong, 5 to 6 µs.
pub const PASSIVE_SPIN: Duration = Duration::from_micros(50);

/// How long a thread that waits for an event spins, if its last wait was shorter than that.
///
/// Worth: saves two wake-ups for each message of `ib_send_lat -e`: 7 µs instead of 40. At 30 µs, two peers that had
/// both fallen asleep did not return to spinning.
pub const EVENT_SPIN: Duration = Duration::from_micros(100);

/// A caller that has polled in vain for this long yields the processor.
///
/// Worth: with eight senders on two processors, two thirds of the bandwidth of one sender instead of a fifth. An answer
/// that is on its way arrives sooner, so latency is not affected.
pub const YIELD_AFTER: Duration = Duration::from_micros(12);

/// The same while other threads want the processor.
///
/// Worth: with eight senders, five sixths of the bandwidth of one sender instead of two thirds.
pub const YIELD_SOON: Duration = Duration::from_nanos(500);

/// Another thread wanted the processor if it was away for this long after it was yielded.
///
/// Worth: tells a yield to nobody, which takes half of a microsecond, from two changes of thread.
pub const WANTED_AFTER: Duration = Duration::from_micros(2);

/// A poll that finds completions leaves the link alone for this long after it was last serviced.
///
/// Worth: saves a system call for each poll of a busy queue; the link's receive buffer must hold what arrives in this
/// time.
pub const SERVICE_INTERVAL: Duration = Duration::from_micros(50);

/// The same on a link that receives in memory.
///
/// Worth: the ACK that waits for the next call, and what the peer sends after it, are not kept back until the queue is
/// empty: a tenth of the rate of 64-byte SENDs through shared memory. If shorter, each poll of a busy queue pays for a
/// look at the link, a quarter of a microsecond.
pub const SERVICE_INTERVAL_IN_MEMORY: Duration = Duration::from_micros(5);

/// How often a QP that is about to end, or a process, looks whether the link has taken what is owed to peers, and the pause
/// before it looks again.
///
/// Worth: an ACK that finds no room, or a NIC that another thread drives, and that would be lost with the QP. The peer
/// would send again until its retries are used up. Together 100 ms: long enough for a peer or a thread that waits for a
/// processor, and not for one that is stopped.
pub const SETTLE_LOOKS: usize = 1000;
/// See [`SETTLE_LOOKS`].
pub const SETTLE_PAUSE: Duration = Duration::from_micros(100);

/// How often a progress thread that is too busy to sleep attends to the port and the statistics.
///
/// Worth: bounds their delay; costs a system call each time.
pub const ATTEND: Duration = Duration::from_millis(10);

/// How often the progress thread attends to the processes that share the address, at most.
///
/// Worth: any user of the machine can connect to their name without end, and each time some are let in with the NIC held.
/// That takes a tenth of the time at most. A process that joins waits no longer than this.
pub const ATTEND_MEMBERS: Duration = Duration::from_millis(2);

/// The slice that the progress thread asks the scheduler for: the shortest allowed.
///
/// Worth: under EEVDF (Linux 6.12) the thread preempts an application that spins on memory at once, instead of after
/// the application's slice of some milliseconds.
pub const SLICE: Duration = Duration::from_micros(100);

/// Posts on a busy QP that are gathered before they leave as a batch; requests.
///
/// Worth: one system call for all of them if the link segments.
pub const BATCH: usize = 32;

/// Bytes that are gathered before they leave as a batch: what one segmented send carries.
pub const BATCH_BYTES: u64 = 60 << 10;

/// With at most this many requests outstanding, an answer leaves at once: a peer that answers may acknowledge late.
///
/// Worth: up to 0.6 of the 5 µs of an 8-byte SEND there and back, within the spread of six runs on a busy machine.
pub const FEW: usize = 8;

/// Steps that one hold of the NIC may make, of at most 256 datagrams and 256 packets each.
///
/// Worth: bounds how long other threads wait for the NIC.
pub const ROUNDS_PER_HOLD: usize = 8;
