"""Runs commands as a container runtime does by default, and stricter: crun, with the common seccomp profile.

An unprivileged user without a capability, a root that cannot be written to, a /tmp from which nothing is executed, no
/dev/infiniband, no XDG_RUNTIME_DIR, and a network of its own with nothing but loopback.
"""

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


def run(root, archive, script):
    """Runs a shell script in the root, with the unpacked archive at /opt/softrnic; returns its status and output."""
    name = f"softrnic-dist-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix=name) as bundle:
        bundle = Path(bundle)
        (bundle / "rootfs").mkdir()
        (bundle / "config.json").write_text(json.dumps(configuration(root, archive, script)))
        # Nothing is limited here, and crun refuses machines that have both kinds of control groups.
        hide = 'mount -t tmpfs tmpfs /sys/fs/cgroup && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", hide, "sh",
                   "crun", "--cgroup-manager=disabled", f"--root={bundle}/state", "run", f"--bundle={bundle}", name]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=SECONDS)
    return done.returncode, done.stdout


def configuration(root, archive, script):
    def tmpfs(at, *options):
        return {"destination": at, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", *options]}

    none = {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")}
    return {
        "ociVersion": "1.0.0",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "args": ["/bin/sh", "-c", script],
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
            tmpfs("/opt", "mode=755"),
            {"destination": "/opt/softrnic", "type": "bind", "source": str(archive), "options": ["rbind", "ro"]},
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
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
