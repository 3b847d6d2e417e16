"""Other people's programs from PyPI, crates.io and Debian, built where need be below target/ and kept there."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import LIBRARY, ON_KERNEL, ROOT, TARGET

CACHE = TARGET.parent / "programs"
REQUIREMENTS = pathlib.Path(__file__).parent / "python/requirements.txt"

# Downloads of many megabytes, over whatever line there is, and builds beside whatever else runs.
TIMEOUT = 900


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


def _run(*command, **environment):
    done = subprocess.run(
        command, check=True, capture_output=True, timeout=TIMEOUT, env={**os.environ, **environment})
    return done.stdout


def python():
    """A directory with the packages of python/requirements.txt, for PYTHONPATH. Debian's Python runs them."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    # Without what they depend on: all that the tests use of it is in the list, the rest is gigabytes for GPUs.
    pip = ["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary=:all:"]
    return _cached(f"python-{wanted}", lambda new: _run(*pip, "--target", new, "-r", REQUIREMENTS))


def mpich():
    """A prefix with PyPI's MPICH and mpi4py, for Debian's Python."""
    wanted = ("mpich==5.0.2", "mpi4py==4.1.2")
    pip = ["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary=:all:"]
    return _cached("-".join(wanted).replace("==", "-"), lambda new: _run(*pip, "--prefix", new, *wanted))


def crate_tests(name, version):
    """A directory with the test programs of a crate."""

    def fill(new):
        work = new.parent
        # Nothing but a package that depends on it makes cargo fetch a crate.
        (work / "src").mkdir()
        (work / "src/lib.rs").touch()
        manifest = work / "Cargo.toml"
        manifest.write_text(
            f'[package]\nname = "fetch"\nedition = "2021"\n[workspace]\n[dependencies]\n{name} = "={version}"\n')
        known = json.loads(_run("cargo", "metadata", "--format-version=1", "--manifest-path", manifest))
        (fetched,) = (package["manifest_path"] for package in known["packages"] if package["name"] == name)
        crate = work / name
        shutil.copytree(pathlib.Path(fetched).parent, crate)
        with (crate / "Cargo.toml").open("a") as manifest:
            manifest.write("\n[workspace]\n")
        told = _run(
            "cargo", "test", "--lib", "--tests", "--locked", "--no-run", "--message-format=json",
            "--manifest-path", crate / "Cargo.toml",
            CARGO_TARGET_DIR=str(work / "target"), CARGO_PROFILE_DEV_DEBUG="0", CARGO_INCREMENTAL="0")
        new.mkdir()
        for line in told.splitlines():
            built = json.loads(line)
            if built["reason"] == "compiler-artifact" and built["executable"] and built["profile"]["test"]:
                shutil.copy(built["executable"], new / built["target"]["name"])

    return _cached(f"{name}-{version}", fill)


def rdma_core_59():
    """A directory with tools of rdma-core 59, and with its libraries for a kernel. No Debian suite has it; PyPI has its
    source, with the Python bindings."""

    def fill(new):
        work = new.parent
        _run("/usr/bin/python3", "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=pyverbs",
             "--dest", work, "pyverbs==59.0")
        _run("tar", "-xzf", work / "pyverbs-59.0.tar.gz", "-C", work)
        source, build = work / "pyverbs-59.0/rdma-core", work / "build"
        without = [f"-D{what}=1" for what in ("NO_PYVERBS", "NO_MAN_PAGES")]
        _run("cmake", "-S", source, "-B", build, "-G", "Ninja", *without, "-DENABLE_RESOLVE_NEIGH=0",
             "-DCMAKE_SKIP_RPATH=1")
        tools = ["ibv_devinfo", "ibv_rc_pingpong", "ibv_srq_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong"]
        libraries = ["libibverbs.so.1", "librxe-rdmav59.so"]
        made = [*(f"bin/{tool}" for tool in tools), *(f"lib/{library}" for library in libraries)]
        _run("ninja", "-C", build, *made)
        for file in made:
            (new / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(build / file, new / file)

    return _cached("rdma-core-59-rxe", fill)


def debian(suite, packages):
    """A directory into which packages of another Debian suite are unpacked. `{python}` in their names stands for the
    suite's Python, such as `python3.13`."""
    sys.path.insert(0, str(ROOT / "tools/rxe-guest"))
    import common
    import kernels

    def fill(new):
        archive = kernels.Archive(suite, new.parent / "apt")
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


def on(root, verbs=True):
    """What to put before a program of `root`, with the C library and loader there. Its `verbs` are SoftRNIC's unless the
    tests run on a kernel."""
    loader = next(root.glob("usr/lib/*/ld-linux-*.so.*"))
    first = [LIBRARY.parent] if verbs and not ON_KERNEL else []
    path = [*first, loader.parent, loader.parent / "libibverbs"]
    return [loader, "--library-path", os.pathsep.join(map(str, path))]
