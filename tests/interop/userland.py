"""The verbs libraries that belong to a guest's kernel, where the host's are too old for it.

Programs in the guest use the host's libraries. Debian 12's libibverbs has no FLUSH, so with a newer kernel the
agent runs on that kernel's own libibverbs, with the loader and C library that go with it.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from guest import ROOT

sys.path.insert(0, str(ROOT / "tools/rxe-guest"))

import common
import kernels

PACKAGES = ["libc6", "libibverbs1", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200"]
# Of rdma-core 45, the first with FLUSH.
NEEDED_BY = ("6.12", "sid")


def wrapper(kernel):
    """What to put before a program's command line so that it runs on these libraries."""
    if kernel not in NEEDED_BY:
        return []
    root = common.cache_dir() / "userland" / kernel
    if not root.is_dir():
        _fetch(kernel, root)
    loader = next(root.glob("usr/lib*/ld-linux-*.so.2"), None) or next(root.glob("usr/lib/*/ld-linux-*.so.2"))
    libraries = next(root.glob("usr/lib/*/libibverbs.so.1")).parent
    return [str(loader.resolve()), "--library-path", f"{libraries}:{libraries}/libibverbs"]


def _fetch(kernel, root):
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent, prefix=f".{kernel}-") as work:
        work = Path(work)
        archive = kernels.Archive(kernels.SUITES[kernel], work / "apt")
        archive.update()
        for deb in archive.download(PACKAGES, work):
            common.run("dpkg", "-x", deb, work / "root", timeout=300)
        shutil.move(work / "root", root)
