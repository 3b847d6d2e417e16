"""Guests that run: started, found again, and taken down with all that was made for them."""

import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import image
import kernels
import network
from channel import PORTS, Session
from common import Failure, run, say

RUN = Path("/run/softrnic-rxe-peer")
NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,31}")
BOOT_SECONDS = 90


class Guest:
    """A guest by its name, running or not."""

    def __init__(self, name):
        if not NAME.fullmatch(name):
            raise Failure(f"{name!r} is not a name for a guest: small letters, digits, '.' and '-', 32 at most")
        self.name = name
        self.directory = RUN / name

    @property
    def state(self):
        """What `up` recorded, or None."""
        try:
            return json.loads((self.directory / "state.json").read_text())
        except FileNotFoundError:
            return None

    def running(self):
        state = self.state
        return bool(state and state.get("ready") and _started(state["pid"]) == state["started"])

    def session(self):
        if not self.running():
            raise Failure(f"guest {self.name} is not up; start it with: tools/rxe-peer up --name {self.name}")
        return Session(self.directory)

    def console(self, lines=40):
        """The end of what the guest and QEMU said."""
        said = []
        for log in ("console.log", "qemu.log"):
            with contextlib.suppress(FileNotFoundError):
                said += (self.directory / log).read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(line.rstrip() for line in said if line.strip())

    def up(self, kernel, mtu, net=None, memory=1024, cpus=1, cpu="max"):
        """Boot the guest and return when its rxe device is active; on failure nothing stays."""
        if not 1280 <= mtu <= 9000:
            raise Failure(f"MTU {mtu} is not between 1280 and 9000")
        net = Guest(net or self.name).name
        # Fetched and built before anything is made that would have to be removed.
        directory = kernels.fetched(kernel) or self._fetch(kernel)
        initramfs = image.build(directory)
        with _locked(self.name):
            if self.running():
                raise Failure(f"guest {self.name} is up already")
            self._remove()
            return self._boot(directory, initramfs, kernel, mtu, net, memory, cpus, cpu)

    def down(self):
        """End the guest and remove what was made for it; return whether there was anything."""
        with _locked(self.name):
            return self._remove()

    def _boot(self, directory, initramfs, kernel, mtu, net, memory, cpus, cpu):
        begun = time.monotonic()
        try:
            state = self._prepare(net, kernel, (directory / "version").read_text(), mtu)
            qemu = self._start(state, directory / "kernel", initramfs, memory, cpus, cpu)
            self._await(qemu, state)
            state["ready"] = round(time.monotonic() - begun, 1)
            self._record(state)
        except BaseException:
            self._remove()
            raise
        return state

    def _remove(self):
        state = self.state
        if not self.directory.exists():
            return False
        if state and "pid" in state:
            _end(state["pid"], state["started"])
        with _locked():
            if state:
                network.remove_tap(state["net"], state["host"])
                if not any(other["net"] == state["net"] for other in _states() if other["name"] != self.name):
                    network.destroy(state["net"])
            shutil.rmtree(self.directory)
        return True

    def _fetch(self, kernel):
        kernels.install_host_packages()
        return kernels.fetch(kernel)

    def _record(self, state):
        new = self.directory / "state.new"
        new.write_text(json.dumps(state, indent=1))
        new.rename(self.directory / "state.json")

    def _prepare(self, net, kernel, version, mtu):
        """Choose a host number, make the wire unless it is there, and record both before using them."""
        with _locked():
            taken = {other["host"] for other in _states() if other["net"] == net}
            host = next(n for n in range(network.NIC + 1, network.MAX_HOSTS) if n not in taken)
            if taken and network.mtu(net) != mtu:
                raise Failure(f"the wire {net} has MTU {network.mtu(net)}, not {mtu}")
            nic, wire = network.namespaces(net)
            state = {
                "name": self.name, "kernel": kernel, "version": version, "net": net, "mtu": mtu,
                "host": host, "namespace": nic, "wire_namespace": wire, "device": "rxe0",
                "peer": network.addresses(host), "local": network.addresses(network.NIC),
            }  # fmt: skip
            self.directory.mkdir(parents=True, mode=0o700)
            self._record(state)
            if not taken:
                network.destroy(net)
                network.create(net, mtu)
            network.add_tap(net, host, mtu)
        return state

    def _start(self, state, kernel, initramfs, memory, cpus, cpu):
        mtu, peer, tap = state["mtu"], state["peer"], f"tap{state['host']}"
        # The guest's time stamp counter is the host's. Measuring it by itself, on a host that is busy, the guest may
        # be wrong by any factor, and with it every timeout there.
        tsc = run(image.server(initramfs), "tsc").strip()
        parameters = (
            "console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off no_timer_check tsc=reliable "
            f"tsc_early_khz={tsc} "
            f"peer.name={self.name} peer.mtu={mtu} peer.ip4={peer['ipv4']}/24 peer.ip6={peer['ipv6']}/64"
        )
        argv = [
            "ip", "netns", "exec", state["wire_namespace"], "qemu-system-x86_64",
            "-name", f"rxe-peer-{self.name}", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", cpu,
            "-smp", str(cpus), "-m", str(memory),
            "-kernel", kernel, "-initrd", initramfs, "-append", parameters,
            "-chardev", f"file,id=console,path={self.directory}/console.log", "-serial", "chardev:console",
            # The first virtio device, which makes its ports /dev/vport0pN.
            "-device", f"virtio-serial-pci,max_ports={PORTS + 1}",
            "-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=net,mac={peer['mac']},host_mtu={mtu},romfile=",
            *_share("hostroot", "/"), *_share("hostusr", "/usr"),
        ]  # fmt: skip
        # QEMU is given sockets that listen already, so connecting to them never comes too early.
        sockets = []
        for number in range(1, PORTS + 1):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(self.directory / f"{number}.sock"))
            listener.listen(1)
            sockets.append(listener)
            argv += ["-chardev", f"socket,id=port{number},fd={listener.fileno()},server=on,wait=off"]
            argv += ["-device", f"virtserialport,chardev=port{number},nr={number}"]
        # It becomes QEMU only once its number is recorded: there is never one that could not be found again.
        gate, opener = os.pipe()
        with open(self.directory / "qemu.log", "w") as log, os.fdopen(opener, "wb") as opener:
            try:
                qemu = subprocess.Popen(
                    ["sh", "-c", 'read -r go && exec "$@" </dev/null', "sh", *map(str, argv)],
                    stdin=gate, stdout=log, stderr=log, start_new_session=True, cwd="/",
                    pass_fds=[s.fileno() for s in sockets],
                )  # fmt: skip
            finally:
                os.close(gate)
                for listener in sockets:
                    listener.close()
            state.update(pid=qemu.pid, started=_started(qemu.pid))
            self._record(state)
            opener.write(b"go\n")
        return qemu

    def _await(self, qemu, state):
        """Return when the guest answers, which it does once its device is active, and check its GIDs."""
        try:
            with Session(self.directory, deadline=BOOT_SECONDS) as session:
                read = "cd /sys/class/infiniband/rxe0/ports/1 && cat state gids/0 gids/1 gids/2"
                status, out, err = session.output(["sh", "-c", read])
        except Failure as failure:
            why = "QEMU ended" if qemu.poll() is not None else str(failure)
            raise Failure(f"guest {self.name} did not come up: {why}. Last on its console:\n{self.console()}")
        lines = out.decode().split("\n")
        peer = state["peer"]
        expected = [_gid(peer["link_local"]), _gid(f"::ffff:{peer['ipv4']}"), _gid(peer["ipv6"])]
        if status != 0 or "ACTIVE" not in lines[0] or lines[1:4] != expected:
            raise Failure(f"rxe0 in guest {self.name} is not as expected: {lines} {err.decode()}\n{self.console()}")
        state["gids"] = expected


