//! The devices and their links: one parser for the environment and the command line.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use softrnic_fabric_link::{FabricLink, JoinError, Network, rendezvous};
use softrnic_link::Link;
use softrnic_link::addresses::AddressesLink;
use softrnic_link::fault::{FaultLink, FaultNotes, FaultSpec, FaultTally};
use softrnic_mapping::Thread;
use softrnic_models::Model;
use softrnic_netdev::Host;
use softrnic_shm::ShmLink;
use softrnic_sys::BlockedSignals;
use softrnic_transport::Config as TransportConfig;
use softrnic_udp::{UdpLink, UdpOptions};
use softrnic_wire::MAX_PATHS;
#[cfg(feature = "xdp")]
use softrnic_xdp::{XdpError, XdpOptions};

use super::adversary::AdversarySeed;
use super::captures::{self, OpenCapture};
use super::hardware::Hardware;
use super::port::{Attachment, addresses_of};
use super::rails;
use super::recording::Recording;
use softrnic_sys::environment;

/// A device: name, link and options, as in `softrnic0=udp:10.0.0.5?rcvbuf=212992`.
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// The result of `ibv_get_device_name`.
    pub name: String,
    /// The link.
    pub link: LinkKind,
    /// Faults to inject.
    pub fault: Option<FaultSpec>,
    /// The capture to make.
    pub pcap: Option<Recording>,
    /// How its QPs behave, apart from their attributes: with `early=off` they retransmit only after the local ACK
    /// timeout, with `ecn=on` they mark packets as ECN-capable and slow down on CNPs, and unless `recovery=gbn` they send again
    /// only what was lost, where the peer's NIC does as well; with `paths=8` they spread their packets over eight UDP source
    /// ports then.
    pub transport: TransportConfig,
    /// Whether the kernel makes the copies to and from registered memory (`copies=safe`). The use of unmapped memory is
    /// then an error even if the program replaces the handlers of SIGSEGV and SIGBUS. `None` leaves it to
    /// `SOFTRNIC_SAFE_COPIES`.
    pub safe_copies: Option<bool>,
    /// Whether a UDP link uses shared memory for peers of the same user on this machine. `None` means yes, unless
    /// `SOFTRNIC_SHM` is `off`.
    pub shared_memory: Option<bool>,
    /// Whether each datagram has an ICRC even where only the peer's process sees it (`icrc=always`).
    pub icrc_always: bool,
    /// The seed by which the NIC uses every freedom that the specification gives it; `None` if it does what serves best.
    pub adversary: Option<u64>,
    /// The device whose limits and rules it imitates; `None` for its own.
    pub like: Option<&'static Model>,
    /// What it says of the machine that it is in (`pci=`, `numa=`, `speed=`).
    pub hardware: Hardware,
}

/// The link of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LinkKind {
    /// UDP sockets on an address, or on a free loopback address.
    Udp(UdpOptions),
    /// UDP sockets on all addresses of an interface, which may change.
    UdpInterface {
        /// The interface.
        interface: String,
        /// The options of each of them.
        options: UdpOptions,
    },
    /// A host of a fabric that runs on this machine (`softrnic fabric up`).
    Fabric {
        /// The fabric's name.
        fabric: String,
        /// The host's.
        host: String,
    },
    /// AF_XDP on an interface.
    #[cfg(feature = "xdp")]
    Xdp {
        /// The interface.
        interface: String,
        /// Its options.
        options: XdpOptions,
        /// The socket of a privileged helper (`softrnic grant`). Without one, and without `SOFTRNIC_GRANT`, the process
        /// itself needs the privileges.
        grant: Option<String>,
    },
}

/// A device specification that cannot be parsed, with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpecError(String);

