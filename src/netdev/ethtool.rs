//! The ethtool queries that netlink attributes do not answer.

use std::io;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use super::Queues;

// linux/ethtool.h and linux/sockios.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3C;
const ETHTOOL_GSTRINGS: u32 = 0x1B;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3A;
/// The set of feature names (`ETH_SS_FEATURES`).
const FEATURES: u32 = 4;

/// More features than there are: some seventy on Linux 6.
const MAX_FEATURES: usize = 256;
/// Words of a name (`ETH_GSTRING_LEN`), and of the four masks of 32 features (`struct ethtool_get_features_block`).
const NAME_WORDS: usize = 8;
const BLOCK_WORDS: usize = 4;

/// `struct ethtool_channels` in words: command, four maxima, then counts.
const CHANNELS_WORDS: usize = 9;
/// `struct ethtool_drvinfo` in words: command, driver name of 32 bytes, and fields not used here.
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
    Ok(text(&words[1..9]))
}

/// Names of the offloads that are switched on, as `ethtool -k` shows them.
pub(super) fn offloads(name: &str) -> io::Result<Vec<String>> {
    // struct ethtool_sset_info: a 64-bit mask after the command and four reserved bytes, then counts.
    let mut info = [0; 5];
    let wanted = (1u64 << FEATURES).to_ne_bytes();
    let (low, high) = wanted.split_at(4);
    info[0] = ETHTOOL_GSSET_INFO;
    for (word, bytes) in info[2..4].iter_mut().zip([low, high]) {
        *word = u32::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    ethtool(name, &mut info)?;
    let count = info[4] as usize;
    // The kernel writes all names, whatever the size of the buffer.
    if count > MAX_FEATURES {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut names = vec![0; 3 + MAX_FEATURES * NAME_WORDS];
    names[..2].copy_from_slice(&[ETHTOOL_GSTRINGS, FEATURES]);
    ethtool(name, &mut names)?;
    let mut masks = [0; 2 + MAX_FEATURES / 32 * BLOCK_WORDS];
    masks[..2].copy_from_slice(&[ETHTOOL_GFEATURES, (MAX_FEATURES / 32) as u32]);
    ethtool(name, &mut masks)?;
    // The third mask of each block says what is active.
    let is_active = |feature: &usize| masks[2 + feature / 32 * BLOCK_WORDS + 2] >> (feature % 32) & 1 == 1;
    let feature_name = |feature: usize| text(&names[3 + feature * NAME_WORDS..][..NAME_WORDS]);
    Ok((0..count).filter(is_active).map(feature_name).collect())
}

/// A string that fills words up to a zero byte.
fn text(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

fn ethtool(name: &str, words: &mut [u32]) -> io::Result<()> {
    // SAFETY: integers, for which zero is valid, and a union whose pointers may be null.
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
    // SAFETY: the kernel reads and writes `request` and the words that it points to, which outlive the call. Callers,
    // all in this file, pass as many words as the structure of their command has.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
