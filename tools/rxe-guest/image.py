"""The guest's initramfs: busybox, the modules, the command server and init. Everything else that runs in
the guest comes from the host's own file system, so the image is small and seldom changes."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from common import HERE, Failure, cache_dir, run

DIRECTORIES = ["bin", "dev", "host", "proc", "sbin", "sys", "tmp"]


def build(kernel):
    """Build the initramfs for a fetched kernel, unless the cache has it; return its path.

    server() has the command server that is in it, which runs on the host as well.
    """
    busybox = shutil.which("busybox")
    if not busybox:
        raise Failure("busybox is not installed; `tools/rxe-peer fetch` installs what is needed")
    program = [HERE / "server.c", HERE / "session.c"]
    sources = [*program, HERE / "server.h", HERE / "init", Path(__file__), Path(busybox)]
    digest = hashlib.sha256((kernel / "version").read_bytes() + (kernel / "stamp").read_bytes())
    for source in sources:
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    image = cache_dir() / "images" / f"{kernel.name}-{digest.hexdigest()[:16]}.cpio"
    if image.is_file() and server(image).is_file():
        return image

    image.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=image.parent, prefix=".build-") as work:
        root = Path(work) / "root"
        for directory in DIRECTORIES:
            (root / directory).mkdir(parents=True)
        shutil.copy(busybox, root / "bin/busybox")
        shutil.copy(HERE / "init", root / "init")
        shutil.copytree(kernel / "lib", root / "lib")
        shutil.copy(kernel / "boot-modules", root)
        # Where the kernel looks when it wants a module by itself.
        (root / "sbin/modprobe").symlink_to("/bin/busybox")
        run("gcc", "-O2", "-Wall", "-Wextra", "-Wshadow", "-static", "-o", root / "server", *program)
        (root / "init").chmod(0o755)
        new = Path(work) / "image"
        _pack(root, new)
        for old in image.parent.glob(f"{kernel.name}-*.cpio*"):
            old.unlink()
        shutil.copy(root / "server", server(image))
        new.rename(image)
    return image


def server(image):
    """The command server of an initramfs, as a program of its own."""
    return image.with_name(image.name + "-server")


def _pack(root, target):
    """An uncompressed archive: the emulated processor would take longer to unpack than to copy it."""
    names = sorted(str(p.relative_to(root)) for p in root.rglob("*"))
    with open(target, "wb") as out:
        done = subprocess.run(
            ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"],
            cwd=root, input="\n".join(names).encode(), stdout=out, stderr=subprocess.PIPE,
            timeout=60, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    if done.returncode != 0:
        raise Failure(f"cpio: {done.stderr.decode().strip()}")
