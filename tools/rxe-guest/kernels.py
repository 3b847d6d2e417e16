"""Guest kernels: found in the Debian archive, downloaded and unpacked without being installed.

A fetched kernel is a directory in the cache with `kernel`, `version`, `boot-modules` (what the guest
loads at start, in order) and a `lib/modules` tree that holds only the modules the guest can use.
"""

import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from common import Failure, cache_dir, run, say

# The name a user gives, and the Debian suite whose current kernel it stands for.
SUITES = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "sid": "sid"}
DEFAULT = "6.1"

HOST_PACKAGES = [
    "qemu-system-x86", "kmod", "busybox-static", "cpio", "iproute2", "gcc", "libc6-dev", "zstd",
    "debian-archive-keyring", "rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "perftest",
]  # fmt: skip
# What each package above is needed for, as a file to look for: asking dpkg would tie us to names.
HOST_PROGRAMS = [
    "qemu-system-x86_64", "depmod", "modprobe", "busybox", "cpio", "ip", "rdma", "gcc", "zstd",
    "ibv_devinfo", "rping", "ib_write_bw",
]  # fmt: skip

# Loaded at boot, as far as the kernel has them as modules: newer Debian kernels have most of virtio
# built in. Older rxe asks the crypto layer for "crc32" and fails to start without one of the first two;
# newer kernels have that in a library.
BOOT_MODULES = [
    "crc32_generic", "crc32_pclmul", "virtio_pci", "virtio_net", "virtio_console", "9p", "9pnet_virtio",
    "af_packet", "rdma_rxe", "rdma_ucm", "ib_uverbs", "ib_umad",
]  # fmt: skip
# Present if needed: the kernel loads them by itself on `ip link add type veth` and such.
MODULES_ON_DEMAND = [
    "veth", "8021q", "dummy", "tun", "bridge", "sch_netem", "sch_ingress", "act_mirred", "xsk_diag",
    "ib_isert", "target_core_file", "crc32c_generic", "nvmet", "nvmet_rdma", "nvme_rdma", "ext4",
]  # fmt: skip

KERNEL_PACKAGE = re.compile(r"linux-(image|binary|modules)-")


def install_host_packages():
    """Install what the tool itself needs, or say how."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    missing = [p for p in HOST_PROGRAMS if not shutil.which(p, path=path)]
    if not missing:
        return
    argv = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends"]
    argv += HOST_PACKAGES
    if os.geteuid() != 0:
        raise Failure(f"not found: {', '.join(missing)}. As root, run:\n  {' '.join(argv)}")
    say(f"installing packages (not found: {', '.join(missing)})")
    run(*argv, timeout=900, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def fetched(name):
    """The directory of a kernel in the cache, or None when it has to be fetched."""
    directory = _directory(name)
    stamp = directory / "stamp"
    return directory if stamp.is_file() and stamp.read_text() == _wanted_stamp() else None


def fetch(name, refresh=False):
    """Make sure that a kernel is in the cache; return its directory."""
    directory = fetched(name)
    if directory and not refresh:
        return directory
    directory = _directory(name)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{name}-") as work:
        work = Path(work)
        archive = Archive(SUITES[name], work / "apt")
        archive.update()
        packages = archive.kernel_packages()
        say(f"downloading {', '.join(packages)}")
        for deb in archive.download(packages, work):
            run("dpkg", "-x", deb, work / "root", timeout=300)
        new = work / "kernel"
        _reduce(work / "root", new)
        if directory.exists():
            shutil.rmtree(directory)
        new.rename(directory)
    say(f"kernel {name} is {(directory / 'version').read_text()}")
    return directory


class Archive:
    """One Debian suite, seen through apt lists and state of its own; the machine's stay untouched."""

    def __init__(self, suite, state, architecture="amd64"):
        self.suite, self.state, self.architecture = suite, state, architecture

    def update(self):
        for sub in ("lists/partial", "cache/archives/partial"):
            (self.state / sub).mkdir(parents=True, exist_ok=True)
        (self.state / "status").touch()
        options = f"arch={self.architecture} target=Packages"
        keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
        if keyring.is_file():
            options += f" signed-by={keyring}"
        (self.state / "sources.list").write_text(f"deb [{options}] {_mirror()} {self.suite} main\n")
        say(f"reading the package lists of {self.suite}")
        self._apt("apt-get", "update", "-q", "--error-on=any", timeout=300)

    def kernel_packages(self):
        """The packages that hold the image and modules of the suite's current kernel."""
        found, todo = [], [f"linux-image-{self.architecture}"]
        while todo:
            depends = self._apt("apt-cache", "depends", "--important", todo.pop())
            for name in re.findall(r"^\s*\|?(?:Pre)?Depends: (\S+)", depends, re.M):
                if KERNEL_PACKAGE.match(name) and name not in found:
                    found.append(name)
                    todo.append(name)
        if not found:
            raise Failure(f"suite {self.suite} has no package linux-image-{self.architecture} that names a kernel")
        return found

    def download(self, packages, into):
        self._apt("apt-get", "download", "-q", *packages, cwd=into, timeout=900)
        return sorted(into.glob("*.deb"))

    def _apt(self, program, *args, **kwargs):
        settings = {
            "Dir::Etc::sourcelist": self.state / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State": self.state,
            "Dir::State::lists": self.state / "lists",
            "Dir::State::status": self.state / "status",
            "Dir::Cache": self.state / "cache",
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            # apt's own user cannot write into a cache below a user's home.
            "APT::Sandbox::User": "root",
            # Hooks of the machine (package kits and the like) have no business here.
            "APT::Update::Post-Invoke-Success": "",
        }
        argv = [program] + [f"-o{key}={value}" for key, value in settings.items()]
        return run(*argv, *args, **kwargs)


