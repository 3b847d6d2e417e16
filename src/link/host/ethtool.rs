//! The two ethtool questions that netlink attributes do not answer.

use std::io;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use super::Queues;

// linux/ethtool.h and linux/sockios.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3C;

/// `struct ethtool_channels` in words: command, four maxima, then counts.
const CHANNELS_WORDS: usize = 9;
/// `struct ethtool_drvinfo` in words: command, driver name of 32 bytes, and what does not matter here.
const DRVINFO_WORDS: usize = 49;

/// Queues in use.
pub(super) fn queues(name: &str) -> io::Result<Queues> {
    let mut words = [0; CHANNELS_WORDS];
    words[0] = ETHTOOL_GCHANNELS;
    ethtool(name, &mut words)?;
    let [_, _, _, _, _, rx, tx, _, combined] = words;
    Ok(Queues { rx: (rx + combined).max(1), tx: (tx + combined).max(1) })
}

/// Name of the driver.
pub(super) fn driver(name: &str) -> io::Result<String> {
    let mut words = [0; DRVINFO_WORDS];
    words[0] = ETHTOOL_GDRVINFO;
    ethtool(name, &mut words)?;
    let bytes = words[1..9].iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0);
    Ok(String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned())
}

fn ethtool<const N: usize>(name: &str, words: &mut [u32; N]) -> io::Result<()> {
    // SAFETY: plain C data, for which all zero is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // Any socket of the network namespace will do.
    let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("::1", 0)))?;
    // SAFETY: the kernel reads and writes `request` and the words it points to, which are alive and as
    // long as the structure that their command stands for.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
