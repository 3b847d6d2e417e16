"""What the tests of the playground share: the page, the same NICs outside of it, and a run as requests."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PAGE = TARGET / "playground/playground.html"
PROFILE = os.environ.get("SOFTRNIC_TEST_PROFILE", "dev")


def native(requests):
    """The answers of the same crate, compiled for this machine."""
    program = TARGET / ("debug" if PROFILE == "dev" else PROFILE) / "examples/answer"
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([program], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def opened(setup=None, moves=()):
    return {"ask": "open", "run": {"setup": setup or {}, "moves": list(moves)}}


def act(does, **more):
    return {"ask": "act", "action": {"do": does, **more}}


def recv(end=1, length=4096):
    return act("recv", end=end, len=length)


def post(op="send", length=2500, end=0, **more):
    return act("post", end=end, op=op, len=length, remote=4096, **more)


def steps(count):
    return [{"ask": "forward"}] * count


def axe():
    """The script of axe-core, which pip gets once; None if it cannot."""
    package = "axe-playwright-python==0.1.8"
    kept = TARGET / "programs" / package.replace("==", "-")
    if not kept.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore",
               "--no-deps", "--no-compile", "--only-binary=:all:", "--target", kept, package]
        if subprocess.run(pip).returncode:
            return None
    return next(kept.rglob("axe.min.js")).read_text(encoding="utf-8")


def skip(reason):
    """A part that cannot be tried, as tools/test wants to hear of it."""
    with open(os.environ.get("SOFTRNIC_TEST_SKIPS", os.devnull), "a", encoding="utf-8") as skips:
        print(reason, file=skips)
