"""NIXL with the UCX of its wheel: one process writes into another's memory, tells it so, and reads it back.

    nixl_pair.py target|initiator DIRECTORY
"""

import sys
import time

import numpy
from exchange import Exchange
from nixl_cu12 import nixl_agent, nixl_agent_config

SIZE = 1 << 20


def agent(name, array):
    one = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    one.register_memory([(array.ctypes.data, array.nbytes, 0, "")], "DRAM")
    return one


def whole(agent, address):
    return agent.get_xfer_descs([(address, SIZE, 0)], "DRAM")


def transfer(agent, operation, mine, theirs, note=b""):
    handle = agent.initialize_xfer(operation, mine, theirs, "target", note)
    state = agent.transfer(handle)
    deadline = time.monotonic() + 90
    while state == "PROC" and time.monotonic() < deadline:
        state = agent.check_xfer_state(handle)
    assert state == "DONE", f"{operation}: {state}"
    agent.release_xfer_handle(handle)


def target(exchange):
    memory = numpy.zeros(SIZE, numpy.uint8)
    mine = agent("target", memory)
    exchange.put("target", str(memory.ctypes.data).encode() + b" " + mine.get_agent_metadata())
    mine.add_remote_agent(exchange.get("initiator"))
    deadline = time.monotonic() + 90
    notes = {}
    while not notes and time.monotonic() < deadline:
        notes = mine.get_new_notifs()
    assert notes == {"initiator": [b"written"]}, notes
    assert (memory == numpy.frombuffer(exchange.get("data"), numpy.uint8)).all(), "what was written"
    memory[:] = memory[::-1].copy()
    exchange.put("reversed", b"")
    exchange.get("done")


def initiator(exchange):
    memory = numpy.random.default_rng(7).integers(0, 256, SIZE, numpy.uint8)
    data = memory.copy()
    mine = agent("initiator", memory)
    exchange.put("data", data.tobytes())
    exchange.put("initiator", mine.get_agent_metadata())
    address, _, metadata = exchange.get("target").partition(b" ")
    mine.add_remote_agent(metadata)
    here, there = whole(mine, memory.ctypes.data), whole(mine, int(address))
    transfer(mine, "WRITE", here, there, b"written")
    exchange.get("reversed")
    transfer(mine, "READ", here, there)
    assert (memory == data[::-1]).all(), "what was read"
    exchange.put("done", b"")


if __name__ == "__main__":
    {"target": target, "initiator": initiator}[sys.argv[1]](Exchange(sys.argv[2]))
    print("all right")
