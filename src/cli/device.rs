//! The devices of the two processes of demo and bench.

use clap::Args;
use softrnic_nic::verbs::DeviceSpec;

use crate::failure::{Failure, Result};

#[derive(Args)]
pub struct DevicePair {
    /// Device of this process: udp, udp:ADDRESS, udp:INTERFACE or xdp:INTERFACE
    #[arg(long, value_name = "SPEC")]
    device: Option<String>,
    /// Device of the other process
    #[arg(long, value_name = "SPEC")]
    peer_device: Option<String>,
    /// Network namespace in which the other process runs (needs root)
    #[arg(long, value_name = "NAME")]
    pub peer_netns: Option<String>,
}

impl DevicePair {
    /// Whether neither was given.
    pub fn are_default(&self) -> bool {
        self.device.is_none() && self.peer_device.is_none()
    }

    /// Both specifications, checked; `default` replaces those that were not given.
    pub fn texts(&self, default: &str) -> Result<[String; 2]> {
        let texts =
            [&self.device, &self.peer_device].map(|text| text.as_deref().unwrap_or(default).to_owned());
        texts.iter().try_for_each(|text| parse(text).map(drop))?;
        Ok(texts)
    }
}

/// A device named on the command line.
pub fn parse(text: &str) -> Result<DeviceSpec> {
    text.parse().map_err(|error| Failure::usage(format!("device '{text}': {error}")))
}
