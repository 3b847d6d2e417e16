//! What `softrnic run` and `softrnic env` tell verbs programs, all of it through the environment.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use softrnic_link::fault::FaultSpec;
use softrnic_nic::verbs::DeviceSpec;

use crate::failure::{Doing, Failure, Result};
use crate::libraries::Libraries;

#[derive(Args)]
pub struct EnvironmentArgs {
    /// A device: [NAME=]udp, [NAME=]udp:ADDRESS or [NAME=]xdp:INTERFACE, with ?key=value&… behind
    /// [default: SOFTRNIC_DEVICES, or one on a free loopback address in each process]
    #[arg(long, value_name = "SPEC")]
    device: Vec<String>,
    /// Record packets; %p in the name becomes the number of the process
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Faults to inject: rates like drop=1%, and rules like drop:op=ack:nth=3
    #[arg(long, value_name = "SPEC")]
    fault: Option<FaultSpec>,
    /// What to log to standard error
    #[arg(long, value_name = "LEVEL")]
    log: Option<Level>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl EnvironmentArgs {
    /// The variables to set, in a fixed order.
    pub fn variables(&self) -> Result<Vec<(&'static str, OsString)>> {
        let libraries = Libraries::find()?;
        let devices = self.devices()?;
        let mut variables = vec![
            ("LD_LIBRARY_PATH", prepended("LD_LIBRARY_PATH", &libraries.directory)?),
            ("LD_PRELOAD", prepended("LD_PRELOAD", &libraries.interposer)?),
        ];
        match sysfs(&devices) {
            Ok(directory) => variables.push(("SOFTRNIC_SYSFS", directory.into())),
            Err(error) => eprintln!(
                "softrnic: warning: programs that look for devices in /sys by themselves will find none: {error}"
            ),
        }
        if !self.device.is_empty() {
            variables.push(("SOFTRNIC_DEVICES", devices.into()));
        }
        if let Some(pcap) = &self.pcap {
            // Programs may go elsewhere before they open a device.
            let path = std::path::absolute(pcap).doing(|| format!("cannot use {}", pcap.display()))?;
            variables.push(("SOFTRNIC_PCAP", path.into()));
        }
        if let Some(fault) = &self.fault {
            variables.push(("SOFTRNIC_FAULT", fault.to_string().into()));
        }
        if let Some(level) = self.log {
            let name = level.to_possible_value().map(|value| value.get_name().to_owned());
            variables.push(("SOFTRNIC_LOG", name.unwrap_or_default().into()));
        }
        Ok(variables)
    }

    /// The devices, which are checked here: programs could only say that there are none.
    fn devices(&self) -> Result<String> {
        let wrong = |error: softrnic_nic::device::SpecError| Failure::usage(error.to_string());
        if self.device.is_empty() {
            DeviceSpec::from_env().map_err(wrong)?;
            return Ok(env::var("SOFTRNIC_DEVICES").unwrap_or_default());
        }
        let devices = self.device.join(",");
        DeviceSpec::list(&devices).map_err(wrong)?;
        Ok(devices)
    }
}

/// `first` and what the variable has already, `first` taken out of it. The dynamic linker splits at colons, and the
/// list of what to preload at spaces too.
fn prepended(variable: &str, first: &Path) -> Result<OsString> {
    let bytes = first.as_os_str().as_bytes();
    if bytes.iter().any(|byte| *byte == b':' || byte.is_ascii_whitespace()) {
        return Err(Failure::new(format!(
            "the dynamic linker cannot be given {}: there is a colon or a space in it",
            first.display()
        )));
    }
    let known = env::var_os(variable).unwrap_or_default();
    Ok(without(first, &known).into_iter().fold(first.as_os_str().to_owned(), |mut list, entry| {
        list.push(":");
        list.push(entry);
        list
    }))
}

fn without<'a>(first: &Path, list: &'a OsStr) -> Vec<&'a OsStr> {
    let entries = list.as_bytes().split(|byte| *byte == b':' || *byte == b' ').map(OsStr::from_bytes);
    entries.filter(|entry| !entry.is_empty() && *entry != first.as_os_str()).collect()
}

/// The directory in which libibverbs describes the devices. Processes with the same devices share it.
fn sysfs(devices: &str) -> std::io::Result<PathBuf> {
    let directory = softrnic_nic::stats::private_directory()?;
    Ok(directory.join(format!("sys-{:016x}", fingerprint(&[env!("CARGO_PKG_VERSION"), devices]))))
}

/// FNV-1a, the same in every build: directories outlive it.
fn fingerprint(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_loses_what_is_put_before_it() {
        let list = OsStr::new("/a:/lib/b: /c:");
        assert_eq!(without(Path::new("/lib/b"), list), ["/a", "/c"]);
        assert!(without(Path::new("/lib/b"), OsStr::new("")).is_empty());
    }

    #[test]
    fn fingerprints_tell_devices_apart() {
        assert_ne!(fingerprint(&["0.1.0", "udp"]), fingerprint(&["0.1.0", "udp:10.0.0.5"]));
        assert_ne!(fingerprint(&["a", "bc"]), fingerprint(&["ab", "c"]));
    }

    #[test]
    fn a_path_that_the_linker_would_split_is_refused() {
        assert!(prepended("SOFTRNIC_TEST_NOT_SET", Path::new("/with space/lib")).is_err());
        assert_eq!(prepended("SOFTRNIC_TEST_NOT_SET", Path::new("/lib/x")).expect("usable"), "/lib/x");
    }
}