impl SpecError {
    pub(super) fn new(text: String) -> SpecError {
        SpecError(text)
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

/// Why a device could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The UDP link.
    Udp(softrnic_link::OpenError),
    /// The UDP links of an interface.
    UdpInterface {
        /// The interface.
        interface: String,
        /// The error of one of its links.
        error: softrnic_link::OpenError,
    },
    /// The link to a fabric.
    Fabric(JoinError),
    /// The XDP link.
    #[cfg(feature = "xdp")]
    Xdp(XdpError),
    /// The capture file.
    Capture {
        /// Its name.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The system refused a descriptor or a thread.
    System(std::io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Udp(error) => error.fmt(f),
            OpenError::UdpInterface { interface, error } => write!(f, "interface {interface}: {error}"),
            OpenError::Fabric(error) => error.fmt(f),
            #[cfg(feature = "xdp")]
            OpenError::Xdp(error) => error.fmt(f),
            OpenError::Capture { path, error } => write!(f, "cannot write the capture file {path}: {error}"),
            OpenError::System(error) => write!(f, "cannot start the device: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl Default for DeviceSpec {
    fn default() -> Self {
        DeviceSpec {
            name: "softrnic0".into(),
            link: LinkKind::Udp(UdpOptions::default()),
            fault: None,
            pcap: None,
            transport: TransportConfig::default(),
            safe_copies: None,
            shared_memory: None,
            icrc_always: false,
            adversary: None,
            like: None,
            hardware: Hardware::default(),
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = SpecError;

    /// `[NAME=]udp[:ADDRESS][?key=value&…]`, `[NAME=]udp:INTERFACE[?…]`, `[NAME=]xdp:INTERFACE[?…]` or
    /// `[NAME=]fabric:FABRIC/HOST[?…]`.
    fn from_str(text: &str) -> Result<DeviceSpec, SpecError> {
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) if !name.contains([':', '?']) => (name, rest),
            _ => ("softrnic0", text),
        };
        if name.is_empty()
            || name.len() > 63
            || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
        {
            return Err(SpecError(format!(
                "'{name}' is not a device name: use letters, digits, '_' and '-', at most 63"
            )));
        }
        let (link, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (kind, place) = link.split_once(':').unwrap_or((link, ""));
        let mut transport = TransportConfig::default();
        let (mut safe_copies, mut shared_memory, mut icrc_always) = (None, None, false);
        let mut hardware = Hardware::default();
        let mut like = None;
        let mut of_link = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some((key @ "early", value)) => transport.early_retransmission = switch(key, value)?,
                Some(("recovery", "selective")) => transport.selective_recovery = true,
                Some(("recovery", "gbn")) => transport.selective_recovery = false,
                Some(("recovery", value)) => {
                    return Err(SpecError(format!("recovery={value}: use selective or gbn")));
                }
                Some((key @ "paths", value)) => transport.paths = paths(key, value)?,
                Some((key @ "ecn", value)) => transport.congestion_control = switch(key, value)?,
                Some(("copies", "safe")) => safe_copies = Some(true),
                Some(("copies", "plain")) => safe_copies = Some(false),
                Some(("copies", value)) => {
                    return Err(SpecError(format!("copies={value}: use safe or plain")));
                }
                Some(("like", value)) => {
                    let model = Model::named(value);
                    like = Some(model.map_err(|error| SpecError(format!("like={value}: {error}")))?);
                }
                #[cfg(feature = "planted")]
                Some(("planted", value)) => {
                    let fault = softrnic_transport::Fault::named(value);
                    transport.planted =
                        Some(fault.ok_or_else(|| SpecError(format!("planted={value}: no such fault")))?);
                }
                Some((key @ "shm", value)) if kind == "udp" => shared_memory = Some(switch(key, value)?),
                Some(("icrc", "always")) if kind == "udp" => icrc_always = true,
                Some(("icrc", "wire")) if kind == "udp" => icrc_always = false,
                Some(("icrc", value)) if kind == "udp" => {
                    return Err(SpecError(format!("icrc={value}: use wire or always")));
                }
                Some((key, value)) if hardware.take(key, value).map_err(SpecError)? => {}
                _ => of_link.push(option),
            }
        }
        if transport.paths > 1 && !(transport.selective_recovery && transport.early_retransmission) {
            return Err(SpecError("paths of more than 1 need recovery=selective and early=on".into()));
        }
        let options = of_link.into_iter();
        let link = match kind {
            "udp" => udp_link(place, options)?,
            "fabric" => fabric_link(place, options)?,
            #[cfg(feature = "xdp")]
            "xdp" => xdp::link(place, options)?,
            #[cfg(not(feature = "xdp"))]
            "xdp" => return Err(SpecError(format!("{rest}: this build was made without the feature xdp"))),
            _ => {
                return Err(SpecError(format!(
                    "'{rest}' is not a link: use udp, udp:ADDRESS, udp:INTERFACE, xdp:INTERFACE or fabric:NAME/HOST"
                )));
            }
        };
        Ok(DeviceSpec {
            name: name.into(),
            link,
            fault: None,
            pcap: None,
            transport,
            safe_copies,
            shared_memory,
            icrc_always,
            adversary: None,
            like,
            hardware,
        })
    }
}

const EVERY_DEVICE: &str = "every device has early, ecn, recovery, paths, copies, like, pci, numa and speed";

fn key_value(option: &str) -> Result<(&str, &str), SpecError> {
    option
        .split_once('=')
        .ok_or_else(|| SpecError(format!("option '{option}' has no value: write key=value")))
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, SpecError> {
    value.parse().map_err(|_| SpecError(format!("{key}={value}: not a number in range")))
}

fn paths(key: &str, value: &str) -> Result<u8, SpecError> {
    match number(key, value)? {
        count @ 1..=MAX_PATHS => Ok(count),
        count => Err(SpecError(format!("{key}={count}: use a number from 1 to {MAX_PATHS}"))),
    }
}

fn switch(key: &str, value: &str) -> Result<bool, SpecError> {
    match value {
        "on" | "1" | "yes" => Ok(true),
        "off" | "0" | "no" => Ok(false),
        _ => Err(SpecError(format!("{key}={value}: use on or off"))),
    }
}

fn udp_link<'a>(place: &str, options: impl Iterator<Item = &'a str>) -> Result<LinkKind, SpecError> {
    let options = udp_options(options)?;
    if place.is_empty() {
        return Ok(LinkKind::Udp(options));
    }
    let plain = place.trim_start_matches('[').trim_end_matches(']');
    match plain.parse::<IpAddr>() {
        Ok(address) => Ok(LinkKind::Udp(UdpOptions { address: Some(address), ..options })),
        Err(_) if may_be_interface(place) => Ok(LinkKind::UdpInterface { interface: place.into(), options }),
        Err(_) => Err(SpecError(format!("'{place}' is not an IPv4 or IPv6 address, nor an interface"))),
    }
}

fn fabric_link<'a>(place: &str, mut options: impl Iterator<Item = &'a str>) -> Result<LinkKind, SpecError> {
    if let Some(option) = options.next() {
        return Err(SpecError(format!("fabric has no option '{option}'; {EVERY_DEVICE}")));
    }
    match place.split_once('/') {
        Some((fabric, host)) if rendezvous::is_name(fabric) && !host.is_empty() => {
            Ok(LinkKind::Fabric { fabric: fabric.into(), host: host.into() })
        }
        _ => Err(SpecError(format!("'{place}' is not a host of a fabric: write fabric:NAME/HOST"))),
    }
}

/// Whether a text may be the name of an interface (`dev_valid_name` of Linux), and does not look like an address.
fn may_be_interface(text: &str) -> bool {
    let looks_like_address = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_name =
        text.len() < libc::IFNAMSIZ && !text.contains(['/', ':']) && !text.contains(char::is_whitespace);
    is_name && !looks_like_address
}

fn udp_options<'a>(options: impl Iterator<Item = &'a str>) -> Result<UdpOptions, SpecError> {
    let mut udp = UdpOptions { shared: true, ..UdpOptions::default() };
    for option in options {
        let (key, value) = key_value(option)?;
        match key {
            "rcvbuf" => udp.receive_buffer = Some(number(key, value)?),
            "segmentation" => udp.segmentation = switch(key, value)?,
            "coalescing" => udp.gro = switch(key, value)?,
            "shared" => udp.shared = switch(key, value)?,
            _ => {
                return Err(SpecError(format!(
                    "udp has no option '{key}': it has rcvbuf, segmentation, coalescing, shared, shm and icrc; {EVERY_DEVICE}"
                )));
            }
        }
    }
    Ok(udp)
}

impl DeviceSpec {
    /// Whether copies are to be safe for every region.
    pub fn copies_safely(&self) -> bool {
        self.safe_copies.unwrap_or_else(|| environment::text("SOFTRNIC_SAFE_COPIES").as_deref() == Some("1"))
    }

