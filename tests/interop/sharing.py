"""Several processes of ours behind one address at the same time, each with a program in the guest on rxe."""

import dataclasses
import json
import time

import connections
import programs

PROCESSES = 3
FIRST_PORT = 23000
LOOK_SECONDS = 15
# A program, its options, whether it needs rdma_cm, and the family with which it is in the core. Long enough that all of
# them run at the same time.
CASES = [
    ("ibv_rc_pingpong", ["-n", "200", "-c"], False, 4),
    # Resends nothing: it hangs if a packet is lost.
    ("ibv_ud_pingpong", ["-n", "500", "-c"], False, 4),
    ("rping", ["-v", "-C", "30", "-S", "2000"], True, 6),
]


@dataclasses.dataclass
class Outcome:
    program: str
    family: int
    guest_serves: bool
    problem: str = ""

    def __str__(self):
        role = "server" if self.guest_serves else "client"
        return f"{PROCESSES} processes on one address, {self.program}, IPv{self.family}, the guest is {role}"


def run(near, guest, core=False, wanted=lambda name: True):
    """Run each both ways, and yield an Outcome for each. `near` makes our side for a family, `guest` that of the guest."""
    port = FIRST_PORT
    for name, options, by_rdma_cm, core_family in CASES:
        for family in (4, 6):
            for guest_serves in (False, True):
                outcome = Outcome(name, family, guest_serves)
                if core and family != core_family or not wanted(outcome):
                    continue
                ours = near(family)
                server, client = (guest(family), ours) if guest_serves else (ours, guest(family))
                # Pingpongs talk about their queue pairs over IPv4.
                host = (guest if guest_serves else near)(4).address
                commands = []
                for _ in range(PROCESSES):
                    port += 1
                    commands.append(_commands(name, options, by_rdma_cm, server, client, host, port))

                outcome.problem = programs.pairs(
                    server, client, commands, connections.CLOSED_TOO_EARLY if by_rdma_cm else None, lambda: _sharing(ours)
                )
                yield outcome


def _commands(name, options, by_rdma_cm, server, client, host, port):
    if by_rdma_cm:
        words = ["stdbuf", "-oL", name, *options, "-p", str(port), "-a", server.address]
        return [*words, "-s"], [*words, "-c"], lambda _: server.awaits_connections(port)

    def words(side):
        return [name, *options, "-d", side.device, "-g", str(side.gid_index), "-p", str(port)]

    return words(server), [*words(client), host], lambda _: server.listens(port)


def _sharing(near):
    """What is wrong unless all of our processes have the address at the same time."""
    seen, end = set(), time.monotonic() + LOOK_SECONDS
    while len(seen) < PROCESSES and time.monotonic() < end:
        [device] = json.loads(near.run("softrnic", "devices", "--json"))
        seen = set(device.get("shared_with") or [])
    return "" if len(seen) >= PROCESSES else f"only {len(seen)} processes shared the address"