def guests():
    """All guests there is any trace of."""
    return [Guest(path.name) for path in sorted(RUN.glob("*")) if path.is_dir()]


@contextlib.contextmanager
def _locked(guest=""):
    """Held while a guest is taken up or down; without a name, while host numbers and wires are shared out."""
    RUN.mkdir(mode=0o700, exist_ok=True)
    with open(RUN / (f".{guest}.lock" if guest else ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _states():
    return [state for guest in guests() if (state := guest.state)]


def _share(tag, path):
    """QEMU's arguments for a directory of the host that the guest may read."""
    fsdev = f"local,id={tag},path={path},security_model=none,readonly=on,multidevs=remap"
    return ["-fsdev", fsdev, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def _gid(address):
    full = socket.inet_pton(socket.AF_INET6, address).hex()
    return ":".join(full[i : i + 4] for i in range(0, 32, 4))


def _started(pid):
    """When a process started, in clock ticks since boot: with its number, that is its identity."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[19]) if fields[0] != "Z" else None


def _end(pid, started):
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(process, closefd=True):
        if _started(pid) != started:
            return
        for number, seconds in ((signal.SIGTERM, 3), (signal.SIGKILL, 10)):
            signal.pidfd_send_signal(process, number)
            if select.select([process], [], [], seconds)[0]:
                return
    say(f"QEMU (process {pid}) does not end")