    /// Whether a UDP link has shared memory beside it.
    fn shares_memory(&self) -> bool {
        self.shared_memory.unwrap_or_else(|| environment::text("SOFTRNIC_SHM").as_deref() != Some("off"))
    }

    /// The devices that the environment asks for: `SOFTRNIC_DEVICES` (several separated by commas), `SOFTRNIC_FAULT`,
    /// `SOFTRNIC_ADVERSARIAL`, `SOFTRNIC_LIKE`, and `SOFTRNIC_PCAP` with its options; by default `softrnic0` on a free loopback address.
    ///
    /// # Errors
    /// A variable cannot be parsed.
    pub fn from_env() -> Result<Vec<DeviceSpec>, SpecError> {
        let text = environment::text("SOFTRNIC_DEVICES").unwrap_or_default();
        let fault = environment::text("SOFTRNIC_FAULT").map(|spec| spec.parse::<FaultSpec>());
        let fault = fault.transpose().map_err(|error| SpecError(error.to_string()))?;
        let recording = Recording::from_env()?;
        let adversary = environment::text("SOFTRNIC_ADVERSARIAL").map(|seed| seed.parse::<AdversarySeed>());
        let adversary =
            adversary.transpose().map_err(|error| SpecError(format!("SOFTRNIC_ADVERSARIAL={error}")))?;
        let mut specs = DeviceSpec::list(&text)?;
        if let Some(name) = environment::text("SOFTRNIC_LIKE") {
            let model =
                Model::named(&name).map_err(|error| SpecError(format!("SOFTRNIC_LIKE={name}: {error}")))?;
            DeviceSpec::imitate(&mut specs, model);
        }
        for spec in &mut specs {
            spec.fault = fault.as_ref().map(|fault| fault.of_device(&spec.name));
            spec.pcap = recording.clone();
            spec.adversary = adversary.map(|AdversarySeed(seed)| seed);
        }
        Ok(specs)
    }

