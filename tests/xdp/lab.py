"""Labs for tests: hosts, and the processes that run in them."""

import contextlib
import json
import os
import pathlib
import queue
import subprocess
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILE = os.environ.get("SOFTRNIC_TEST_PROFILE", "release")
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / PROFILE
SOFTRNIC = TARGET / "softrnic"
WORKER = TARGET / "softrnic-xdp-worker"

# The longest that anything may take, in seconds: ten times what it takes on a slow machine.
TIMEOUT = float(os.environ.get("SOFTRNIC_TEST_TIMEOUT", "60"))

OPERATIONS = ["send", "send_imm", "write", "write_imm", "read", "fetch_add", "compare_swap"]


def run(*argv, **options):
    """Runs a command that must succeed; returns what it printed."""
    argv = [str(word) for word in argv]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT, **options)
    if done.returncode:
        raise AssertionError(f"$ {' '.join(argv)}\n{done.stdout}{done.stderr}(ended with {done.returncode})")
    return done.stdout


class Lab:
    """A lab with a name of its own, taken down at the end."""

    count = 0

    def __init__(self, *options):
        Lab.count += 1
        self.name = f"t{os.getpid()}x{Lab.count}"
        run(SOFTRNIC, "lab", "up", "--name", self.name, *options)

    def down(self):
        run(SOFTRNIC, "lab", "down", "--name", self.name)

    def namespace(self, host):
        return f"softrnic-{self.name}-{host}"

    def inside(self, host, *argv):
        """The words that run a command in a host."""
        return ["ip", "netns", "exec", self.namespace(host), *(str(word) for word in argv)]

    def run(self, host, *argv, **options):
        return run(*self.inside(host, *argv), **options)

    def ip(self, host, *words):
        """Runs `ip` in a host."""
        return run("ip", "-n", self.namespace(host), *" ".join(words).split())


class Here:
    """This machine as it is, with nothing made for the test."""

    @staticmethod
    def inside(_host, *argv):
        return [str(word) for word in argv]


class Failed(Exception):
    """A worker says that something was wrong."""


class Worker:
    """A process with a device, in a host. What it says comes by a thread, so that nothing blocks."""

    def __init__(self, lab, host, device, *, prefix=(), program=WORKER, **environment):
        env = {name: value for name, value in os.environ.items() if not name.startswith("SOFTRNIC_")}
        env.update(environment)
        self.host = host
        self.process = subprocess.Popen(
            lab.inside(host, *prefix, program, device), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )
        self.answers = queue.Queue()
        self.events = []
        self.ends = {}
        self.errors = ""
        self.changed = threading.Condition()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.listen, self.collect_errors)]
        for thread in self.threads:
            thread.start()
        try:
            self.opened = self.answer()["opened"]
        except Exception:
            self.kill()
            raise

    def listen(self):
        for line in self.process.stdout:
            message = json.loads(line)
            with self.changed:
                if "event" in message:
                    self.events.append(message["event"])
                elif "finished" in message:
                    self.ends[message["finished"]["name"]] = message["finished"]["finished"]
                elif "failed" in message:
                    self.ends[message["failed"]["name"]] = Failed(f"{self.host}: {message['failed']['problem']}")
                else:
                    self.answers.put(message)
                self.changed.notify_all()
        self.answers.put(None)

    def collect_errors(self):
        with self.process.stderr as stream:
            self.errors = stream.read()

    def answer(self):
        try:
            answer = self.answers.get(timeout=TIMEOUT)
        except queue.Empty:
            raise AssertionError(f"the worker in {self.host} does not answer") from None
        if answer is None:
            self.process.wait()
            self.threads[1].join()
            raise AssertionError(f"the worker in {self.host} ended with {self.process.returncode}: {self.errors}")
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def tell(self, command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def make(self, name, **shape):
        return self.tell({"make": {"name": name, "shape": shape}})["made"]

    def connect(self, name, peer, **path):
        self.tell({"connect": {"name": name, "peer": peer, "path": path}})

    def echo(self, name):
        self.tell({"echo": {"name": name}})

    def drive(self, name, **plan):
        plan.setdefault("operations", OPERATIONS)
        plan.setdefault("seed", int.from_bytes(os.urandom(6), "big"))
        self.tell({"drive": {"name": name, "plan": plan}})

    def stop(self, name):
        self.tell({"stop": {"name": name}})

    def drop(self, name):
        with self.changed:
            self.ends.pop(name, None)
        self.tell({"drop": {"name": name}})

    def look(self):
        return self.tell("look")["seen"]

    def finished(self, name, timeout=TIMEOUT):
        """How the traffic of an end ended; waits for it."""
        with self.changed:
            if not self.changed.wait_for(lambda: name in self.ends, timeout):
                raise AssertionError(f"the traffic of {name} in {self.host} does not end: {self.look_or_error()}")
            end = self.ends.pop(name)
        if isinstance(end, Failed):
            raise end
        return end

    def look_or_error(self):
        return "see its counters" if self.process.poll() is None else self.errors

    def event(self, *kinds, timeout=10):
        """Waits for asynchronous events, one of each kind in any order, and takes them."""
        with self.changed:
            for kind in kinds:
                def there():
                    return [event for event in self.events if event["kind"] == kind]
                if not self.changed.wait_for(there, timeout):
                    raise AssertionError(f"no {kind} in {self.host}, but {self.events}")
                self.events.remove(there()[0])

    def gid_index(self, address):
        for index, gid in self.look()["gids"].items():
            if gid == address:
                return int(index)
        raise AssertionError(f"{self.host} has no GID {address}: {self.look()['gids']}")

    def settled(self):
        """Waits until nothing is on its way, and checks that no packet memory was lost; the last look."""
        end = time.monotonic() + 10
        while True:
            seen = self.look()
            memory = seen["memory"]
            if memory is None:
                return seen
            assert memory["exact"], memory["text"]
            if memory["quiet"]:
                return seen
            assert time.monotonic() < end, f"packet memory does not come back: {memory['text']}"
            time.sleep(0.01)

    def kill(self):
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 9)
        self.process.wait()
        for thread in self.threads:
            thread.join()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def end(self):
        """Ends it as an application ends; it must end well."""
        self.process.stdin.close()
        status = self.process.wait(TIMEOUT)
        self.threads[1].join()
        assert status == 0, f"the worker in {self.host} ended with {status}: {self.errors}"


