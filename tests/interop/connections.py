"""Programs of rdma_cm, one end on SoftRNIC and the other in the guest on rxe."""

import dataclasses
import re

import programs

FIRST_PORT = 21000
# The first of each message is lost that we send, and of each that comes to us and is answered. A kernel repeats after
# four seconds what we repeat after a twentieth of one, so that few of its own are. Not the last one of all: of a
# process that has ended, no repeat is answered. Nor SIDR_REP: its sender takes the repeat for another question.
LOST = ",".join(
    [f"drop:op=cm_{name}:nth=1" for name in ("req", "rep", "rtu", "dreq", "sidr_req")]
    + [f"drop:op=cm_{name}:nth=1:dir=rx" for name in ("req", "rep", "sidr_req")]
)
# What reliable connections have to live with besides; the first rule lets DREPs pass.
LOSS = "delay=0us:op=cm_drep,drop=1%,duplicate=0.5%,reorder=0.5%"
# perftest exits as soon as its last message is answered. Its own last ACK is never repeated then, and the peer waits
# for it for a minute. So none of our ACKs is lost there; instead some of what comes is, where more packets follow.
LAST_WORD = "delay=0us:op=ack,drop=1%:op=rc_*_middle:dir=rx"
# The last words of rping: its main thread may close the channel while its other one is between two events,
# and that one then ends the process. A race of the program, in which nothing is left to do; newer ones do not have it.
CLOSED_TOO_EARLY = (
    r"(server DISCONNECT EVENT\.\.\.\s+wait for RDMA_READ_ADV state 10|client DISCONNECT EVENT\.\.\.)\s+"
    r"rdma_get_cm_event: Bad file descriptor\s+(softrnic: .*\s+)*exit status 255$"
)
# So that a server that listens anew has the time to.
LATE = "delay=1s:op=cm_req"


@dataclasses.dataclass(frozen=True)
class Program:
    """Command lines of both ends, with {own}, {peer}, {any} and {port} in them."""

    server: str
    client: str
    #: Survives loss of data.
    reliable: bool = True
    #: Runs with IPv6 addresses.
    ipv6: bool = True
    #: What the server says when it is ready; without it, it is a listener that can be seen.
    ready: str = ""
    #: The port, where there is no choice.
    fixed_port: int = 0
    #: It connects twice, and the server listens anew in between. An emulated one takes longer than our client does.
    twice: bool = False
    #: Guests whose client is not tried, for a fault of rxe in docs/rxe-differences.md.
    no_clients: tuple = ()
    #: Also in the core.
    core: bool = False


PROGRAMS = [
    Program("rping -s -a {own} -p {port} -C 20 -S 4000", "rping -c -a {peer} -p {port} -C 20 -S 4000", core=True),
    Program("rping -s -a {any} -p {port} -C 5", "rping -c -a {peer} -p {port} -C 5"),
    Program("ucmatose -b {own} -p {port} -c 10 -C 20", "ucmatose -s {peer} -p {port} -c 10 -C 20", core=True),
    Program("udaddy -b {own} -c 3", "udaddy -s {peer} -c 3", reliable=False, core=True, fixed_port=7174),
    Program("mckey -m 239.1.2.3 -b {own} -C 10", "mckey -m 239.1.2.3 -b {own} -C 10 -s", reliable=False, ipv6=False,
            ready="receiving data transfers", no_clients=("sid",)),
    Program("ib_send_bw -R -n 200 -s 65536 -p {port} -F", "ib_send_bw -R -n 200 -s 65536 -p {port} -F {peer}",
            ipv6=False, twice=True, core=True),
    Program("ib_write_bw -R -n 200 -s 65536 -p {port} -F", "ib_write_bw -R -n 200 -s 65536 -p {port} -F {peer}",
            ipv6=False, twice=True),
]  # fmt: skip


@dataclasses.dataclass
class Outcome:
    program: str
    family: int
    lossy: bool
    guest_serves: bool
    problem: str = ""

    def __str__(self):
        network = "lossy" if self.lossy else "clean"
        return f"{self.program}, IPv{self.family}, {network}, the guest is {'server' if self.guest_serves else 'client'}"


def _faults(program, lossy, guest_serves):
    """What happens to our side's packets."""
    faults = [LOST] if lossy else []
    if guest_serves and program.twice:
        faults.append(LATE)
    if lossy and program.reliable:
        faults += [LAST_WORD, LOSS] if program.twice else [LOSS]
    return faults


def run(near, guest, kernel, core=False, wanted=lambda name: True):
    """Run every program both ways, and yield an Outcome for each. `near` makes our side for a family and faults;
    `guest` makes that of a guest with this kernel for a family."""
    port = FIRST_PORT
    for program in PROGRAMS:
        for family in (4, 6) if program.ipv6 else (4,):
            for lossy in (False, True):
                for guest_serves in (True, False):
                    name = program.client.split(" {", 1)[0].split(" -p", 1)[0]
                    outcome = Outcome(name, family, lossy, guest_serves)
                    if core and not _is_core(program, outcome) or not wanted(outcome):
                        continue
                    if not guest_serves and kernel in program.no_clients:
                        continue
                    port += 1
                    sides = guest(family), near(family, _faults(program, lossy, guest_serves))
                    server, client = sides if guest_serves else reversed(sides)
                    outcome.problem = _pair(program, family, server, client, program.fixed_port or port)
                    yield outcome


def _is_core(program, outcome):
    return program.core and (outcome.family == 4 or program is PROGRAMS[0] and not outcome.lossy)


def _pair(program, family, server, client, port):
    """Run a program at both sides; what went wrong, or nothing."""

    def argv(line, own, peer):
        # So that what a program says can be waited for.
        words = ["stdbuf", "-oL", *line.split()]
        return [word.format(own=own.address, peer=peer.address, any="0.0.0.0" if family == 4 else "::", port=port)
                for word in words]  # fmt: skip

    def ready(serving):
        return program.ready in serving.heard() if program.ready else server.awaits_connections(port)

    return programs.pair(
        server, argv(program.server, server, client), client, argv(program.client, client, server), ready,
        CLOSED_TOO_EARLY if program.server.startswith("rping") else None,
    )  # fmt: skip


class Near(programs.Side):
    """Our side, whose listeners have their names in the table of Unix sockets."""

    def awaits_connections(self, port):
        table = self.run("cat", "/proc/net/unix")
        return re.search(rf" @softrnic/cm/[a-z]+/{port}/", table) is not None


class Far(programs.Side):
    """The guest, whose kernel lists its listeners."""

    def awaits_connections(self, port):
        listed = self.run("rdma", "resource", "show", "cm_id")
        return re.search(rf"state LISTEN .* src-addr \S+:{port}\b", listed) is not None