    /// Has all devices imitate one, except those that imitate another already.
    pub fn imitate(specs: &mut [DeviceSpec], model: &'static Model) {
        specs.iter_mut().for_each(|spec| spec.like = spec.like.or(Some(model)));
        DeviceSpec::give_places(specs);
    }

    /// Devices with SRD are where programs look for them: on PCI, under names as udev gives them, unless they have others.
    fn give_places(specs: &mut [DeviceSpec]) {
        let with_srd = |spec: &&mut DeviceSpec| spec.like.is_some_and(|model| model.srd.is_some());
        for (index, spec) in specs.iter_mut().filter(with_srd).enumerate().take(32) {
            let device = 31 - index;
            if spec.name.strip_prefix("softrnic").is_some_and(|rest| rest.parse::<usize>().is_ok()) {
                spec.name = format!("rdmap0s{device}");
            }
            if spec.hardware.pci.is_none() {
                spec.hardware.pci = format!("0000:00:{device:02x}.0").parse().ok();
            }
        }
    }

    /// The devices of a command line as one text; `@FILE` stands for those in a file.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn join(arguments: &[String]) -> Result<String, SpecError> {
        rails::join(arguments)
    }

    /// Several devices, separated by commas, with lists in brackets for several at once (`rails.rs`); `softrnic0` on a free
    /// loopback address if there are none. A device without a name is `softrnicN`, where N is its index in the list.
    ///
    /// # Errors
    /// One cannot be parsed, or two have the same name or the same place.
    pub fn list(text: &str) -> Result<Vec<DeviceSpec>, SpecError> {
        let mut specs = Vec::new();
        for (index, part) in rails::expand(text)?.iter().enumerate() {
            let mut spec: DeviceSpec = part.parse()?;
            if !part.split([':', '?']).next().unwrap_or(part).contains('=') {
                spec.name = format!("softrnic{index}");
            }
            if specs.iter().any(|known: &DeviceSpec| known.name == spec.name) {
                return Err(SpecError(format!("two devices are called {}", spec.name)));
            }
            let elsewhere = |known: &&DeviceSpec| match (&known.hardware.pci, &spec.hardware.pci) {
                (Some(known), Some(own)) => !known.fits(own),
                _ => false,
            };
            if let Some(known) = specs.iter().find(elsewhere) {
                let names = (&known.name, &spec.name);
                return Err(SpecError(format!("{} and {} are at the same place of PCI", names.0, names.1)));
            }
            specs.push(spec);
        }
        if specs.is_empty() {
            specs.push(DeviceSpec::default());
        }
        DeviceSpec::give_places(&mut specs);
        Ok(specs)
    }

    /// Opens a UDP link, with shared memory if that is wanted. Returns its address too.
    fn open_udp(&self, options: UdpOptions) -> Result<(Box<dyn Link>, IpAddr), softrnic_link::OpenError> {
        let udp = UdpLink::open(options)?;
        let address = udp.address();
        let link = if self.shares_memory() { self.with_connections(udp, address) } else { Box::new(udp) };
        Ok((link, address))
    }

