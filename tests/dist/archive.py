"""What is in a release archive: its files, and what of the system they need."""

import re
import subprocess
from pathlib import Path

# What RHEL 8 has; Ubuntu 20.04 and Debian 11 have newer ones.
GLIBC = (2, 28)
GCC = (4, 2, 0)
LIBRARIES = re.compile(r"(libc|libm|libdl|librt|libpthread)\.so\.\d|libgcc_s\.so\.1|ld-linux-(x86-64|aarch64)\.so\.\d")
BINARIES = ("bin/softrnic", "lib/softrnic/libibverbs.so.1", "lib/softrnic/libsoftrnic_interpose.so")


def check(tree):
    """What is wrong with the unpacked archive, a sentence each."""
    wrong = [f"{file} is missing" for file in (*BINARIES, *OTHERS) if not (tree / file).exists()]
    if wrong:
        return wrong
    if (tree / "lib/softrnic/libibverbs.so").readlink() != Path("libibverbs.so.1"):
        wrong.append("libibverbs.so is no link to libibverbs.so.1")
    for file in BINARIES:
        wrong += [f"{file}: {problem}" for problem in check_binary(tree / file)]
    return wrong


OTHERS = (
    "share/man/man1/softrnic.1", "share/man/man1/softrnic-run.1",
    "share/bash-completion/completions/softrnic", "share/zsh/site-functions/_softrnic",
    "share/fish/vendor_completions.d/softrnic.fish", "share/softrnic/playground.html",
    "share/softrnic/tsan.supp", "share/softrnic/valgrind.supp",
    "share/doc/softrnic/LICENSE-MIT", "share/doc/softrnic/LICENSE-APACHE", "share/doc/softrnic/LICENCES-OF-OTHERS",
)  # fmt: skip


def check_binary(file):
    dynamic = readelf("--dynamic", file)
    for library in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if not LIBRARIES.fullmatch(library):
            yield f"needs {library}"
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        yield "searches for libraries in a fixed directory"
    for (name, version), symbols in sorted(versions(file).items()):
        limit = {"GLIBC": GLIBC, "GCC": GCC}.get(name)
        if limit is None or version > limit:
            yield f"needs {name}_{'.'.join(map(str, version))}: {', '.join(sorted(symbols))}"
    sections = readelf("--sections", "--wide", file)
    if ".debug_info" in sections or ".symtab" in sections:
        yield "is not stripped"


def versions(file):
    """The symbols that others must define, by name and number of their version."""
    found = {}
    for line in readelf("--dyn-syms", "--wide", file).splitlines():
        words = line.split()
        if len(words) < 8 or words[6] != "UND" or "@" not in words[7]:
            continue
        symbol, version = words[7].split("@", 1)
        name, _, number = version.strip("@").partition("_")
        found.setdefault((name, tuple(map(int, number.split(".")))), set()).add(symbol)
    return found


def newest(tree):
    """The newest version of the C library that any of the files needs."""
    needed = [version for file in BINARIES for name, version in versions(tree / file) if name == "GLIBC"]
    return "GLIBC_" + ".".join(map(str, max(needed)))


def readelf(*arguments):
    return subprocess.run(["readelf", *map(str, arguments)], capture_output=True, text=True, check=True).stdout
