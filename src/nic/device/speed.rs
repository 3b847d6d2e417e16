//! How fast a port says that it is.

/// Lanes and their speed, with the numbers of verbs: the smallest that the kernel gives to an interface which is as fast
/// (`ib_get_width_and_speed`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortSpeed {
    /// Bits per second.
    pub bits: u64,
    /// `ibv_port_attr.active_width`.
    pub width: u8,
    /// `ibv_port_attr.active_speed`.
    pub speed: u8,
    /// As sysfs shows it.
    pub text: &'static str,
}

const MEGABIT: u64 = 1_000_000;

/// What a port says whose interface has no speed, such as loopback and veth.
const UNKNOWN: PortSpeed =
    PortSpeed { bits: 10_000 * MEGABIT, width: 2, speed: 1, text: "10 Gb/sec (4X SDR)" };

/// Up to so many megabits per second: width, speed, and the two in words.
const SPEEDS: &[(u64, u8, u8, &str)] = &[
    (1_000, 1, 1, "2.5 Gb/sec (1X SDR)"),
    (10_000, 1, 8, "10 Gb/sec (1X FDR10)"),
    (20_000, 2, 2, "20 Gb/sec (4X DDR)"),
    (25_000, 1, 32, "25 Gb/sec (1X EDR)"),
    (40_000, 2, 8, "40 Gb/sec (4X FDR10)"),
    (50_000, 16, 32, "50 Gb/sec (2X EDR)"),
    (100_000, 2, 32, "100 Gb/sec (4X EDR)"),
    (200_000, 2, 64, "200 Gb/sec (4X HDR)"),
    (u64::MAX / MEGABIT, 2, 128, "400 Gb/sec (4X NDR)"),
];

impl PortSpeed {
    /// Of a port that sends so many bits per second; `None` if that is not known.
    pub fn of(bits: Option<u64>) -> PortSpeed {
        let Some(bits) = bits else { return UNKNOWN };
        let found = SPEEDS.iter().find(|(most, ..)| bits <= most * MEGABIT);
        found.map_or(UNKNOWN, |&(_, width, speed, text)| PortSpeed { bits, width, speed, text })
    }

    /// In units of 100 Mb/s, of which there is at least one.
    pub fn hundred_megabits(&self) -> u64 {
        self.bits.div_ceil(100 * MEGABIT).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_those_of_the_kernel() {
        for (megabits, text, hundreds) in [
            (Some(100), "2.5 Gb/sec (1X SDR)", 1),
            (Some(1_000), "2.5 Gb/sec (1X SDR)", 10),
            (Some(10_000), "10 Gb/sec (1X FDR10)", 100),
            (Some(100_000), "100 Gb/sec (4X EDR)", 1000),
            (Some(400_000), "400 Gb/sec (4X NDR)", 4000),
            (None, "10 Gb/sec (4X SDR)", 100),
        ] {
            let speed = PortSpeed::of(megabits.map(|number| number * MEGABIT));
            assert_eq!((speed.text, speed.hundred_megabits()), (text, hundreds));
        }
        assert_eq!(PortSpeed::of(Some(1)).hundred_megabits(), 1);
    }
}
