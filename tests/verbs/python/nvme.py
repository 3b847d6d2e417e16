"""A host of an NVMe disk over RDMA, by `nvmeof` of PyPI.

nvme.py write|verify ADDRESS PORT NQN SEED [SOURCE]    random bytes, the same for a seed, to or from the whole disk, in
                                                       transfers of all sizes; prints the SHA-256 of all of them
nvme.py endless ADDRESS PORT NQN                       writes until it is killed
nvme.py refusals ADDRESS PORT NQN                      what a target must refuse
"""

import dataclasses
import hashlib
import random
import sys

import nvmeof

verb, address, port, nqn, *rest = sys.argv[1:]


def connect(name=nqn):
    source = {"source": rest[1]} if len(rest) > 1 else {}
    timeout = 2 if verb == "endless" else 20
    return nvmeof.Controller.connect(address, name, port=int(port), timeout=timeout, queue_depth=32, **source)


def pieces(namespace, seed):
    """Blocks of the disk, each once, as first, number and bytes."""
    source, first = random.Random(seed), 0
    while first < namespace.info.size_lbas:
        count = min(source.choice((1, 2, 7, 32, 200)), namespace.info.size_lbas - first)
        yield first, count, source.randbytes(count * namespace.lba_size)
        first += count


with connect() as controller:
    namespace = controller.namespace(1)
    if verb == "refusals":
        with controller.allocate(2 * namespace.lba_size) as buffer:
            size = namespace.info.size_lbas
            # It would not ask for what it knows to be elsewhere.
            namespace.info = dataclasses.replace(namespace.info, size_lbas=2**64)
            for first in (size - 1, size, 2**63, 2**64 - 2):
                try:
                    namespace.read(buffer, first, 2)
                    sys.exit(f"blocks from {first} on were read from a disk of {size}")
                except nvmeof.NVMeStatusError as error:
                    print(f"first block {first}: {error}")
            namespace.read(buffer, 0, 2)
        try:
            connect("nqn.2026-11.test:another")
            sys.exit("a disk that is not there was connected")
        except nvmeof.NVMeStatusError as error:
            print(f"another name: {error}")
    elif verb == "endless":
        with controller.allocate(1 << 20) as buffer:
            print("writing", flush=True)
            while True:
                namespace.write(buffer, 0, len(buffer.read()) // namespace.lba_size)
    else:
        digest = hashlib.sha256()
        for first, count, wanted in pieces(namespace, int(rest[0])):
            digest.update(wanted)
            with controller.allocate(len(wanted)) as buffer:
                if verb == "write":
                    buffer.write(wanted)
                    namespace.write(buffer, first, count)
                else:
                    namespace.read(buffer, first, count)
                    if buffer.read() != wanted:
                        sys.exit(f"blocks {first} to {first + count - 1} differ")
        namespace.flush()
        print(digest.hexdigest())
    print("all right")
