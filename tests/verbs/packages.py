"""Other people's programs from PyPI and Debian, unpacked below target/ and kept there."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import ROOT, TARGET

CACHE = TARGET.parent / "programs"
REQUIREMENTS = pathlib.Path(__file__).parent / "python/requirements.txt"

# Downloads of many megabytes, over whatever line there is.
TIMEOUT = 600


def _cached(name, fill):
    """The directory `name` of the cache, which `fill` makes unless it is there. Skips the test if it cannot."""
    directory = CACHE / name
    if not directory.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=f".{name}-") as work:
            new = pathlib.Path(work) / "new"
            try:
                fill(new)
            except subprocess.SubprocessError as error:
                said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
                raise unittest.SkipTest(f"cannot get {name}: {said.splitlines()[-1] if said else error}") from None
            shutil.move(new, directory)
    return directory


def _run(*command):
    subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT)


def python():
    """A directory with the packages of python/requirements.txt, for PYTHONPATH. Debian's Python runs them."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    # Without what they depend on: all that the tests use of it is in the list, the rest is gigabytes for GPUs.
    pip = ["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary=:all:"]
    return _cached(f"python-{wanted}", lambda new: _run(*pip, "--target", new, "-r", REQUIREMENTS))


def debian(suite, packages):
    """A directory into which packages of another Debian suite are unpacked. `{python}` in their names stands for the
    suite's Python, such as `python3.13`."""
    sys.path.insert(0, str(ROOT / "tools/rxe-guest"))
    import common
    import kernels

    def fill(new):
        archive = kernels._Archive(suite, new.parent / "apt")
        try:
            archive.update()
            python = re.search(r"(python3\.\d+)-minimal", archive._apt("apt-cache", "depends", "python3-minimal"))[1]
            debs = archive.download([name.format(python=python) for name in packages], new.parent)
        except common.Failure as failure:
            raise unittest.SkipTest(f"cannot get packages of {suite}: {failure}") from None
        for deb in debs:
            _run("dpkg", "-x", deb, new)

    wanted = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:16]
    return _cached(f"{suite}-{wanted}", fill)


def on(root, libraries=()):
    """What to put before a program of `root`, with the C library and loader there. `libraries` come first."""
    loader = next(root.glob("usr/lib/*/ld-linux-*.so.*"))
    path = [*libraries, loader.parent]
    return [loader, "--library-path", os.pathsep.join(map(str, path))]
