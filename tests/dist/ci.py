"""What CI services are given (action.yml, examples/ci, the release workflow), run by a shell as they would run it."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import yaml

# What a later step runs.
DEVICES = "softrnic devices --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0][\"name\"])'"


def check(root, archive):
    """What is wrong with a real archive, a list of sentences for each."""
    for name, run in (("action.yml", action), ("examples/ci/gitlab.yml", gitlab)):
        with tempfile.TemporaryDirectory(prefix="softrnic-dist-") as directory:
            directory = Path(directory)
            for file in (archive, archive.parent / "SHA256SUMS"):
                shutil.copy(file, directory)
            copy = directory / archive.name
            output = run(root, directory / "work", archive=str(copy))
            yield name, [] if output == "softrnic0" else [f"no device: {output}"]
            with copy.open("r+b") as damaged:
                damaged.seek(1000)
                damaged.write(b"damaged")
            output = run(root, directory / "work2", archive=str(copy))
            yield f"{name}: a damaged archive", ["is used"] if output == "softrnic0" else []


def action(root, work, archive=None, version=None, repository="https://example.org/softrnic"):
    """The steps of the action with these inputs, and one after it. `repository` is where the action comes from."""
    definition = yaml.safe_load((root / "action.yml").read_text())
    given = {"archive": archive, "version": version}
    inputs = {name: given[name] or it.get("default", "") for name, it in definition["inputs"].items()}
    server, _, name = repository.rpartition("/")
    context = {"github.server_url": server, "github.action_repository": name,
               **{f"inputs.{name}": value for name, value in inputs.items()}}
    work.mkdir()
    path = work / "path"
    env = {**os.environ, "GITHUB_ACTION_PATH": str(root), "RUNNER_TEMP": str(work), "GITHUB_PATH": str(path)}
    for step in definition["runs"]["steps"]:
        done = run_step(step, env, context, work)
        if done.returncode:
            return done.stderr
    env["PATH"] = f"{path.read_text().strip()}:{env['PATH']}"
    return shell(["bash", "-ec", DEVICES], env, work).stdout.strip()


def gitlab(root, work, archive):
    """What comes before a job's script, and then a script, in one shell."""
    before = yaml.safe_load((root / "examples/ci/gitlab.yml").read_text())[".softrnic"]["before_script"]
    env = {**os.environ, "SOFTRNIC_ARCHIVE": f"file://{archive}"}
    work.mkdir()
    done = shell(["sh", "-ec", "\n".join([*(f"{line} >&2" for line in before[:-1]), before[-1], DEVICES])], env, work)
    return done.stdout.strip() or done.stderr


def run_step(step, env, context, cwd):
    """One step with a command, as the service runs it: expressions are evaluated first."""
    values = {name: evaluate(value, context) for name, value in step.get("env", {}).items()}
    return shell(["bash", "-e", "-o", "pipefail", "-c", evaluate(step["run"], context)], {**env, **values}, cwd)


def evaluate(text, context):
    # An expression that the test has no value for is an error here, as an empty one is on the service.
    return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda found: context[found[1]], text)


def shell(command, env, cwd):
    return subprocess.run(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
