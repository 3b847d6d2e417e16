//! Sockets that are dead, hung or hostile.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::look::{look_into, sweep};
use super::request::Detail;
use super::{Look, PeerSnapshot, QpSnapshot, Snapshot};

/// A private directory of a test's own, gone when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("softrnic-look-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).expect("a directory");
        Directory(path)
    }

    fn listen(&self, name: &str) -> UnixListener {
        UnixListener::bind(self.0.join(name)).expect("a socket")
    }

    /// A socket that gives every client `answer` to its request.
    fn answering(&self, name: &str, answer: impl Fn(UnixStream) + Send + 'static) {
        let listener = self.listen(name);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // A connection closed with something unread is reset.
                let _ = BufReader::new(&stream).read_line(&mut String::new());
                answer(stream);
            }
        });
    }

    fn look(&self) -> Look {
        look_into(&self.0, Detail::Usual).expect("readable")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn snapshot(device: &str) -> Snapshot {
    Snapshot {
        pid: 1,
        program: "a program".into(),
        device: device.into(),
        mode: "udp".into(),
        time_ns: 1,
        gids: Default::default(),
        port: Default::default(),
        active_mtu: 1024,
        counters: Default::default(),
        qps: Vec::<QpSnapshot>::new(),
        peers: Vec::<PeerSnapshot>::new(),
        connections: Vec::new(),
        reach: Vec::new(),
        processes: Vec::new(),
        resources: None,
        socket: PathBuf::new(),
    }
}

#[test]
fn silent_devices_delay_no_others_and_are_named() {
    let directory = Directory::new("hung");
    let good = serde_json::to_vec(&snapshot("softrnic0")).expect("JSON");
    directory.answering("1-good.sock", move |mut stream| {
        let _ = stream.write_all(&good);
    });
    // A stopped process, with room for waiting clients and without.
    let _mute = directory.listen("2-mute.sock");
    let full = directory.listen("3-full.sock");
    let mut waiting = Vec::new();
    while waiting.len() < 5000 {
        match super::look::connect(&directory.0.join("3-full.sock")) {
            Ok(stream) => waiting.push(stream),
            Err(_) => break,
        }
    }
    // A byte now and then, and never an end.
    directory.answering("4-slow.sock", |mut stream| {
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    directory.answering("5-rude.sock", |mut stream| {
        let _ = stream.write_all("[".repeat(1 << 20).as_bytes());
    });
    directory.answering("6-silent.sock", drop);
    let begun = Instant::now();
    let look = directory.look();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(look.snapshots.len(), 1);
    assert_eq!(look.snapshots[0].pid, std::process::id(), "the kernel knows better than the snapshot");
    let silent: Vec<_> = look.silent.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(silent, ["2-mute", "3-full", "4-slow", "5-rude", "6-silent"]);
    drop(full);
}

#[test]
fn names_cannot_reach_a_terminal_as_commands() {
    let directory = Directory::new("names");
    let mut odd = snapshot("softrnic0");
    odd.program = "\x1b[2J\nprogram".into();
    odd.mode = "x".repeat(5000);
    odd.counters = [("sent_pkts".to_owned(), 1), ("sent_pkts{} 1\n".to_owned(), 2)].into();
    let answer = serde_json::to_vec(&odd).expect("JSON");
    let again = answer.clone();
    directory.answering("1-odd.sock", move |mut stream| stream.write_all(&answer).expect("written"));
    directory.answering("2-odd.sock", move |mut stream| stream.write_all(&again).expect("written"));
    let look = directory.look();
    let [shown] = look.snapshots.as_slice() else { panic!("one device of one process: {look:?}") };
    assert_eq!(shown.program, "\u{FFFD}[2J\u{FFFD}program");
    assert_eq!(shown.mode.len(), 500);
    assert_eq!(shown.counters.keys().collect::<Vec<_>>(), ["sent_pkts"]);
}

#[test]
fn an_endless_answer_is_cut_off() {
    let directory = Directory::new("endless");
    directory.answering("1-endless.sock", |mut stream| {
        let blank = vec![b' '; 1 << 20];
        while stream.write_all(&blank).is_ok() {}
    });
    let look = directory.look();
    assert_eq!(look.silent.len(), 1);
    assert!(look.snapshots.is_empty());
}

#[test]
fn sockets_of_a_killed_process_are_removed() {
    let directory = Directory::new("dead");
    drop(directory.listen("1-dead.sock"));
    std::fs::write(directory.0.join("readme"), "not a socket").expect("a file");
    let look = directory.look();
    assert!(look.snapshots.is_empty() && look.silent.is_empty());
    assert!(!directory.0.join("1-dead.sock").exists());
    assert!(directory.0.join("readme").exists());
}

#[test]
fn only_files_of_killed_processes_are_removed() {
    let directory = Directory::new("sweep");
    let mut ended = std::process::Command::new("true").spawn().expect("it runs");
    ended.wait().expect("it has ended");
    let number = ended.id();
    drop(directory.listen(&format!("{number}-dead.sock")));
    // One of another PID namespace, which has the same number there.
    let _lives = directory.listen(&format!("{number}-lives.sock"));
    let own = directory.listen(&format!("{}-own.sock", std::process::id()));
    own.set_nonblocking(true).expect("ours");
    std::fs::write(directory.0.join(format!("{number}-readme")), "no socket").expect("a file");
    sweep(&directory.0);
    assert!(!directory.0.join(format!("{number}-dead.sock")).exists());
    assert!(directory.0.join(format!("{number}-lives.sock")).exists());
    assert!(directory.0.join(format!("{}-own.sock", std::process::id())).exists());
    assert!(directory.0.join(format!("{number}-readme")).exists());
    assert!(own.accept().is_err(), "those that run are not disturbed");
}

#[test]
fn a_directory_open_to_other_users_is_ignored() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::new("open");
    std::fs::set_permissions(&directory.0, std::fs::Permissions::from_mode(0o755)).expect("ours");
    assert_eq!(
        look_into(&directory.0, Detail::Usual).expect_err("not private").kind(),
        std::io::ErrorKind::PermissionDenied
    );
    let nothing = look_into(&directory.0.join("missing"), Detail::Usual).expect("nothing runs");
    assert!(nothing.snapshots.is_empty());
}
