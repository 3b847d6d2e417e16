//! `softrnic top`, on a terminal and without one.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::looking::{connect, own_pid, pair, send};
use crate::support::{SOFTRNIC, kill, softrnic, unconfigured};

#[test]
fn without_a_terminal_it_prints_once_as_plain_text() {
    let ends = pair("once");
    send(&ends, 2);
    let pid = own_pid();
    for arguments in [&["top", "-d", "0.1"][..], &["top", "--once", "-d", "0.1"]] {
        let arguments = [arguments, &["--pid", &pid]].concat();
        let shown = softrnic(&arguments).expect(0).stdout;
        assert!(shown.starts_with("softrnic top: 1 process, "), "{shown}");
        assert!(shown.contains("\nonce_a of command"), "{shown}");
        let qp = format!("{:#x}", ends[0].qp.qpn().get());
        let row = shown.lines().find(|line| line.trim_start().starts_with(&qp)).expect("the QP");
        assert!(row.contains("RTS") && row.contains(&ends[1].context.address().to_string()), "{row}");
        assert!(!shown.contains('\x1b'), "{shown:?}");
    }
    softrnic(&["top", "-d", "0"]).expect(2).says("0.1 to 3600");
    softrnic(&["top", "-d", "NaN"]).expect(2);
}

#[test]
fn it_shows_connections_and_their_messages() {
    let connection = connect("told");
    let shown =
        softrnic(&["top", "--once", "-d", "0.1", "--pid", &own_pid(), "--device", "told"]).expect(0).stdout;
    let rows: Vec<&str> = shown.lines().filter(|line| line.contains("established")).collect();
    assert_eq!(rows.len(), 2, "both ends are of this device:\n{shown}");
    let service = format!("TCP {}", connection.port);
    assert!(rows.iter().all(|row| row.contains("RC") && row.contains(&service)), "{shown}");
    assert!(shown.contains("connection management: cm_rx_msgs 3"), "{shown}");
    assert!(!shown.contains("repeats"), "a message is no repeat:\n{shown}");
    let table = softrnic(&["stats", "--pid", &own_pid(), "--device", "told"]).expect(0).stdout;
    assert_eq!(table.matches("established").count(), 2, "{table}");
}

/// A pseudo-terminal with the command in it.
struct Terminal {
    controller: File,
    /// Keeps the terminal, so that its settings can be asked for when the command is gone.
    device: OwnedFd,
    before: Termios,
    process: Child,
    output: Receiver<Vec<u8>>,
    shown: String,
}

impl Terminal {
    fn start(arguments: &[&str]) -> Terminal {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&controller).expect("granted");
        unlockpt(&controller).expect("unlocked");
        let name = ptsname(&controller, Vec::new()).expect("a name").into_string().expect("text");
        let device: OwnedFd = File::options().read(true).write(true).open(name).expect("opens").into();
        let size = Winsize { ws_row: 12, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&controller, size).expect("a size");
        let before = tcgetattr(&device).expect("settings");
        let end = || Stdio::from(device.try_clone().expect("a descriptor"));
        let mut command = unconfigured(Command::new(SOFTRNIC));
        command.args(arguments).env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CLICOLOR");
        let process = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("the command starts");
        let controller = File::from(controller);
        let mut reader = controller.try_clone().expect("a descriptor");
        let (send, output) = channel();
        std::thread::spawn(move || {
            let mut part = vec![0; 1 << 16];
            while let Ok(len @ 1..) = reader.read(&mut part) {
                if send.send(part[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { controller, device, before, process, output, shown: String::new() }
    }

    /// Waits until `what` has been written to the terminal.
    #[track_caller]
    fn wait_for(&mut self, what: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.shown.contains(what) {
            let left = deadline.saturating_duration_since(Instant::now());
            let part =
                self.output.recv_timeout(left).unwrap_or_else(|_| panic!("no {what:?} in {:?}", self.shown));
            self.shown.push_str(&String::from_utf8_lossy(&part));
        }
    }

    fn type_in(&mut self, keys: &str) {
        use std::io::Write;
        self.controller.write_all(keys.as_bytes()).expect("written");
    }

    /// How the command ended, and whether the terminal is as it was before.
    #[track_caller]
    fn end(mut self) -> ExitStatus {
        self.wait_for("\x1b[?1049l");
        self.wait_for("\x1b[?25h");
        let deadline = Instant::now() + Duration::from_secs(20);
        let status = loop {
            if let Some(status) = self.process.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        let after = tcgetattr(&self.device).expect("settings");
        assert_eq!(after.local_modes, self.before.local_modes, "echo and line editing are back");
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn on_a_terminal_it_updates_until_q() {
    let ends = pair("live");
    send(&ends, 1);
    let mut terminal = Terminal::start(&["top", "-d", "0.2", "--pid", &own_pid(), "--device", "live_a"]);
    terminal.wait_for("\x1b[?1049h");
    terminal.wait_for("live_a of command");
    terminal.wait_for("\x1b[1m");
    assert_ne!(tcgetattr(&terminal.device).expect("settings").local_modes, terminal.before.local_modes);
    // The first look has no rates; later ones do.
    terminal.wait_for("in 0.00 /s packets");
    terminal.type_in("\x1b[B\x1b[6~kq");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn long_lines_are_cut_off_and_a_new_size_is_taken_in() {
    let _ends = pair("wide");
    let mut terminal = Terminal::start(&["top", "-d", "60", "--pid", &own_pid(), "--device", "wide_a"]);
    terminal.wait_for("wide_a of command");
    terminal.wait_for("its QP");
    assert!(!terminal.shown.contains("RNR out"), "{:?}", terminal.shown);
    let size = Winsize { ws_row: 30, ws_col: 250, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal.controller, size).expect("a size");
    // The terminal is not a controlling terminal, so the kernel signals no process.
    kill("-WINCH", terminal.process.id().to_string());
    terminal.wait_for("RNR out");
    terminal.type_in("\x03");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn signals_end_it_with_the_terminal_as_it_was() {
    for (name, number) in [("-TERM", 15), ("-HUP", 1), ("-INT", 2)] {
        let mut terminal = Terminal::start(&["top", "--pid", &own_pid()]);
        terminal.wait_for("softrnic top: ");
        kill(name, terminal.process.id().to_string());
        assert_eq!(terminal.end().signal(), Some(number));
    }
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    // The command must not have it, too.
    let controller =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pseudo-terminal");
    grantpt(&controller).expect("granted");
    unlockpt(&controller).expect("unlocked");
    let name = ptsname(&controller, Vec::new()).expect("a name").into_string().expect("text");
    let device: OwnedFd = File::options().read(true).write(true).open(name).expect("opens").into();
    let size = Winsize { ws_row: 12, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&controller, size).expect("a size");
    let end = || Stdio::from(device.try_clone().expect("a descriptor"));
    let mut command = unconfigured(Command::new(SOFTRNIC));
    command.args(["top", "-d", "60"]).env("TERM", "xterm").stdin(end()).stdout(end()).stderr(Stdio::null());
    let mut process = command.spawn().expect("the command starts");
    drop((command, device));
    let mut controller = File::from(controller);
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("softrnic top: ") {
        let mut part = [0; 4096];
        let count = controller.read(&mut part).expect("it shows something");
        shown.extend_from_slice(&part[..count]);
    }
    drop(controller);
    let deadline = Instant::now() + Duration::from_secs(20);
    let status = loop {
        match process.try_wait().expect("a child") {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            None => {
                process.kill().expect("a child");
                panic!("it goes on without a terminal");
            }
        }
    };
    assert_eq!(status.code(), Some(1));
}