    /// Opens a UDP link for each address of an interface.
    fn open_interface(
        &self,
        name: &str,
        options: UdpOptions,
    ) -> Result<AddressesLink, softrnic_link::OpenError> {
        let system = |error: std::io::Error| softrnic_link::OpenError::System {
            doing: "reading the machine's interfaces",
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        };
        let host = Host::open().map_err(system)?;
        let interface = host.interface_by_name(name).ok_or(softrnic_link::OpenError::NoInterface)?;
        let addresses = addresses_of(&host, interface.index);
        if addresses.is_empty() {
            return Err(softrnic_link::OpenError::NoAddress);
        }
        let spec = self.clone();
        let opener = move |address, slot| {
            spec.open_udp(UdpOptions { address: Some(address), slot, ..options }).map(|(link, _)| link)
        };
        AddressesLink::open(&addresses, Arc::new(opener), in_background)
    }

    /// Adds shared memory, if it is available.
    fn with_connections(&self, udp: UdpLink, address: IpAddr) -> Box<dyn Link> {
        match ShmLink::new(udp, address) {
            Ok(link) if self.icrc_always => Box::new(link.with_icrcs()),
            Ok(link) => Box::new(link),
            Err((udp, error)) => {
                tracing::info!(device = self.name, %address, %error, "no shared memory on this machine");
                Box::new(udp)
            }
        }
    }

    /// Opens the link with its layers: capture at the bottom, so that it records what really leaves, and faults above
    /// it.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_link(&self) -> Result<OpenedLink, OpenError> {
        let mut network = None;
        let (mut link, attachment, address): (Box<dyn Link>, _, _) = match &self.link {
            LinkKind::Udp(options) => {
                let (link, address) = self.open_udp(*options).map_err(OpenError::Udp)?;
                let attachment = (!address.is_loopback()).then_some(Attachment::Address(address));
                (link, attachment, Some(address))
            }
            LinkKind::UdpInterface { interface, options } => {
                let link = self
                    .open_interface(interface, *options)
                    .map_err(|error| OpenError::UdpInterface { interface: interface.clone(), error })?;
                (Box::new(link), Some(Attachment::Interface(interface.clone())), None)
            }
            LinkKind::Fabric { fabric, host } => {
                let link = FabricLink::join(fabric, host).map_err(OpenError::Fabric)?;
                let address = link.address();
                network = Some(link.network());
                (Box::new(link), None, Some(address))
            }
            #[cfg(feature = "xdp")]
            LinkKind::Xdp { interface, options, grant } => {
                let xdp = xdp::open(interface, options, grant.as_deref()).map_err(OpenError::Xdp)?;
                for refused in &xdp.mode().refused {
                    tracing::warn!(device = self.name, interface, "{refused}");
                }
                (Box::new(xdp), Some(Attachment::Interface(interface.clone())), None)
            }
        };
        let (mut recorded, mut faults) = (None, None);
        let fault = self.fault.clone().unwrap_or_default();
        if let Some(recording) = &self.pcap {
            let capture = captures::open(recording)
                .map_err(|error| OpenError::Capture { path: recording.path.clone(), error })?;
            // There are no faults yet, but some may be commanded.
            let notes = FaultNotes::default();
            link = capture.record(link, &self.name, notes.clone());
            let faulty = FaultLink::new(link, &fault).with_notes(notes);
            faults = Some(faulty.tally());
            link = Box::new(faulty);
            recorded = Some(capture);
        } else if !fault.is_empty() {
            let faulty = FaultLink::new(link, &fault);
            faults = Some(faulty.tally());
            link = Box::new(faulty);
        }
        Ok(OpenedLink { link, attachment, address, network, capture: recorded, faults })
    }
}

/// Runs something in a thread of its own, which gets no signals.
fn in_background(run: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
    let _signals = BlockedSignals::new();
    Thread::spawn(c"softrnic-open", run).map(drop)
}

/// A link, and what it is attached to.
pub struct OpenedLink {
    /// The link with its layers.
    pub link: Box<dyn Link>,
    /// The interface that the port follows; without one the port is always up.
    pub attachment: Option<Attachment>,
    /// The address of a link that has just one.
    pub address: Option<IpAddr>,
    /// The network that the link leads to, if that is not the machine's.
    pub network: Option<Network>,
    /// The file that it is recorded to, which other devices of the process may share.
    pub capture: Option<Arc<OpenCapture>>,
    /// What its faults have done.
    pub faults: Option<FaultTally>,
}

#[cfg(test)]
mod tests;
#[cfg(feature = "xdp")]
mod xdp;
