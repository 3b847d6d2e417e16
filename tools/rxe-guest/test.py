#!/usr/bin/env python3
"""Tests of tools/rxe-peer itself, with real guests, as root: `KERNEL=sid tools/rxe-guest/test.py`."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
TOOL = Path(__file__).resolve().parent.parent / "rxe-peer"
KERNEL = os.environ.get("KERNEL", "6.1")
NAME = "rxe-peer-test"


def tool(*args, **kwargs):
    if "input" not in kwargs:
        kwargs["stdin"] = subprocess.DEVNULL
    return subprocess.run([TOOL, *args], capture_output=True, timeout=120, **kwargs)


def run(*argv, name=NAME, **kwargs):
    return tool("run", "--name", name, "--", *argv, **kwargs)


@contextlib.contextmanager
def running(*argv, name=NAME, **kwargs):
    """A command in the guest, once it has printed its first line."""
    kwargs = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, **kwargs}
    process = subprocess.Popen([TOOL, "run", "--name", name, "--", *argv], **kwargs)
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()


def left_behind(name):
    """Whatever there still is of a guest of that name."""
    found = [n for n in os.listdir("/run/netns") if n.startswith(name)] if os.path.isdir("/run/netns") else []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"rxe-peer-{name}".encode() in entry.read_bytes().split(b"\0"):
                found.append(f"QEMU {entry.parent.name}")
    directory = Path("/run/softrnic-rxe-peer") / name
    return found + ([str(directory)] if directory.exists() else [])


class Commands(unittest.TestCase):
    """One guest serves all of these."""

    @classmethod
    def setUpClass(cls):
        done = tool("up", "--name", NAME, "--kernel", KERNEL)
        assert done.returncode == 0, done.stderr.decode()

    @classmethod
    def tearDownClass(cls):
        assert tool("down", "--name", NAME).returncode == 0
        assert left_behind(NAME) == []

    def test_rxe_is_active_with_the_promised_gids(self):
        shown = run("ibv_devinfo", "-v").stdout.decode()
        self.assertIn("PORT_ACTIVE", shown)
        self.assertRegex(shown, r"active_mtu:\s+4096")
        status = json.loads(tool("status", "--name", NAME, "--json").stdout)
        peer = status["peer"]
        for index, address in enumerate([peer["link_local"], f"::ffff:{peer['ipv4']}", peer["ipv6"]]):
            self.assertRegex(shown, rf"GID\[\s*{index}\]:\s+{address}, RoCE v2")

    def test_full_frames_reach_the_guest_over_both_ip_versions(self):
        status = json.loads(tool("status", "--name", NAME, "--json").stdout)
        for address, headers in ((status["peer"]["ipv4"], 28), (status["peer"]["ipv6"], 48)):
            ping = ["ping", "-M", "do", "-c", "2", "-i", "0.2", "-W", "5", "-s", str(status["mtu"] - headers)]
            done = subprocess.run(
                ["ip", "netns", "exec", status["namespace"], *ping, address], capture_output=True, timeout=30
            )
            self.assertEqual(done.returncode, 0, done.stdout.decode() + done.stderr.decode())

    def test_a_second_takes_as_long_in_the_guest_as_outside(self):
        """On a busy host, too: a guest that measures its clock by itself may be wrong by a factor of 70."""
        moments = []
        for _ in range(2):
            before = time.monotonic()
            there = float(run("cat", "/proc/uptime").stdout.split()[0])
            moments.append((before, there, time.monotonic()))
            time.sleep(2)
        (begun, first, answered), (asked, second, ended) = moments
        self.assertGreater(second - first, (asked - answered) * 0.99 - 0.02)
        self.assertLess(second - first, (ended - begun) * 1.01 + 0.02)

    def test_exit_statuses_are_those_of_a_shell(self):
        for script, status in (("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)):
            self.assertEqual(run("sh", "-c", script).returncode, status)
        missing = run("no-such-program")
        self.assertEqual(missing.returncode, 127)
        self.assertIn(b"No such file", missing.stderr)
        self.assertEqual(run("/etc/passwd").returncode, 126)

    def test_output_and_errors_stay_apart(self):
        done = run("sh", "-c", "echo out; echo err >&2")
        self.assertEqual((done.stdout, done.stderr), (b"out\n", b"err\n"))

    def test_arguments_arrive_as_given(self):
        odd = ["", "two words", "line\nline", "\x10n\x100\n", "'\"$`\\", "ü"]
        self.assertEqual(run("printf", "%s|", *odd).stdout.decode(), "".join(f"{a}|" for a in odd))

    def test_megabytes_pass_unchanged_both_ways(self):
        data = os.urandom(3_000_000) + b"\n\x10" * 50_000
        self.assertEqual(run("cat", input=data).stdout, data)

    def test_files_are_put_and_got(self):
        with tempfile.TemporaryDirectory() as here:
            source, back = Path(here, "source"), Path(here, "back")
            source.write_bytes(os.urandom(100_000))
            source.chmod(0o755)
            self.assertEqual(tool("put", "--name", NAME, source, "/tmp/put").returncode, 0)
            self.assertEqual(run("stat", "-c", "%a", "/tmp/put").stdout, b"755\n")
            self.assertEqual(tool("get", "--name", NAME, "/tmp/put", back).returncode, 0)
            self.assertEqual(back.read_bytes(), source.read_bytes())
            self.assertNotEqual(tool("get", "--name", NAME, "/tmp/absent", back).returncode, 0)
            self.assertEqual(sorted(os.listdir(here)), ["back", "source"])

    def test_a_program_rebuilt_on_the_host_is_the_one_that_runs(self):
        with tempfile.TemporaryDirectory(dir=TOOL.parent) as here:
            program = Path(here, "program")
            for text in ("first", "second, longer"):
                program.write_text(f"#!/bin/sh\necho {text}\n")
                program.chmod(0o755)
                self.assertEqual(run(program).stdout.decode().strip(), text)

    def test_the_guest_cannot_write_to_the_host(self):
        with tempfile.TemporaryDirectory(dir=TOOL.parent) as here:
            done = run("touch", f"{here}/file")
            self.assertIn(b"Read-only", done.stderr)
            self.assertEqual(os.listdir(here), [])

    def test_commands_run_side_by_side(self):
        with running("sh", "-c", "echo up; exec cat", stdin=subprocess.PIPE) as cat:
            self.assertEqual(run("echo", "meanwhile").stdout, b"meanwhile\n")
            cat.stdin.write(b"still there\n")
            cat.stdin.flush()
            self.assertEqual(cat.stdout.readline(), b"still there\n")

    def test_the_ports_are_counted(self):
        with contextlib.ExitStack() as many:
            for _ in range(16):
                many.enter_context(running("sh", "-c", "echo up; exec sleep 100"))
            refused = run("true")
            self.assertEqual(refused.returncode, 125)
            self.assertIn(b"no more ports", refused.stderr)
        self.assertEqual(run("true").returncode, 0)

    def test_signals_are_passed_on(self):
        script = 'trap "echo told; exit 3" TERM; echo up; while :; do sleep 0.02; done'
        with running("sh", "-c", script) as process:
            process.terminate()
            self.assertEqual(process.stdout.read(), b"told\n")
            self.assertEqual(process.wait(), 3)

    def test_a_signal_overtakes_input_that_nobody_reads(self):
        with open("/dev/zero", "rb") as zero:
            with running("sh", "-c", "echo up; exec sleep 100", stdin=zero) as process:
                process.terminate()
                self.assertEqual(process.wait(timeout=20), 143)

    def test_what_ran_ends_with_its_caller(self):
        # The first ends when told to, the second only when it has to.
        for script in ("echo up; exec sleep 4711", 'trap "" TERM; echo up; sleep 4711; sleep 4711'):
            with running("sh", "-c", script):
                pass
            deadline = time.monotonic() + 10
            while (found := run("pgrep", "-x", "sleep").returncode) == 0 and time.monotonic() < deadline:
                pass
            self.assertEqual(found, 1)

    def test_output_that_nobody_reads_any_more_ends_the_command(self):
        with running("yes") as process:
            process.stdout.close()
            self.assertEqual(process.wait(timeout=20), -signal.SIGPIPE)
            process.stdout = None

    def test_a_detached_command_stays(self):
        done = tool("run", "--name", NAME, "--detach", "--", "sh", "-c", "echo said; exec sleep 0.5")
        process, log = done.stdout.decode().split()
        script = f"tail --pid={process} -f /dev/null; cat {log}"
        self.assertEqual(run("timeout", "20", "sh", "-c", script).stdout, b"said\n")

    def test_the_shell_has_a_terminal(self):
        child, terminal = pty.fork()
        if child == 0:
            os.execv(TOOL, [TOOL, "shell", "--name", NAME])
        os.write(terminal, b"tty; echo width $((40 + 2)); sleep 100\n")
        said = b""
        while b"width 42" not in said:
            self.assertTrue(select.select([terminal], [], [], 20)[0], said)
            said += os.read(terminal, 4096)
        self.assertIn(b"/dev/pts/", said)
        os.write(terminal, b"\x03")  # interrupts the sleep, not us
        os.write(terminal, b"exit 5\n")
        with contextlib.suppress(OSError):  # the terminal's way to say that the other end is gone
            while os.read(terminal, 4096):
                pass
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 5)

    def test_the_name_is_taken(self):
        done = tool("up", "--name", NAME)
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"is up already", done.stderr)


class Lives(unittest.TestCase):
    """Guests that come and go; whatever happens, nothing of them stays."""

    name = NAME + "-b"

    def tearDown(self):
        for name in (self.name, NAME):
            tool("down", "--name", name)
            self.assertEqual(left_behind(name), [])

    def test_a_command_boots_a_guest_for_itself(self):
        done = tool("run", "--name", self.name, "--kernel", KERNEL, "--", "uname", "-n")
        self.assertEqual(done.stdout.decode(), f"{self.name}\n")
        self.assertEqual(left_behind(self.name), [])

    def test_a_command_may_want_the_guest_that_is_up(self):
        done = tool("run", "--no-boot", "--name", self.name, "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertIn(f"guest {self.name} is not up", done.stderr.decode())

    def test_an_interrupted_start_leaves_nothing(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            up = self.start_until_qemu_runs()
            up.send_signal(number)
            self.assertNotEqual(up.wait(timeout=20), 0)
            self.assertEqual(left_behind(self.name), [])

    def test_a_killed_start_is_cleaned_up_by_the_next_down(self):
        up = self.start_until_qemu_runs()
        up.kill()
        up.wait()
        self.assertIn("no guest is up", tool("status", "--name", self.name).stdout.decode())
        self.assertEqual(tool("down", "--name", self.name).returncode, 0)
        self.assertEqual(left_behind(self.name), [])

    def test_a_guest_that_dies_is_noticed_and_replaced(self):
        tool("up", "--name", self.name, "--kernel", KERNEL)
        state = json.loads(tool("status", "--name", self.name, "--json").stdout)
        with running("sh", "-c", "echo up; exec sleep 100", name=self.name) as process:
            os.kill(state["pid"], signal.SIGKILL)
            self.assertEqual(process.wait(timeout=20), 125)
        self.assertEqual(tool("status", "--name", self.name).returncode, 1)
        self.assertEqual(tool("up", "--name", self.name, "--kernel", KERNEL).returncode, 0)

    def test_two_guests_share_a_wire_until_the_last_has_gone(self):
        ups = [
            subprocess.Popen([TOOL, "up", "--name", n, "--net", NAME, "--kernel", KERNEL], stdout=subprocess.DEVNULL)
            for n in (NAME, self.name)
        ]
        self.assertEqual([up.wait(timeout=90) for up in ups], [0, 0])
        there = json.loads(tool("status", "--name", self.name, "--json").stdout)["peer"]["ipv4"]
        serve = ["sh", "-c", "echo up; exec timeout 60 rping -s -C 3"]
        with running(*serve, name=self.name) as server:
            # The server does not say when it listens; until then it rejects.
            client = run("timeout", "20", "sh", "-c", f"until rping -c -C 3 -a {there}; do :; done")
            self.assertEqual(client.returncode, 0, client.stderr)
            self.assertEqual(server.wait(timeout=20), 0)
        tool("down", "--name", NAME)
        self.assertEqual(run("ping", "-c", "1", "-W", "5", "10.91.0.1", name=self.name).returncode, 0)

    def start_until_qemu_runs(self):
        up = subprocess.Popen([TOOL, "up", "--name", self.name, "--kernel", KERNEL], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not any("QEMU" in item for item in left_behind(self.name)):
            self.assertIsNone(up.poll())
            self.assertLess(time.monotonic(), deadline)
        return up


if __name__ == "__main__":
    unittest.main(verbosity=2)
