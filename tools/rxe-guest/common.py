"""Paths, subprocess helpers and the one error type that the rxe-peer tool shows to its user."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Failure(Exception):
    """Something the user has to know; the message is complete and is printed without a traceback."""


def cache_dir():
    """Where downloaded kernels and built images live; safe to delete at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "softrnic" / "rxe-peer"
    path.mkdir(parents=True, exist_ok=True)
    return path


def say(text):
    """Progress goes to stderr, so that stdout carries only what was asked for."""
    print(f"rxe-peer: {text}", file=sys.stderr, flush=True)


def run(*argv, timeout=60, input="", **kwargs):
    """Run a command and return its stdout; a failure carries the command and what it said."""
    argv = [str(a) for a in argv]
    try:
        done = subprocess.run(argv, input=input, capture_output=True, text=True, timeout=timeout, **kwargs)
    except FileNotFoundError:
        raise Failure(f"{argv[0]} is not installed; `tools/rxe-peer fetch` installs what is needed") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"no end after {timeout} s: {shlex.join(argv)}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise Failure(f"exit status {done.returncode} from: {shlex.join(argv)}\n{said}")
    return done.stdout