class Connection:
    """Two ends, one in each of two workers. The first drives, the second echoes."""

    count = 0

    def __init__(self, near, far, source, target, *, slots=8, size=65536, **path):
        Connection.count += 1
        self.name = f"c{Connection.count}"
        self.near, self.far = near, far
        # As applications do it, whose ports may differ.
        path.setdefault("mtu", min(near.look()["active_mtu"], far.look()["active_mtu"]))
        near_index, far_index = near.gid_index(source), far.gid_index(target)
        near_end = near.make(self.name, gid_index=near_index, slots=slots, size=size)
        far_end = far.make(self.name, gid_index=far_index, slots=slots, size=size)
        far.connect(self.name, near_end, gid_index=far_index, **path)
        near.connect(self.name, far_end, gid_index=near_index, **path)
        far.echo(self.name)

    def drive(self, **plan):
        self.near.drive(self.name, **plan)

    def stop(self):
        """Ends the traffic; what it was."""
        self.near.stop(self.name)
        return self.finish()

    def finish(self, timeout=TIMEOUT + 10):
        """Waits for all of a plan; what it was."""
        try:
            finished = self.near.finished(self.name, timeout)
        except (AssertionError, Failed) as problem:
            raise Failed(f"{problem}\n{self.describe()}") from problem
        assert finished["error"] is None, f"{finished}\n{self.describe()}"
        self.far.stop(self.name)
        self.far.finished(self.name)
        return finished

    def describe(self):
        """Both ends, for people."""
        lines = []
        for worker in (self.near, self.far):
            lines.append(f"{worker.host}: {worker.tell({'query': {'name': self.name}})['text']}")
            lines.append(f"  ended: {worker.ends.get(self.name)}; events: {worker.events}")
            counters = worker.look()["counters"]
            lines.append(f"  {({name: count for name, count in counters.items() if count})}")
        return "\n".join(lines)

    def drop(self):
        self.near.drop(self.name)
        self.far.drop(self.name)


class LabTest(unittest.TestCase):
    """A test with a lab."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        for file in (SOFTRNIC, WORKER):
            if not file.exists():
                raise RuntimeError(f"{file} is missing: run tools/test xdp, or cargo build")
        if os.geteuid() != 0:
            raise unittest.SkipTest("makes network namespaces, which takes root")

    def lab(self, *options):
        lab = Lab(*options)
        self.addCleanup(lab.down)
        return lab

    def worker(self, lab, host, device="xdp:eth0", **options):
        worker = Worker(lab, host, device, **options)
        self.addCleanup(worker.kill)
        return worker


def kernel_is(major, minor):
    """Whether the running kernel is at least this one."""
    numbers = os.uname().release.replace("-", ".").split(".")
    return (int(numbers[0]), int(numbers[1])) >= (major, minor)


def has_vlans():
    """Whether the kernel has VLAN interfaces."""
    namespace = f"softrnic-vlan-{os.getpid()}"
    run("ip", "netns", "add", namespace)
    try:
        words = f"ip -n {namespace} link add link lo name vlan type vlan id 1".split()
        return "Unknown device type" not in subprocess.run(words, stderr=subprocess.PIPE, text=True).stderr
    finally:
        run("ip", "netns", "del", namespace)


def note(text):
    """Records what this kernel makes impossible, whatever the privileges."""
    print(f"NOT POSSIBLE: {text}")
    with open(os.environ.get("SOFTRNIC_TEST_SKIPS", os.devnull), "a") as skips:
        skips.write(f"note: {text}\n")
