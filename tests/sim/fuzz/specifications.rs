//! What users write on the command line and in the environment: devices and faults.

use softrnic_link::fault::FaultSpec;
use softrnic_nic::device::DeviceSpec;

use super::Choices;

/// Words that specifications are made of.
const WORDS: [&str; 40] = [
    "udp",
    "xdp",
    ":",
    "?",
    "&",
    "=",
    ",",
    "softrnic0",
    "10.0.0.1",
    "[::1]",
    "eth0",
    "rcvbuf",
    "early",
    "ecn",
    "copies",
    "safe",
    "on",
    "off",
    "queues",
    "0.1",
    "grant",
    "busypoll",
    "drop",
    "dup",
    "corrupt",
    "reorder",
    "delay",
    "seed",
    "op",
    "psn",
    "qpn",
    "nth",
    "rate",
    "dir",
    "rx",
    "1%",
    "200us",
    "*",
    "rc_",
    "ack",
];

/// A text of words, and of anything in between.
pub fn specifications(data: &[u8]) {
    let mut choices = Choices(data);
    let mut text = String::new();
    while !choices.is_empty() {
        match choices.byte() {
            other if other.is_multiple_of(8) => {
                text.push_str(&String::from_utf8_lossy(choices.take(usize::from(other >> 5))))
            }
            word => text.push_str(WORDS[usize::from(word) % WORDS.len()]),
        }
    }
    devices(&text);
    faults(&text);
    // As it is, too.
    let text = String::from_utf8_lossy(data);
    devices(&text);
    faults(&text);
}

fn devices(text: &str) {
    match DeviceSpec::list(text) {
        Ok(specs) => {
            assert!(!specs.is_empty());
            let names: std::collections::HashSet<&str> =
                specs.iter().map(|spec| spec.name.as_str()).collect();
            assert_eq!(names.len(), specs.len(), "each has a name of its own");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn faults(text: &str) {
    match text.parse::<FaultSpec>() {
        Ok(spec) => {
            let written = spec.to_string();
            assert_eq!(written.parse().as_ref(), Ok(&spec), "{written}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
