"""What a user with a granted interface might try beyond its purpose. Runs as that user.

    escape.py SOCKET INTERFACE OTHER-INTERFACE

Prints one JSON object: for each attempt the name of the error that it met, or "done".
"""

import ctypes
import errno
import json
import mmap
import os
import socket
import struct
import sys

AF_XDP, SOL_XDP = 44, 283
RX_RING, UMEM_REG, STATISTICS = 2, 4, 7
SHARED_UMEM, COPY = 1, 2
SYS_BPF = 321
MAP_UPDATE, MAP_DELETE, PROG_LOAD, OBJ_PIN, PROG_BY_ID, MAP_BY_ID, INFO_BY_FD, MAP_FREEZE, LINK_UPDATE, LINK_BY_ID = (
    2, 3, 5, 6, 13, 14, 15, 22, 29, 30)  # fmt: skip
PROG_TYPE_XDP = 6
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000

libc = ctypes.CDLL(None, use_errno=True)


def ask(path, interface):
    """The grant, as an application asks for it: the connection, the description and the descriptors."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.connect(path)
    stream.sendall(
        f"grant {interface}\ncopy best\nchunk 4096\nrx 256\ntx 64\nmulti_buffer true\nwakeup true\naddresses \n\n".encode())
    text, descriptors = b"", []
    while not text.endswith(b"\n\n"):
        piece, some, _, _ = socket.recv_fds(stream, 4096, 253)
        if not piece:
            break
        text += piece
        descriptors += some
    if not text.startswith(b"granted\n"):
        sys.exit(f"no grant: {text.decode()}")
    return stream, text.decode(), descriptors


def result(status):
    return "done" if status >= 0 else errno.errorcode[ctypes.get_errno()]


def bpf(command, attributes):
    return libc.syscall(SYS_BPF, command, attributes.ljust(128, b"\0"), 128)


def bind(fd, ifindex, queue, flags=COPY, shared=0):
    address = struct.pack("=HHIII", AF_XDP, flags, ifindex, queue, shared)
    return result(libc.bind(fd, address, len(address)))


def set_option(fd, option, value):
    return result(libc.setsockopt(fd, SOL_XDP, option, value, len(value)))


def pointer(buffer):
    return ctypes.addressof(buffer)


def maps_of(link):
    """Identifiers of the program of a link and of its maps, as far as they are shown."""
    info = ctypes.create_string_buffer(256)
    if bpf(INFO_BY_FD, struct.pack("=IIQ", link, len(info), pointer(info))) < 0:
        return None
    _, _, program = struct.unpack_from("=III", info)
    return program


def in_namespaces_of_its_own(fd, ifindex):
    """Shares the packet memory with a socket that is made where every user is privileged."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        said = "done"
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0:
            said = "no namespaces"
        else:
            own = libc.socket(AF_XDP, socket.SOCK_RAW, 0)
            said = "no socket" if own < 0 else bind(own, ifindex, 0, SHARED_UMEM, fd)
        os.write(writer, said.encode())
        os._exit(0)
    os.wait()
    return os.read(reader, 64).decode()


def main():
    path, interface, other = sys.argv[1:]
    stream, description, (link, verdicts, xsk, memory, *_) = ask(path, interface)
    ifindex, other_index = socket.if_nametoindex(interface), socket.if_nametoindex(other)
    key, value = ctypes.create_string_buffer(struct.pack("=I", 0)), ctypes.create_string_buffer(4096)
    page = mmap.mmap(-1, 1 << 16)
    own_memory = struct.pack("=QQIIII", ctypes.addressof(ctypes.c_char.from_buffer(page)), 1 << 16, 4096, 0, 0, 0)
    element = struct.pack("=IIQQQ", verdicts, 0, pointer(key), pointer(value), 0)
    instructions = ctypes.create_string_buffer(struct.pack("=BBhiBBhi", 0xB7, 0, 0, 2, 0x95, 0, 0, 0))
    licence = ctypes.create_string_buffer(b"GPL")
    program = struct.pack("=IIQQ", PROG_TYPE_XDP, 2, pointer(instructions), pointer(licence))
    program_id = maps_of(link)

    def writes(fd):
        """Takes what is in any of the descriptors for a map that addresses can be added to."""
        return result(bpf(MAP_UPDATE, struct.pack("=IIQQQ", fd, 0, pointer(value), pointer(value), 0)))

    attempts = {
        "bind to another interface": bind(xsk, other_index, 0),
        "bind to another queue": bind(xsk, ifindex, 1),
        "bind again": bind(xsk, ifindex, 0),
        "register other memory": set_option(xsk, UMEM_REG, own_memory),
        "make another ring": set_option(xsk, RX_RING, struct.pack("=I", 64)),
        "a socket of its own": result(libc.socket(AF_XDP, socket.SOCK_RAW, 0)),
        "share the memory from other namespaces": in_namespaces_of_its_own(xsk, ifindex),
        "write the counters": result(bpf(MAP_UPDATE, element)),
        "freeze the counters": result(bpf(MAP_FREEZE, struct.pack("=I", verdicts))),
        "write to the link": writes(link),
        "write to the socket": writes(xsk),
        "write to the memory as to a map": writes(memory),
        "the program by its number": result(bpf(PROG_BY_ID, struct.pack("=I", program_id or 1))),
        "maps by their numbers": sorted({result(bpf(MAP_BY_ID, struct.pack("=I", number))) for number in range(1, 200)}),
        "load a program": result(bpf(PROG_LOAD, program)),
        "another program at the link": result(bpf(LINK_UPDATE, struct.pack("=III", link, verdicts, 0))),
        "shrink the memory": result(libc.ftruncate(memory, ctypes.c_long(4096))),
    }
    stream.sendall(b"join 10.99.0.77\n")
    stream.settimeout(60)
    attempts["steer somebody else's address"] = "done" if stream.recv(1) else "closed"
    print(json.dumps(attempts))


main()
