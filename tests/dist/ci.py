"""What CI services are given (action.yml, examples/ci), run by a shell as they would."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import yaml


def check(root, archive):
    """What is wrong, a list of sentences for each."""
    for name, run in (("action.yml", action), ("examples/ci/gitlab.yml", gitlab)):
        with tempfile.TemporaryDirectory(prefix="softrnic-dist-") as directory:
            directory = Path(directory)
            for file in (archive, archive.parent / "SHA256SUMS"):
                shutil.copy(file, directory)
            copy = directory / archive.name
            (directory / "work").mkdir()
            wrong = [] if (output := run(root, copy)) == "softrnic0" else [f"no device: {output}"]
            yield name, wrong
            with copy.open("r+b") as damaged:
                damaged.seek(1000)
                damaged.write(b"damaged")
            (directory / "work2").mkdir()
            yield f"{name}: a damaged archive", ["is used"] if run(root, copy, "work2") == "softrnic0" else []


# What a later step runs.
DEVICES = "softrnic devices --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0][\"name\"])'"


def action(root, archive, work="work"):
    """The steps of the action, and one after it."""
    steps = yaml.safe_load((root / "action.yml").read_text())["runs"]["steps"]
    path = archive.parent / work / "path"
    env = {**os.environ, "GITHUB_ACTION_PATH": str(root), "RUNNER_TEMP": str(path.parent), "GITHUB_PATH": str(path),
           "ARCHIVE": str(archive)}
    for step in steps:
        if list(step["env"]) != ["ARCHIVE"]:
            return f"the step's variables are {step['env']}"
        done = shell(["bash", "-e", "-o", "pipefail", "-c", step["run"]], env, path.parent)
        if done.returncode:
            return done.stderr
    env["PATH"] = f"{path.read_text().strip()}:{env['PATH']}"
    return shell(["bash", "-ec", DEVICES], env, path.parent).stdout.strip()


def gitlab(root, archive, work="work"):
    """What comes before a job's script, and then a script, in one shell."""
    before = yaml.safe_load((root / "examples/ci/gitlab.yml").read_text())[".softrnic"]["before_script"]
    env = {**os.environ, "SOFTRNIC_ARCHIVE": f"file://{archive}"}
    done = shell(["sh", "-ec", "\n".join([*(f"{line} >&2" for line in before[:-1]), before[-1], DEVICES])], env,
                 archive.parent / work)
    return done.stdout.strip() or done.stderr


def shell(command, env, cwd):
    return subprocess.run(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
