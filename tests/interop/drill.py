"""`softrnic drill` against the guest: every packet script, judged with what is known of that kernel's rxe."""

import dataclasses
import json
import subprocess
import time

from sides import INTERFACE

#: What is known to be different is listed under the kernel's version, as `softrnic drill --known` takes it.
KNOWN = {"6.1": "rxe-6.1", "sid": "rxe-7.2"}
PORT = 18791
SERVER_PORT = 18792
#: Knows nothing of scripts. It ends itself at times, when a connection goes just as it looks for its next event.
SERVER = f"while :; do rping -s -P -a 0.0.0.0 -p {SERVER_PORT}; done"
START_SECONDS = 20
RUN_SECONDS = 900
#: Each opcode in each state: most of the time, for little that the others do not show.
LONG = ["opcodes-in-states"]


@dataclasses.dataclass
class Outcome:
    script: str
    verdict: str
    #: What fails the run.
    problem: str = ""
    #: What could not be told, which does not.
    note: str = ""

    def __str__(self):
        return f"drill, {self.script}"


class Drill:
    """The agent and a server in the guest, and the command beside it."""

    def __init__(self, guest, softrnic, directory, agent):
        """`agent` is its command line."""
        self.guest, self.softrnic, self.directory, self.agent = guest, softrnic, directory, agent
        self.stranger = _after(guest.near_address[4])

    def run(self, known, core, wanted):
        """Play the scripts; an Outcome for each. `known` names the deviations that are no failure."""
        commands = self.agent, ["sh", "-c", SERVER]
        self._address("add")
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        agent, server = (subprocess.Popen(self.guest.command(*words), **quiet) for words in commands)
        try:
            self._wait_for(agent, lambda: f":{PORT:04X} " in self.guest.run("cat", "/proc/net/tcp6"))
            self._wait_for(server, lambda: f":{SERVER_PORT} " in self.guest.run("rdma", "resource", "show", "cm_id"))
            yield from self._judge(known, core, wanted)
        finally:
            for process in agent, server:
                process.terminate()
                process.wait()
            self._address("del")

    def _address(self, change):
        argv = ["ip", "-n", self.guest.namespace, "addr", change, f"{self.stranger}/24", "dev", INTERFACE]
        subprocess.run(argv, check=True, timeout=10)

    def _wait_for(self, process, listens):
        end = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < end:
            if listens():
                return
        raise RuntimeError(f"{process.args[-1]} does not listen in the guest")

    def _judge(self, known, core, wanted):
        names = [script["script"] for script in json.loads(self._drill("--list").stdout)]
        names = [name for name in names if wanted(f"drill, {name}") and not (core and name in LONG)]
        if not names:
            return
        every = ["--port", PORT, "--server", SERVER_PORT, "--stranger", self.stranger]
        every += ["--captures", self.directory / f"drill-{self.guest.version}"]
        if known:
            every += ["--known", known]
        played = self._drill("--peer", self.guest.address[4], *every, *names)
        if not played.stdout:
            raise RuntimeError(f"softrnic drill: {played.stderr.strip()}")
        result = json.loads(played.stdout)
        (self.directory / f"drill-{self.guest.version}.json").write_text(played.stdout)
        for script in result["scripts"]:
            what = _what(script)
            # A script that was not even played is one for which the agent was lost.
            told = script["verdict"] != "cannot_tell" or "not played" in what
            yield Outcome(script["script"], script["verdict"], what if told else "", "" if told else what)
        for entry in result["known_but_not_seen"]:
            yield Outcome(entry.split()[0], "gone", f"known in {known}, and not seen any more: {entry}")

    def _drill(self, *words):
        argv = ["ip", "netns", "exec", self.guest.namespace, self.softrnic, "drill", "--json", *words]
        return subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=RUN_SECONDS)


def _what(script):
    """What is wrong unless a script conforms, is not applicable, or deviates as is known."""
    if script["verdict"] in ("conforms", "not_applicable") or script["known"]:
        return ""
    bad = [case for case in script["cases"] if case["verdict"] == script["verdict"] and not case["known"]]
    case = bad[0]
    verdict = script["verdict"].replace("_", " ")
    where = f"line {case['line_number']}: {case['line']}: {case['what']}" if case["line"] else case["what"]
    return f"{verdict} ({len(bad)} of {len(script['cases'])} cases), {where}, with {case['values'] or 'no values'}; {script['capture']}"


def _after(address):
    """An address of ours for strangers, behind those of the guests."""
    network, _, _ = address.rpartition(".")
    return f"{network}.200"
