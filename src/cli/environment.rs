//! The environment in which `softrnic run` and `softrnic env` configure verbs programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use softrnic_link::fault::FaultSpec;
use softrnic_nic::device::{AdversarySeed, Model, file_count, file_size, snap_len};
use softrnic_nic::verbs::{DeviceSpec, LinkKind};

use crate::fabric::{show, slow_of};
use crate::failure::{Doing, Failure, Result};
use crate::libraries::Libraries;

#[derive(Args)]
pub struct EnvironmentArgs {
    /// A device: [NAME=]udp, [NAME=]udp:ADDRESS, [NAME=]udp:INTERFACE, [NAME=]xdp:INTERFACE or [NAME=]fabric:NAME/HOST,
    /// followed by options as ?key=value&…; mlx5_[0-7]=udp for eight; @FILE for those in a file [default: SOFTRNIC_DEVICES, or one on a free loopback address in each process]
    #[arg(long, value_name = "SPEC")]
    device: Vec<String>,
    /// Record packets in FILE; %p becomes the process id. No packet is missing: the program waits for the file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Record only the first BYTES of each packet, counted from its Ethernet header
    #[arg(long, value_name = "BYTES", requires = "pcap", value_parser = snap_len)]
    pcap_snaplen: Option<u32>,
    /// Begin a new file at this SIZE, such as 100M: FILE_00001.pcapng, FILE_00002.pcapng and so on, with the process id
    /// in the name
    #[arg(long, value_name = "SIZE", requires = "pcap", value_parser = file_size)]
    pcap_filesize: Option<u64>,
    /// Keep only the last COUNT files
    #[arg(long, value_name = "COUNT", requires = "pcap_filesize", value_parser = file_count)]
    pcap_files: Option<u32>,
    /// Drop packets from the capture instead of making the program wait for the file
    #[arg(long, requires = "pcap")]
    pcap_lossy: bool,
    /// Faults to inject: rates like drop=1%, and rules like drop:op=ack:nth=3; see `softrnic help faults`
    #[arg(long, value_name = "SPEC")]
    fault: Option<FaultSpec>,
    /// Let the NIC use every freedom that the specification gives it: payload reaches memory in any order, completions come
    /// late (docs/adversarial.md). The same SEED decides the same; without one, it is drawn and printed
    #[arg(long, value_name = "SEED", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    adversarial: Option<AdversarySeed>,
    /// Have devices report the limits of a real one, and refuse what it would: mlx5, irdma, bnxt_re,
    /// rxe or efa (docs/like.md)
    #[arg(long, value_name = "DEVICE", value_parser = Model::named)]
    like: Option<&'static Model>,
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
    /// The same with one more device, before the others.
    pub fn with_device(mut self, device: String) -> EnvironmentArgs {
        self.device.insert(0, device);
        self
    }

    /// The variables to set, in a fixed order.
    pub fn variables(&self) -> Result<Vec<(&'static str, OsString)>> {
        let libraries = Libraries::find()?;
        let (names, devices) = self.devices()?;
        let mut variables = vec![
            ("LD_LIBRARY_PATH", prepended("LD_LIBRARY_PATH", &[&libraries.directory])?),
            ("LD_PRELOAD", prepended("LD_PRELOAD", &[&libraries.interposer, &libraries.verbs()])?),
        ];
        variables.push(("ASAN_OPTIONS", asan_options(env::var_os("ASAN_OPTIONS"))));
        match softrnic_nic::sysfs::describe_privately(&names, &devices) {
            Ok(directory) => variables.push(("SOFTRNIC_SYSFS", directory.into())),
            Err(error) => {
                eprintln!("softrnic: warning: programs that look for devices in /sys will find none: {error}")
            }
        }
        if !self.device.is_empty() {
            variables.push(("SOFTRNIC_DEVICES", names.into()));
        }
        if let Some(slow) = slow(&devices) {
            variables.push(("SOFTRNIC_SLOW", slow.to_string().into()));
        }
        if let Some(pcap) = &self.pcap {
            // Programs may change directory before they open a device.
            let path = std::path::absolute(pcap).doing(|| format!("cannot use {}", pcap.display()))?;
            variables.push(("SOFTRNIC_PCAP", path.into()));
        }
        let numbers = [
            ("SOFTRNIC_PCAP_SNAPLEN", self.pcap_snaplen.map(u64::from)),
            ("SOFTRNIC_PCAP_FILESIZE", self.pcap_filesize),
            ("SOFTRNIC_PCAP_FILES", self.pcap_files.map(u64::from)),
            ("SOFTRNIC_PCAP_LOSSY", self.pcap_lossy.then_some(1)),
        ];
        variables
            .extend(numbers.into_iter().filter_map(|(name, value)| Some((name, value?.to_string().into()))));
        if let Some(fault) = &self.fault {
            variables.push(("SOFTRNIC_FAULT", fault.to_string().into()));
        }
        if let Some(seed) = self.adversarial {
            eprintln!("softrnic: adversarial NIC, seed {seed}; to repeat: --adversarial={seed}");
            variables.push(("SOFTRNIC_ADVERSARIAL", seed.to_string().into()));
        }
        variables.extend(self.like.map(|model| ("SOFTRNIC_LIKE", model.name.into())));
        if let Some(level) = self.log {
            let name = level.to_possible_value().map(|value| value.get_name().to_owned());
            variables.push(("SOFTRNIC_LOG", name.unwrap_or_default().into()));
        } else if self.fault.is_some() && env::var_os("SOFTRNIC_LOG").is_none() {
            // Whoever injects faults is told at the end which rules applied.
            variables.push(("SOFTRNIC_LOG", "warn".into()));
        }
        Ok(variables)
    }

