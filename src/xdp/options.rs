//! Options of an `xdp` link, the mode obtained, and why it could not be opened.

use std::fmt;
use std::io;
use std::net::IpAddr;

pub use softrnic_af_xdp::{BusyPoll, CopyChoice};

/// How to set up an `xdp` link. The default uses the best that the interface offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdpOptions {
    /// Where in the kernel the program runs.
    pub attach: AttachChoice,
    /// Whether the kernel copies frames.
    pub copy: CopyChoice,
    /// The receive queues to serve; if empty, all that are in use. Frames of other queues go to the kernel.
    /// Transmission uses the first.
    pub queues: Vec<u32>,
    /// Bytes of a UMEM chunk: 2048 or 4096.
    pub chunk_size: u32,
    /// UMEM chunks for receiving, per queue, and the size of the receive ring; a power of two.
    pub rx_chunks: u32,
    /// Datagrams that can be queued for sending; a power of two. Each has room for the largest frame.
    pub tx_slots: u32,
    /// Whether frames may span several chunks. Otherwise the largest frame is one chunk less 256 bytes, and at most
    /// 3520 bytes.
    pub multi_buffer: bool,
    /// Whether the kernel may say when it needs a system call; otherwise every flush makes one.
    pub need_wakeup: bool,
    /// Drive the driver from [`softrnic_link::Link::receive`] instead of from interrupts.
    pub busy_poll: Option<BusyPoll>,
    /// The addresses to serve; if empty, those of the interface and of its VLANs, kept up to date.
    pub addresses: Vec<IpAddr>,
}

impl Default for XdpOptions {
    fn default() -> XdpOptions {
        XdpOptions {
            attach: AttachChoice::Best,
            copy: CopyChoice::Best,
            queues: Vec::new(),
            chunk_size: 4096,
            rx_chunks: 2048,
            tx_slots: 512,
            multi_buffer: true,
            need_wakeup: true,
            busy_poll: None,
            addresses: Vec::new(),
        }
    }
}

/// Where the program should run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachChoice {
    /// In the driver, or failing that as `Skb`.
    Best,
    /// In the driver only.
    Native,
    /// In the generic receive path, which works with every driver.
    Skb,
}

/// Where the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachMode {
    /// In the driver.
    Native,
    /// In the generic receive path.
    Skb,
}

/// What was obtained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdpMode {
    /// Name of the interface.
    pub interface: String,
    /// Where the program runs.
    pub attach: AttachMode,
    /// Whether the driver uses the UMEM itself.
    pub zero_copy: bool,
    /// Whether frames may span several chunks.
    pub multi_buffer: bool,
    /// Whether we poll the driver.
    pub busy_poll: bool,
    /// The receive queues served.
    pub queues: Vec<u32>,
    /// What was tried before and refused, one sentence each.
    pub refused: Vec<String>,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attach = match self.attach {
            AttachMode::Native => "native",
            AttachMode::Skb => "SKB",
        };
        let copy = if self.zero_copy { "zero copy" } else { "copy" };
        let buffers = if self.multi_buffer { "multi-buffer" } else { "single buffer" };
        let busy = if self.busy_poll { ", busy poll" } else { "" };
        let queues = self.queues.len();
        let plural = if queues == 1 { "" } else { "s" };
        write!(f, "xdp {} ({attach}, {copy}, {buffers}{busy}, {queues} queue{plural}", self.interface)?;
        if !self.refused.is_empty() {
            write!(f, "; refused: {}", self.refused.join("; "))?;
        }
        f.write_str(")")
    }
}

/// Why an `xdp` link could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum XdpError {
    /// There is no interface with this name.
    NoInterface(String),
    /// The interface has no Ethernet header.
    NotEthernet(String),
    /// A foreign XDP program is attached, which we must not replace.
    Occupied {
        /// The interface.
        interface: String,
        /// Ids and names of the attached programs.
        programs: String,
    },
    /// An option is out of range.
    BadOption(&'static str),
    /// A capability is missing.
    Privilege {
        /// What was attempted.
        what: &'static str,
        /// The capabilities that it needs.
        needs: &'static str,
    },
    /// A system call failed.
    System {
        /// What was attempted.
        what: &'static str,
        /// Its error.
        error: io::Error,
    },
    /// The kernel rejected the program or its maps.
    Program(String),
    /// Every permitted mode was refused; one sentence each.
    Refused(Vec<String>),
    /// The helper listening on a socket gave no grant.
    Grant {
        /// The socket.
        socket: String,
        /// Why.
        reason: String,
    },
}

impl XdpError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> XdpError {
        move |error| XdpError::System { what, error }
    }
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            XdpError::NoInterface(name) => write!(f, "there is no interface {name}"),
            XdpError::NotEthernet(name) => write!(f, "{name} is not an Ethernet interface"),
            XdpError::Occupied { interface, programs } => write!(
                f,
                "{interface} already has an XDP program ({programs}), which is not replaced: detach it, or \
                 stop the process that it belongs to"
            ),
            XdpError::BadOption(what) => f.write_str(what),
            XdpError::Privilege { what, needs } => write!(f, "{what} needs {needs}"),
            XdpError::System { what, error } => write!(f, "{what}: {error}"),
            XdpError::Program(error) => write!(f, "the XDP program: {error}"),
            XdpError::Refused(reasons) => write!(f, "no permitted mode works: {}", reasons.join("; ")),
            XdpError::Grant { socket, reason } => write!(f, "no grant from {socket}: {reason}"),
        }
    }
}

impl std::error::Error for XdpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            XdpError::System { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl XdpOptions {
    /// Those of each queue.
    pub(super) fn of_queues(&self) -> softrnic_af_xdp::Options {
        softrnic_af_xdp::Options {
            copy: self.copy,
            chunk_size: self.chunk_size,
            rx_chunks: self.rx_chunks,
            tx_slots: self.tx_slots,
            multi_buffer: self.multi_buffer,
            need_wakeup: self.need_wakeup,
        }
    }

    /// # Errors
    /// [`XdpError::BadOption`] for values that the kernel would refuse without saying which one.
    pub(super) fn check(&self) -> Result<(), XdpError> {
        Ok(self.of_queues().check()?)
    }
}

impl From<softrnic_af_xdp::Error> for XdpError {
    fn from(error: softrnic_af_xdp::Error) -> XdpError {
        use softrnic_af_xdp::Error;
        match error {
            Error::BadOption(what) => XdpError::BadOption(what),
            Error::System { what, error } => XdpError::System { what, error },
            Error::Refused(reasons) => XdpError::Refused(reasons),
            other => XdpError::Refused(vec![other.to_string()]),
        }
    }
}
