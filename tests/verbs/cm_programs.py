"""Command lines of programs that find their peers by rdma_cm, and what they must say, for one machine and for two."""

import re

# rping's main thread may close the channel while its other one is between two events, which then ends the process. A race
# of older versions, also with a kernel, in which nothing is left to do. tests/interop/connections.py knows it as well.
CLOSED_TOO_EARLY = re.compile(
    r"(server DISCONNECT EVENT\.\.\.\s+wait for RDMA_READ_ADV state 10|client DISCONNECT EVENT\.\.\.)\s+"
    r"rdma_get_cm_event: Bad file descriptor\s"
)


def exit_status(words, status, said):
    """The exit status of a program, but 0 if all it failed at is to close its channel too early."""
    return 0 if status == 255 and "rping" in words and CLOSED_TOO_EARLY.search(said) else status


# qperf: its port is one of TCP.
QPERF_TESTS = ("rc_bw", "rc_lat", "rc_rdma_write_bw", "rc_rdma_read_bw", "rc_fetch_add_mr")


def qperf(port, address, test):
    """Server and client."""
    return ["qperf", "-lp", port], ["qperf", "-lp", port, "-t", "1", "-cm", "1", address, test]


def qperf_result(test):
    return re.compile(rf"{test}:\n\s+\w+\s+=\s+[1-9]")


def fio(directory, port, verb, address):
    """Server and client. The side that connects writes to its job, whatever goes over the network."""
    both = f"[global]\nioengine=rdma\nport={port}\nbs=16k\nsize=8m\niodepth=4\n"
    (directory / "server").write_text(f"{both}[receiver]\nrw=read\n")
    (directory / "client").write_text(
        f"{both}[sender]\nhostname={address}\nverb={verb}\nrw=write\niodepth_batch_complete=2\n")
    return ["fio", directory / "server"], ["fio", directory / "client"]


FIO_RESULT = re.compile(r"write: IOPS=.*\(8192KiB/")
# With verb=send it asks for no retries, so that what comes before the receiver has posted anew ends the connection.
FIO_SEND_RESULT = re.compile(FIO_RESULT.pattern + r"|RNR retry counter exceeded")

# libfabric: provider and kind of endpoint.
LIBFABRIC = (("verbs", "msg"), ("verbs;ofi_rxm", "rdm"))


def libfabric(provider, kind, port, address):
    """Server and client. Their connection for control is one of TCP."""
    words = ["fi_pingpong", "-p", provider, "-e", kind, "-I", "100", "-c"]
    if "ofi_rxm" in provider:
        # ofi_rxm of libfabric 1.17 closes an endpoint of a peer that has left, and then posts receives to it for what
        # the CQ still holds. A shared receive queue stays open. Later versions empty the CQ first.
        words = ["env", "FI_OFI_RXM_USE_SRX=1", *words]
    return [*words, "-B", port], [*words, "-P", port, address]


LIBFABRIC_RESULT = re.compile(r"(?m)^64\s+100\s+=100")

UCX_EXAMPLE = "/usr/share/doc/libucx-dev/examples/ucp_client_server.c"
UCX_LIBRARIES = ("-lucp", "-lucs")
UCX_ENVIRONMENT = {"UCX_TLS": "rc_v,rdmacm,self", "UCX_NET_DEVICES": "softrnic0:1"}
UCX_RESULT = re.compile("ABCDEFGHIJKLMNO")


def ucx(program, port, address):
    """Server and client."""
    words = [program, "-p", port]
    return [*words, "-l", address], [*words, "-a", address]


class Iser:
    """tgt as the target, libiscsi as the initiator."""

    TARGET, INITIATOR, PORT = "iqn.2026-01.test:disk", "iqn.2026-01.test:host", 3260
    SERVER = ["tgtd", "-f"]
    # Of c/iscsi_data.c.
    SAYS = "2048 blocks are as they were written"

    def __init__(self, directory):
        self.disk = directory / "disk.img"
        self.disk.write_bytes(b"SoftRNIC" * (1 << 17))
        self.environment = {"TGT_IPC_SOCKET": str(directory / "tgtd")}

    def setup(self):
        """The commands that make the disk known."""
        words = ["tgtadm", "--lld", "iser", "--mode"]
        return [
            [*words, "target", "--op", "new", "--tid", "1", "--targetname", self.TARGET],
            [*words, "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", self.disk],
            [*words, "target", "--op", "bind", "--tid", "1", "-I", "ALL"],
            [*words, "target", "--op", "bind", "--tid", "1", "-Q", self.INITIATOR],
        ]

    def url(self, address):
        return f"iser://{address}:{self.PORT}/{self.TARGET}/1"

    def is_written(self):
        """Whether the disk has what c/iscsi_data.c writes."""
        return self.disk.read_bytes() == bytes(block * 7 % 251 for block in range(2048) for _ in range(512))
