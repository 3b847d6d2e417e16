"""Builds the image of the Containerfile without a registry: buildah makes its layers, and a root that was made with the
programs of its second stage is what they lie on."""

import contextlib
import json
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = ROOT / "Containerfile"


def programs():
    """The packages that the second stage installs."""
    return re.search(r"apt-get install .*--no-install-recommends (.*) \\\n", CONTAINERFILE.read_text())[1].split()


class Image:
    """A root, and what the image says of the processes in it."""

    def __init__(self, root, config):
        self.root = root
        self.command = [*config["Entrypoint"], *config["Cmd"]]
        self.environment = config["Env"]
        uid, gid = (int(number) for number in config["User"].split(":"))
        self.user = {"uid": uid, "gid": gid}


@contextlib.contextmanager
def built(base, tree):
    """The image with an unpacked archive, on the root of a system."""
    with tempfile.TemporaryDirectory(prefix="softrnic-image-") as directory:
        directory = Path(directory)
        directory.chmod(0o755)

        def buildah(*command):
            storage = ["--storage-driver=vfs", f"--root={directory}/storage", f"--runroot={directory}/run"]
            done = subprocess.run(["buildah", *storage, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"buildah {' '.join(map(str, command))}: {done.stderr}")
            return done.stdout.strip()

        buildah("bud", "--build-arg=BASE=scratch", "--target=softrnic", f"--file={CONTAINERFILE}", "--tag=softrnic", tree)
        made = buildah("from", "--pull-never", "localhost/softrnic")
        config = json.loads(buildah("inspect", made))["OCIv1"]["config"]
        layers, merged = directory / "layers", directory / "merged"
        # What `buildah mount` shows, where users of containers can go.
        subprocess.run(["cp", "-a", buildah("mount", made), layers], check=True)
        # As runtimes do for the files that they mount.
        (layers / "etc").mkdir(exist_ok=True)
        (layers / "etc/hosts").touch()
        merged.mkdir()
        subprocess.run(["mount", "-t", "overlay", "-o", f"ro,lowerdir={layers}:{base}", "overlay", merged], check=True)
        try:
            yield Image(merged, config)
        finally:
            subprocess.run(["umount", merged], check=True)
