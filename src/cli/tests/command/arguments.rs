//! Wrong arguments are reported, with exit status 2, before anything is done.

use crate::support::softrnic;

#[test]
fn wrong_arguments_are_refused_with_status_2() {
    let wrong: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["frobnicate"], "unrecognized subcommand"),
        (&["demo", "--frobnicate"], "unexpected argument"),
        (&["demo", "--fault", "drop=200%"], "drop=200%"),
        (&["demo", "--device", "ftp:127.0.0.1"], "is not a link"),
        (&["demo", "--device", "udp:127.0.0.256"], "is not an IPv4 or IPv6 address"),
        (&["demo", "--peer-device", "udp?color=red"], "no option 'color'"),
        (&["demo", "--seconds", "0"], "not a number from"),
        (&["demo", "--pcap", "a", "--no-pcap"], "cannot be used with"),
        (&["bench", "--sizes", "64K,x"], "not a size"),
        (&["bench", "--sizes", "9G"], "at most"),
        (&["bench", "--operations", "teleport"], "invalid value"),
        (&["bench", "--require-bandwidth", "0.8"], "--compare"),
        (&["bench", "--compare", "--rounds", "3"], "invalid value"),
        (&["bench", "--compare", "--require-latency", "0"], "not a positive number"),
        (&["devices", "--device", "xdp"], "needs an interface"),
        (&["devices", "--device", "a=udp", "--device", "a=udp"], "two devices are called a"),
        (&["run"], "required"),
        (&["run", "--log", "loud", "--", "true"], "invalid value"),
        (&["run", "--fault", "drop:op=nonsense", "--", "true"], "nonsense"),
    ];
    for (arguments, message) in wrong {
        let outcome = softrnic(arguments).expect(2);
        outcome.says(message);
        assert_eq!(outcome.stdout, "", "{arguments:?}");
    }
}

#[test]
fn help_has_examples_everywhere() {
    for command in ["", "demo", "bench", "devices", "fabric", "run", "env", "completions", "man"] {
        let arguments: &[&str] = if command.is_empty() { &["--help"] } else { &[command, "--help"] };
        let help = softrnic(arguments).expect(0).stdout;
        assert!(help.contains("Examples:\n  ") && help.contains("softrnic"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
    }
}

#[test]
fn the_version_is_printed() {
    let version = softrnic(&["--version"]).expect(0).stdout;
    assert_eq!(version, concat!("softrnic ", env!("CARGO_PKG_VERSION"), "\n"));
}
