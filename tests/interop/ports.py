"""A port that goes down and comes up in the guest: the program that watches ours (tests/verbs/c/ports.c) watches that of rxe."""

import re
import subprocess

from guest import ROOT

SOURCE = ROOT / "tests/verbs/c/ports.c"
IN_GUEST = ROOT / "tests/interop/ports_in_guest.sh"

# What SoftRNIC's port says, without its speed: the event, and what the verbs and sysfs show by then.
DOWN, UP = "verbs 1 3, sysfs 1: DOWN, 3: Disabled", "verbs 4 5, sysfs 4: ACTIVE, 5: LinkUp"
OURS = [("port error", DOWN), ("port active", UP)]


def run(guest, directory):
    """What differs; nothing if rxe says the same. `rxe` has more GIDs that change."""
    program = directory / "ports"
    subprocess.run(["cc", "-O1", "-o", program, SOURCE, "-libverbs"], check=True)
    said = guest.run("sh", IN_GUEST, program, "rxe0", "eth0", timeout=120)
    line = re.compile(r"(?m)^context (\d): (.+), port 1: (verbs \d \d)(?: width \d+ speed \d+)(, sysfs .+?, .+?),")
    told = [(context, event, verbs + sysfs) for context, event, verbs, sysfs in line.findall(said) if event != "begin"]
    for context in "01":
        theirs = [(event, state) for number, event, state in told if number == context and event != "GID table change"]
        if theirs != OURS:
            return f"context {context} was told {theirs}\n{said}"
    return ""