def _mirror():
    """The Debian mirror that this machine is configured with."""
    if chosen := os.environ.get("RXE_PEER_MIRROR"):
        return chosen
    listed = run(
        "apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN)/$(LABEL)", "Identifier: Packages"
    )
    for line in listed.splitlines():
        uri, _, origin = line.partition(" ")
        if origin == "Debian/Debian":
            return uri
    raise Failure(
        "no Debian mirror among this machine's apt sources (is `apt-get update` due?); "
        "set RXE_PEER_MIRROR to the URI of one"
    )


def _reduce(root, target):
    """Keep of an unpacked kernel what a guest can use, modules uncompressed."""
    # With a merged /usr the packages may place the tree on either side.
    trees = [t for base in ("lib", "usr/lib") for t in (root / base / "modules").glob("*")]
    images = list(root.glob("**/vmlinuz*"))
    if len(trees) != 1 or not images:
        raise Failure(f"unexpected kernel packages: images {images}, module trees {trees}")
    tree, version = trees[0], trees[0].name
    base = tree.parent.parent.parent
    run("depmod", "-b", base, version)

    boot = []
    for name in BOOT_MODULES + MODULES_ON_DEMAND:
        files = _load_order(base, version, name)
        for path in files:
            relative = re.sub(r"\.(xz|zst)$", "", str(path.relative_to(tree)))
            _copy_module(path, target / "lib/modules" / version / relative)
        if files and name in BOOT_MODULES:
            boot.append(name)
    for index in ("modules.builtin", "modules.order", "modules.builtin.modinfo"):
        if (tree / index).is_file():
            shutil.copy(tree / index, target / "lib/modules" / version)
    run("depmod", "-b", target, version)
    if "rdma_rxe" not in boot:
        raise Failure(f"kernel {version} has no module rdma_rxe")

    (target / "kernel").write_bytes(_bare_image(images[0].read_bytes()))
    (target / "version").write_text(version)
    (target / "boot-modules").write_text("".join(f"{m}\n" for m in boot))
    (target / "stamp").write_text(_wanted_stamp())


def _load_order(base, version, name):
    """Files to load for a module, dependencies first; empty when the kernel has it built in or not at all.

    The two cannot be told apart where the packages bring no list of built-in modules; the guest's init
    says what it misses.
    """
    try:
        shown = run("modprobe", "-d", base, "-S", version, "--show-depends", name)
    except Failure:
        return []
    return [Path(line.split()[1]) for line in shown.splitlines() if line.startswith("insmod")]


def _copy_module(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_uncompressed(source.read_bytes()))


def _bare_image(bzimage):
    """The kernel inside a bzImage, which QEMU starts directly where it is an ELF file with a PVH entry.

    Left to the emulated processor, unpacking it is half of the whole time to boot. Layout: the kernel's
    Documentation/arch/x86/boot.rst. A payload in an unknown format boots as it is, only later.
    """
    setup_sectors = bzimage[0x1F1] or 4
    offset, length = struct.unpack_from("<II", bzimage, 0x248)
    payload = bzimage[(setup_sectors + 1) * 512 + offset :][:length]
    # The last four bytes are the length when unpacked.
    bare = _uncompressed(payload[:-4])
    return bare if bare.startswith(b"\x7fELF") else bzimage


def _uncompressed(data):
    if data.startswith(b"\xfd7zXZ\0"):
        return lzma.decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    return data


def _directory(name):
    if name not in SUITES:
        raise Failure(f"no kernel called {name}; there are: {', '.join(SUITES)}")
    return cache_dir() / "kernels" / name


def _wanted_stamp():
    """Changes with this file, which decides what is kept of the packages."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
