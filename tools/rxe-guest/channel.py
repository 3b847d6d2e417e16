"""Commands in the guest: a session on one of its virtio-serial ports. session.c has the protocol."""

import collections
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
import tty
import uuid

from common import Failure

PORTS = 16
WINDOW = 65536
CHUNK = 16384
_ESCAPED = {b"\x10": b"\x100", b"\n": b"\x10n"}


class Session:
    """One port of a guest, held until close(); commands run on it one after the other.

    Closing it, or losing the process that holds it, ends the command that runs on it.
    """

    def __init__(self, directory, deadline=10.0):
        """Take a free port of the guest whose sockets are in `directory`; its answer is due in `deadline` s."""
        self._lock, number = _free_port(directory)
        self._frames, self._partial = collections.deque(), b""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(directory / f"{number}.sock"))
        except OSError as error:
            self.close()
            raise Failure(f"the guest's QEMU does not answer ({error.strerror})") from None
        nonce = uuid.uuid4().hex.encode()
        # The newline ends whatever frame an earlier holder of the port may have been cut off in.
        self._socket.sendall(b"\n")
        self._send(b"H", nonce)
        until = time.monotonic() + deadline
        while True:
            # What comes before our own nonce belongs to that earlier holder.
            if self._next(until - time.monotonic()) == (b"H", nonce):
                return

    def close(self):
        self._socket.close()
        self._lock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def output(self, argv, data=b""):
        """Run a command that says little; return (exit status, stdout, stderr) as (int, bytes, bytes)."""
        said = {b"O": [], b"R": []}
        status = self._run(argv, lambda kind, text: said[kind].append(text), data=data)
        return status, b"".join(said[b"O"]), b"".join(said[b"R"])

    def attach(self, argv, source=0, out=1, err=2):
        """Run a command on these file descriptors of ours; return its exit status as a shell gives it."""

        def write(kind, text):
            _write_all(out if kind == b"O" else err, text)

        with _Signals([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]) as signals:
            return self._run(argv, write, source=source, signals=signals)

    def terminal(self, argv):
        """Run a command on a terminal of its own, joined to ours; return its exit status."""
        before = termios.tcgetattr(0)
        with _Signals([signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH]) as signals:
            tty.setraw(0, termios.TCSADRAIN)  # keeping what was typed ahead
            try:
                return self._run(argv, lambda _, text: _write_all(1, text), 0, signals, terminal=True)
            finally:
                termios.tcsetattr(0, termios.TCSADRAIN, before)

    def _run(self, argv, write, source=None, signals=None, data=b"", terminal=False):
        fields = ["tty" if terminal else "pipe", os.environ.get("TERM", "") if terminal else "", os.getcwd()]
        self._send(b"X", b"".join(os.fsencode(f) + b"\0" for f in [*fields, *argv]))
        if terminal:
            self._send(b"W", _terminal_size())
        credit, ended = WINDOW, False
        while True:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if source is not None and credit > 0:
                poll.register(source, select.POLLIN)
            if signals:
                poll.register(signals.fd, select.POLLIN)
            while data and credit > 0:
                part, data = data[: min(credit, CHUNK)], data[min(credit, CHUNK) :]
                credit -= len(part)
                self._send(b"I", part)
            if source is None and not data and not ended:
                ended = True
                self._send(b"E", b"")

            # A frame may be here already, with nothing more to come on the socket.
            ready = {fd for fd, _ in poll.poll(0 if self._frames else None)}
            if signals and signals.fd in ready:
                for number in signals.take():
                    if number == signal.SIGWINCH:
                        self._send(b"W", _terminal_size())
                    else:
                        self._send(b"S", b"%d" % number)
            if source is not None and source in ready:
                part = os.read(source, min(credit, CHUNK))
                if part:
                    credit -= len(part)
                    self._send(b"I", part)
                else:
                    source, ended = None, True
                    self._send(b"E", b"")
            if self._frames or self._socket.fileno() in ready:
                kind, text = self._next()
                if kind in (b"O", b"R"):
                    write(kind, text)
                elif kind == b"C":
                    credit += int(text)
                elif kind == b"Q":
                    how, number = text.split()
                    return int(number) if how == b"e" else 128 + int(number)
                elif kind == b"Z":
                    raise Failure("the guest's command server broke off; its console may say why")

    def _send(self, kind, payload):
        for plain, escaped in _ESCAPED.items():
            payload = payload.replace(plain, escaped)
        try:
            self._socket.sendall(kind + payload + b"\n")
        except OSError:
            raise Failure("the guest went away") from None

    def _next(self, timeout=None):
        """The next frame, as (type, payload)."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            while self._frames:
                frame = self._frames.popleft()
                if frame:
                    text = frame[1:]
                    for plain, escaped in reversed(_ESCAPED.items()):
                        text = text.replace(escaped, plain)
                    return frame[:1], text
            self._socket.settimeout(None if until is None else max(until - time.monotonic(), 0.001))
            try:
                more = self._socket.recv(CHUNK * 4)
            except TimeoutError:
                raise Failure("no answer from the guest in time") from None
            except OSError:
                more = b""
            finally:
                self._socket.settimeout(None)
            if not more:
                raise Failure("the guest went away")
            *frames, self._partial = (self._partial + more).split(b"\n")
            self._frames.extend(frames)


class _Signals:
    """Signals as bytes on a descriptor, for as long as the block lasts."""

    def __init__(self, numbers):
        self._numbers = numbers

    def __enter__(self):
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old = {n: signal.signal(n, lambda *_: None) for n in self._numbers}
        self._old_wakeup = signal.set_wakeup_fd(self._write)
        return self

    def take(self):
        return [n for n in os.read(self.fd, 64) if n in self._numbers]

    def __exit__(self, *_):
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        os.close(self.fd)
        os.close(self._write)


def _free_port(directory):
    for number in range(1, PORTS + 1):
        lock = open(directory / f"{number}.lock", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock, number
        except BlockingIOError:
            lock.close()
    raise Failure(f"{PORTS} commands run in the guest already, and it has no more ports")


def _terminal_size():
    rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))
    return b"%d %d" % (rows, columns)


def _write_all(fd, data):
    try:
        while data:
            data = data[os.write(fd, data) :]
    except BrokenPipeError:
        # The reader of our output is gone; end as any program does then. The guest's command ends with us.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
        sys.exit(141)
