"""The program at either end: the agent of `softrnic drill`, which says at its head what it can be told."""

import dataclasses
import os
import select
import subprocess
import time

# A guest on a busy machine is slow; a cell that works does not wait.
ANSWER_SECONDS, WAIT_MS = 60, 30000

# enum ibv_access_flags
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND, FLUSH_GLOBAL = 1, 2, 4, 8, 16, 256


class Refused(Exception):
    """The agent answered `error`; `errno` is 0 when no call failed."""

    def __init__(self, command, answer):
        super().__init__(f"{command.split()[0]}: {answer.removeprefix('error ')}")
        self.errno = int(answer.split()[1])


class Lost(Exception):
    """The agent ended or does not answer."""


@dataclasses.dataclass(frozen=True)
class Completion:
    id: int
    status: int
    qpn: int
    opcode: int = 0
    length: int = 0
    flags: int = 0
    value: int = 0  # immediate data or invalidated key
    source: int = 0


class Agent:
    """A running agent. What it or its libraries say on standard error goes to the file `log`."""

    def __init__(self, name, argv, env=None, log=None):
        self.name = name
        self.process = subprocess.Popen(
            [*argv, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0, env=env, start_new_session=True
        )
        self._rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Let it end as a program does, so that its captures are complete."""
        if self.process.poll() is not None:
            return
        self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()

    def die(self):
        """Have it kill itself, and return when it is gone, in the guest too."""
        self.send("die")
        self.process.wait(ANSWER_SECONDS)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def send(self, *commands):
        """Give commands; take() has the answers."""
        try:
            self.process.stdin.write("".join(f"{command}\n" for command in commands).encode())
        except BrokenPipeError:
            raise Lost(f"{self.name} has ended with {self.process.wait()}") from None

    def take(self, *commands, timeout=ANSWER_SECONDS):
        """The answers to these commands as dictionaries; Refused for the first that failed, once all are here."""
        answers = [self._line(time.monotonic() + timeout) for _ in commands]
        for command, answer in zip(commands, answers):
            if not answer.startswith("ok"):
                raise Refused(command, answer)
        return [fields(answer) for answer in answers]

    def ask(self, *commands):
        """Give commands and take the answers."""
        self.send(*commands)
        return self.take(*commands)

    def wait(self, queue, count, milliseconds=WAIT_MS):
        """That many completions of a queue pair, or those that there were in time."""
        # Polled without a pause: a library of ours does the work of its NIC then.
        self.send(f"complete cq={queue} n={count} ms={milliseconds} busy=1")
        answer = self._line(time.monotonic() + milliseconds / 1000 + ANSWER_SECONDS)
        if not answer.startswith("ok"):
            raise Refused("complete", answer)
        return [Completion(*map(int, word.split(":"))) for word in answer.split()[1:]]

    def _line(self, deadline):
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise Lost(f"{self.name} does not answer")
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                raise Lost(f"{self.name} has ended with {self.process.wait()}")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()


def fields(answer):
    """`ok a=1 b=2` as a dictionary."""
    return dict(word.split("=", 1) for word in answer.split()[1:] if "=" in word)


def build(directory, softrnic):
    """Compile the agent that the command `softrnic` gives out; the path of the program."""
    source, program = directory / "agent.c", directory / "agent"
    directory.mkdir(parents=True, exist_ok=True)
    source.write_bytes(subprocess.run([softrnic, "drill", "--agent"], check=True, capture_output=True).stdout)
    argv = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source, "-libverbs"]
    subprocess.run(list(map(str, argv)), check=True, timeout=120)
    return program
