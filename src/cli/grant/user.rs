//! The user to serve.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::failure::{Doing, Failure, Result};

pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// Whether this is not the user who runs the helper.
    pub is_other: bool,
    pub home: Option<String>,
}

impl User {
    /// The user with this name or number; else the user who called sudo; else the user who runs this, unless that is
    /// root.
    pub fn find(wanted: Option<&str>) -> Result<User> {
        let own = std::fs::metadata("/proc/self")
            .doing(|| "cannot tell which user runs this program".into())?
            .uid();
        let sudo = std::env::var("SUDO_USER").ok().filter(|_| own == 0);
        let user = match wanted.or(sudo.as_deref()) {
            Some(text) => User::named(text, own)?,
            None => User { uid: own, gid: 0, is_other: false, home: None },
        };
        if user.uid == 0 {
            return Err(Failure::usage("a grant is for users other than root: name one with --user"));
        }
        Ok(user)
    }

    fn named(text: &str, own: u32) -> Result<User> {
        // `id` knows every source of users on the machine.
        let number = |option| -> Result<u32> {
            let output =
                Command::new("id").args([option, "--", text]).output().doing(|| "cannot run id".into())?;
            let number = String::from_utf8_lossy(&output.stdout).trim().parse();
            number.map_err(|_| Failure::usage(format!("there is no user '{text}'")))
        };
        let (uid, gid) = (number("-u")?, number("-g")?);
        Ok(User { uid, gid, is_other: uid != own, home: home_of(uid) })
    }
}

fn home_of(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(uid)).then(|| fields.get(5).map(|home| (*home).to_owned()))?
    })
}
