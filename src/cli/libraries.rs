//! Finds the libraries for verbs programs, which belong to this build of the command.

use std::path::{Path, PathBuf};

use crate::failure::{Doing, Failure, Result};

const VERBS: &str = "libibverbs.so.1";
const INTERPOSER: &str = "libsoftrnic_interpose.so";

pub struct Libraries {
    /// The directory for `LD_LIBRARY_PATH`.
    pub directory: PathBuf,
    /// The library to preload for programs that look for devices themselves.
    pub interposer: PathBuf,
}

impl Libraries {
    /// The libraries of the running program.
    pub fn find() -> Result<Libraries> {
        let program = std::env::current_exe().and_then(std::fs::canonicalize);
        let program = program.doing(|| "cannot find this program's own file".into())?;
        Libraries::beside(program.parent().unwrap_or(Path::new("/")))
    }

    /// The library itself. Programs with their own copy under another name, such as Python wheels, would use that if
    /// this one were not preloaded.
    pub fn verbs(&self) -> PathBuf {
        self.directory.join(VERBS)
    }

    /// The libraries of a program in `directory`: where cargo and tools/link-ibverbs, or `make install`, put them.
    fn beside(directory: &Path) -> Result<Libraries> {
        let built = Libraries { directory: directory.join("verbs"), interposer: directory.join(INTERPOSER) };
        let prefix = directory.parent().unwrap_or(directory);
        let installed = prefix.join("lib/softrnic");
        let installed = Libraries { interposer: installed.join(INTERPOSER), directory: installed };
        let candidates = [built, installed];
        let missing: Vec<PathBuf> = candidates.iter().map(Libraries::verbs).collect();
        let Some(found) = candidates.into_iter().find(|one| one.verbs().exists()) else {
            // Beside a command that `cargo install` has put somewhere, they can be installed.
            let make = match directory.ends_with("bin") {
                true => format!("make install PREFIX={}", prefix.display()),
                false => "make build".into(),
            };
            return Err(Failure::new(format!(
                "the libraries for verbs programs are missing: neither {} nor {} exists. In a source tree, \
                 `{make}` builds them",
                missing[0].display(),
                missing[1].display(),
            )));
        };
        match found.interposer.exists() {
            true => Ok(found),
            false => Err(Failure::new(format!(
                "{} is missing, although {VERBS} exists. In a source tree, `make build` builds it",
                found.interposer.display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[&str]) -> PathBuf {
        let root =
            std::env::temp_dir().join(format!("softrnic-libraries-{}-{}", std::process::id(), files.len()));
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
            std::fs::write(path, "").expect("a file");
        }
        root
    }

    #[test]
    fn libraries_are_found_in_a_build_tree_and_below_a_prefix() {
        let root = tree(&["debug/verbs/libibverbs.so.1", "debug/libsoftrnic_interpose.so"]);
        let found = Libraries::beside(&root.join("debug")).expect("a build tree");
        assert_eq!(found.directory, root.join("debug/verbs"));
        std::fs::remove_dir_all(root).expect("removed");

        let files = ["lib/softrnic/libibverbs.so.1", "lib/softrnic/libsoftrnic_interpose.so", "bin/softrnic"];
        let root = tree(&files);
        let found = Libraries::beside(&root.join("bin")).expect("an installation");
        assert_eq!(found.interposer, root.join(files[1]));
        std::fs::remove_file(root.join(files[1])).expect("removed");
        let failure = Libraries::beside(&root.join("bin")).err().expect("half an installation");
        assert!(failure.message.contains("libsoftrnic_interpose.so"), "{failure}");
        std::fs::remove_dir_all(root).expect("removed");
    }
}
