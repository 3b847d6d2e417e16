//! `softrnic grant`: does the privileged part of opening a real interface for processes without privileges.

mod serve;
mod user;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anstream::eprintln;
use clap::Args;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Uid};
use softrnic_nic::verbs::{DeviceSpec, LinkKind};
use softrnic_xdp::XdpOptions;

use crate::capabilities;
use crate::endpoint::random;
use crate::failure::{Doing, Failure, Result};
use serve::Service;
use user::User;

const EXAMPLES: &str = "\
Examples:
  sudo softrnic grant --interface eth0 -- softrnic demo --device xdp:eth0 --peer-device udp:10.0.0.9
  sudo softrnic grant --interface eth0 --user alice -- softrnic run --device xdp:eth0 -- ib_write_bw
  sudo softrnic grant --interface eth0 --user alice --socket /run/softrnic.sock
  SOFTRNIC_GRANT=/run/softrnic.sock softrnic run --device xdp:eth0 -- ib_write_bw

The helper needs CAP_NET_RAW for the sockets; CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON for the XDP program;
CAP_IPC_LOCK or CAP_SYS_RESOURCE where its limit of locked memory is too low for packets; and CAP_SETUID and
CAP_SETGID to run CMD as somebody else. The processes it serves need none, and Linux 6.4. What they get is tied to the
interface, its queues and its addresses. An interface serves one process at a time.";

/// Let processes without privileges use an interface, as xdp:INTERFACE
///
/// With CMD, runs it as the user who called sudo, or as --user, and serves it and its children until it ends. With
/// --socket, serves all processes of that user.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct GrantArgs {
    /// The interface, optionally with options of the xdp device: eth0, or eth0?attach=skb&queues=0.1
    #[arg(long = "interface", value_name = "INTERFACE", required = true, value_parser = interface)]
    interfaces: Vec<Interface>,
    /// The user to serve: a name or a number [default: the user who called sudo, or who runs this]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Listen at this path until interrupted
    #[arg(long, value_name = "PATH", conflicts_with = "command", required_unless_present = "command")]
    socket: Option<PathBuf>,
    /// The program to run, and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// An interface that may be granted, with its options.
#[derive(Clone)]
struct Interface {
    name: String,
    options: XdpOptions,
}

fn interface(text: &str) -> std::result::Result<Interface, String> {
    let spec: DeviceSpec = format!("xdp:{text}").parse().map_err(|error| format!("{error}"))?;
    match spec.link {
        LinkKind::Xdp { interface, options, grant: None } => Ok(Interface { name: interface, options }),
        _ => Err("write INTERFACE, or INTERFACE?attach=…&queues=…&busypoll=…".into()),
    }
}

pub fn run(args: GrantArgs) -> Result {
    let user = User::find(args.user.as_deref())?;
    check_privileges()?;
    let service = Service::new(args.interfaces, user.uid);
    match args.socket {
        Some(path) => listen(&service, &user, &path),
        None => serve_command(&service, &user, &args.command),
    }
}

/// Without them every request would be refused, which a command that makes none would not show.
fn check_privileges() -> Result {
    let missing = capabilities::missing(
        capabilities::own().doing(|| "cannot read the privileges of this process".into())?,
    );
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "an interface cannot be granted without {}: run it with sudo (it needs {})",
        missing.join(", "),
        capabilities::needed()
    )))
}

/// Serves requests at a path, for ever.
fn listen(service: &Service, user: &User, path: &Path) -> Result {
    remove_stale(path)?;
    let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = listener.doing(|| format!("cannot listen at {}", path.display()))?;
    give(path, user.uid).doing(|| format!("cannot give {} to user {}", path.display(), user.uid))?;
    eprintln!("softrnic: serving user {} at {}", user.uid, path.display());
    service.serve(&listener);
    Ok(())
}

/// Gives a user the socket that was bound here. Whoever owns the directory may have put another file in its place, which
/// stays as it is.
fn give(path: &Path, user: u32) -> std::io::Result<()> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    let is_ours = found.st_uid == rustix::process::geteuid().as_raw() && found.st_nlink == 1;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket || !is_ours {
        return Err(std::io::Error::other("another file has taken its place"));
    }
    Ok(rustix::fs::chownat(&file, c"", Some(Uid::from_raw(user)), None, AtFlags::EMPTY_PATH)?)
}

/// Removes a socket that no longer has a listener.
fn remove_stale(path: &Path) -> Result {
    let is_socket = path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(Failure::new(format!("another process already listens at {}", path.display()))),
        Err(_) => std::fs::remove_file(path).doing(|| format!("cannot remove {}", path.display())),
    }
}

/// Runs a command that finds the helper in its environment, and ends as the command did.
fn serve_command(service: &Service, user: &User, words: &[String]) -> Result {
    // The name disappears with the last descriptor, and exists only in this network namespace.
    let name = format!("softrnic-grant-{:016x}", random()?);
    let address = SocketAddr::from_abstract_name(&name)?;
    let listener = UnixListener::bind_addr(&address).doing(|| "cannot listen".into())?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("SOFTRNIC_GRANT", format!("@{name}"));
    if user.is_other {
        // The directories of the caller are not for that user.
        command.uid(user.uid).gid(user.gid).env_remove("XDG_RUNTIME_DIR");
        if let Some(home) = &user.home {
            command.env("HOME", home);
        }
    }
    let mut child = command.spawn().doing(|| format!("cannot run {} as user {}", words[0], user.uid))?;
    std::thread::scope(|scope| {
        // The thread ends with the process.
        scope.spawn(|| service.serve(&listener));
        let status = child.wait();
        std::process::exit(
            status.map_or(1, |status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn only_a_socket_of_ours_is_given_away() {
        let directory = std::env::temp_dir().join(format!("softrnic-grant-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let [socket, second, file, link] =
            ["socket", "second", "file", "link"].map(|name| directory.join(name));
        let _listener = UnixListener::bind(&socket).expect("a socket");
        std::fs::write(&file, "").expect("a file");
        let owner = std::fs::metadata(&file).expect("a file").uid();
        // Root gives to another user, everybody to oneself.
        let user = if owner == 0 { 65_534 } else { owner };
        for target in [&file, &socket] {
            std::os::unix::fs::symlink(target, &link).expect("a link");
            give(&link, user).expect_err("a link is not followed");
            std::fs::remove_file(&link).expect("removed");
        }
        give(&file, user).expect_err("a file is not a socket");
        std::fs::hard_link(&socket, &second).expect("a second name");
        give(&second, user).expect_err("it has another name");
        std::fs::remove_file(&second).expect("removed");
        assert_eq!([&file, &socket].map(|path| std::fs::metadata(path).expect("a file").uid()), [owner; 2]);
        give(&socket, user).expect("a socket of ours");
        assert_eq!(std::fs::metadata(&socket).expect("a socket").uid(), user);
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
