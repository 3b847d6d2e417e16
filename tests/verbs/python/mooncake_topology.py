"""Prints which devices Mooncake's transfer engine prefers for which memory, as JSON."""

from mooncake.engine import TransferEngine

engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") == 0, "initialize"
print("topology", "".join(engine.get_local_topology().split()))
