//! Why a program cannot be given SoftRNIC's libraries: the dynamic linker would have to load them.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache};
use rustix::fs::StatVfsMountFlags;

/// The machine and class that SoftRNIC's own libraries are for.
#[cfg(target_arch = "x86_64")]
const MACHINE: (u16, bool, &str) = (elf::EM_X86_64, true, "64-bit x86");
#[cfg(target_arch = "aarch64")]
const MACHINE: (u16, bool, &str) = (elf::EM_AARCH64, true, "64-bit ARM");

/// The kernel follows no more than this many scripts to their interpreters.
const SCRIPTS: u32 = 4;

/// What stands between a program and SoftRNIC's libraries.
#[derive(PartialEq, Eq, Debug)]
pub enum Obstacle {
    Static,
    /// The dynamic linker of another C library.
    Linker(String),
    Machine,
    /// The linker preloads nothing into programs that run with more privileges than the user that starts them.
    Privileged,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Static => f.write_str(
                "it is statically linked, so its libibverbs cannot be replaced. Link it dynamically",
            ),
            Obstacle::Linker(linker) => write!(
                f,
                "its dynamic linker is {linker}, and SoftRNIC's libraries need that of glibc. Build it for glibc"
            ),
            Obstacle::Machine => {
                write!(f, "it is built for another processor; these SoftRNIC libraries are for {}", MACHINE.2)
            }
            Obstacle::Privileged => f.write_str(
                "it is setuid, setgid or has capabilities, so the dynamic linker ignores LD_PRELOAD. Run a copy \
                 without them, or run it as the user that it becomes",
            ),
        }
    }
}

/// The file that would be executed, and what stands in its way. What cannot be read is for the kernel to judge.
pub fn obstacle(program: &OsStr) -> Option<(PathBuf, Obstacle)> {
    let mut path = find(program)?;
    for _ in 0..=SCRIPTS {
        match interpreter(&path) {
            Some(interpreter) => path = interpreter,
            None => return judge(&path).map(|obstacle| (path, obstacle)),
        }
    }
    None
}

/// Looks a program up as `execvp` does.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let directories = std::env::var_os("PATH")?;
    std::env::split_paths(&directories).map(|directory| directory.join(program)).find(is_program)
}

/// The interpreter of a script.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    BufReader::new(File::open(path).ok()?.take(256)).read_until(b'\n', &mut line).ok()?;
    let words = line.strip_prefix(b"#!")?.trim_ascii();
    let end = words.iter().position(u8::is_ascii_whitespace).unwrap_or(words.len());
    Some(OsStr::from_bytes(&words[..end]).into())
}

fn judge(path: &Path) -> Option<Obstacle> {
    let file = File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let data = ReadCache::new(file);
    let program = match FileKind::parse(&data).ok()? {
        FileKind::Elf64 => Program::read::<elf::FileHeader64<Endianness>>(&data),
        FileKind::Elf32 => Program::read::<elf::FileHeader32<Endianness>>(&data),
        _ => return None,
    };
    program.ok()?.obstacle().or_else(|| gains_privileges(path, &metadata).then_some(Obstacle::Privileged))
}

/// What the kernel and the dynamic linker go by.
struct Program {
    machine: u16,
    is_64: bool,
    linker: Option<Vec<u8>>,
    /// Libraries have a name of their own. One that is a program too is the dynamic linker.
    is_library: bool,
}

impl Program {
    fn read<Header: FileHeader<Endian = Endianness>>(
        data: &ReadCache<File>,
    ) -> object::read::Result<Program> {
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        let mut program = Program {
            machine: header.e_machine(endian),
            is_64: header.is_class_64(),
            linker: None,
            is_library: false,
        };
        for segment in header.program_headers(endian, data)? {
            if let Some(linker) = segment.interpreter(endian, data)? {
                program.linker = Some(linker.to_vec());
            }
            let entries = segment.dynamic(endian, data)?.unwrap_or_default();
            program.is_library |= entries.iter().any(|entry| entry.tag(endian) == elf::DT_SONAME);
        }
        Ok(program)
    }

    fn obstacle(&self) -> Option<Obstacle> {
        if (self.machine, self.is_64) != (MACHINE.0, MACHINE.1) {
            return Some(Obstacle::Machine);
        }
        let Some(linker) = &self.linker else {
            return (!self.is_library).then_some(Obstacle::Static);
        };
        let linker = Path::new(OsStr::from_bytes(linker));
        let is_of_glibc = linker.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux"));
        (!is_of_glibc).then(|| Obstacle::Linker(linker.display().to_string()))
    }
}

/// Whether the kernel would tell the dynamic linker so (`AT_SECURE`).
fn gains_privileges(path: &Path, metadata: &Metadata) -> bool {
    let user = rustix::process::getuid();
    let becomes_another = metadata.mode() & 0o4000 != 0 && metadata.uid() != user.as_raw()
        || metadata.mode() & 0o2010 == 0o2010 && metadata.gid() != rustix::process::getgid().as_raw();
    let has_capabilities =
        !user.is_root() && rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64]).is_ok();
    let is_ignored = rustix::fs::statvfs(path)
        .is_ok_and(|file_system| file_system.f_flag.contains(StatVfsMountFlags::NOSUID));
    (becomes_another || has_capabilities) && !is_ignored
}
