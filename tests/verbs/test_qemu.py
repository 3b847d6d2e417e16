"""QEMU, which moves virtual machines by RDMA."""

import contextlib
import json
import pathlib
import random
import socket
import tempfile
import time

from cm import CmTest, rdma_port
from harness import ADDRESS, TIMEOUT

SIZE = 32 << 20


class Monitor:
    """Asks a QEMU that is running."""

    def __init__(self, path, program, test):
        self.socket = socket.socket(socket.AF_UNIX)
        test.addCleanup(self.socket.close)
        self.socket.settimeout(TIMEOUT)
        test.wait_until(lambda: self.connects(path), program)
        self.stream = self.socket.makefile("rw")
        test.addCleanup(self.stream.close)
        self.stream.readline()
        self.ask("qmp_capabilities")

    def connects(self, path):
        with contextlib.suppress(OSError):
            self.socket.connect(str(path))
            return True
        return False

    def ask(self, what, **arguments):
        self.stream.write(json.dumps({"execute": what, "arguments": arguments}) + "\n")
        self.stream.flush()
        # Events come in between.
        while not {"return", "error"} & (said := json.loads(self.stream.readline())).keys():
            pass
        return said["return"]


class Qemu(CmTest):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory(prefix="softrnic-test-")
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def virtual_machine(self, name, *options):
        """A machine that does not run, with `name`'s file as memory, and its monitor."""
        memory = f"memory-backend-file,id=memory,size={SIZE},mem-path={self.directory / name}"
        program = self.start(
            ["qemu-system-x86_64", "-S", "-accel", "tcg", "-machine", "pc,memory-backend=memory", "-m", f"{SIZE >> 20}",
             "-object", memory, "-nodefaults", "-display", "none",
             "-qmp", f"unix:{self.directory / name}.qmp,server=on,wait=off", *options])
        return program, Monitor(self.directory / f"{name}.qmp", program, self)

    def test_the_memory_of_a_machine_that_moves(self):
        contents = random.Random(39).randbytes(SIZE)
        (self.directory / "there").write_bytes(bytes(SIZE))
        (self.directory / "here").write_bytes(contents)
        port = rdma_port()
        there, its = self.virtual_machine("there", "-incoming", f"rdma:{ADDRESS}:{port}")
        here, ours = self.virtual_machine("here")
        ours.ask("migrate", uri=f"rdma:{ADDRESS}:{port}")
        deadline = time.monotonic() + TIMEOUT
        while (told := ours.ask("query-migrate")).get("status") not in ("completed", "failed"):
            self.assertLess(time.monotonic(), deadline, told)
            time.sleep(0.05)
        self.assertEqual(told["status"], "completed", f"{here.output()}\n{there.output()}")
        saved = self.directory / "saved"
        its.ask("pmemsave", val=1 << 20, size=SIZE - (1 << 20), filename=str(saved))
        self.assertEqual(saved.read_bytes(), contents[1 << 20 :])
        for monitor in (ours, its):
            monitor.ask("quit")
        for machine in (here, there):
            self.assertEqual(machine.wait(deadline), 0, machine.output())