    /// The devices as given, and parsed. They are checked here: programs could only report that there are none.
    fn devices(&self) -> Result<(String, Vec<DeviceSpec>)> {
        let wrong = |error: softrnic_nic::device::SpecError| Failure::usage(error.to_string());
        let like =
            |specs: &mut [DeviceSpec]| self.like.iter().for_each(|model| DeviceSpec::imitate(specs, model));
        if self.device.is_empty() {
            let mut specs = DeviceSpec::from_env().map_err(wrong)?;
            like(&mut specs);
            return Ok((softrnic_sys::environment::text("SOFTRNIC_DEVICES").unwrap_or_default(), specs));
        }
        let names = DeviceSpec::join(&self.device).map_err(wrong)?;
        let mut specs = DeviceSpec::list(&names).map_err(wrong)?;
        like(&mut specs);
        Ok((names, specs))
    }
}

/// How much the time of the devices' fabric is slowed, if a program must know that. A fabric that does not run is none: the
/// program will say so.
fn slow(devices: &[DeviceSpec]) -> Option<u64> {
    let slow_of = |device: &DeviceSpec| match &device.link {
        LinkKind::Fabric { fabric, .. } => show(fabric).ok().map(|state| slow_of(&state)),
        _ => None,
    };
    let slow = devices.iter().filter_map(slow_of).max().unwrap_or(1);
    (slow > 1 || env::var_os("SOFTRNIC_SLOW").is_some()).then_some(slow)
}

/// `first`, followed by what the variable already contains. The dynamic linker splits at colons, and the preload list
/// at spaces too.
fn prepended(variable: &str, first: &[&Path]) -> Result<OsString> {
    for path in first {
        if path.as_os_str().as_bytes().iter().any(|byte| *byte == b':' || byte.is_ascii_whitespace()) {
            return Err(Failure::new(format!(
                "the dynamic linker cannot be given {}: there is a colon or a space in it",
                path.display()
            )));
        }
    }
    let known = env::var_os(variable).unwrap_or_default();
    let entries = first.iter().map(|path| path.as_os_str()).chain(without(first, &known));
    Ok(entries.collect::<Vec<_>>().join(OsStr::new(":")))
}

/// AddressSanitizer would refuse to start after libraries that were preloaded. The interposer says the same, except to
/// programs that have settings built in. Later settings, which the user has made, win.
fn asan_options(known: Option<OsString>) -> OsString {
    const AFTER_OTHERS: &str = "verify_asan_link_order=0";
    match known {
        Some(known) if known.as_bytes().starts_with(AFTER_OTHERS.as_bytes()) => known,
        Some(known) if !known.is_empty() => [OsStr::new(AFTER_OTHERS), &known].join(OsStr::new(":")),
        _ => AFTER_OTHERS.into(),
    }
}

fn without<'a>(first: &[&Path], list: &'a OsStr) -> impl Iterator<Item = &'a OsStr> {
    let entries = list.as_bytes().split(|byte| *byte == b':' || *byte == b' ').map(OsStr::from_bytes);
    entries.filter(|entry| !entry.is_empty() && !first.iter().any(|path| path.as_os_str() == *entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_put_first_are_removed_from_the_rest_of_a_list() {
        let list = OsStr::new("/a:/lib/b: /c:");
        let without = |first: &[&str], list| {
            let first: Vec<&Path> = first.iter().map(Path::new).collect();
            super::without(&first, list).map(OsStr::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(without(&["/lib/b"], list), ["/a", "/c"]);
        assert_eq!(without(&["/lib/b", "/c"], list), ["/a"]);
        assert!(without(&["/lib/b"], OsStr::new("")).is_empty());
    }

    #[test]
    fn earlier_sanitizer_settings_stay() {
        let options = |known: &str| asan_options(Some(known.into()));
        assert_eq!(asan_options(None), "verify_asan_link_order=0");
        assert_eq!(options("detect_leaks=0"), "verify_asan_link_order=0:detect_leaks=0");
        assert_eq!(options("verify_asan_link_order=0:a=1"), "verify_asan_link_order=0:a=1");
    }

    #[test]
    fn a_path_that_the_linker_would_split_is_refused() {
        assert!(prepended("SOFTRNIC_TEST_NOT_SET", &[Path::new("/with space/lib")]).is_err());
        let two = [Path::new("/lib/x"), Path::new("/lib/y")];
        assert_eq!(prepended("SOFTRNIC_TEST_NOT_SET", &two).expect("usable"), "/lib/x:/lib/y");
    }
}
