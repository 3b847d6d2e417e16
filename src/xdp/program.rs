//! The XDP program: loading, attaching, and its maps.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray, XskMap};
use aya::programs::{Xdp, loaded_programs};
use aya::{Ebpf, EbpfLoader};
use softrnic_af_xdp::Xsk;
use softrnic_wire::Gid;
use softrnic_xdp_prog::{self as xdp_prog, Verdict};

use super::options::{AttachChoice, AttachMode, XdpError};

// linux/bpf.h and linux/if_link.h.
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

const LOADING_NEEDS: &str = "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (CAP_SYS_ADMIN before Linux 5.8)";

/// The maps of a loaded program.
pub(super) struct Maps {
    pub(super) sockets: Sockets,
    pub(super) addresses: Addresses,
    /// Read-only, as declared in the program's source, so it may be handed to any process.
    pub(super) verdicts: OwnedFd,
}

/// The sockets that the program redirects to.
pub(super) struct Sockets(XskMap<MapData>);

/// The addresses whose datagrams the program steers.
pub(super) struct Addresses(HashMap<MapData, [u8; 16], u8>);

/// What the program counts.
pub(super) struct Verdicts(PerCpuArray<MapData, u64>);

/// A program that stays attached as long as this value, and so the process, exists.
pub(super) struct Attached {
    pub(super) link: OwnedFd,
    pub(super) maps: Maps,
    pub(super) mode: AttachMode,
    /// Whether it accepts frames in several buffers.
    pub(super) frags: bool,
}

/// What the program did with frames, summed over processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XdpVerdicts {
    /// Redirected to a socket of ours.
    pub redirected: u64,
    /// Ours, but no socket serves the receive queue.
    pub passed_no_socket: u64,
    /// Not IP, or behind more than two VLAN tags.
    pub passed_not_ip: u64,
    /// IP, but not directly followed by UDP.
    pub passed_not_udp: u64,
    /// An IPv4 fragment.
    pub passed_fragment: u64,
    /// Another UDP port.
    pub passed_other_port: u64,
    /// The RoCEv2 port of an address that is not the device's.
    pub passed_other_address: u64,
    /// Headers cut short or contradictory.
    pub passed_truncated: u64,
}

impl Attached {
    /// Loads the program and attaches it. Needs `CAP_NET_ADMIN`, `CAP_BPF` and `CAP_PERFMON`.
    pub(super) fn new(
        ifindex: u32,
        interface: &str,
        choice: AttachChoice,
        refused: &mut Vec<String>,
    ) -> Result<Attached, XdpError> {
        let (mut ebpf, frags) = match load(xdp_prog::STEER_FRAGS) {
            Ok(ebpf) => (ebpf, true),
            Err(error @ XdpError::Privilege { .. }) => return Err(error),
            Err(error) => {
                let ebpf = load(xdp_prog::STEER_LINEAR)?;
                refused.push(format!("multi-buffer: the kernel refuses such a program ({error})"));
                (ebpf, false)
            }
        };
        let name = if frags { xdp_prog::STEER_FRAGS } else { xdp_prog::STEER_LINEAR };
        let maps = Maps {
            sockets: Sockets(map(map_descriptor(&ebpf, xdp_prog::SOCKETS)?)?),
            addresses: Addresses(map(map_descriptor(&ebpf, xdp_prog::ADDRESSES)?)?),
            verdicts: map_descriptor(&ebpf, xdp_prog::VERDICTS)?,
        };
        let program = program(&mut ebpf, name)?;
        let fd = program.fd().map_err(|error| XdpError::Program(error.to_string()))?;
        let modes: &[AttachMode] = match choice {
            AttachChoice::Best => &[AttachMode::Native, AttachMode::Skb],
            AttachChoice::Native => &[AttachMode::Native],
            AttachChoice::Skb => &[AttachMode::Skb],
        };
        for mode in modes {
            match create_link(fd.as_fd().as_raw_fd() as u32, ifindex, *mode) {
                Ok(link) => return Ok(Attached { link, maps, mode: *mode, frags }),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EBUSY | libc::EEXIST) => {
                        let programs = "a program attached meanwhile".to_owned();
                        return Err(XdpError::Occupied { interface: interface.to_owned(), programs });
                    }
                    Some(libc::EPERM) => {
                        return Err(XdpError::Privilege {
                            what: "attaching the XDP program",
                            needs: "CAP_NET_ADMIN",
                        });
                    }
                    _ => refused.push(match mode {
                        AttachMode::Native => format!("native XDP: the driver refuses it ({error})"),
                        AttachMode::Skb => format!("SKB mode: {error}"),
                    }),
                },
            }
        }
        Err(XdpError::Refused(std::mem::take(refused)))
    }
}

impl Sockets {
    /// Redirects frames of a receive queue to `socket`, which is bound to it.
    pub(super) fn set(&mut self, queue: u32, socket: &Xsk) -> Result<(), XdpError> {
        self.0
            .set(queue, socket.as_raw_fd(), 0)
            .map_err(|error| XdpError::Program(format!("cannot steer packets to queue {queue}: {error}")))
    }
}

impl Addresses {
    /// Steers datagrams to `ip` from now on.
    pub(super) fn add(&mut self, ip: IpAddr) -> io::Result<()> {
        self.0.insert(Gid::from(ip).0, 1, 0).map_err(io::Error::other)
    }

