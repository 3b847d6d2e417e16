//! Options that several loops have.

use std::net::Ipv4Addr;
use std::time::Duration;

use clap::Args;

/// How long.
#[derive(Args, Clone, Copy)]
pub struct Timing {
    /// How long to measure, in seconds
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
}

impl Timing {
    pub fn duration(self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// Where the two processes are.
#[derive(Args, Clone)]
pub struct Places {
    /// Network namespace of the sender
    #[arg(long, value_name = "NAME", requires = "receiver_netns")]
    pub sender_netns: Option<String>,
    /// Network namespace of the receiver
    #[arg(long, value_name = "NAME", requires = "sender_netns")]
    pub receiver_netns: Option<String>,
    /// IPv4 address of the sender
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::LOCALHOST)]
    pub sender: Ipv4Addr,
    /// IPv4 address of the receiver
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::LOCALHOST)]
    pub receiver: Ipv4Addr,
}

/// A message size.
pub fn size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if (1..=256 << 20).contains(&size) => Ok(size),
        _ => Err("not a number of bytes from 1 to 268435456".into()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number from 0.01 to 60".into()),
    }
}
