"""Runs commands as a container runtime does by default, and stricter: crun, with the common seccomp profile.

An unprivileged user without a capability, a root that cannot be written to, a /tmp from which nothing is executed, no
/dev/infiniband, no XDG_RUNTIME_DIR, and a network of its own with nothing but loopback.
"""

import itertools
import json
import os
import platform
import subprocess
import tempfile
from pathlib import Path

# What podman and its like apply, as Debian's golang-github-containers-common has it. Docker's is the same list.
PROFILE = Path("/usr/share/containers/seccomp.json")
MACHINE = {"x86_64": ("amd64", "SCMP_ARCH_X86_64"), "aarch64": ("arm64", "SCMP_ARCH_AARCH64")}
SECONDS = 180
# No user of the container is one of the machine.
MAPPING = {"containerID": 0, "hostID": 100000, "size": 65536}
NUMBERS = itertools.count()


def run(root, archive, script):
    """Runs a shell script in the root, with the unpacked archive at /opt/softrnic; returns its status and output."""
    with Container(root, archive, ["/bin/sh", "-c", script]) as container:
        return container.wait()


class Container:
    """A command that runs in the root, from the beginning of a `with` block; it is killed at the end.

    `network` is the path of a network namespace, instead of a new one; `hosts` what is in /etc/hosts.
    """

    def __init__(self, root, archive, command, network=None, hosts=None, hostname="softrnic", **process):
        self.name = f"softrnic-dist-{os.getpid()}-{next(NUMBERS)}"
        self.bundle = tempfile.TemporaryDirectory(prefix=self.name)
        bundle = Path(self.bundle.name)
        # Root of the container's user namespace goes through it.
        bundle.chmod(0o755)
        (bundle / "rootfs").mkdir()
        self.configuration = configuration(root, archive, command, network)
        self.configuration["process"] |= process
        self.configuration["hostname"] = hostname
        if hosts is not None:
            (bundle / "hosts").write_text(hosts)
            self.configuration["mounts"].append(bind(bundle / "hosts", "/etc/hosts"))
        (bundle / "config.json").write_text(json.dumps(self.configuration))

    def __enter__(self):
        bundle = self.bundle.name
        # Nothing is limited here, and crun refuses machines that have both kinds of control groups.
        hide = 'mount -t tmpfs tmpfs /sys/fs/cgroup && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", hide, "sh",
                   "crun", "--cgroup-manager=disabled", f"--root={bundle}/state", "run", f"--bundle={bundle}", self.name]
        self.running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        return self

    def wait(self):
        """Its status and output."""
        output, _ = self.running.communicate(timeout=SECONDS)
        return self.running.returncode, output

    def kill(self):
        kill = ["crun", "--cgroup-manager=disabled", f"--root={self.bundle.name}/state", "kill", self.name, "KILL"]
        subprocess.run(kill, stderr=subprocess.DEVNULL)

    def __exit__(self, *_):
        if self.running.poll() is None:
            self.kill()
            self.running.wait()
        self.running.stdout.close()
        self.bundle.cleanup()


def bind(source, at):
    return {"destination": at, "type": "bind", "source": str(source), "options": ["rbind", "ro"]}


def configuration(root, archive, command, network):
    def tmpfs(at, *options):
        return {"destination": at, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", *options]}

    none = {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")}
    return {
        "ociVersion": "1.0.0",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "args": command,
            "cwd": "/",
            "env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/"],
            "user": {"uid": 1000, "gid": 1000},
            "capabilities": none,
            "noNewPrivileges": True,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            tmpfs("/dev", "mode=755", "size=65536k"),
            tmpfs("/dev/shm", "noexec", "nodev", "mode=1777", "size=65536k"),
            tmpfs("/tmp", "noexec", "nodev", "mode=1777"),
            *([tmpfs("/opt", "mode=755"), bind(archive, "/opt/softrnic")] if archive else []),
        ],
        "linux": {
            "namespaces": [*({"type": kind} for kind in ("user", "pid", "ipc", "uts", "mount")),
                           {"type": "network"} | ({"path": str(network)} if network else {})],
            "uidMappings": [MAPPING],
            "gidMappings": [MAPPING],
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            "seccomp": seccomp(json.loads(PROFILE.read_text())),
        },
    }


def seccomp(profile):
    """The profile for a container without capabilities, as runtimes hand it on."""
    machine, architecture = MACHINE[platform.machine()]

    def applies(rule):
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        return not includes.get("caps") and machine in includes.get("arches", [machine]) and (
            machine not in excludes.get("arches", []))

    kept = ("names", "action", "args", "errnoRet")
    rules = [{key: rule[key] for key in kept if rule.get(key)} for rule in profile["syscalls"] if applies(rule)]
    return {"defaultAction": profile["defaultAction"], "defaultErrnoRet": profile["defaultErrnoRet"],
            "architectures": [architecture], "syscalls": rules}
