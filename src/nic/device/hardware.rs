//! What a device says of the machine that it is in: its place on PCI, its NUMA node, and how fast its port is.
//!
//! Programs choose and merge NICs by these. They are shown, and change nothing else.

use std::fmt;
use std::str::FromStr;

use softrnic_link::fault::bits_per_second;

/// Nothing is known of a device by default, as of rxe's.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Hardware {
    /// The bridges above the device, if it is on PCI, and itself.
    pub pci: Option<PciPath>,
    /// Its NUMA node.
    pub numa_node: Option<u16>,
    /// Bits per second of its port.
    pub speed: Option<u64>,
}

impl Hardware {
    /// Takes an option of a device; false if it is another's.
    ///
    /// # Errors
    /// Why it cannot be parsed.
    pub(super) fn take(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "pci" => self.pci = Some(value.parse().map_err(|problem| format!("pci={value}: {problem}"))?),
            "numa" => {
                let node = value.parse().map_err(|_| format!("numa={value}: not a number in range"))?;
                self.numa_node = Some(node);
            }
            "speed" => self.speed = Some(bits_per_second(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A function of a PCI device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PciAddress {
    /// Its domain.
    pub domain: u16,
    /// Its bus.
    pub bus: u8,
    /// Its place there, up to 31.
    pub device: u8,
    /// Up to 7.
    pub function: u8,
}

impl FromStr for PciAddress {
    type Err = &'static str;

    /// `0000:10:00.0`, as sysfs writes it; without a domain, that is 0.
    fn from_str(text: &str) -> Result<PciAddress, &'static str> {
        let wrong = "write DOMAIN:BUS:DEVICE.FUNCTION as sysfs does, such as 0000:10:00.0";
        let hex = |digits: &str, most: u16| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = plain.then(|| u16::from_str_radix(digits, 16).ok()).flatten();
            number.filter(|number| *number <= most)
        };
        let parse = || {
            let (place, function) = text.rsplit_once('.')?;
            let (bus, device) = place.rsplit_once(':')?;
            let (domain, bus) = bus.split_once(':').unwrap_or(("0", bus));
            Some(PciAddress {
                domain: hex(domain, u16::MAX)?,
                bus: hex(bus, 0xFF)? as u8,
                device: hex(device, 31)? as u8,
                function: hex(function, 7)? as u8,
            })
        };
        parse().ok_or(wrong)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// The way from a root of PCI to a device: bridges, and the device last.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PciPath(Vec<PciAddress>);

impl FromStr for PciPath {
    type Err = String;

    /// Addresses with `/` between them, as in the path of a device in sysfs.
    fn from_str(text: &str) -> Result<PciPath, String> {
        let path: Vec<PciAddress> = text.split('/').map(str::parse).collect::<Result<_, _>>()?;
        let mut sorted = path.clone();
        sorted.sort();
        sorted.dedup();
        if sorted.len() < path.len() {
            return Err("an address is there twice".to_owned());
        }
        Ok(PciPath(path))
    }
}

impl PciPath {
    /// The bridges, from the root on.
    pub fn bridges(&self) -> &[PciAddress] {
        self.0.split_last().map_or(&[], |(_, bridges)| bridges)
    }

    /// Bridges and device, from the root on.
    pub fn all(&self) -> &[PciAddress] {
        &self.0
    }

    /// Whether a machine can have a device here and one there.
    pub(super) fn fits(&self, other: &PciPath) -> bool {
        let is_in = |path: &PciPath, device: Option<&PciAddress>| {
            device.is_some_and(|device| path.0.contains(device))
        };
        !is_in(self, other.0.last()) && !is_in(other, self.0.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_they_are_written() {
        for (text, written) in
            [("0000:10:00.0", "0000:10:00.0"), ("c1:1f.7", "0000:c1:1f.7"), ("1A:2:3.4", "001a:02:03.4")]
        {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), written);
        }
        for text in [
            "",
            "0000:10:00",
            "0000:10:20.0",
            "0000:10:00.8",
            "x:10:00.0",
            "+1:10:00.0",
            "10000:10:00.0",
            "1:2:3:4.0",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_ends_at_the_device() {
        let path: PciPath = "0000:00:01.0/0000:10:00.0".parse().unwrap();
        assert_eq!(path.bridges(), ["0000:00:01.0".parse().unwrap()]);
        assert_eq!(path.all().len(), 2);
        assert!("0000:00:01.0/0000:00:01.0".parse::<PciPath>().is_err());
        let beside: PciPath = "0000:00:01.0/0000:10:00.1".parse().unwrap();
        let above: PciPath = "0000:00:01.0".parse().unwrap();
        assert!(path.fits(&beside) && !path.fits(&above) && !above.fits(&path) && !path.fits(&path.clone()));
    }
}
