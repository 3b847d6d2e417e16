"""What CI services are given (action.yml, examples/ci, the release workflow), run by a shell as they would run it.

`inside` is what to put before a command for it to run in a root of its own (`clean`), or nothing for this machine's.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import yaml

# What a later step runs.
DEVICES = "softrnic devices --json | grep -o '\"name\": *\"[^\"]*\"' | head -n 1 | cut -d'\"' -f4"
# What steps call, but for what they install themselves.
PROGRAMS = ("ca-certificates", "curl", "ibverbs-utils", "iproute2", "make", "zstd")
# Whose test fails after its programs have talked.
MAKEFILE = """
test:
\tibv_rc_pingpong -g 0 -p {port} -n 50 & until ss -Htln | grep -q :{port}; do kill -0 $$! && sleep 0.1 || exit; done; \\
\tibv_rc_pingpong -g 0 -p {port} -n 50 127.0.0.1 || kill $$!; wait $$!
\tfalse
"""
# A root in which everything may be changed, without anything being left of it, and with directories of this machine.
CLEAN = """
mount -t tmpfs tmpfs /mnt && mkdir /mnt/changes /mnt/work /mnt/root
mount -t overlay -o "lowerdir=$1,upperdir=/mnt/changes,workdir=/mnt/work" overlay /mnt/root
mount -t proc proc /mnt/root/proc && mount --rbind /dev /mnt/root/dev
for shared in "$2" "$3"; do mkdir -p "/mnt/root$shared" && mount --bind "$shared" "/mnt/root$shared"; done
ip link set lo up
shift 3
exec chroot /mnt/root "$@"
"""


def clean(system, *shared):
    """What runs a command in a system that has only what it was made with, and two directories of this machine."""
    return ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-ec", CLEAN, "sh", system.resolve(), *shared]


def check(root, archive, system):
    """What is wrong with a real archive in a clean root of a system, a list of sentences for each."""
    for name, run, fail in (("action.yml", action, github_fails), ("examples/ci/gitlab.yml", gitlab, gitlab_fails)):
        with tempfile.TemporaryDirectory(prefix="softrnic-dist-") as directory:
            directory = Path(directory)
            inside = clean(system, root, directory)
            for file in (archive, archive.parent / "SHA256SUMS"):
                shutil.copy(file, directory)
            copy = directory / archive.name
            output = run(root, directory / "work", archive=str(copy), inside=inside)
            yield name, [] if output == "softrnic0" else [f"no device: {output}"]
            yield f"{name}: a job that fails", unexplained(*fail(root, directory / "job", copy, 18515, inside))
            with copy.open("r+b") as damaged:
                damaged.seek(1000)
                damaged.write(b"damaged")
            output = run(root, directory / "work2", archive=str(copy), inside=inside)
            yield f"{name}: a damaged archive", ["is used"] if output == "softrnic0" else []


def action(root, work, archive=None, version=None, repository="https://example.org/softrnic", inside=()):
    """The steps of the action with these inputs, and one after it. `repository` is where the action comes from."""
    work.mkdir()
    done, env = set_up(root, work, {"archive": archive, "version": version}, repository, inside)
    if done.returncode:
        return done.stderr
    return shell(["bash", "-ec", DEVICES], env, work, inside).stdout.strip()


def set_up(root, work, given, repository, inside):
    """Runs the steps of the action; returns what became of the last, and the environment of the steps after it."""
    definition = yaml.safe_load((root / "action.yml").read_text())
    inputs = {name: given[name] or it.get("default", "") for name, it in definition["inputs"].items()}
    server, _, name = repository.rpartition("/")
    context = {"github.server_url": server, "github.action_repository": name,
               **{f"inputs.{name}": value for name, value in inputs.items()}}
    path = work / "path"
    path.touch()
    env = {**os.environ, "GITHUB_ACTION_PATH": str(root), "RUNNER_TEMP": str(work), "GITHUB_PATH": str(path)}
    for step in definition["runs"]["steps"]:
        done = run_step(step, env, context, work, inside)
        if done.returncode:
            break
    return done, {**env, "PATH": f"{path.read_text().strip()}:{env['PATH']}"}


def gitlab(root, work, archive, inside=()):
    """What comes before a job's script, and then a script, in one shell."""
    before = yaml.safe_load((root / "examples/ci/gitlab.yml").read_text())[".softrnic"]["before_script"]
    env = {**os.environ, "SOFTRNIC_ARCHIVE": f"file://{archive}"}
    work.mkdir()
    script = "\n".join([*(f"{line} >&2" for line in before[:-1]), before[-1], DEVICES])
    done = shell(["sh", "-ec", script], env, work, inside)
    return done.stdout.strip() or done.stderr


