"""Mooncake's transfer engine over several rails, for as long as the test says: one process writes random data into another's memory,
reads it back, and compares; the other compares what it finds with sums.

    mooncake_rails.py target|initiator DIRECTORY
"""

import hashlib
import sys

import numpy
from exchange import Exchange
from mooncake.engine import TransferEngine

SIZE = 1 << 20


def engine():
    one = TransferEngine()
    assert one.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") == 0, "initialize"
    return one


def register(engine, array):
    assert engine.register_memory(array.ctypes.data, array.nbytes) == 0, "register_memory"


def target(exchange):
    memory = numpy.zeros(SIZE, numpy.uint8)
    mine = engine()
    register(mine, memory)
    exchange.put("target", f"127.0.0.1:{mine.get_rpc_port()} {memory.ctypes.data}".encode())
    wanted = exchange.get("sum", 600)
    assert hashlib.sha256(memory.tobytes()).digest() == wanted, "what was written last"
    exchange.put("compared", b"")
    exchange.get("done", 600)


def initiator(exchange):
    data, back = numpy.zeros(SIZE, numpy.uint8), numpy.zeros(SIZE, numpy.uint8)
    random = numpy.random.default_rng(7)
    mine = engine()
    register(mine, data)
    register(mine, back)
    name, address = exchange.get("target").decode().split()
    rounds = 0
    while not exchange.has("stop"):
        data[:] = random.integers(0, 256, SIZE, numpy.uint8)
        back[:] = 0
        assert mine.transfer_sync_write(name, data.ctypes.data, int(address), SIZE) == 0, f"write {rounds}"
        assert mine.transfer_sync_read(name, back.ctypes.data, int(address), SIZE) == 0, f"read {rounds}"
        assert (data == back).all(), f"round {rounds}"
        rounds += 1
    exchange.put("sum", hashlib.sha256(data.tobytes()).digest())
    exchange.get("compared")
    exchange.put("done", b"")
    print(f"{rounds} rounds")


if __name__ == "__main__":
    {"target": target, "initiator": initiator}[sys.argv[1]](Exchange(sys.argv[2]))
    print("all right")