    pub(super) fn remove(&mut self, ip: IpAddr) -> io::Result<()> {
        self.0.remove(&Gid::from(ip).0).map_err(io::Error::other)
    }
}

impl Verdicts {
    pub(super) fn new(map: OwnedFd) -> Result<Verdicts, XdpError> {
        Ok(Verdicts(self::map(map)?))
    }

    pub(super) fn read(&self) -> io::Result<XdpVerdicts> {
        let count = |verdict: Verdict| -> io::Result<u64> {
            Ok(self.0.get(&(verdict as u32), 0).map_err(io::Error::other)?.iter().sum())
        };
        Ok(XdpVerdicts {
            redirected: count(Verdict::Redirected)?,
            passed_no_socket: count(Verdict::PassedNoSocket)?,
            passed_not_ip: count(Verdict::PassedNotIp)?,
            passed_not_udp: count(Verdict::PassedNotUdp)?,
            passed_fragment: count(Verdict::PassedFragment)?,
            passed_other_port: count(Verdict::PassedOtherPort)?,
            passed_other_address: count(Verdict::PassedOtherAddress)?,
            passed_truncated: count(Verdict::PassedTruncated)?,
        })
    }
}

/// Ids and, where we may see them, names of programs.
pub(super) fn describe_programs(ids: &[u32]) -> String {
    let known: Vec<_> = loaded_programs().filter_map(Result::ok).collect();
    let describe = |id: &u32| {
        let program = known.iter().find(|program| program.id() == *id);
        match program.and_then(|program| program.name_as_str()) {
            Some(name) => format!("id {id}, {name}"),
            None => format!("id {id}"),
        }
    };
    ids.iter().map(describe).collect::<Vec<_>>().join("; ")
}

fn load(name: &str) -> Result<Ebpf, XdpError> {
    let mut ebpf = EbpfLoader::new().load(xdp_prog::OBJECT).map_err(|error| match os_error(&error) {
        Some(libc::EPERM) => {
            XdpError::Privilege { what: "creating the XDP program's maps", needs: LOADING_NEEDS }
        }
        _ => program_error(error),
    })?;
    program(&mut ebpf, name)?.load().map_err(|error| match os_error(&error) {
        Some(libc::EPERM) => XdpError::Privilege { what: "loading the XDP program", needs: LOADING_NEEDS },
        // Variable offsets into packets, which IPv4 options require, need CAP_PERFMON.
        Some(libc::EACCES) if error.to_string().contains("prohibited for !root") => {
            XdpError::Privilege { what: "loading the XDP program", needs: LOADING_NEEDS }
        }
        _ => program_error(error),
    })?;
    Ok(ebpf)
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, XdpError> {
    let program = ebpf.program_mut(name);
    program
        .and_then(|program| program.try_into().ok())
        .ok_or_else(|| XdpError::Program(format!("the object has no program {name}")))
}

/// Attaches with a BPF link, which the kernel removes when its last descriptor is closed, however the process ends.
/// (`aya` would fall back to an attachment that outlives the process.)
fn create_link(program: u32, ifindex: u32, mode: AttachMode) -> io::Result<OwnedFd> {
    /// The part of `union bpf_attr` that this command reads.
    #[repr(C)]
    struct LinkCreate {
        program: u32,
        ifindex: u32,
        attach_type: u32,
        flags: u32,
    }
    let flags = match mode {
        AttachMode::Native => XDP_FLAGS_DRV_MODE,
        AttachMode::Skb => XDP_FLAGS_SKB_MODE,
    };
    let attributes = LinkCreate { program, ifindex, attach_type: BPF_XDP, flags };
    // SAFETY: the attributes have the given length, and live through the call, which reads them; the descriptor is new
    // and has no other owner.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_bpf,
            BPF_LINK_CREATE,
            &raw const attributes,
            size_of_val(&attributes) as libc::c_uint,
        );
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as _)) }
    }
}

fn map_descriptor(ebpf: &Ebpf, name: &str) -> Result<OwnedFd, XdpError> {
    match ebpf.map(name) {
        Some(Map::XskMap(map) | Map::HashMap(map) | Map::PerCpuArray(map)) => {
            map.fd().as_fd().try_clone_to_owned().map_err(XdpError::system("duplicating a map's descriptor"))
        }
        _ => Err(XdpError::Program(format!("the object has no map {name}"))),
    }
}

fn map<M: TryFrom<Map, Error = MapError>>(fd: OwnedFd) -> Result<M, XdpError> {
    let map = MapData::from_fd(fd).and_then(Map::from_map_data).map_err(program_error)?;
    map.try_into().map_err(program_error)
}

fn program_error(error: impl std::error::Error) -> XdpError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    XdpError::Program(shortened(&text))
}

/// The verifier's output can be thousands of lines, of which the last ones say what is wrong.
fn shortened(text: &str) -> String {
    const LAST: usize = 6;
    let lines: Vec<&str> = text.trim_end().lines().collect();
    match lines.split_first() {
        Some((first, rest)) if rest.len() > LAST => {
            format!("{first}\n…\n{}", rest[rest.len() - LAST..].join("\n"))
        }
        _ => text.to_owned(),
    }
}

/// The system error at the root of another.
fn os_error(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut error = Some(error);
    while let Some(this) = error {
        if let Some(io) = this.downcast_ref::<io::Error>() {
            return io.raw_os_error();
        }
        error = this.source();
    }
    None
}