def github_fails(root, work, archive, port, inside=()):
    """The job of examples/ci/github.yml, whose test fails: the files that it keeps, and what was said."""
    project(work, port)
    steps = yaml.safe_load((root / "examples/ci/github.yml").read_text())["jobs"]["test"]["steps"]
    env, failed, said, kept = None, False, "", []
    for step in steps:
        used = step.get("uses", "")
        if (step.get("if") == "failure()") != failed or used.startswith("actions/checkout@"):
            continue
        if used.startswith("OWNER/softrnic@"):
            done, env = set_up(root, work, {"archive": str(archive), "version": None}, "https://example.org/softrnic", inside)
        elif used.startswith("actions/upload-artifact@"):
            kept += files(work, step["with"]["path"])
            continue
        elif "apt-get" in step["run"]:
            continue
        else:
            done = run_step(step, env, {}, work, inside)
        said += f"{done.stdout}{done.stderr}"
        failed |= done.returncode != 0
    return kept, said


def gitlab_fails(root, work, archive, port, inside=()):
    """The same of examples/ci/gitlab.yml."""
    project(work, port)
    jobs = yaml.safe_load((root / "examples/ci/gitlab.yml").read_text())
    job = {**jobs[".softrnic"], **jobs["rdma"]}
    env = {**os.environ, "SOFTRNIC_ARCHIVE": f"file://{archive}"}
    done = shell(["sh", "-ec", "\n".join([*job["before_script"], *job["script"]])], env, work, inside)
    status = "failed" if done.returncode else "success"
    after = shell(["sh", "-ec", "\n".join(job["after_script"])], {**env, "CI_JOB_STATUS": status}, work, inside)
    keeps = status == "failed" and job["artifacts"]["when"] == "on_failure"
    kept = [file for path in job["artifacts"]["paths"] for file in files(work, path)] if keeps else []
    return kept, f"{done.stdout}{done.stderr}{after.stdout}{after.stderr}"


def project(work, port):
    work.mkdir()
    (work / "Makefile").write_text(MAKEFILE.format(port=port))


def files(work, path):
    return [file for file in (work / path).glob("**/*") if file.is_file() and file.stat().st_size]


def unexplained(kept, said):
    """What is not among the files that a job has kept: captures, their stories, and what `softrnic check` said."""
    missing = [suffix for suffix in (".pcapng", ".html", ".txt") if not any(file.suffix == suffix for file in kept)]
    return [f"it keeps no {suffix}: {said}" for suffix in missing]


def release(home, version, script):
    """An archive of this version in `home`, whose command is a script."""
    name = f"softrnic-{version}-linux-{os.uname().machine}"
    tree = home / name
    (tree / "bin").mkdir(parents=True)
    command = tree / "bin/softrnic"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    archive = home / f"{name}.tar.zst"
    subprocess.run(["tar", "--zstd", "-cf", archive, "-C", home, name], check=True)
    (home / "SHA256SUMS").write_text(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n")
    return archive


def run_step(step, env, context, cwd, inside=()):
    """One step with a command, as the service runs it: expressions are evaluated first."""
    values = {name: evaluate(value, context) for name, value in step.get("env", {}).items()}
    command = ["bash", "-e", "-o", "pipefail", "-c", evaluate(step["run"], context)]
    return shell(command, {**env, **values}, cwd, inside)


def evaluate(text, context):
    # An expression that the test has no value for is an error here, as an empty one is on the service.
    return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda found: context[found[1]], text)


def shell(command, env, cwd, inside=()):
    command = [*inside, "env", "-C", cwd, *command]
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
