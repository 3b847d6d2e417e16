"""Mooncake's transfer engine: one process writes into another's memory and reads it back.

    mooncake_pair.py target|initiator DIRECTORY
"""

import sys

import numpy
from exchange import Exchange
from mooncake.engine import TransferEngine

SIZE = 4 << 20


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
    exchange.get("written")
    assert (memory == numpy.frombuffer(exchange.get("data"), numpy.uint8)).all(), "what was written"
    memory[:] = memory[::-1].copy()
    exchange.put("reversed", b"")
    exchange.get("done")


def initiator(exchange):
    data = numpy.random.default_rng(7).integers(0, 256, SIZE, numpy.uint8)
    back = numpy.zeros(SIZE, numpy.uint8)
    mine = engine()
    register(mine, data)
    register(mine, back)
    name, address = exchange.get("target").decode().split()
    assert mine.transfer_sync_write(name, data.ctypes.data, int(address), SIZE) == 0, "write"
    exchange.put("data", data.tobytes())
    exchange.put("written", b"")
    exchange.get("reversed")
    assert mine.transfer_sync_read(name, back.ctypes.data, int(address), SIZE) == 0, "read"
    assert (back == data[::-1]).all(), "what was read"
    exchange.put("done", b"")


if __name__ == "__main__":
    {"target": target, "initiator": initiator}[sys.argv[1]](Exchange(sys.argv[2]))
    print("all right")
