"""Processes of ours inside the guest, on its kernel: those of a user without any privilege share an address."""

import dataclasses
import re
import subprocess

from guest import ROOT

NOBODY = 65534
# Of tests/verbs/test_shared_address.py: programs that sleep while they wait, since there is one processor. Not the training
# of a model: numpy.tanh is NaN with the AVX2 of QEMU 7.2.
TESTS = [
    "OneAddress.test_rdma_cm_between_processes_of_one_address",
    "OneAddress.test_devices_shows_who_shares_the_address",
    "OneAddress.test_a_packet_that_the_kernel_gave_to_another_process_is_counted",
    "OneAddressOfIPv6.test_each_of_several_servers_gets_its_own_clients",
]
RUN_SECONDS = 180


@dataclasses.dataclass
class Outcome:
    test: str
    problem: str = ""

    def __str__(self):
        return f"inside the guest, {self.test}"


def run(guest, library, wanted=lambda name: True):
    """Run the tests in the guest, and yield an Outcome for each. `library` is where our libibverbs.so.1 is."""
    outcomes = [outcome for outcome in map(Outcome, TESTS) if wanted(outcome)]
    if not outcomes:
        return
    names = [f"test_shared_address.{outcome.test}" for outcome in outcomes]
    target = library.parent.parent
    # Without capabilities, the owner of a directory that is closed to others is as good as nobody.
    open_to_all = all(path.stat().st_mode & 0o005 == 0o005 for path in (library, *library.parents))
    uid = NOBODY if open_to_all else ROOT.stat().st_uid
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
    python = ["env", f"CARGO_TARGET_DIR={target}", f"SOFTRNIC_TEST_PROFILE={library.parent.name}", "python3", "-B"]
    words = [*user, "--no-new-privs", *python, "-m", "unittest", "-v", *names]
    # rxe holds the port in its network namespace.
    script = f"ip link set lo up; cd {ROOT}/tests/verbs; exec {' '.join(words)}"
    command = guest.command("unshare", "-n", "sh", "-c", script)
    try:
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_SECONDS).stdout
    except subprocess.TimeoutExpired as error:
        said = f"not ended after {RUN_SECONDS} s: {(error.stdout or b'').decode(errors='replace')}"
    for outcome, name in zip(outcomes, names):
        if not re.search(rf"\({re.escape(name)}\) \.\.\. ok$", said, re.MULTILINE):
            outcome.problem = said
        yield outcome
