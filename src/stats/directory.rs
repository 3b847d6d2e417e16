//! Where the sockets of a user's devices are, safe from what other users may have put there before.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use softrnic_sys::{environment, stands_for_many};

use super::user;

/// Every user can create directories there, and no user can remove another's.
const SHARED: &str = "/tmp";

/// Random names to try.
const TRIES: usize = 8;

/// Creates or finds the directory for this user's sockets. It is the first of these that only the user can access:
/// `softrnic` in `$XDG_RUNTIME_DIR` or `/run/user/UID`, if that is the user's own; `/tmp/softrnic-UID`; and
/// `/tmp/softrnic-UID.RANDOM`, whose name cannot be predicted, since another user may have taken the one before.
///
/// # Errors
/// None can be created.
pub fn private_directory() -> io::Result<PathBuf> {
    let mut failed = None;
    for path in named(Path::new(SHARED)) {
        match make(&path) {
            Ok(()) => return Ok(path),
            Err(error) => {
                tracing::warn!(%error, "cannot be used for the sockets of this user's devices");
                failed = Some(error);
            }
        }
    }
    match unforeseen(Path::new(SHARED)) {
        Ok(path) => Ok(path),
        Err(error) => Err(failed.unwrap_or(error)),
    }
}

/// All directories that may have sockets of this user's devices, and why others that should have some are skipped.
pub(super) fn directories() -> (Vec<PathBuf>, Vec<String>) {
    look_for(Path::new(SHARED))
}

fn look_for(shared: &Path) -> (Vec<PathBuf>, Vec<String>) {
    let (mut found, mut passed_over) = (Vec::new(), Vec::new());
    for path in named(shared) {
        match check_private(&path) {
            Ok(()) => found.push(path),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => passed_over.push(format!("{error}: passed over")),
        }
    }
    found.extend(ours_below(shared));
    (found, passed_over)
}

/// Those with fixed names.
fn named(shared: &Path) -> Vec<PathBuf> {
    let own = PathBuf::from(format!("/run/user/{}", user()));
    let mut runtime: Vec<PathBuf> = environment::path("XDG_RUNTIME_DIR").into_iter().chain([own]).collect();
    runtime.dedup();
    // With sudo it may be the calling user's.
    runtime.retain(|path| check_private(path).is_ok());
    let mut paths: Vec<PathBuf> = runtime.into_iter().map(|path| path.join("softrnic")).collect();
    paths.push(shared.join(format!("softrnic-{}", user())));
    paths
}

/// Those with random names that processes of this user have created.
fn ours_below(shared: &Path) -> Vec<PathBuf> {
    let begin = format!("softrnic-{}.", user());
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin));
    let entries = std::fs::read_dir(shared).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut ours: Vec<PathBuf> = entries.filter(named).filter(|path| check_private(path).is_ok()).collect();
    ours.sort();
    ours
}

fn unforeseen(shared: &Path) -> io::Result<PathBuf> {
    if let Some(known) = ours_below(shared).into_iter().next() {
        return Ok(known);
    }
    let mut failed = io::Error::from(ErrorKind::AlreadyExists);
    for _ in 0..TRIES {
        let number = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        let path = shared.join(format!("softrnic-{}.{number:016x}", user()));
        match make(&path) {
            Ok(()) => return Ok(path),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn make(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    check_private(path)
}

/// Whether a directory is ours and closed to other users.
pub(super) fn check_private(path: &Path) -> io::Result<()> {
    let metadata = std::fs::symlink_metadata(path)?;
    let why = match metadata.mode() & 0o777 {
        _ if !metadata.is_dir() => "is not a directory".to_owned(),
        _ if metadata.uid() == user() && stands_for_many(user()) => {
            format!(
                "may be another user's: {} stands for all users that this user namespace does not map",
                user()
            )
        }
        _ if metadata.uid() != user() => {
            format!("belongs to user {}, not to user {}", metadata.uid(), user())
        }
        mode if mode & 0o077 != 0 => format!("can be entered by other users (mode {mode:03o})"),
        _ => return Ok(()),
    };
    Err(io::Error::new(ErrorKind::PermissionDenied, format!("{} {why}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn shared(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("softrnic-directory-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a directory");
        path
    }

    #[test]
    fn a_directory_of_another_user_is_reported_and_replaced() {
        let shared = shared("squatted");
        let foreseen = shared.join(format!("softrnic-{}", user()));
        let squat: [&dyn Fn(); 3] = [
            &|| {
                std::fs::create_dir(&foreseen).expect("made");
                std::fs::set_permissions(&foreseen, std::fs::Permissions::from_mode(0o777)).expect("ours");
            },
            &|| symlink("/etc", &foreseen).expect("made"),
            &|| std::fs::write(&foreseen, "").expect("made"),
        ];
        for squat in squat {
            squat();
            assert_eq!(make(&foreseen).expect_err("not private").kind(), ErrorKind::PermissionDenied);
            let used = unforeseen(&shared).expect("another");
            assert_eq!(unforeseen(&shared).expect("the same"), used, "all processes of a user share it");
            let (found, passed_over) = look_for(&shared);
            assert!(found.contains(&used) && !found.contains(&foreseen), "{found:?}");
            assert!(
                passed_over.iter().any(|text| text.contains(foreseen.to_str().expect("text"))),
                "{passed_over:?}"
            );
            let _ = std::fs::remove_dir(&foreseen);
            let _ = std::fs::remove_file(&foreseen);
        }
        std::fs::remove_dir_all(shared).expect("removed");
    }

    #[test]
    fn files_of_another_user_are_not_used() {
        if user() != 0 {
            eprintln!("SKIPPED: to give a directory away takes root");
            return;
        }
        let shared = shared("foreign");
        let foreseen = shared.join("softrnic-0");
        std::fs::create_dir(&foreseen).expect("made");
        std::fs::set_permissions(&foreseen, std::fs::Permissions::from_mode(0o700)).expect("ours");
        std::os::unix::fs::chown(&foreseen, Some(65534), Some(65534)).expect("given away");
        let error = make(&foreseen).expect_err("another's");
        assert_eq!(error.to_string(), format!("{} belongs to user 65534, not to user 0", foreseen.display()));
        std::fs::create_dir(shared.join("softrnic-0.planted")).expect("made");
        std::os::unix::fs::chown(shared.join("softrnic-0.planted"), Some(65534), None).expect("given away");
        let used = unforeseen(&shared).expect("another");
        assert_ne!(used, shared.join("softrnic-0.planted"));
        std::fs::remove_dir_all(shared).expect("removed");
    }
}
