"""Two processes that tell each other things through files in a directory."""

import os
import pathlib
import time


class Exchange:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)

    def put(self, name, data):
        draft = self.directory / f".{name}.{os.getpid()}"
        draft.write_bytes(data)
        draft.rename(self.directory / name)

    def has(self, name):
        return (self.directory / name).exists()

    def get(self, name, timeout=90):
        path, deadline = self.directory / name, time.monotonic() + timeout
        while not path.exists():
            if time.monotonic() > deadline:
                raise SystemExit(f"{name} did not come")
            time.sleep(0.01)
        return path.read_bytes()
